package connectortest

import (
	"context"
	"slices"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// Faults of a sink that writes at once. They show where changes come again.
const (
	addsAgain   fault = "adds a row when a change of it comes again"
	deletesOnce fault = "does not repeat a delete"
)

// atOnce is the smallest sink whose rows are out when a write returns: at least once, and
// by key where they change each other.
type atOnce struct {
	shelf *shelf
	fault fault
	done  map[string]bool // changes that the target has seen
}

func (s *atOnce) Guarantee() connectors.Guarantee                  { return connectors.AtLeastOnce }
func (s *atOnce) Open(context.Context, connectors.SinkEnv) error   { return nil }
func (s *atOnce) Start(context.Context, connectors.Restored) error { return nil }
func (s *atOnce) Writer(int) (connectors.Writer, error)            { return s, nil }
func (s *atOnce) Tick(context.Context, time.Time) error            { return nil }
func (s *atOnce) Close() error                                     { return nil }

func (s *atOnce) Barrier(context.Context, connectors.Barrier) (connectors.Prepare, error) {
	return func(context.Context, connectors.CheckpointFiles) (connectors.Prepared, error) {
		return connectors.Prepared{}, nil
	}, nil
}

func (s *atOnce) Write(_ context.Context, rows *connectors.Rows) error {
	return s.shelf.request(func() {
		for i, v := range rows.Values {
			s.apply(string(rows.Record(i).Key), string(v), v == nil)
		}
	})
}

func (s *atOnce) apply(group, value string, remove bool) {
	again := s.done[group+value]
	s.done[group+value] = true
	switch {
	case remove && again && s.fault == deletesOnce:
	case remove:
		delete(s.shelf.changed, group)
	case again && s.fault == addsAgain:
		s.shelf.changed[group+" again"] = value
	default:
		s.shelf.out = append(s.shelf.out, value)
		s.shelf.changed[group] = value
	}
}

// atOnceModel is a target of such a sink.
func atOnceModel(f fault) Sink {
	target, seen := modelTarget(), map[string]bool{}
	fresh := func() (connectors.Sink, error) { return &atOnce{target, f, seen}, nil }
	s := target.sink(fresh)
	s.Ordered, s.Poison = false, nil // what comes again does so behind what is there
	s.Without = map[string]string{WithoutPoison: "it takes all", WithoutCrashPoints: "nothing of it is durable but the target"}
	return s
}

// modelTarget is an empty target.
func modelTarget() *shelf {
	return &shelf{staged: map[int]staged{}, late: map[int]connectors.Record{}, changed: map[string]string{}}
}

// sink is a sink under test over the target, with all hooks.
func (s *shelf) sink(fresh func() (connectors.Sink, error)) Sink {
	locked := func(do func()) {
		s.mu.Lock()
		defer s.mu.Unlock()
		do()
	}
	return Sink{
		New: fresh,
		Read: func(context.Context) (out []string, _ error) {
			locked(func() { out = slices.Clone(s.out) })
			return out, nil
		},
		Ordered: true,
		Timeout: 5 * time.Second,
		Network: &Network{
			Down:      func(down bool) { locked(func() { s.down = down }) },
			Requests:  func() (n int) { locked(func() { n = s.requests }); return n },
			LoseReply: func(n int) { locked(func() { s.lose = n }) },
			Throttle:  func(n int) { locked(func() { s.putOff = n }) },
		},
		Poison: func(int, int) string { return `{"poison":true}` },
		Updating: &Updating{Mode: connectors.Upserts, New: fresh, Read: func(context.Context) (out []string, _ error) {
			locked(func() {
				for _, v := range s.changed {
					out = append(out, v)
				}
			})
			return out, nil
		}},
		Virtual: true,
	}
}
