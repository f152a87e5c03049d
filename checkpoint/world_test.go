package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/sluice-etl/sluice/connectors"
)

// world is what outlives the processes of a job: its store and its sinks. It
// notes whatever a coordinator must never do.
type world struct {
	mu        sync.Mutex
	broken    []string
	newest    uint64            // generation
	claims    map[uint64]uint64 // number → generation
	complete  map[uint64]*Metadata
	proven    map[uint64]bool
	published map[string]uint64 // committable → the generation that published it
	witness   map[string]ID     // committer → its last one
}

func newWorld() *world {
	return &world{
		claims: map[uint64]uint64{}, complete: map[uint64]*Metadata{}, proven: map[uint64]bool{},
		published: map[string]uint64{}, witness: map[string]ID{},
	}
}

// violated notes a broken promise. The caller may hold no lock.
func (w *world) violated(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.breaks(true, format, args...)
}

// breaks notes a broken promise if one is. The caller holds the lock.
func (w *world) breaks(is bool, format string, args ...any) {
	if is {
		w.broken = append(w.broken, fmt.Sprintf(format, args...))
	}
}

func (w *world) violations() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.broken)
}

func (w *world) isProven(n uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.proven[n]
}

func (w *world) newestGeneration() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.newest
}

// takeOver has another process take the next generation.
func (w *world) takeOver() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.newest++
}

// newProcess restores the newest complete checkpoint, publishing what it lists.
// What else was prepared is revoked, as it is nowhere.
func (w *world) newProcess(cfg Config) *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.newest++
	cfg.Generation, cfg.First = w.newest, 1
	for n, m := range w.complete {
		if n >= cfg.First {
			cfg.First = n + 1
			cfg.Restored = &ID{Generation: m.Generation, Number: n}
		}
	}
	if r := w.complete[cfg.First-1]; r != nil {
		w.publish(r, cfg.Generation)
		w.proven[r.Number] = true
	}
	p := &process{w: w, cfg: cfg, gen: cfg.Generation, result: make(chan error, 1),
		acked: map[uint64]map[int]bool{}, faults: map[string][]fault{}, used: map[string]bool{}, held: map[string]chan struct{}{}}
	p.c = NewCoordinator(cfg, processLog{p}, processTasks{p}, discard())
	return p
}

// publish has the sinks take what m lists. The caller holds the lock.
func (w *world) publish(m *Metadata, gen uint64) {
	for i := range m.Committables {
		c := &m.Committables[i]
		k := committableKey(c)
		if by, again := w.published[k]; again {
			w.breaks(by == gen, "generation %d published %s/%d twice", gen, c.Committer, c.Checkpoint.Number)
			continue
		}
		last := w.witness[c.Committer]
		w.breaks(last.Generation > c.Checkpoint.Generation ||
			last.Generation == c.Checkpoint.Generation && last.Number >= c.Checkpoint.Number,
			"%s published %v after %v", c.Committer, c.Checkpoint, last)
		w.published[k] = gen
		w.witness[c.Committer] = c.Checkpoint
	}
}

// fault is what one call of an operation does: fail before or, late, after its work.
type fault struct {
	err  error
	late bool
}

// process is one run of a coordinator with its tasks, of which each is a sink.
type process struct {
	w      *world
	cfg    Config
	gen    uint64
	c      *Coordinator
	cancel context.CancelFunc
	result chan error
	dead   bool

	// The lock of world guards what follows.
	barriers  []ID
	acked     map[uint64]map[int]bool
	prepared  [3][]connectors.Committable
	faults    map[string][]fault
	used      map[string]bool          // operations that failed
	held      map[string]chan struct{} // operations that wait
	claimed   uint64                   // last
	open      uint64                   // complete and not proven
	checked   bool                     // owners were looked at since the last step
	committed uint64                   // last
}

func (p *process) start() {
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	go func() { p.result <- p.c.Run(ctx) }()
}

// kill ends the process as far as the world can see.
func (p *process) kill() {
	if p.dead || p.cancel == nil {
		return
	}
	p.dead = true
	p.cancel()
	p.release()
	if err := <-p.result; err != nil && p.w.newestGeneration() == p.gen && !p.fired("commit") && !p.fired("complete") {
		p.w.violated("Run returned %v after its context ended", err)
	}
}

func (p *process) locked(f func()) {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	f()
}

func (p *process) sent() (ids []ID) {
	p.locked(func() { ids = slices.Clone(p.barriers) })
	return ids
}

func (p *process) hasAcked(task int, n uint64) (yes bool) {
	p.locked(func() { yes = p.acked[n][task] })
	return yes
}

func (p *process) fired(op string) (yes bool) {
	p.locked(func() { yes = p.used[op] })
	return yes
}

func (p *process) arm(op string, f fault) {
	p.locked(func() { p.faults[op] = append(p.faults[op], f) })
}
func (p *process) calm() { p.locked(func() { clear(p.faults) }); p.release() }
func (p *process) hold(op string) {
	p.locked(func() {
		if p.held[op] == nil {
			p.held[op] = make(chan struct{})
		}
	})
}

// await waits until op is not held.
func (p *process) await(ctx context.Context, op string) {
	var held chan struct{}
	p.locked(func() { held = p.held[op] })
	if held == nil {
		return
	}
	select {
	case <-held:
	case <-ctx.Done():
		p.locked(func() { p.used[op] = true })
	}
}

func (p *process) release() {
	p.locked(func() {
		for op, held := range p.held {
			close(held)
			delete(p.held, op)
		}
	})
}

// owed is what a task prepared for checkpoints up to n and nobody has published.
func (p *process) owed(task int, n uint64) []connectors.Committable {
	var out []connectors.Committable
	for _, c := range p.prepared[task] {
		if c.Checkpoint.Number <= n {
			out = append(out, c)
		}
	}
	return out
}

func (p *process) ack(task int, id ID) {
	var a Ack
	p.locked(func() {
		if p.acked[id.Number] == nil {
			p.acked[id.Number] = map[int]bool{}
		}
		p.acked[id.Number][task] = true
		a = Ack{Task: TaskID{"chain", task}, Checkpoint: id, Committables: p.owed(task, id.Number)}
	})
	p.c.Ack(a)
}

// ackAll has all tasks acknowledge the last n barriers, all of them for 0.
func (p *process) ackAll(n int) {
	ids := p.sent()
	if n > 0 {
		ids = ids[max(len(ids)-n, 0):]
	}
	for _, id := range ids {
		for task := range 3 {
			if !p.hasAcked(task, id.Number) {
				p.ack(task, id)
			}
		}
	}
}

// do makes one step of the store: its work, and the fault that is armed for it.
func (p *process) do(op string, work func() error) error {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	armed := p.faults[op]
	if len(armed) == 0 {
		return work()
	}
	f := armed[0]
	p.faults[op] = armed[1:]
	p.used[op] = true
	if f.late {
		if err := work(); err != nil {
			return err
		}
	}
	return f.err
}

type processLog struct{ *process }

func (p processLog) Claim(_ context.Context, n uint64) (mine bool, err error) {
	err = p.do("claim", func() error {
		p.w.breaks(n <= p.claimed, "number %d was claimed after %d", n, p.claimed)
		p.claimed = n
		if _, taken := p.w.claims[n]; !taken {
			mine = true
			p.w.claims[n] = p.gen
		}
		return nil
	})
	return mine && err == nil, err
}

func (p processLog) Complete(ctx context.Context, m *Metadata) error {
	p.await(ctx, "complete")
	if ctx.Err() != nil {
		return ctx.Err()
	}
	n := m.Number
	err := p.do("complete", func() error {
		if p.w.complete[n] == m {
			return nil
		}
		p.w.breaks(p.w.claims[n] != p.gen, "checkpoint %d was written without its claim", n)
		p.w.breaks(p.w.complete[n] != nil, "checkpoint %d was written twice", n)
		p.w.breaks(p.open != 0, "checkpoint %d was written before %d was proven", n, p.open)
		p.w.breaks(n <= p.committed, "checkpoint %d was written after %d was committed", n, p.committed)
		var owed []connectors.Committable
		for task := range 3 {
			p.w.breaks(!p.acked[n][task] && m.Kind != Initial, "checkpoint %d was written without task %d", n, task)
			owed = append(owed, p.owed(task, n)...)
		}
		if f := committablesFault(m, owed); f != "" {
			p.w.breaks(true, "committables of checkpoint %d: %s", n, f)
		}
		p.w.complete[n] = m
		p.open, p.checked = n, false
		return nil
	})
	if errors.Is(err, ErrNotWritten) && p.isComplete(n) {
		return errDown // an earlier try has written it
	}
	return err
}

func (p *process) isComplete(n uint64) (yes bool) {
	p.locked(func() { yes = p.w.complete[n] != nil })
	return yes
}

func (p processLog) CheckOwner(context.Context) error {
	return p.do("owner", func() error {
		if p.w.newest > p.gen {
			return fmt.Errorf("generation %d exists: %w", p.w.newest, connectors.ErrFenced)
		}
		p.checked = true
		return nil
	})
}

func (p processLog) Proven(_ context.Context, n uint64) error {
	return p.do("proven", func() error {
		p.w.breaks(n != p.open || n != p.committed && p.w.complete[n].Kind != Initial, "checkpoint %d was marked as proven without a commit", n)
		p.w.breaks(!p.checked, "checkpoint %d was marked as proven without a look at the owners", n)
		p.w.proven[n] = true
		return nil
	})
}

func (p processLog) Retain(context.Context) error {
	return p.do("retain", func() error { return nil })
}

func (p processLog) Abort(_ context.Context, n uint64) error {
	return p.do("abort", func() error {
		p.w.breaks(p.w.complete[n] != nil, "the complete checkpoint %d was aborted", n)
		p.w.breaks(p.w.claims[n] != p.gen, "checkpoint %d of another was aborted", n)
		p.w.breaks(p.committed < n, "checkpoint %d was aborted before a later one was proven", n)
		return nil
	})
}

func (p processLog) Abandon(_ context.Context, n uint64) error {
	return p.do("abandon", func() error {
		p.w.breaks(p.w.complete[n] != nil, "the state of the complete checkpoint %d was removed", n)
		p.w.breaks(p.w.claims[n] != p.gen, "the state of checkpoint %d of another was removed", n)
		return nil
	})
}

func (p processLog) Remember(_ context.Context, n uint64, list []AttemptStats) error {
	return p.do("remember", func() error {
		p.w.breaks(!p.w.proven[n], "checkpoint %d was remembered before it was proven", n)
		p.w.breaks(list[0].ID.Number != n || list[0].Status != Completed, "of checkpoint %d was remembered that %v is %s", n, list[0].ID, list[0].Status)
		return nil
	})
}

type processTasks struct{ *process }

func (p processTasks) Trigger(b Barrier) {
	n := b.ID.Number
	p.locked(func() {
		p.w.breaks(p.w.claims[n] != p.gen, "barrier %d went out without its claim", n)
		p.w.breaks(p.c.cfg.MaxConcurrent == 1 && p.open != 0 && !p.w.proven[p.open], "barrier %d went out before %d was proven", n, p.open)
		p.barriers = append(p.barriers, b.ID)
		for task := range 3 {
			c := committable(fmt.Sprintf("sink-%d", task), p.gen, n, task == 2)
			c.Data = json.RawMessage(fmt.Sprintf("%d", n))
			p.prepared[task] = append(p.prepared[task], c)
		}
	})
}

func (p processTasks) Commit(ctx context.Context, m *Metadata) error {
	p.locked(func() {
		p.w.breaks(p.w.complete[m.Number] != m, "checkpoint %d was committed before it was complete", m.Number)
		p.w.breaks(!p.checked, "checkpoint %d was committed without a look at the owners", m.Number)
		p.w.breaks(m.Number <= p.committed, "checkpoint %d was committed after %d", m.Number, p.committed)
		p.checked = false
	})
	p.await(ctx, "commit")
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return p.do("commit", func() error {
		p.w.publish(m, p.gen)
		p.committed = m.Number
		return nil
	})
}

func (p processTasks) Abandon(ID) {}

func (p processTasks) Completed(m *Metadata) {
	p.locked(func() {
		p.w.breaks(!p.w.proven[m.Number], "checkpoint %d was told as proven and is not", m.Number)
		p.open = 0
		for task := range 3 {
			p.prepared[task] = slices.DeleteFunc(p.prepared[task], func(c connectors.Committable) bool {
				return c.Checkpoint.Number <= m.Number
			})
		}
	})
}
