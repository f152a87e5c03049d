package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/checkpoint/checkpointtest"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/storage/mem"
	"github.com/sluice-etl/sluice/storage/storagetest"
)

// What follows runs random histories: processes of one pipeline start, take checkpoints
// step by step, fall asleep, wake, die and restart, on a storage that fails and lies
// about its outcomes. A sink keeps what was published and refuses what has been
// revoked, as the sinks of this program do.

var discard = slog.New(slog.DiscardHandler)

// published is one commit that the sink took: what a process did from one cut of the
// input to another.
type published struct {
	id       checkpoint.ID
	from, to int // positions in the input
}

// target is an exactly-once sink with a witness.
type target struct {
	generation uint64 // up to which older ones are revoked
	commits    []published
	witness    checkpoint.ID
}

// runner is one process in a history.
type runner struct {
	*process
	store   *checkpoint.Store
	g       uint64 // once taken
	steps   int    // 0: not started, 1: generation taken, 2: running
	pos     int    // position in the input
	cut     int    // position of the last checkpoint in a complete one
	pending *pending
	dead    bool
	from    string // what the user asks for
	claim   bool
	proven  *checkpoint.Metadata // the last one
	pinned  *pinned
}

type pending struct {
	n         uint64
	pos       int
	completed bool
	sunk      bool
	meta      *checkpoint.Metadata
}

type world struct {
	t       *rapid.T
	fs      *storagetest.FaultyFS
	below   *mem.FS
	procs   []*runner
	sink    target
	cuts    map[checkpoint.ID]int // position of each checkpoint
	owner   map[uint64]*runner
	numbers map[string]bool // job and number of each complete checkpoint
	// lists of what a complete checkpoint holds that is not published yet
	held map[checkpoint.ID][]published
	// places of savepoints
	saves savepoints
}

func (w *world) faults(t *rapid.T) {
	p := rapid.SampledFrom([]float64{0, 0.02, 0.2}).Draw(t, "fault probability")
	if p == 0 {
		w.fs.Set()
		return
	}
	w.fs.Set(
		storagetest.Rule{Op: storagetest.OpClaim, Probability: p, Effect: storagetest.FailAfter},
		storagetest.Rule{Op: storagetest.OpClaim, Probability: p},
		storagetest.Rule{Op: storagetest.OpClose, Probability: p, Effect: storagetest.FailAfter},
		storagetest.Rule{Op: storagetest.OpClose, Probability: p},
		storagetest.Rule{Op: storagetest.OpWrite, Probability: p, Effect: storagetest.Partial},
		storagetest.Rule{Op: storagetest.OpOpen, Probability: p},
		storagetest.Rule{Op: storagetest.OpStat, Probability: p},
		storagetest.Rule{Op: storagetest.OpList, Probability: p},
		storagetest.Rule{Op: storagetest.OpRemove, Probability: p, Effect: storagetest.FailAfter},
		storagetest.Rule{Op: storagetest.OpRemoveAll, Probability: p},
	)
}

// behind is what the engine answers from the sink's witness.
func (w *world) behind(s *checkpoint.Store) func(context.Context, checkpoint.ID) (string, error) {
	return func(ctx context.Context, r checkpoint.ID) (string, error) {
		if w.sink.witness == (checkpoint.ID{}) {
			return "", nil
		}
		sv, err := s.Survey(ctx)
		if err != nil || !sv.Owners.Behind(r, w.sink.witness) {
			return "", err
		}
		return fmt.Sprintf("the sink has %v", w.sink.witness), nil
	}
}

func (w *world) runner(t *rapid.T) *runner {
	var live []*runner
	for _, r := range w.procs {
		if !r.dead {
			live = append(live, r)
		}
	}
	if len(live) == 0 {
		t.Skip("nothing runs")
	}
	return live[rapid.IntRange(0, len(live)-1).Draw(t, "process")]
}

// newStart adds a process that takes a generation next.
func (w *world) newStart(t *rapid.T) {
	s, err := checkpoint.NewStore(w.fs, "orders", checkpoint.StoreOptions{Retained: rapid.IntRange(1, 3).Draw(t, "retained"), Log: discard})
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{store: s}
	r.from, r.claim = w.saves.wish(t)
	w.procs = append(w.procs, r)
}

// run does the next things that a process would do.
func (w *world) run(t *rapid.T) {
	r := w.runner(t)
	for range rapid.IntRange(1, 12).Draw(t, "steps") {
		if !r.dead {
			w.step(t, r)
		}
	}
}

func (w *world) step(t *rapid.T, r *runner) {
	switch {
	case r.steps == 0:
		w.take(r)
	case r.steps == 1:
		w.restore(t, r)
	case r.pending == nil:
		w.claim(t, r)
	case !r.pending.completed:
		w.complete(t, r)
	case !r.pending.sunk:
		w.publish(t, r)
	default:
		w.prove(t, r)
	}
}

func (w *world) take(r *runner) {
	ctx := context.Background()
	sv, err := r.store.Survey(ctx)
	if err != nil {
		return
	}
	g, err := r.store.TakeNext(ctx, sv)
	if err != nil {
		return
	}
	if w.owner[g] != nil {
		w.t.Fatalf("generation %d has two owners", g)
	}
	r.g, r.steps = g, 1
	w.owner[g] = r
}

func (w *world) restore(t *rapid.T, r *runner) {
	if r.claim { // also where the answer is lost
		w.saves.claim(r.from)
	}
	p, err := own(context.Background(), r.store, r.g, checkpoint.Request{From: r.from, Claim: r.claim, Behind: w.behind(r.store)})
	if connectors.IsPermanent(err) {
		r.dead = true // a person is needed
		return
	}
	if err != nil {
		return
	}
	if err := r.store.CheckOwner(context.Background(), r.g); err != nil {
		r.dead = errors.Is(err, connectors.ErrFenced)
		return
	}
	r.process, r.steps = p, 2
	if p.r.NewJob && w.chosenByUser(t, p.r.Job) {
		w.rollBack(t, r)
		return
	}
	if p.r.Meta != nil {
		from := p.r.Meta.ID()
		cut, known := w.cuts[from]
		if !known {
			t.Fatalf("it restored %v, which nobody wrote", from)
		}
		r.pos, r.cut = cut, cut
		// Resolve what the checkpoint holds, then revoke the rest.
		if len(p.r.Meta.Committables) > 0 {
			for _, c := range w.held[from] {
				w.commit(t, r, c)
			}
		}
	}
	w.sink.generation = max(w.sink.generation, r.g)
}

// commit publishes as the sink does: nothing twice, and nothing of who was revoked.
func (w *world) commit(t *rapid.T, by *runner, c published) bool {
	for _, done := range w.sink.commits {
		if done.id == c.id {
			return true
		}
	}
	if by.g < w.sink.generation {
		return false // fenced by the sink itself
	}
	last := 0
	if n := len(w.sink.commits); n > 0 {
		last = w.sink.commits[n-1].to
	}
	if c.from != last {
		t.Fatalf("generation %d publishes %v, but the sink is at %d: lost or twice\n%v", by.g, c, last, w.sink.commits)
	}
	w.sink.commits = append(w.sink.commits, c)
	w.sink.witness = c.id
	return true
}

func (w *world) claim(t *rapid.T, r *runner) {
	n := r.next
	r.next++
	mine, err := r.job.Claim(context.Background(), n)
	if errors.Is(err, connectors.ErrFenced) {
		r.dead = true
		return
	}
	if err == nil && mine {
		r.pos += rapid.IntRange(1, 5).Draw(t, "records")
		r.pending = &pending{n: n, pos: r.pos}
	}
}

func (w *world) complete(t *rapid.T, r *runner) {
	ctx := context.Background()
	p := r.pending
	this := checkpoint.ID{Generation: r.g, Number: p.n}
	m, err := r.metadata(ctx, p.n)
	if err != nil {
		return // tried again
	}
	if rapid.IntRange(0, 3).Draw(t, "for a savepoint") == 0 {
		m.Kind = checkpoint.Savepoint
	}
	w.cuts[this] = p.pos
	w.held[this] = []published{{id: this, from: r.cut, to: p.pos}}
	err = r.job.Complete(ctx, m)
	if err != nil {
		if connectors.IsPermanent(err) {
			t.Fatalf("complete: %v", err)
		}
		r.dead = true // as the coordinator does when it cannot find out
		return
	}
	w.completed(t, r, m)
}

func (w *world) completed(t *rapid.T, r *runner, m *checkpoint.Metadata) {
	key := fmt.Sprint(m.Job, m.Number)
	if w.numbers[key] {
		t.Fatalf("number %d of job %s is used twice", m.Number, m.Job)
	}
	w.numbers[key] = true
	r.pending.completed, r.pending.meta = true, m
	r.cut = r.pending.pos
}

func (w *world) publish(t *rapid.T, r *runner) {
	err := r.job.CheckOwner(context.Background())
	if errors.Is(err, connectors.ErrFenced) {
		r.dead = true
		return
	}
	if err != nil {
		return
	}
	for _, c := range w.held[checkpoint.ID{Generation: r.g, Number: r.pending.n}] {
		if !w.commit(t, r, c) {
			r.dead = true
			return
		}
	}
	r.pending.sunk = true
}

func (w *world) prove(t *rapid.T, r *runner) {
	err := r.job.Proven(context.Background(), r.pending.n)
	if errors.Is(err, connectors.ErrFenced) {
		r.dead = true
		return
	}
	if err != nil {
		return
	}
	r.proven, r.pending = r.pending.meta, nil
	if err := r.job.Retain(context.Background()); errors.Is(err, connectors.ErrFenced) {
		r.dead = true
	}
}

// kill ends a process at any point; the storage is as it is.
func (w *world) kill(t *rapid.T) { w.runner(t).dead = true }

// restartInProcess takes the successor generation without a new process.
func (w *world) restartInProcess(t *rapid.T) {
	r := w.runner(t)
	if r.steps != 2 {
		t.Skip("it does not run yet")
	}
	g, err := r.store.TakeAfter(context.Background(), r.g)
	if errors.Is(err, connectors.ErrFenced) {
		r.dead = true
		return
	}
	if err != nil {
		return
	}
	if w.owner[g] != nil {
		t.Fatalf("generation %d has two owners", g)
	}
	r.dead = true
	next := &runner{store: r.store, g: g, steps: 1}
	w.procs, w.owner[g] = append(w.procs, next), next
}

// damage spoils the metadata of the newest checkpoint that is there.
func (w *world) damage(t *rapid.T) {
	infos, err := w.below.List(context.Background(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, i := range infos {
		if path.Base(i.Name) == "_metadata" {
			all = append(all, i.Name)
		}
	}
	if len(all) == 0 {
		t.Skip("nothing to damage")
	}
	name := rapid.SampledFrom(all[max(0, len(all)-2):]).Draw(t, "checkpoint")
	if err := checkpointtest.Flip(30).Do(context.Background(), w.below, name); err != nil {
		t.Fatal(err)
	}
}

// check holds after every step: generations have no gaps, so no owner is overlooked.
func (w *world) check(t *rapid.T) {
	var highest uint64
	for g := range w.owner {
		highest = max(highest, g)
	}
	for _, r := range w.procs {
		if r.steps == 0 || r.dead || r.g >= highest {
			continue
		}
		quiet, err := checkpoint.NewStore(w.below, "orders", checkpoint.StoreOptions{Log: discard})
		if err != nil {
			t.Fatal(err)
		}
		if err := quiet.CheckOwner(context.Background(), r.g); !errors.Is(err, connectors.ErrFenced) {
			t.Fatalf("generation %d does not see generation %d: %v", r.g, highest, err)
		}
	}
}

// finish lets one more process start on a storage that works: it must be able to go on
// from where the sink is, or be refused for damage that was done.
func (w *world) finish(t *rapid.T, damaged bool) {
	w.fs.Set()
	s, err := checkpoint.NewStore(w.fs, "orders", checkpoint.StoreOptions{Log: discard})
	if err != nil {
		t.Fatal(err)
	}
	last := &runner{store: s}
	w.procs = append(w.procs, last)
	w.take(last)
	w.restore(t, last)
	if last.dead && w.saves.cancelled {
		last.dead, last.from = false, checkpoint.FromNone
		w.restore(t, last)
	}
	if last.dead && damaged {
		return
	}
	if last.steps != 2 {
		t.Fatalf("the last start did not come up")
	}
	for done := 0; done < 3; {
		before := last.pending
		w.advance(t, last)
		if before != nil && last.pending == nil {
			done++
		}
	}
	w.saves.check(t)
	if n := len(w.sink.commits); n == 0 || w.sink.commits[n-1].to != last.pos {
		t.Fatalf("the sink is at %v, the input at %d", w.sink.commits, last.pos)
	}
}

func (w *world) advance(t *rapid.T, r *runner) {
	switch {
	case r.dead:
		t.Fatalf("the newest process was stopped")
	case r.pending == nil:
		w.claim(t, r)
	case !r.pending.completed:
		w.complete(t, r)
	case !r.pending.sunk:
		w.publish(t, r)
	default:
		w.prove(t, r)
	}
}

// Every record is published once, in order, by the newest owner at the time, in any
// history of crashes, zombies, restarts, lost answers and failures of the storage.
func TestAnyHistoryPublishesEveryRecordOnce(t *testing.T) {
	for name, damaging := range map[string]bool{"storage that fails": false, "storage that also loses": true} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				below := mem.New()
				w := &world{t: t, below: below, fs: storagetest.Faulty(below, rapid.Uint64().Draw(t, "seed")),
					saves: newSavepoints(), cuts: map[checkpoint.ID]int{}, owner: map[uint64]*runner{}, numbers: map[string]bool{}, held: map[checkpoint.ID][]published{}}
				defer faultyPlaces.Delete(strings.TrimPrefix(w.saves.dir, "unsound://"))
				damaged := false
				actions := map[string]func(*rapid.T){
					"start": w.newStart, "run": w.run, "run on": w.run, "kill": w.kill,
					"restart": w.restartInProcess, "faults": w.faults, "": w.check,
					"pin": w.pin, "savepoint": w.savepoint, "cancel": w.cancel,
				}
				if damaging {
					actions["damage"] = func(t *rapid.T) { w.damage(t); damaged = true }
				}
				w.newStart(t)
				t.Repeat(actions)
				w.finish(t, damaged)
			})
		})
	}
}
