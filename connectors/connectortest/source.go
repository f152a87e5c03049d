package connectortest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// Source is a bounded source under test.
type Source struct {
	// New makes the source anew, as a process that starts does.
	New func() (connectors.Source, error)
	// Want holds the values of each split, by the split's ID, in their order.
	Want map[string][]string
	// Timeout bounds each check, 30s if 0: a source that hangs fails.
	Timeout time.Duration
}

// maxRestores bounds from how many positions the suite restores.
const maxRestores = 40

// TestSource runs every check of the contract of sources.
func TestSource(t *testing.T, fresh func(t *testing.T) Source) {
	for _, c := range sourceChecks {
		t.Run(c.name, func(t *testing.T) {
			if err := runSourceCheck(c, fresh(t)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

type sourceCheck struct {
	name string
	run  func(ctx context.Context, s *Source) error
}

func runSourceCheck(c sourceCheck, s Source) error {
	timeout := s.Timeout
	if timeout == 0 {
		timeout = 30 * time.Second
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return c.run(ctx, &s)
}

var sourceChecks = []sourceCheck{
	{"reads each split in order to its end", func(ctx context.Context, s *Source) error { return s.readAll(ctx, 1) }},
	{"is shared out to several readers", func(ctx context.Context, s *Source) error { return s.readAll(ctx, 3) }},
	{"takes splits that are added later", addLater},
	{"goes on from every position", goOnFrom},
	{"restores at its end", restoreEnd},
	{"loses nothing when polls are cancelled", cancelPolls},
	{"leaves batches alone until they are recycled", holdBatches},
	{"knows when a split is read to its end", tellProgress},
	{"leaves out paused splits until they go on", pauseSplits},
}

// progress is what was read so far.
type progress struct {
	splits []connectors.Split // at their positions
	values map[string][]string
	before map[string]int64 // positions, by split
}

func newProgress(splits []connectors.Split) *progress {
	p := &progress{splits: slices.Clone(splits), values: map[string][]string{}, before: map[string]int64{}}
	for _, s := range splits {
		p.before[s.ID] = s.Offset
	}
	return p
}

// take adds a batch of a reader's split and checks its form.
func (p *progress) take(r connectors.Reader, b *connectors.Batch, dealt []int) error {
	if b.Split < 0 || b.Split >= len(dealt) {
		return fmt.Errorf("a batch is of split %d, the reader has %d", b.Split, len(dealt))
	}
	at := dealt[b.Split]
	id := p.splits[at].ID
	if len(b.Records) > connectors.MaxBatch {
		return fmt.Errorf("a batch has %d records", len(b.Records))
	}
	next := p.before[id]
	for i := range b.Records {
		rec := &b.Records[i]
		if rec.Origin == nil {
			return fmt.Errorf("a record of %s has no origin", id)
		}
		if rec.Offset < next {
			return fmt.Errorf("split %s: a record has offset %d after position %d", id, rec.Offset, next)
		}
		next = rec.Offset + 1
		p.values[id] = append(p.values[id], string(rec.Value))
	}
	if b.Next < next {
		return fmt.Errorf("split %s: a batch leads to position %d, which is before %d", id, b.Next, next)
	}
	p.before[id] = b.Next
	moved := r.Position(b.Split, b.Next)
	if moved.ID != id || moved.Offset != b.Next {
		return fmt.Errorf("split %s at %d is told as split %s at %d", id, b.Next, moved.ID, moved.Offset)
	}
	p.splits[at] = moved
	return nil
}

// open makes the source and its splits, restored from JSON where they are given.
func (s *Source) open(ctx context.Context, restored []connectors.Split) (connectors.Source, []connectors.Split, error) {
	src, err := s.New()
	if err != nil {
		return nil, nil, fmt.Errorf("make the source: %w", err)
	}
	if restored != nil {
		// The engine keeps the highest event time of a split beside its position.
		restored = slices.Clone(restored)
		for i := range restored {
			restored[i].MaxTime = &maxTime
		}
		raw, err := json.Marshal(restored)
		if err != nil {
			return nil, nil, fmt.Errorf("write splits: %w", err)
		}
		restored = nil
		if err := json.Unmarshal(raw, &restored); err != nil {
			return nil, nil, fmt.Errorf("read splits: %w", err)
		}
	}
	splits, err := src.Splits(ctx, restored)
	if err != nil {
		return nil, nil, fmt.Errorf("list splits: %w", err)
	}
	for i := range restored {
		if len(splits) < len(restored) || splits[i].ID != restored[i].ID || splits[i].Offset != restored[i].Offset {
			return nil, nil, fmt.Errorf("restored splits %+v became %+v", restored, splits)
		}
		if t := splits[i].MaxTime; t == nil || *t != maxTime {
			return nil, nil, fmt.Errorf("the MaxTime of restored split %s is lost", splits[i].ID)
		}
	}
	return src, splits, nil
}

// maxTime is the MaxTime of restored splits.
var maxTime int64 = -7

func reader(src connectors.Source, splits []connectors.Split) (connectors.Reader, error) {
	return src.Reader(connectors.ReaderEnv{
		Subtasks: 1, Budget: 8 << 20, Batches: connectors.NewBatchPool(8),
	}, splits)
}

// each polls a reader to its end.
func each(ctx context.Context, r connectors.Reader, do func(b *connectors.Batch) (stop bool, err error)) error {
	for {
		b, err := r.Poll(ctx)
		if errors.Is(err, io.EOF) {
			if _, err := r.Poll(ctx); !errors.Is(err, io.EOF) {
				return fmt.Errorf("a poll after the end says %w", err)
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("poll: %w", err)
		}
		stop, err := do(b)
		if err != nil || stop {
			return err
		}
	}
}

// rest reads all that is left with one reader.
func (p *progress) rest(ctx context.Context, src connectors.Source) error {
	r, err := reader(src, p.splits)
	if err != nil {
		return fmt.Errorf("make a reader: %w", err)
	}
	err = each(ctx, r, func(b *connectors.Batch) (bool, error) {
		defer b.Recycle()
		return false, p.take(r, b, all(len(p.splits)))
	})
	return errors.Join(err, r.Close())
}

func all(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

func (s *Source) compare(p *progress) error {
	for id, want := range s.Want {
		got := p.values[id]
		for i := range min(len(got), len(want)) {
			if got[i] != want[i] {
				return fmt.Errorf("split %s: record %d is %.80q, want %.80q", id, i, got[i], want[i])
			}
		}
		if len(got) != len(want) {
			return fmt.Errorf("split %s: %d records, want %d", id, len(got), len(want))
		}
	}
	for id := range p.values {
		if _, ok := s.Want[id]; !ok {
			return fmt.Errorf("split %s is not wanted", id)
		}
	}
	return nil
}

// readAll deals the splits to readers, which read one after the other.
func (s *Source) readAll(ctx context.Context, readers int) error {
	src, splits, err := s.open(ctx, nil)
	if err != nil {
		return err
	}
	p := newProgress(splits)
	for n := range readers {
		var dealt []int
		var mine []connectors.Split
		for i := n; i < len(splits); i += readers {
			dealt, mine = append(dealt, i), append(mine, splits[i])
		}
		r, err := reader(src, mine)
		if err != nil {
			return fmt.Errorf("make a reader: %w", err)
		}
		err = each(ctx, r, func(b *connectors.Batch) (bool, error) {
			defer b.Recycle()
			return false, p.take(r, b, dealt)
		})
		if err := errors.Join(err, r.Close()); err != nil {
			return err
		}
	}
	return errors.Join(s.compare(p), src.Close())
}

func addLater(ctx context.Context, s *Source) error {
	src, splits, err := s.open(ctx, nil)
	if err != nil {
		return err
	}
	p := newProgress(splits)
	r, err := reader(src, splits[:1])
	if err != nil {
		return fmt.Errorf("make a reader: %w", err)
	}
	added := false
	err = each(ctx, r, func(b *connectors.Batch) (bool, error) {
		defer b.Recycle()
		if !added {
			added = true
			if err := r.Add(splits[1:]); err != nil {
				return false, fmt.Errorf("add splits: %w", err)
			}
		}
		return false, p.take(r, b, all(len(splits)))
	})
	if !added {
		return errors.Join(err, r.Close(), src.Close()) // the first split is empty
	}
	return errors.Join(err, s.compare(p), r.Close(), src.Close())
}

// goOnFrom stops after some number of batches and restores from there, for every
// number or many of them.
func goOnFrom(ctx context.Context, s *Source) error {
	batches := 0
	if err := s.partly(ctx, -1, &batches); err != nil {
		return err
	}
	for n := 0; n < batches; n += 1 + batches/maxRestores {
		if err := s.partly(ctx, n, nil); err != nil {
			return fmt.Errorf("restored after %d batches: %w", n, err)
		}
	}
	return nil
}

// partly reads n batches, all if n is negative, and the rest from a restore.
func (s *Source) partly(ctx context.Context, n int, batches *int) error {
	src, splits, err := s.open(ctx, nil)
	if err != nil {
		return err
	}
	p := newProgress(splits)
	r, err := reader(src, splits)
	if err != nil {
		return fmt.Errorf("make a reader: %w", err)
	}
	read := 0
	if n != 0 {
		err = each(ctx, r, func(b *connectors.Batch) (bool, error) {
			defer b.Recycle()
			read++
			return read == n, p.take(r, b, all(len(splits)))
		})
	}
	if err := errors.Join(err, r.Close(), src.Close()); err != nil {
		return err
	}
	if batches != nil {
		*batches = read
	}
	if src, p.splits, err = s.open(ctx, p.splits); err != nil {
		return err
	}
	return errors.Join(p.rest(ctx, src), s.compare(p), src.Close())
}

func restoreEnd(ctx context.Context, s *Source) error {
	src, splits, err := s.open(ctx, nil)
	if err != nil {
		return err
	}
	p := newProgress(splits)
	if err := errors.Join(p.rest(ctx, src), src.Close()); err != nil {
		return err
	}
	if src, p.splits, err = s.open(ctx, p.splits); err != nil {
		return err
	}
	return errors.Join(p.rest(ctx, src), s.compare(p), src.Close())
}

// cancelPolls polls with a context that is over, or soon is, before each batch.
func cancelPolls(ctx context.Context, s *Source) error {
	src, splits, err := s.open(ctx, nil)
	if err != nil {
		return err
	}
	p := newProgress(splits)
	r, err := reader(src, splits)
	if err != nil {
		return fmt.Errorf("make a reader: %w", err)
	}
	take := func(b *connectors.Batch) (bool, error) {
		defer b.Recycle()
		for _, wait := range []time.Duration{0, time.Microsecond, time.Millisecond} {
			short, cancel := context.WithTimeout(ctx, wait)
			more, err := r.Poll(short)
			cancel()
			switch {
			case err == nil:
				err = p.take(r, more, all(len(splits)))
				more.Recycle()
			case errors.Is(err, context.DeadlineExceeded), errors.Is(err, io.EOF):
				err = nil
			}
			if err != nil {
				return false, fmt.Errorf("poll with a context that ends: %w", err)
			}
		}
		return false, nil
	}
	err = each(ctx, r, func(b *connectors.Batch) (bool, error) {
		if err := p.take(r, b, all(len(splits))); err != nil {
			return false, err
		}
		return take(b)
	})
	return errors.Join(err, s.compare(p), r.Close(), src.Close())
}

// holdBatches recycles each batch only when the three after it were polled.
func holdBatches(ctx context.Context, s *Source) error {
	src, splits, err := s.open(ctx, nil)
	if err != nil {
		return err
	}
	p := newProgress(splits)
	r, err := reader(src, splits)
	if err != nil {
		return fmt.Errorf("make a reader: %w", err)
	}
	var held []*connectors.Batch
	release := func() error {
		b := held[0]
		held = held[1:]
		defer b.Recycle()
		return p.take(r, b, all(len(splits)))
	}
	err = each(ctx, r, func(b *connectors.Batch) (bool, error) {
		if held = append(held, b); len(held) > 3 {
			return false, release()
		}
		return false, nil
	})
	for len(held) > 0 && err == nil {
		err = release()
	}
	return errors.Join(err, s.compare(p), r.Close(), src.Close())
}
