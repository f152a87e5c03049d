package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-etl/sluice/connectors"
)

// TestCoordinatorKeepsItsPromises runs a coordinator against a world that fails,
// stalls, crashes it and takes its pipeline away, and compares with what may be.
func TestCoordinatorKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		// A failing property panics, which must not leave its bubble.
		var failure any
		synctest.Test(t, func(*testing.T) {
			defer func() { failure = recover() }()
			w := newWorld()
			m := &machine{w: w}
			defer m.end()
			m.begin(rt)
			for range 4 { // a long life, in which rare things meet
				rt.Repeat(m.actions())
			}
			m.settle(rt)
		})
		// rapid tells failures apart by where they come from, and shrinks to one of the
		// same kind: running out of random data must not look like a failure.
		if fmt.Sprintf("%T", failure) == "rapid.invalidData" {
			panic(failure)
		}
		if failure != nil {
			panic(failure)
		}
	})
}

// machine is the sequence of processes and what is done to them.
type machine struct {
	w *world
	p *process
}

func (m *machine) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"pass time":      m.passTime,
		"ack":            m.ack,
		"ack everything": func(*rapid.T) { m.p.ackAll(0) },
		"ack the newest": func(*rapid.T) { m.p.ackAll(1) },
		"decline":        m.decline,
		"trigger":        m.trigger,
		"trigger again":  m.trigger,
		"fault":          m.fault,
		"hold":           m.hold,
		"let go":         func(*rapid.T) { m.p.release() },
		"end":            m.endLife,
		"":               m.check,
	}
}

func (m *machine) begin(rt *rapid.T) {
	cfg := Config{
		Interval: time.Duration(rapid.IntRange(0, 3).Draw(rt, "interval")) * 20 * time.Second,
		MinPause: time.Duration(max(rapid.IntRange(-3, 1).Draw(rt, "min pause"), 0)) * 15 * time.Second,
		Timeout:  time.Minute, MaxConcurrent: rapid.IntRange(1, 4).Draw(rt, "max concurrent"),
		TolerableFailures: rapid.IntRange(-1, 3).Draw(rt, "tolerable"),
		Tasks:             taskIDs(3), History: 1000,
	}
	m.p = m.w.newProcess(cfg)
	if len(m.w.complete) == 0 {
		if _, err := m.p.c.WriteInitial(context.Background(), nil); err != nil {
			rt.Fatalf("write the initial checkpoint: %v", err)
		}
		m.p.open = 0
	}
	m.p.start()
	synctest.Wait()
}

func (m *machine) end() {
	if m.p != nil {
		m.p.kill()
	}
}

// endLife crashes the process or has another take over, seldom enough for
// something to happen in between.
func (m *machine) endLife(rt *rapid.T) {
	switch rapid.IntRange(0, 5).Draw(rt, "end") {
	case 0:
		m.w.takeOver()
	case 1:
		m.p.kill()
		m.begin(rt)
	default:
		rt.Skip("it lives on")
	}
}

func (m *machine) passTime(rt *rapid.T) {
	time.Sleep(time.Duration(rapid.IntRange(1, 40).Draw(rt, "seconds")) * time.Second)
}

// pick chooses a barrier that went out and a task that has not acknowledged it,
// also one that was given up.
func (m *machine) pick(rt *rapid.T) (int, ID) {
	type choice struct {
		task int
		id   ID
	}
	var open []choice
	for _, id := range m.p.sent() {
		for task := range 3 {
			if !m.p.hasAcked(task, id.Number) {
				open = append(open, choice{task, id})
			}
		}
	}
	if len(open) == 0 {
		rt.Skip("no barrier is out")
	}
	c := rapid.SampledFrom(open).Draw(rt, "barrier")
	return c.task, c.id
}

func (m *machine) ack(rt *rapid.T) {
	task, id := m.pick(rt)
	m.p.ack(task, id)
}

func (m *machine) decline(rt *rapid.T) {
	task, id := m.pick(rt)
	m.p.c.Decline(TaskID{"chain", task}, id, errors.New("the task declines"))
}

func (m *machine) trigger(rt *rapid.T) {
	kind := rapid.SampledFrom([]Kind{Periodic, Periodic, Periodic, Savepoint, Final}).Draw(rt, "kind")
	p := m.p
	go func() {
		meta, err := p.c.Trigger(context.Background(), Order{Kind: kind})
		if err == nil && !p.w.isProven(meta.Number) {
			p.w.violated("Trigger returned %d, which is not proven", meta.Number)
		}
	}()
}

func (m *machine) hold(rt *rapid.T) {
	m.p.hold(rapid.SampledFrom([]string{"complete", "commit"}).Draw(rt, "what"))
}

func (m *machine) fault(rt *rapid.T) {
	op := rapid.SampledFrom([]string{"claim", "complete", "owner", "commit", "proven", "retain", "abort", "abandon", "remember"}).Draw(rt, "op")
	modes := []fault{{err: errDown}, {err: errDown, late: true}}
	switch op {
	case "complete":
		modes = append(modes, fault{err: fmt.Errorf("%w: %w", ErrNotWritten, errDown)})
	case "commit":
		modes = []fault{{err: connectors.ErrLost}, {err: connectors.ErrFenced}, {err: connectors.ErrAmbiguous, late: true}}
	}
	f := rapid.SampledFrom(modes).Draw(rt, "mode")
	for range rapid.IntRange(1, 3).Draw(rt, "times") {
		m.p.arm(op, f)
	}
}

// check is made after each action: nothing forbidden has happened, and a
// coordinator has ended only for a reason.
func (m *machine) check(rt *rapid.T) {
	synctest.Wait()
	if broken := m.w.violations(); len(broken) > 0 {
		rt.Fatalf("%d violations, the first: %s", len(broken), broken[0])
	}
	s := m.p.c.Stats()
	select {
	case err := <-m.p.result:
		m.p.dead = true
		m.judge(rt, err, s)
		m.begin(rt)
		return
	default:
	}
	if t := m.p.cfg.TolerableFailures; t >= 0 && s.FailedInARow > t {
		rt.Fatalf("it runs on after %d failures in a row, of which %d are tolerable", s.FailedInARow, t)
	}
	open, final := uint64(0), false
	for i, h := range s.History {
		if h.Status == InProgress || h.Status == Committing {
			open++
			final = final || h.Kind == Final
		}
		if i > 0 && h.ID.Number >= s.History[i-1].ID.Number {
			rt.Fatalf("number %d came after %d", s.History[i-1].ID.Number, h.ID.Number)
		}
	}
	if final && open > 1 {
		rt.Fatalf("%d are in flight beside a final one", open-1)
	}
	if open > uint64(m.p.c.cfg.MaxConcurrent) || open+s.Completed+s.Failed+s.Subsumed != s.Triggered {
		rt.Fatalf("%d in flight of at most %d; of %d triggered %d completed, %d failed, %d were subsumed",
			open, m.p.c.cfg.MaxConcurrent, s.Triggered, s.Completed, s.Failed, s.Subsumed)
	}
}

// judge decides whether a coordinator had reason to end with err.
func (m *machine) judge(rt *rapid.T, err error, s Stats) {
	p := m.p
	ok := false
	switch {
	case errors.Is(err, connectors.ErrFenced):
		ok = m.w.newestGeneration() > p.gen
	case errors.Is(err, ErrTooManyFailures):
		// A proof that was on its way when it happened may have reset the row since.
		ok = p.cfg.TolerableFailures >= 0 && s.Failed > uint64(p.cfg.TolerableFailures)
	case errors.Is(err, ErrUnknownOutcome):
		ok = p.fired("complete")
	case errors.Is(err, connectors.ErrLost), errors.Is(err, connectors.ErrAmbiguous):
		ok = p.fired("commit")
	case err != nil:
		ok = p.fired("commit") // refused by the sink without a newer owner
	}
	if !ok {
		rt.Fatalf("Run ended with %v", err)
	}
}

// settle ends all trouble, after which a checkpoint must succeed.
func (m *machine) settle(rt *rapid.T) {
	m.check(rt)
	m.p.calm()
	if m.w.newestGeneration() > m.p.gen {
		return
	}
	var meta *Metadata
	done := make(chan error, 1)
	go func() {
		var err error
		meta, err = m.p.c.Trigger(context.Background(), Order{Kind: Periodic})
		done <- err
	}()
	for range 3600 {
		m.p.ackAll(0)
		synctest.Wait()
		select {
		case <-done:
			m.check(rt)
			if meta != nil || m.p.dead {
				return
			}
			rt.Fatal("a checkpoint without trouble failed")
		case err := <-m.p.result:
			m.p.dead = true
			m.judge(rt, err, m.p.c.Stats())
			return
		case <-time.After(time.Second):
		}
	}
	rt.Fatalf("no checkpoint completes although all trouble has ended: %+v", m.p.c.Stats())
}

// committablesFault tells what is wrong with the list of a checkpoint, given what
// each task has prepared up to it and nobody has published.
func committablesFault(m *Metadata, owed []connectors.Committable) string {
	listed := map[string]bool{}
	for i := range m.Committables {
		c := &m.Committables[i]
		k := committableKey(c)
		if listed[k] {
			return fmt.Sprintf("%s/%d is listed twice", c.Committer, c.Checkpoint.Number)
		}
		listed[k] = true
		if i == 0 {
			continue
		}
		before := &m.Committables[i-1]
		if before.Expires.IsZero() && !c.Expires.IsZero() {
			return "one that can expire is not first"
		}
		if before.Expires.IsZero() == c.Expires.IsZero() && before.Checkpoint.Number > c.Checkpoint.Number {
			return "they are out of order"
		}
	}
	i := slices.IndexFunc(owed, func(c connectors.Committable) bool { return !listed[committableKey(&c)] })
	if i >= 0 {
		return fmt.Sprintf("%s/%d is missing", owed[i].Committer, owed[i].Checkpoint.Number)
	}
	return ""
}
