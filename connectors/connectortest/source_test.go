package connectortest

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// list is a source over slices, wrong on request.
type list struct {
	values map[string][]string
	order  []string
	fault  fault
}

const (
	skipsOnRestore fault = "begins one too late after a restore"
	repeatsRecord  fault = "hands a record out twice at the border of batches"
	losesOnCancel  fault = "loses a batch when a poll is cancelled"
	reusesMemory   fault = "writes into batches that it handed out"
	neverEnds      fault = "does not end"
	forgetsSplit   fault = "does not take added splits"
	forgetsTime    fault = "does not keep the highest event time"
	earlyAtEnd     fault = "tells of the end before it is there"
	neverAtEnd     fault = "never tells of the end"
	ignoresPause   fault = "reads what is paused"
	endsPaused     fault = "ends while a split is paused"
	forgetsPaused  fault = "does not go on with what was paused"
)

func (l *list) Splits(_ context.Context, restored []connectors.Split) ([]connectors.Split, error) {
	if restored != nil {
		if l.fault == forgetsTime {
			for i := range restored {
				restored[i].MaxTime = nil
			}
		}
		return restored, nil
	}
	var out []connectors.Split
	for _, id := range l.order {
		out = append(out, connectors.Split{ID: id, Until: int64(len(l.values[id]))})
	}
	return out, nil
}
func (l *list) Discover(context.Context, []connectors.Split) ([]connectors.Split, error) {
	return nil, nil
}
func (l *list) Reader(env connectors.ReaderEnv, splits []connectors.Split) (connectors.Reader, error) {
	r := &listReader{list: l, env: env}
	return r, r.Add(splits)
}
func (l *list) Committed(context.Context, []connectors.Split) error { return nil }
func (l *list) Close() error                                        { return nil }

type listReader struct {
	list   *list
	env    connectors.ReaderEnv
	splits []connectors.Split
	next   []int64
	paused []int
	buf    []byte
}

func (r *listReader) CaughtUp(split int) bool {
	switch r.list.fault {
	case earlyAtEnd:
		return r.next[split]+10 >= r.splits[split].Until
	case neverAtEnd:
		return false
	}
	return r.next[split] >= r.splits[split].Until
}

func (r *listReader) Pause(paused []int) {
	if r.list.fault != forgetsPaused || len(paused) > 0 {
		r.paused = slices.Clone(paused)
	}
}

func (r *listReader) Add(splits []connectors.Split) error {
	if r.list.fault == forgetsSplit && len(r.splits) > 0 {
		return nil
	}
	for _, s := range splits {
		next := s.Offset
		if r.list.fault == skipsOnRestore && next > 0 {
			next++
		}
		r.splits, r.next = append(r.splits, s), append(r.next, next)
	}
	return nil
}

func (r *listReader) Poll(ctx context.Context) (*connectors.Batch, error) {
	if ctx.Err() != nil && r.list.fault != losesOnCancel {
		return nil, ctx.Err()
	}
	waits := false
	for i, s := range r.splits {
		if r.next[i] >= s.Until {
			continue
		}
		if slices.Contains(r.paused, i) && r.list.fault != ignoresPause {
			waits = r.list.fault != endsPaused
			continue
		}
		b := r.env.Batches.Get()
		origin := &connectors.Origin{Topic: s.ID}
		if r.list.fault != reusesMemory {
			r.buf = nil
		}
		r.buf = r.buf[:0]
		for r.next[i] < s.Until && len(b.Records) < 10 {
			at := len(r.buf)
			r.buf = append(r.buf, r.list.values[s.ID][r.next[i]]...)
			b.Records = append(b.Records, connectors.Record{Value: r.buf[at:], Origin: origin, Offset: r.next[i]})
			r.next[i]++
		}
		b.Split, b.Next = i, r.next[i]
		if r.list.fault == repeatsRecord {
			b.Next--
		}
		if r.list.fault == losesOnCancel && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return b, nil
	}
	if r.list.fault == neverEnds || waits {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return nil, io.EOF
}

func (r *listReader) Position(split int, next int64) connectors.Split {
	s := r.splits[split]
	s.Offset = next
	return s
}

func (r *listReader) Close() error { return nil }

func modelSource(f fault) Source {
	l := &list{values: map[string][]string{}, order: []string{"a", "b", "c"}, fault: f}
	for i, id := range l.order {
		for n := range 40 * (i + 1) {
			l.values[id] = append(l.values[id], id+string(rune('0'+n%70)))
		}
	}
	return Source{
		New:     func() (connectors.Source, error) { return l, nil },
		Want:    l.values,
		Timeout: 5 * time.Second,
	}
}

func TestSourceAcceptsAModelSource(t *testing.T) {
	TestSource(t, func(*testing.T) Source { return modelSource(none) })
}

func TestSourceFindsEachPlantedFault(t *testing.T) {
	for _, f := range []fault{skipsOnRestore, repeatsRecord, losesOnCancel, reusesMemory, neverEnds, forgetsSplit, forgetsTime, earlyAtEnd, neverAtEnd, ignoresPause, endsPaused, forgetsPaused} {
		t.Run(string(f), func(t *testing.T) {
			for _, c := range sourceChecks {
				s := modelSource(f)
				if f == neverEnds || f == forgetsPaused {
					s.Timeout = 100 * time.Millisecond
				}
				if runSourceCheck(c, s) != nil {
					return
				}
			}
			t.Errorf("no check finds a source that %s", f)
		})
	}
	if err := runSourceCheck(sourceChecks[0], Source{New: func() (connectors.Source, error) { return nil, errors.New("no") }}); err == nil {
		t.Error("a source that cannot be made passes")
	}
}
