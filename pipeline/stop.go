package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
)

// How the tasks are ended by somebody.
var (
	errStopped   = errors.New("stopped")       // the program ends; the next start goes on
	errOver      = errors.New("job has ended") // by a stop that is recorded
	errCancelled = errors.New("cancelled")
)

// awaitEnd takes the last checkpoint once every source is read to its end, and ends
// the tasks when the pipeline is asked to stop. It returns nil for the end of the input.
func (a *attempt) awaitEnd(ctx context.Context) error {
	for {
		stop, _ := a.opts.Control.wanted()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-a.ended:
			last, cancel := a.untilGraceIsOver(ctx)
			defer cancel()
			err := a.settleLate(last)
			if err == nil {
				_, err = a.coord.Trigger(last, checkpoint.Order{Kind: checkpoint.Final, Drained: true})
			}
			return a.orStopped(ctx, err)
		case <-a.opts.Stop:
			return a.leave(ctx)
		case <-stop:
		}
		if e := a.opts.Control.take(); e != nil {
			if err := a.stop(ctx, e); err != nil {
				return err
			}
		}
	}
}

// awaitCancel ends the tasks at once when the job is cancelled.
func (a *attempt) awaitCancel(ctx context.Context) error {
	_, cancelled := a.opts.Control.wanted()
	select {
	case <-cancelled:
		return errCancelled
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// leave takes a last checkpoint from which the next start of the job goes on.
func (a *attempt) leave(ctx context.Context) error {
	last, cancel := a.untilGraceIsOver(ctx)
	defer cancel()
	a.order.Store(&stopOrder{})
	if _, err := a.coord.Trigger(last, checkpoint.Order{Kind: checkpoint.Periodic, Stop: true}); err != nil {
		return a.orStopped(ctx, err)
	}
	return errStopped
}

// untilGraceIsOver is ctx until the pipeline was asked to stop and the time for a
// last checkpoint is over.
func (a *attempt) untilGraceIsOver(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	a.beside.Go(func() {
		select {
		case <-ctx.Done():
			return
		case <-a.opts.Stop:
		}
		if sleep(ctx, a.opts.grace()) == nil {
			cancel()
		}
	})
	return ctx, cancel
}

// orStopped is the error of a last checkpoint, or errStopped where that was given
// up for a stop.
func (a *attempt) orStopped(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if !a.opts.stopping() {
		return err
	}
	a.log.Warn("stopping without a last checkpoint: the next start goes on from the one before", "err", err)
	return errStopped
}

// stop ends the job. It returns nil where that did not work and the pipeline goes on.
// From the barrier on sources wait; where the checkpoint is not proven in time they
// go on, and it goes on being committed. A drained pipeline cannot go on from where it
// is: until the checkpoint is there it starts again from the one before, and after
// that it commits until that is proven.
func (a *attempt) stop(ctx context.Context, e *ending) error {
	a.order.Store(&e.order)
	alive, release := a.untilGraceIsOver(ctx)
	defer release()
	end, beside, err := a.lastCheckpoint(alive, e)
	if err != nil {
		return a.stopFailed(ctx, alive, e, err)
	}
	if err := a.recordEnd(alive, checkpoint.Ended{How: checkpoint.Stopped, Path: end.Path}); err != nil {
		if ctx.Err() == nil && alive.Err() != nil {
			return a.stopFailed(ctx, alive, e, err)
		}
		return fmt.Errorf("record that the job is stopped: %w", err)
	}
	a.log.Info("stopped for good: the next run goes on as a new job", "from", end.Path, "drained", end.Drained)
	a.opts.Control.settle(e, end, beside)
	return errOver
}

// lastCheckpoint takes what the job ends with. beside is that its savepoint could not
// be written, where the job ends all the same.
func (a *attempt) lastCheckpoint(ctx context.Context, e *ending) (end *Taken, beside, err error) {
	if !e.Savepoint {
		m, err := a.lastBarrier(ctx, e)
		if err != nil {
			return nil, nil, err
		}
		return a.taken(m), nil, nil
	}
	copying, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if !e.Drain {
		a.beside.Go(func() {
			select {
			case <-copying.Done():
			case <-e.left:
				cancel(errGone)
			}
		})
	}
	var m *checkpoint.Metadata
	end, err = a.savepoint(copying, e.Dir, func() (_ *checkpoint.Metadata, err error) {
		m, err = a.lastBarrier(ctx, e)
		return m, err
	})
	if err == nil || !e.Drain || m == nil || ctx.Err() != nil {
		return end, nil, err
	}
	end = a.taken(m)
	return end, unsaved(end, err), nil
}

// unsaved says that a drained job has ended without its savepoint.
func unsaved(end *Taken, err error) error {
	return fmt.Errorf("pipeline %s is stopped, but its savepoint could not be written: %w; -s %s --allow-drained goes on from its last checkpoint, which holds the same", end.Pipeline, err, end.Path)
}

// errNotInTime is why a stop was given up.
var errNotInTime = errors.New("its checkpoint was not proven within checkpoint.timeout; once it is complete it is committed all the same")

// lastBarrier takes the checkpoint behind which sources wait.
func (a *attempt) lastBarrier(ctx context.Context, e *ending) (*checkpoint.Metadata, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a.beside.Go(func() {
		late := time.NewTimer(a.plan.Spec.Checkpoint.Timeout)
		defer late.Stop()
		why := errNotInTime
		select {
		case <-ctx.Done():
			return
		case <-e.left:
			why = errGone
		case <-late.C:
		}
		if e.order.withdraw() {
			cancel(why)
		}
	})
	o := checkpoint.Order{Kind: checkpoint.Periodic, Stop: true, Drained: e.Drain}
	if e.Savepoint {
		o.Kind = checkpoint.Savepoint
	}
	return a.coord.Trigger(ctx, o)
}

// stopFailed tells who asked, and says how the pipeline goes on: nil for from where it is.
func (a *attempt) stopFailed(ctx, alive context.Context, e *ending, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, checkpoint.ErrStopped):
		return err // the coordinator ends the run of the tasks
	case alive.Err() != nil:
		next := "the next start goes on with it"
		if e.begun() {
			next = "the next start finishes the stop if its checkpoint is complete, and otherwise goes on from the one before"
		}
		a.opts.Control.refuse(e, fmt.Errorf("the program was asked to end while pipeline %s was being stopped, and its job has not ended: %s: %w", a.plan.Spec.Name, next, err))
		return a.orStopped(ctx, err)
	case !e.order.withdraw():
		return unlessFinal(err)
	}
	a.coord.Resume() // sources find out at their next tick
	a.log.Warn("the pipeline could not be stopped and goes on", "err", err)
	a.opts.Control.refuse(e, fmt.Errorf("the stop of pipeline %s failed, and it goes on: %w", a.plan.Spec.Name, err))
	return nil
}

// endTries is how often it is tried to record the end of a job. After that the
// pipeline starts again, which makes void what may have been written.
const endTries = 5

func (a *attempt) recordEnd(ctx context.Context, end checkpoint.Ended) (err error) {
	wait := persistFirst
	for range endTries {
		err = a.job.End(ctx, end)
		if err == nil || errors.Is(err, connectors.ErrFenced) || connectors.IsPermanent(err) || ctx.Err() != nil {
			return err
		}
		if err := sleep(ctx, wait); err != nil {
			return err
		}
		wait *= 2
	}
	return err
}

// taken describes a checkpoint of the job.
func (a *attempt) taken(m *checkpoint.Metadata) *Taken {
	return &Taken{Pipeline: m.Pipeline, Job: m.Job, Number: m.Number, Path: a.job.Path(m.Number), Drained: m.Drained}
}

// savepoint copies the checkpoint that take has taken for it. Between its proof and
// that it is kept from being removed.
func (a *attempt) savepoint(ctx context.Context, dir string, take func() (*checkpoint.Metadata, error)) (*Taken, error) {
	a.savers.add(1)
	defer a.savers.add(-1)
	m, err := take()
	if err != nil {
		return nil, err
	}
	path, err := a.job.Savepoint(ctx, m, dir)
	if err != nil {
		return nil, err
	}
	a.log.Info("savepoint taken", "path", path, "checkpoint", m.Number)
	t := a.taken(m)
	t.Path = path
	return t, nil
}

// savers keeps what savepoints are copied from, as long as somebody copies one.
type savers struct {
	mu     sync.Mutex
	n      int
	pinned []func() // let go of what they keep
}

// add counts those who copy, or wait for what they are to copy.
func (s *savers) add(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n += n; s.n == 0 {
		for _, release := range s.pinned {
			release()
		}
		s.pinned = nil
	}
}

// keep pins a checkpoint that was taken for a savepoint.
func (s *savers) keep(pin func() (release func())) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n > 0 {
		s.pinned = append(s.pinned, pin())
	}
}
