package pipeline

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/storage"
)

// ending is a stop or cancel that somebody waits for.
type ending struct {
	StopOptions
	cancel bool
	what   string
	order  stopOrder
	left   <-chan struct{} // closed when who asked has left
	done   chan struct{}   // closed once result or err stands

	// What follows is guarded by the control.
	taken   bool // it is under way
	hurried bool // it has cut the wait for a restart short
	result  *Taken
	err     error
}

// verb is what the pipeline cannot do where it did not work.
func (e *ending) verb() string {
	if e.cancel {
		return "be cancelled"
	}
	return "be stopped"
}

// begun says that event time was driven to its end for it, so that the pipeline
// cannot go on from where it is.
func (e *ending) begun() bool { return e.Drain && e.order.sent() }

// stopOrder is the word of a barrier on which sources wait. Who gave it may withdraw
// it; one that drains only before the barrier.
type stopOrder struct {
	state   atomic.Int32
	binding bool // it cannot be withdrawn once sent
}

const (
	orderWaits int32 = iota
	orderSent
	orderWithdrawn
)

// send says whether the order still stands as its barrier goes out.
func (o *stopOrder) send() bool {
	return o.state.CompareAndSwap(orderWaits, orderSent) || o.state.Load() == orderSent
}

func (o *stopOrder) sent() bool { return o.state.Load() == orderSent }

// stands says that sources wait.
func (o *stopOrder) stands() bool { return o != nil && o.state.Load() != orderWithdrawn }

// withdraw lets the sources go on, and says whether that can be.
func (o *stopOrder) withdraw() bool {
	if o.state.CompareAndSwap(orderWaits, orderWithdrawn) || o.state.Load() == orderWithdrawn {
		return true
	}
	return !o.binding && o.state.CompareAndSwap(orderSent, orderWithdrawn)
}

// end asks for the end of the job and waits for it.
func (c *Control) end(ctx context.Context, e *ending) (*Taken, error) {
	e.left, e.done, e.order.binding = ctx.Done(), make(chan struct{}), e.Drain
	timeout, err := c.ask(e)
	if err != nil {
		return nil, err
	}
	var late <-chan time.Time
	if !e.cancel {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		late = timer.C
	}
	for {
		select {
		case <-e.done:
			return e.result, e.err
		case <-ctx.Done():
			c.drop(e)
			return nil, fmt.Errorf("%s pipeline %s: given up: %w", e.what, c.Status().Pipeline, context.Cause(ctx))
		case <-late:
			if c.drop(e) {
				c.mu.Lock()
				defer c.mu.Unlock()
				return nil, fmt.Errorf("%w; the stop waited for %s and is withdrawn", c.cannot("be stopped"), timeout)
			}
		}
	}
}

// ask registers e, and returns the time within which it must be taken up.
func (c *Control) ask(e *ending) (time.Duration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.plan == nil, c.status.Phase == Ended, c.cancel != nil, c.stop != nil && !e.cancel:
		return 0, c.cannot(e.verb())
	case e.cancel:
		c.cancel = e
		c.channels()
		close(c.cancelled)
	default:
		c.stop = e
		c.channels()
		close(c.asked)
	}
	return c.plan.Spec.Checkpoint.Timeout, nil
}

// channels makes the channels that are not there. The caller holds the lock.
func (c *Control) channels() {
	if c.asked == nil {
		c.asked = make(chan struct{})
	}
	if c.cancelled == nil {
		c.cancelled = make(chan struct{})
	}
}

// wanted is closed when a stop waits for being taken up, or from when on a cancel is asked for.
func (c *Control) wanted() (stop, cancel <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.channels()
	return c.asked, c.cancelled
}

// hurry is as wanted, but a stop has cut a wait short only once.
func (c *Control) hurry() (stop, cancel <-chan struct{}) {
	stop, cancel = c.wanted()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stop != nil && c.stop.hurried {
		stop = nil
	}
	return stop, cancel
}

// hurried notes that the stop that waits has cut a wait short.
func (c *Control) hurried() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stop != nil {
		c.stop.hurried = true
	}
}

// take hands the stop that waits over to who carries it out, nil for none.
func (c *Control) take() *ending {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stop == nil || c.stop.taken {
		return nil
	}
	c.stop.taken, c.asked = true, nil
	return c.stop
}

// pending are the stop and the cancel that are asked for.
func (c *Control) pending() (stop, cancel *ending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stop, c.cancel
}

// drop takes e back, unless it has been taken up.
func (c *Control) drop(e *ending) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stop != e || e.taken {
		return false
	}
	c.stop, c.asked = nil, nil
	return true
}

// refuse tells who asked that it did not work. The pipeline goes on.
func (c *Control) refuse(e *ending, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch e {
	case c.stop:
		c.stop = nil
		if !e.taken {
			c.asked = nil
		}
	case c.cancel:
		c.cancel, c.cancelled = nil, nil
	default:
		return
	}
	e.result, e.err = nil, err
	close(e.done)
}

// settle notes what the job has ended with, for e where that was asked for here. Who
// asked is told once Run is over. err is what did not work beside.
func (c *Control) settle(e *ending, t *Taken, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = t
	if e != nil && e.cancel && c.stop != nil {
		c.stop.result, c.stop.err = nil, nil // the cancel has overtaken its record
	}
	if e != nil {
		e.result, e.err = t, err
	}
}

// savepointDir is the folder that savepoints go to.
func (c *Control) savepointDir(dir string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.plan == nil {
		return "", c.cannot("take a savepoint")
	}
	if dir == "" {
		dir = c.plan.Spec.Checkpoint.Savepoints.Dir
	}
	if dir == "" {
		return "", fmt.Errorf("%w: name one, such as file:///var/lib/etl/savepoints, or write it into the file of pipeline %s, as in checkpoint: {savepoints: \"file:///var/lib/etl/savepoints\"}",
			ErrNoSavepointDir, c.plan.Spec.Name)
	}
	if !strings.Contains(dir, "://") {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return "", err
		}
		dir = abs
	}
	_, err := storage.Open(dir)
	if err == nil {
		err = c.plan.Spec.Checkpoint.TakesSavepoints(c.plan.Spec.Name, dir)
	}
	if err != nil {
		return "", fmt.Errorf("%w that can be used: %w", ErrNoSavepointDir, err)
	}
	return dir, nil
}

// drainFailedError ends the run of the tasks after event time was driven to its end
// and the checkpoint did not come: what fired is undone by going on from the one before.
type drainFailedError struct{ err error }

func (e *drainFailedError) Error() string { return "the stop with --drain failed: " + e.err.Error() }
func (e *drainFailedError) Unwrap() error { return e.err }

// unlessFinal leaves an error as it is where the run ends for good by it.
func unlessFinal(err error) error {
	if errors.Is(err, connectors.ErrFenced) || connectors.IsPermanent(err) {
		return err
	}
	return &drainFailedError{err}
}
