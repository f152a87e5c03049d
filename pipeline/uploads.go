package pipeline

import (
	"context"
	"errors"
	"sync"

	"github.com/sluice-etl/sluice/connectors"
)

// errAbandoned ends the writing of state for a checkpoint that has failed.
var errAbandoned = errors.New("the checkpoint has failed meanwhile")

// mostUploads is how many state files are written at a time, over all subtasks: each
// holds the buffers of a compressor and of its store.
const mostUploads = 8

// uploads are the writings of state under way, by checkpoint.
type uploads struct {
	slots chan struct{}

	mu      sync.Mutex
	failed  failedNumbers
	next    int
	running map[int]upload
}

type upload struct {
	number uint64
	cancel context.CancelCauseFunc
}

func newUploads() *uploads {
	return &uploads{slots: make(chan struct{}, mostUploads), running: map[int]upload{}}
}

// begin is a context for the writing of one state for checkpoint n, which ends when n
// has failed. end is called when it is written.
func (u *uploads) begin(ctx context.Context, n uint64) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.failed.has(n) {
		cancel(errAbandoned)
	}
	u.next++
	id := u.next
	u.running[id] = upload{n, cancel}
	return ctx, func() {
		u.mu.Lock()
		delete(u.running, id)
		u.mu.Unlock()
		cancel(nil)
	}
}

// abandon ends all writing for checkpoint n.
func (u *uploads) abandon(n uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.failed.add(n)
	for _, r := range u.running {
		if r.number == n {
			r.cancel(errAbandoned)
		}
	}
}

// limitedFiles are files of which only so many are written at a time. A state is written by
// goroutines that each close a file before they begin the next, so that none waits for itself.
type limitedFiles struct {
	connectors.CheckpointFiles
	slots chan struct{}
}

// Create implements connectors.CheckpointFiles.
func (b limitedFiles) Create(ctx context.Context) (connectors.StateWriter, error) {
	select {
	case b.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	w, err := b.CheckpointFiles.Create(ctx)
	if err != nil {
		<-b.slots
		return nil, err
	}
	return &limitedWriter{StateWriter: w, slots: b.slots}, nil
}

// limitedWriter gives its slot back once.
type limitedWriter struct {
	connectors.StateWriter
	slots chan struct{}
	given sync.Once
}

func (w *limitedWriter) give() { w.given.Do(func() { <-w.slots }) }

// Close implements connectors.StateWriter.
func (w *limitedWriter) Close() (connectors.StateFile, error) {
	defer w.give()
	return w.StateWriter.Close()
}

// Abort implements connectors.StateWriter.
func (w *limitedWriter) Abort() {
	defer w.give()
	w.StateWriter.Abort()
}
