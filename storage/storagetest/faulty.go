package storagetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"sync"
	"time"

	"github.com/sluice-etl/sluice/storage"
)

// Op names an operation that a Rule is about. Writes and closes of a file count as
// OpWrite and OpClose with the name of the file.
type Op string

// The operations.
const (
	OpClaim     Op = "claim"
	OpCreate    Op = "create"
	OpWrite     Op = "write"
	OpClose     Op = "close"
	OpOpen      Op = "open"
	OpStat      Op = "stat"
	OpList      Op = "list" // Files and Dirs too
	OpRemove    Op = "remove"
	OpRemoveAll Op = "removeall"
	OpStage     Op = "stage"
	OpPublish   Op = "publish"
	OpDiscard   Op = "discard"
	OpStaged    Op = "staged"
	OpAny       Op = ""
)

// Effect is what a Rule does to an operation that it hits.
type Effect int

// The effects.
const (
	// FailBefore returns the error and does nothing.
	FailBefore Effect = iota
	// FailAfter does it and returns the error all the same: the outcome is unknown to the caller.
	FailAfter
	// Partial writes half of the bytes and returns the error; the file cannot be closed
	// any more. It applies to OpWrite.
	Partial
	// Slow waits for Delay on the wrapper's clock, then does it.
	Slow
	// LoseOnCrash does it, but Crash undoes it, as on a disk that was not told to sync.
	// It applies to OpClaim, OpClose of a created file, and OpRemove.
	LoseOnCrash
)

// Rule says which operations fail and how.
type Rule struct {
	Op   Op
	Glob string // path.Match on the name, or on its last element; empty for all
	// Nth hits only the n-th matching operation, counted from 1; 0 hits each.
	Nth int
	// Probability of a hit, drawn from the wrapper's seed; 0 is always.
	Probability float64
	Effect      Effect
	Err         error // nil means ErrInjected
	Delay       time.Duration

	seen int
}

// ErrInjected is the error of rules that name none.
var ErrInjected = errors.New("injected fault")

// FaultyFS is a file system that fails by rules. The first rule that hits decides.
type FaultyFS struct {
	fs    storage.FS
	sleep func(ctx context.Context, d time.Duration) error

	mu    sync.Mutex
	rand  *rand.Rand
	rules []*Rule
	undo  []func()
}

// Faulty wraps a file system. The seed decides rules with a probability.
func Faulty(f storage.FS, seed uint64, rules ...Rule) *FaultyFS {
	w := &FaultyFS{fs: f, rand: rand.New(rand.NewPCG(seed, 1)), sleep: sleep}
	w.Set(rules...)
	return w
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// SetClock sets how Slow waits. The default is the time package's, so that it is
// virtual in a synctest bubble.
func (f *FaultyFS) SetClock(wait func(ctx context.Context, d time.Duration) error) { f.sleep = wait }

// Set replaces the rules.
func (f *FaultyFS) Set(rules ...Rule) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = nil
	for _, r := range rules {
		f.rules = append(f.rules, &r)
	}
}

// Crash undoes, the newest first, what LoseOnCrash let pass.
func (f *FaultyFS) Crash() {
	f.mu.Lock()
	undo := f.undo
	f.undo = nil
	f.mu.Unlock()
	for i := len(undo) - 1; i >= 0; i-- {
		undo[i]()
	}
}

// hit returns the rule for an operation, nil for none.
func (f *FaultyFS) hit(op Op, name string) *Rule {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.rules {
		if r.Op != OpAny && r.Op != op || !matches(r.Glob, name) {
			continue
		}
		r.seen++
		if r.Nth != 0 && r.seen != r.Nth || r.Probability != 0 && f.rand.Float64() >= r.Probability {
			continue
		}
		return r
	}
	return nil
}

func matches(glob, name string) bool {
	if glob == "" {
		return true
	}
	whole, _ := path.Match(glob, name)
	last, _ := path.Match(glob, path.Base(name))
	return whole || last
}

func (r *Rule) error(op Op, name string) error {
	err := r.Err
	if err == nil {
		err = ErrInjected
	}
	return fmt.Errorf("%s %s: %w", op, name, err)
}

// do runs one operation under the rules. undo, where there is one, takes it back.
func (f *FaultyFS) do(ctx context.Context, op Op, name string, call func() error, undo func()) error {
	r := f.hit(op, name)
	if r == nil {
		return call()
	}
	switch r.Effect {
	case FailBefore, Partial:
		return r.error(op, name)
	case Slow:
		if err := f.sleep(ctx, r.Delay); err != nil {
			return err
		}
		return call()
	case FailAfter:
		if err := call(); err != nil {
			return err
		}
		return r.error(op, name)
	case LoseOnCrash:
		if err := call(); err != nil {
			return err
		}
		if undo != nil {
			f.mu.Lock()
			f.undo = append(f.undo, undo)
			f.mu.Unlock()
		}
	}
	return nil
}

func (f *FaultyFS) forget(name string) func() {
	return func() { _ = f.fs.Remove(context.Background(), name) }
}

// URL is the address of the file system below.
func (f *FaultyFS) URL() string { return f.fs.URL() }

// Claim is that of the file system below, under the rules, as all that follow.
func (f *FaultyFS) Claim(ctx context.Context, name string) error {
	return f.do(ctx, OpClaim, name, func() error { return f.fs.Claim(ctx, name) }, f.forget(name))
}

// Create starts a file.
func (f *FaultyFS) Create(ctx context.Context, name string) (w storage.Writer, err error) {
	err = f.do(ctx, OpCreate, name, func() error { w, err = f.fs.Create(ctx, name); return err }, nil)
	if err != nil {
		if w != nil {
			w.Abort()
		}
		return nil, err
	}
	return &faultyWriter{out: faultyOut{fs: f, ctx: ctx, name: name, w: w}, w: w}, nil
}

// Open reads a file.
func (f *FaultyFS) Open(ctx context.Context, name string) (r storage.Reader, err error) {
	err = f.do(ctx, OpOpen, name, func() error { r, err = f.fs.Open(ctx, name); return err }, nil)
	if err != nil && r != nil {
		_ = r.Close()
		r = nil
	}
	return r, err
}

// Stat describes a file.
func (f *FaultyFS) Stat(ctx context.Context, name string) (i storage.Info, err error) {
	err = f.do(ctx, OpStat, name, func() error { i, err = f.fs.Stat(ctx, name); return err }, nil)
	return i, err
}

// List describes the files below a folder.
func (f *FaultyFS) List(ctx context.Context, dir string) (l []storage.Info, err error) {
	err = f.do(ctx, OpList, dir, func() error { l, err = f.fs.List(ctx, dir); return err }, nil)
	return l, err
}

// Files describes the files directly in a folder.
func (f *FaultyFS) Files(ctx context.Context, dir string) (l []storage.Info, err error) {
	err = f.do(ctx, OpList, dir, func() error { l, err = f.fs.Files(ctx, dir); return err }, nil)
	return l, err
}

// Dirs names the folders directly in a folder.
func (f *FaultyFS) Dirs(ctx context.Context, dir string) (l []string, err error) {
	err = f.do(ctx, OpList, dir, func() error { l, err = f.fs.Dirs(ctx, dir); return err }, nil)
	return l, err
}

// Remove removes files, under the rules one by one.
func (f *FaultyFS) Remove(ctx context.Context, names ...string) error {
	for _, name := range names {
		data, readErr := storage.ReadFile(ctx, f.fs, name, 1<<30)
		back := func() { _ = storage.WriteFile(context.Background(), f.fs, name, data) }
		if readErr != nil {
			back = nil
		}
		if err := f.do(ctx, OpRemove, name, func() error { return f.fs.Remove(ctx, name) }, back); err != nil {
			return err
		}
	}
	return nil
}

// RemoveAll removes a folder.
func (f *FaultyFS) RemoveAll(ctx context.Context, dir string) error {
	return f.do(ctx, OpRemoveAll, dir, func() error { return f.fs.RemoveAll(ctx, dir) }, nil)
}

// Stage starts a staged file.
func (f *FaultyFS) Stage(ctx context.Context, name string) (w storage.StagedWriter, err error) {
	err = f.do(ctx, OpStage, name, func() error { w, err = f.fs.Stage(ctx, name); return err }, nil)
	if err != nil {
		if w != nil {
			w.Abort()
		}
		return nil, err
	}
	return &faultyStaged{out: faultyOut{fs: f, ctx: ctx, name: name, w: w}, w: w}, nil
}

// Publish makes a staged file visible.
func (f *FaultyFS) Publish(ctx context.Context, s storage.Staged) error {
	return f.do(ctx, OpPublish, s.Name, func() error { return f.fs.Publish(ctx, s) }, nil)
}

// Discard removes a staged file.
func (f *FaultyFS) Discard(ctx context.Context, s storage.Staged) error {
	return f.do(ctx, OpDiscard, s.Name, func() error { return f.fs.Discard(ctx, s) }, nil)
}

// Staged lists the staged files.
func (f *FaultyFS) Staged(ctx context.Context, dir string) (l []storage.Staged, err error) {
	err = f.do(ctx, OpStaged, dir, func() error { l, err = f.fs.Staged(ctx, dir); return err }, nil)
	return l, err
}

// faultyOut is what both kinds of writers share.
type faultyOut struct {
	fs   *FaultyFS
	ctx  context.Context //nolint:containedctx // a writer lives within the call that made it
	name string
	w    interface {
		Write(p []byte) (int, error)
		Abort()
	}
	broken error
}

func (o *faultyOut) write(p []byte) (n int, err error) {
	r := o.fs.hit(OpWrite, o.name)
	if r == nil {
		return o.w.Write(p)
	}
	switch r.Effect {
	case Slow:
		if err := o.fs.sleep(o.ctx, r.Delay); err != nil {
			return 0, err
		}
		return o.w.Write(p)
	case Partial:
		n, err = o.w.Write(p[:len(p)/2])
	case FailAfter:
		n, err = o.w.Write(p)
	case FailBefore:
	case LoseOnCrash:
		return o.w.Write(p)
	}
	o.broken = errors.Join(err, r.error(OpWrite, o.name))
	return n, o.broken
}

// close fails for good after a failed write: what a store has of it is not whole.
func (o *faultyOut) close(call func() error, undo func()) error {
	if o.broken != nil {
		o.w.Abort()
		return o.broken
	}
	return o.fs.do(o.ctx, OpClose, o.name, call, undo)
}

type faultyWriter struct {
	out faultyOut
	w   storage.Writer
}

func (w *faultyWriter) Write(p []byte) (int, error) { return w.out.write(p) }

func (w *faultyWriter) Close() error { return w.out.close(w.w.Close, w.out.fs.forget(w.out.name)) }

func (w *faultyWriter) Abort() { w.w.Abort() }

type faultyStaged struct {
	out faultyOut
	w   storage.StagedWriter
}

func (w *faultyStaged) Write(p []byte) (int, error) { return w.out.write(p) }

func (w *faultyStaged) Close() (s storage.Staged, err error) {
	err = w.out.close(func() error { s, err = w.w.Close(); return err }, nil)
	return s, err
}

func (w *faultyStaged) Abort() { w.w.Abort() }
