package kafka

import (
	"errors"
	"flag"
	"slices"
	"strconv"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
	"pgregory.net/rapid"

	"github.com/sluice-etl/sluice/connectors"
)

// story is a pipeline that counts up into a topic, through crashes at any place,
// as an engine would drive it: a checkpoint holds how far it had counted and its
// committables, and a process goes on from the newest complete one.
type story struct {
	t          *rapid.T
	tb         testing.TB
	brokers    []string
	out        string
	net        *faultyNet
	generation uint64
	number     uint64
	p          *run
	older      []*run // processes that were replaced and do not know it
	olderHold  [][]connectors.Committable
	next       int // value to write
	completed  []completed
	pending    []connectors.Committable // prepared, of no complete checkpoint
}

type completed struct {
	id           connectors.CheckpointID
	next         int
	committables []connectors.Committable
	proven       bool
}

func (s *story) newest() *completed { return &s.completed[len(s.completed)-1] }

// restart begins a process that goes on from the newest complete checkpoint.
func (s *story) restart() {
	s.generation++
	s.p = process(s.tb, s.brokers, 2, s.net.use, s.out)
	var keep []connectors.Committable
	if len(s.completed) > 0 {
		r := s.newest()
		s.commit(s.p, r, true)
		s.next, s.number = r.next, r.id.Number
		keep = r.committables
	} else {
		s.next = 0
	}
	s.p.start(2, keep)
}

func (s *story) commit(p *run, c *completed, restored bool) {
	for _, one := range c.committables {
		if err := p.commit.Commit(testContext(s.tb), one, restored); err != nil {
			s.t.Fatalf("commit %+v: %v", one, err)
		}
	}
	c.proven = true
	p.commit.Done(c.id)
}

func (s *story) write(n int) {
	for range n {
		if err := s.p.writers[s.next%2].Write(testContext(s.tb), rowsOf(strconv.Itoa(s.next))); err != nil {
			s.t.Fatalf("write: %v", err)
		}
		s.next++
	}
}

// checkpoint takes one up to a step: 1 prepared, 2 complete, 3 committed.
func (s *story) checkpoint(step int) {
	s.number++
	got, err := s.p.checkpoint(s.generation, s.number)
	if err != nil {
		s.t.Fatalf("checkpoint %d: %v", s.number, err)
	}
	cs := committables(got)
	if step < 2 {
		s.pending = cs
		return
	}
	s.completed = append(s.completed, completed{connectors.CheckpointID{Generation: s.generation, Number: s.number}, s.next, cs, false})
	s.pending = nil
	if step == 3 {
		s.commit(s.p, s.newest(), false)
	}
}

// replaced leaves the process running while another takes over.
func (s *story) replaced() {
	s.older = append(s.older, s.p)
	s.olderHold = append(s.olderHold, slices.Clone(s.pending))
	s.pending = nil
	s.restart()
	// It wakes up and commits what it holds.
	for i, p := range s.older {
		for _, c := range s.olderHold[i] {
			if c.Empty || s.holds(c) {
				continue // nothing, or what the newer process committed
			}
			if err := p.commit.Commit(testContext(s.tb), c, false); err == nil || !errors.Is(err, connectors.ErrFenced) && !errors.Is(err, connectors.ErrAmbiguous) {
				s.t.Fatalf("an older process commits what no checkpoint holds: %v", err)
			}
		}
		s.olderHold[i] = nil
	}
}

// holds reports whether a complete checkpoint holds a committable.
func (s *story) holds(c connectors.Committable) bool {
	for _, done := range s.completed {
		if slices.ContainsFunc(done.committables, func(d connectors.Committable) bool { return d.Checkpoint == c.Checkpoint }) {
			return true
		}
	}
	return false
}

func (s *story) close() {
	for _, p := range append(s.older, s.p) {
		p.stop()
	}
}

func tell(tb testing.TB, brokers []string) {
	rapid.Check(tb.(rapid.TB), func(t *rapid.T) {
		s := &story{t: t, tb: tb, brokers: brokers, out: topic(tb, brokers, 2, nil), net: &faultyNet{}}
		s.restart()
		defer func() { s.close() }()
		failed := 0
		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) { s.write(rapid.IntRange(1, 20).Draw(t, "n")) },
			"checkpoint": func(t *rapid.T) {
				step := rapid.IntRange(1, 3).Draw(t, "step")
				if len(s.completed) > 0 && !s.newest().proven {
					step = 1 // the next one is not triggered before: it goes on by a crash
				}
				if step == 1 {
					if failed == 3 {
						t.Skip("more failed attempts than are tolerated")
					}
					failed++
				} else {
					failed = 0
				}
				s.net.lose(rapid.IntRange(0, 2).Draw(t, "requests"), rapid.IntRange(0, 2).Draw(t, "replies"))
				s.checkpoint(step)
				s.net.lose(0, 0)
			},
			"crash": func(t *rapid.T) {
				s.p.stop()
				s.pending, failed = nil, 0
				s.net.lose(rapid.IntRange(0, 1).Draw(t, "requests"), rapid.IntRange(0, 1).Draw(t, "replies"))
				s.restart()
				s.net.lose(0, 0)
			},
			"replaced": func(t *rapid.T) {
				s.replaced()
				failed = 0
			},
			"": func(t *rapid.T) {},
		})
		s.replaced()
		var want []string
		if len(s.completed) > 0 {
			want = numbers(0, s.newest().next)
		}
		got := stored(tb, brokers, s.out, kgo.ReadCommitted())
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("the topic holds %d values, %d wanted: %s", len(got), len(want), difference(got, want))
		}
	})
}

func TestExactlyOnceThroughCrashesAtAnyPlace(t *testing.T) {
	// A story takes a tenth of a second. -rapid.checks asks for more of them.
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		if err := flag.Set("rapid.checks", "15"); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := flag.Set("rapid.checks", f.DefValue); err != nil {
				t.Error(err)
			}
		}()
	}
	for name, opts := range map[string][]kfake.Opt{
		"new transactions": nil, "old transactions": {kfake.MaxVersions(kversion.V3_7_0())},
	} {
		t.Run(name, func(t *testing.T) {
			_, brokers := fake(t, opts...)
			tell(t, brokers)
		})
	}
}
