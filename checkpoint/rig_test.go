package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// rig runs a coordinator against a log and tasks that do as a test says, in
// virtual time.
type rig struct {
	t     *testing.T
	c     *Coordinator
	begun time.Time
	// on decides the outcome of a call such as "complete" or "commit"; it may block.
	on func(ctx context.Context, op string, n uint64) error
	// taken numbers are not given out by Claim.
	taken map[uint64]bool
	// ack makes tasks acknowledge each barrier at once.
	ack bool

	mu       sync.Mutex
	journal  []string
	barriers []Barrier
	metas    []*Metadata
	// abandoned are the numbers whose state was removed, remembered the statistics that were kept.
	abandoned  []uint64
	remembered [][]AttemptStats

	cancel context.CancelFunc
	result chan error
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func textLog(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

func taskIDs(n int) []TaskID {
	ids := make([]TaskID, n)
	for i := range ids {
		ids[i] = TaskID{Chain: "chain", Subtask: i}
	}
	return ids
}

// newRig makes a rig with tasks that acknowledge at once. It must be called in a bubble.
func newRig(t *testing.T, cfg Config) *rig {
	r := &rig{t: t, begun: time.Now(), ack: true, taken: map[uint64]bool{}, result: make(chan error, 1)}
	if cfg.Tasks == nil {
		cfg.Tasks = taskIDs(2)
	}
	cfg.Generation = 7
	r.c = NewCoordinator(cfg, rigLog{r}, rigTasks{r}, discard())
	return r
}

func (r *rig) start() *rig {
	ctx, cancel := context.WithCancel(r.t.Context())
	r.cancel = cancel
	go func() { r.result <- r.c.Run(ctx) }()
	synctest.Wait()
	return r
}

// stop ends Run, which must have had no reason to end before.
func (r *rig) stop() {
	r.t.Helper()
	r.cancel()
	if err := <-r.result; err != nil {
		r.t.Errorf("Run returned %v, want nil after its context ended", err)
	}
}

// ended waits for Run to end by itself.
func (r *rig) ended() error {
	r.t.Helper()
	defer r.cancel()
	select {
	case err := <-r.result:
		return err
	case <-time.After(24 * time.Hour):
		r.t.Fatal("Run has not ended within a day")
		return nil
	}
}

// after lets virtual time pass until d after the rig was made.
func (r *rig) after(d time.Duration) {
	time.Sleep(time.Until(r.begun.Add(d)))
	synctest.Wait()
}

func (r *rig) note(op string, n uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n > 0 {
		op = fmt.Sprintf("%s %d", op, n)
	}
	r.journal = append(r.journal, op)
}

func (r *rig) call(ctx context.Context, op string, n uint64) error {
	r.note(op, n)
	if r.on == nil {
		return nil
	}
	return r.on(ctx, op, n)
}

// happened returns the journal's entries of the given kinds, all without any.
func (r *rig) happened(ops ...string) string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, e := range r.journal {
		op, _, _ := strings.Cut(e, " ")
		if len(ops) == 0 || slices.Contains(ops, op) {
			out = append(out, e)
		}
	}
	return strings.Join(out, ", ")
}

func (r *rig) wantHappened(want string, ops ...string) {
	r.t.Helper()
	if got := r.happened(ops...); got != want {
		r.t.Errorf("after %s:\n got %s\nwant %s", time.Since(r.begun), got, want)
	}
}

// triggers returns when barriers went out.
func (r *rig) triggers() []time.Duration {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []time.Duration
	for _, b := range r.barriers {
		out = append(out, b.Triggered.Sub(r.begun))
	}
	return out
}

func (r *rig) wantTriggers(want ...time.Duration) {
	r.t.Helper()
	if got := r.triggers(); !slices.Equal(got, want) {
		r.t.Errorf("barriers went out at %v, want %v", got, want)
	}
}

func (r *rig) id(n uint64) ID { return ID{Generation: 7, Number: n} }

// acks has the given subtasks acknowledge checkpoint n.
func (r *rig) acks(n uint64, subtasks ...int) {
	for _, s := range subtasks {
		r.c.Ack(Ack{Task: TaskID{Chain: "chain", Subtask: s}, Checkpoint: r.id(n)})
	}
	synctest.Wait()
}

// triggered is a call of Trigger that runs beside the test.
type triggered struct {
	meta *Metadata
	err  error
	done atomic.Bool // the others may be read once it is set
}

func (r *rig) trigger(ctx context.Context, k Kind) *triggered {
	res := &triggered{}
	go func() {
		res.meta, res.err = r.c.Trigger(ctx, Order{Kind: k})
		res.done.Store(true)
	}()
	synctest.Wait()
	return res
}

func (r *rig) history() string {
	synctest.Wait()
	var out []string
	for _, h := range slices.Backward(r.c.Stats().History) {
		out = append(out, fmt.Sprintf("%d %s", h.ID.Number, h.Status))
	}
	return strings.Join(out, ", ")
}

func (r *rig) wantHistory(want string) {
	r.t.Helper()
	if got := r.history(); got != want {
		r.t.Errorf("history is %q, want %q", got, want)
	}
}

type rigLog struct{ r *rig }

func (l rigLog) Claim(ctx context.Context, n uint64) (bool, error) {
	if l.r.taken[n] {
		l.r.note("taken", n)
		return false, nil
	}
	return true, l.r.call(ctx, "claim", n)
}

func (l rigLog) Complete(ctx context.Context, m *Metadata) error {
	err := l.r.call(ctx, "complete", m.Number)
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	if err == nil {
		l.r.metas = append(l.r.metas, m)
	}
	return err
}

func (l rigLog) CheckOwner(ctx context.Context) error { return l.r.call(ctx, "owner", 0) }
func (l rigLog) Proven(ctx context.Context, n uint64) error {
	return l.r.call(ctx, "proven", n)
}
func (l rigLog) Retain(ctx context.Context) error { return l.r.call(ctx, "retain", 0) }
func (l rigLog) Abort(ctx context.Context, n uint64) error {
	return l.r.call(ctx, "abort", n)
}

func (l rigLog) Abandon(_ context.Context, n uint64) error {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	l.r.abandoned = append(l.r.abandoned, n)
	return nil
}

func (l rigLog) Remember(_ context.Context, n uint64, list []AttemptStats) error {
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	l.r.remembered = append(l.r.remembered, list)
	return nil
}

type rigTasks struct{ r *rig }

func (k rigTasks) Trigger(b Barrier) {
	k.r.note("trigger", b.ID.Number)
	k.r.mu.Lock()
	k.r.barriers = append(k.r.barriers, b)
	ack := k.r.ack
	k.r.mu.Unlock()
	if ack {
		for _, t := range k.r.c.cfg.Tasks {
			k.r.c.Ack(Ack{Task: t, Checkpoint: b.ID})
		}
	}
}

func (k rigTasks) Commit(ctx context.Context, m *Metadata) error {
	return k.r.call(ctx, "commit", m.Number)
}
func (k rigTasks) Abandon(n ID) { k.r.note("abandoned", n.Number) }

func (k rigTasks) Completed(m *Metadata) { k.r.note("completed", m.Number) }

// failing makes the given operation fail with err, each time.
func failing(op string, err error) func(context.Context, string, uint64) error {
	return func(_ context.Context, o string, _ uint64) error {
		if o == op {
			return err
		}
		return nil
	}
}

// gate makes one operation wait until it is opened.
type gate struct {
	op   string
	n    uint64 // 0 for any
	open chan struct{}
}

func newGate(op string, n uint64) *gate { return &gate{op: op, n: n, open: make(chan struct{})} }

func (g *gate) on(ctx context.Context, op string, n uint64) error {
	if op != g.op || g.n != 0 && n != g.n {
		return nil
	}
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *gate) release() { close(g.open); synctest.Wait() }

var errDown = errors.New("storage is down")
