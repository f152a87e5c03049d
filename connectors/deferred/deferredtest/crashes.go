package deferredtest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/connectortest"
)

// Target is a table with a column id that refuses ids which end in 2, at the commit.
type Target struct {
	New func() connectors.TwoPhaseSink
	// Read gives the ids, in order.
	Read func() []string
}

// checkpoints is how many a run without a crash takes.
const checkpoints = 3

// Crashes ends the process at each of its failpoints, once in each run, and goes on with
// another one: every row must be in the table once, and every refused one handed over once.
func Crashes(t *testing.T, fresh func(t *testing.T) Target) {
	t.Helper()
	reached := map[string]bool{}
	for k := 0; ; k++ {
		h := &history{t: t, target: fresh(t), files: &connectortest.Files{}, handed: map[string]int{}, reached: reached}
		h.left = k
		for h.next <= checkpoints {
			h.generation++
			h.process()
		}
		h.check(k)
		if h.left >= 0 { // the run was over before
			break
		}
	}
	if len(reached) < 6 {
		t.Errorf("failpoints reached: %v", slices.Sorted(maps.Keys(reached)))
	}
}

// history is what outlives the processes of one run.
type history struct {
	t          *testing.T
	target     Target
	files      *connectortest.Files
	generation uint64
	next       int // the checkpoint that comes next, from 0 on
	number     uint64
	complete   []connectors.Committable // of the newest complete checkpoint
	handed     map[string]int           // refused rows that are in complete checkpoints
	left       int                      // failpoints to pass before the crash; -1 after it
	at         string
	reached    map[string]bool
}

type crash struct{}

// process runs until the end or the crash.
func (h *history) process() {
	r := &Run{T: h.t, Sink: h.target.New(), Files: h.files}
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(crash); !ok {
				panic(p)
			}
		}
		r.Stop()
	}()
	env := Env(h.files, h.generation)
	env.Failpoint = func(name string) {
		h.reached[name] = true
		if h.left == 0 {
			h.left, h.at = -1, name
			panic(crash{})
		}
		if h.left > 0 {
			h.left--
		}
	}
	r.Must(r.Sink.Open(h.t.Context(), env))
	r.ID = connectors.CheckpointID{Generation: h.generation, Number: h.number}
	r.Resume(h.complete...)
	for h.next <= checkpoints {
		if h.next < checkpoints { // the last one only hands over what is left
			for i := range 4 {
				if refused := r.Values(fmt.Sprintf(`{"id": %d}`, 10*h.next+i)); refused != nil {
					h.t.Fatalf("refused %+v", refused)
				}
			}
		}
		rows := r.Tick()
		coms := r.Prepare()
		h.complete, h.number = coms, r.ID.Number
		h.next++
		for _, rej := range rows {
			h.handed[string(rej.Record.Value)]++
		}
		r.Commit(coms, false)
	}
}

func (h *history) check(k int) {
	h.t.Helper()
	var want []string
	for c := range checkpoints {
		for i := range 4 {
			id := strconv.Itoa(10*c + i)
			if i != 2 {
				want = append(want, id)
			} else if n := h.handed[`{"id": `+id+`}`]; n != 1 {
				h.t.Errorf("crash %d at %s: the refused row %s is handed over %d times", k, h.at, id, n)
			}
		}
	}
	if got := h.target.Read(); !slices.Equal(got, want) {
		h.t.Errorf("crash %d at %s: rows %v, want %v", k, h.at, got, want)
	}
}
