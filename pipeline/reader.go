package pipeline

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
)

// sourceReader is a task's share of a source, with how far it has been read.
type sourceReader struct {
	source *sourceRun
	reader connectors.Reader
	clock  eventClock
	next   []int64    // by split: the position after the last record handed on
	skip   [][]int64  // by split: offsets of records that are left out
	ended  bool       // every split is read to its end
	stop   *stopOrder // of the last barrier that asked to wait
}

// waits says that nothing is read while a stop stands.
func (r *sourceReader) waits() bool { return r.stop.stands() }

func newSourceReader(s *sourceRun, env connectors.ReaderEnv, splits []connectors.Split, clocks *clockGroup) (*sourceReader, error) {
	r, err := s.source.Reader(env, splits)
	if err != nil {
		return nil, err
	}
	w := s.node.spec.Watermark
	if !s.node.timed && !w.Written {
		w.MaxFuture = untimed
	}
	sr := &sourceReader{source: s, reader: r, clock: newSourceClock(s.node.spec.Name, w, r, clocks, s.node.scope)}
	sr.take(splits, time.Now())
	return sr, nil
}

func (r *sourceReader) poll(ctx context.Context) (*connectors.Batch, error) {
	b, err := r.reader.Poll(ctx)
	if err != nil {
		return nil, err
	}
	if b.Split < 0 || b.Split >= len(r.next) || b.Next < r.next[b.Split] {
		b.Recycle()
		return nil, connectors.Permanent(fmt.Errorf("source %s went back from its position", r.source.node.spec.Name))
	}
	var newest *int64
	if n := len(b.Records); n > 0 {
		newest = &b.Records[n-1].Time
	}
	r.clock.given(b.Split, b.Next, newest)
	return b, nil
}

// advance notes that everything before next is handed on. Positions never go back.
func (r *sourceReader) advance(split int, next int64) {
	r.next[split] = max(r.next[split], next)
	r.clock.advance(split, r.next[split])
}

// add takes over further splits.
func (r *sourceReader) add(splits []connectors.Split, now time.Time) error {
	if err := r.reader.Add(splits); err != nil {
		return err
	}
	r.take(splits, now)
	r.ended = false
	return nil
}

func (r *sourceReader) take(splits []connectors.Split, now time.Time) {
	for _, s := range splits {
		r.next, r.skip = append(r.next, s.Offset), append(r.skip, s.Skip)
	}
	r.clock.add(splits, now)
}

// state is the reader's part of a checkpoint.
func (r *sourceReader) state() checkpoint.Ack {
	splits := make([]connectors.Split, len(r.next))
	for i, next := range r.next {
		splits[i] = r.reader.Position(i, next)
		splits[i].MaxTime = r.clock.maxTime(i)
		ahead, _ := slices.BinarySearch(r.skip[i], next)
		splits[i].Skip = r.skip[i][ahead:]
	}
	spec := r.source.node.spec
	return checkpoint.Ack{Operators: []checkpoint.OperatorState{{
		UID: spec.UID, Kind: "source " + spec.Kind, Parallelism: r.source.subtasks, Splits: splits,
	}}}
}
