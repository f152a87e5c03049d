package checkpoint

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// phase is how far an attempt has come.
type phase int

const (
	claiming   phase = iota // its number is not sure yet
	acking                  // the barrier is out
	ready                   // acknowledged by all, waits for its turn to complete
	completing              // the metadata is being written or the commit proven
)

// attempt is a checkpoint that has been triggered and is neither proven nor given up.
type attempt struct {
	id ID
	Order
	phase   phase
	started time.Time
	acks    []*Ack // by position of the task; nil where it has not acknowledged
	waiting int    // tasks that have not
	// requests wait for it: its own, and those of attempts that it subsumed.
	requests []*request
	entry    *tracked
}

// subsumable reports whether a later checkpoint makes a superfluous. A savepoint,
// that of a stop or the final one was asked for as such.
func (a *attempt) subsumable() bool { return a.Kind == Periodic && !a.leads() && a.phase < completing }

// leads reports whether somebody waits for a to copy it or to stop behind it.
func (a *attempt) leads() bool { return a.Kind == Savepoint || a.Stop }

// impatient reports whether who waits for a is told when it is not proven in time,
// though it is committed all the same. A drained one cannot go on otherwise.
func (a *attempt) impatient() bool {
	return a.phase > acking && a.leads() && !a.Drained && len(a.requests) > 0
}

// step starts whatever can be started and returns when to look again, zero for
// not before something happens.
func (c *Coordinator) step(now time.Time) time.Time {
	c.expire(now)
	for c.fatal == nil && c.completing == nil && c.startCompletion(now) {
	}
	if c.fatal != nil {
		return time.Time{}
	}
	wake := c.startTrigger(now)
	c.startCleaning()
	for _, a := range c.attempts {
		if a.phase <= acking || a.impatient() {
			if at := a.started.Add(c.cfg.Timeout); wake.IsZero() || at.Before(wake) {
				wake = at
			}
		}
	}
	return wake
}

// expire fails what has not been acknowledged in time. What is acknowledged by
// all only waits for storage and sinks, and stays.
func (c *Coordinator) expire(now time.Time) {
	for _, a := range slices.Clone(c.attempts) {
		if now.Sub(a.started) < c.cfg.Timeout {
			continue
		}
		switch {
		case a.phase == claiming:
			c.fail(a, fmt.Errorf("claim a number: %w", context.DeadlineExceeded), now)
		case a.phase == acking:
			c.fail(a, fmt.Errorf("%w: %d of %d after %s", ErrTimeout, len(a.acks)-a.waiting, len(a.acks), c.cfg.Timeout), now)
		case a.impatient():
			for _, r := range a.requests {
				r.finish(nil, fmt.Errorf("checkpoint %d: %w within %s; it goes on being committed", a.id.Number, ErrNotProven, c.cfg.Timeout))
			}
			a.requests = nil
		}
	}
}

// startTrigger begins the next attempt if it is time for one, otherwise it tells when.
func (c *Coordinator) startTrigger(now time.Time) time.Time {
	if c.claiming {
		return time.Time{}
	}
	l := load{inFlight: len(c.attempts), cleaning: c.cleaner.behind}
	for _, a := range c.attempts {
		l.final = l.final || a.Kind == Final
	}
	r, wake := c.decider.next(now, l)
	if r == nil {
		return wake
	}
	a := &attempt{
		id: ID{Generation: c.cfg.Generation, Number: c.next}, Order: r.Order,
		started: now, acks: make([]*Ack, len(c.cfg.Tasks)), waiting: len(c.cfg.Tasks),
		requests: []*request{r},
	}
	a.entry = c.stats.begin(a.id, a.Kind, now)
	c.attempts = append(c.attempts, a)
	c.claiming = true
	c.decider.held = r.Stop
	from := c.next
	c.goBeside(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
		defer cancel()
		n, err := c.claim(ctx, from)
		c.post(func() { c.onClaimed(a, n, err, time.Now()) })
	})
	return time.Time{}
}

// claim takes the first free number from n on. The one returned, or tried last, is used up.
func (c *Coordinator) claim(ctx context.Context, n uint64) (uint64, error) {
	c.cfg.Failpoint("before-claim")
	for last := n + maxClaims; n < last; n++ {
		mine, err := c.log.Claim(ctx, n)
		if err != nil {
			// The claim may exist. Nobody will ever use the number.
			return n, fmt.Errorf("claim number %d: %w", n, err)
		}
		if mine {
			c.cfg.Failpoint("after-claim")
			return n, nil
		}
	}
	return n - 1, fmt.Errorf("claim a number: %d numbers up to %d are taken", maxClaims, n-1)
}

func (c *Coordinator) onClaimed(a *attempt, n uint64, err error, now time.Time) {
	if c.ctx.Err() != nil {
		return
	}
	c.claiming = false
	c.next = n + 1
	a.id.Number = n
	c.stats.change(a.entry, func(s *AttemptStats) { s.ID = a.id })
	switch {
	case isFenced(err):
		c.stop(fmt.Errorf("checkpoint %d: %w", n, err))
		return
	case !slices.Contains(c.attempts, a): // expired meanwhile
		c.cleaner.abandon(n)
		return
	case err != nil:
		c.fail(a, err, now)
		return
	}
	a.phase = acking
	c.tasks.Trigger(Barrier{ID: a.id, Kind: a.Kind, Triggered: wall(a.started), Drained: a.Drained, Stop: a.Stop})
	if a.waiting == 0 {
		a.phase = ready
	}
}

// find returns the attempt in flight that a task talks of, or nil.
func (c *Coordinator) find(id ID) *attempt {
	for _, a := range c.attempts {
		if a.id == id && a.phase != claiming {
			return a
		}
	}
	return nil
}

func (c *Coordinator) onAck(ack *Ack) {
	at, known := c.index[ack.Task]
	a := c.find(ack.Checkpoint)
	if a == nil && ack.Checkpoint.Generation == c.cfg.Generation && slices.Contains(c.late, ack.Checkpoint.Number) {
		// What it wrote is not referred to by anything: Log.Abandon removes its state.
		c.stats.update(func(s *Stats) { s.LateAcks++ })
		return
	}
	if a == nil || !known || a.acks[at] != nil {
		c.stats.update(func(s *Stats) { s.UnknownAcks++ })
		c.slog.Warn("a task acknowledged a checkpoint that does not wait for it",
			"checkpoint", ack.Checkpoint.Number, "task", ack.Task.Chain, "subtask", ack.Task.Subtask)
		return
	}
	a.acks[at] = ack
	a.waiting--
	c.stats.ack(a.entry, at, ack, time.Now())
	if a.waiting == 0 {
		a.phase = ready
	}
}

func (c *Coordinator) onDecline(task TaskID, n ID, err error) {
	if a := c.find(n); a != nil && a.phase == acking {
		c.fail(a, fmt.Errorf("task %s/%d: %w", task.Chain, task.Subtask, err), time.Now())
	}
}

// drop takes an attempt out of flight and remembers its number.
func (c *Coordinator) drop(a *attempt) {
	c.attempts = slices.DeleteFunc(c.attempts, func(b *attempt) bool { return a == b })
	if a.phase == claiming {
		return // its number is not known yet
	}
	c.cleaner.abandon(a.id.Number)
	c.late = append(c.late, a.id.Number)
	if n := len(c.late) - rememberedLate; n > 0 {
		c.late = slices.Delete(c.late, 0, n)
	}
}

// fail gives an attempt up. Nothing of it is published by itself; sinks hand over
// what they prepared for it with the next one.
func (c *Coordinator) fail(a *attempt, err error, now time.Time) {
	c.drop(a)
	if a.phase != claiming {
		c.tasks.Abandon(a.id)
		c.abandonFiles(a.id.Number)
	}
	c.stats.end(a.entry, Failed, err, now)
	c.slog.Warn("a checkpoint failed", "checkpoint", a.id.Number, "kind", a.Kind, "err", err)
	err = fmt.Errorf("checkpoint %d failed: %w", a.id.Number, err)
	for _, r := range a.requests {
		if r.Kind == Final && !r.orphan {
			r.notBefore = now.Add(finalRetry)
			if c.decider.add(r) {
				continue
			}
		}
		r.finish(nil, err)
	}
	if a.leads() {
		return // it was asked for, fails towards who asked, and the job runs on
	}
	c.failures++
	c.stats.update(func(s *Stats) { s.FailedInARow = c.failures })
	if t := c.cfg.TolerableFailures; t >= 0 && c.failures > t {
		c.stop(fmt.Errorf("%w: %d, of which %d are tolerable; the last: %w", ErrTooManyFailures, c.failures, t, err))
	}
}

// abandonFiles removes the state of a failed attempt beside the loop: a disk that is
// full must not stay so until a later checkpoint is proven. What cannot be removed goes
// with the cleaning after that.
func (c *Coordinator) abandonFiles(n uint64) {
	if c.ctx.Err() != nil {
		return
	}
	c.goBeside(func(ctx context.Context) {
		if err := c.log.Abandon(ctx, n); err != nil && ctx.Err() == nil {
			c.slog.Warn("cannot remove the state of a failed checkpoint now, it goes once a later one is proven", "checkpoint", n, "err", err)
		}
	})
}

// finalRetry is the time until a failed final checkpoint is tried again.
const finalRetry = time.Second

// subsume drops the attempts before a, whose metadata is durable and lists all
// that they prepared.
func (c *Coordinator) subsume(a *attempt, now time.Time) {
	for _, b := range slices.Clone(c.attempts) {
		if b.id.Number < a.id.Number && b.subsumable() {
			c.drop(b)
			c.stats.end(b.entry, Subsumed, errSubsumed, now)
			a.requests = append(a.requests, b.requests...)
		}
	}
}
