package pipeline

import (
	"context"
	"sync"
	"time"
)

// pastime is what a task does with its time.
type pastime uint8

const (
	busy          pastime = iota
	backpressured         // it waits for those behind it
	idle                  // it waits for records
	pastimes
)

const (
	// sampleEvery is how often it is noted how tasks have spent their time, and samples
	// how many of the notes are kept: together the time that shares are of.
	sampleEvery = time.Second
	samples     = 5
	// atHand is how long a source is busy for a batch that it had: what it took to hand
	// the batch over is work, and only what goes on for longer is a wait.
	atHand = time.Millisecond
)

// taskTime is how a task has spent its time. The clock is read when a wait begins and
// when it ends, never for a record.
type taskTime struct {
	mu      sync.Mutex
	doing   pastime
	since   time.Time // when the present wait began; of no meaning while busy
	spent   timeSample
	samples [samples]timeSample
	next    int // of samples to overwrite, which is the oldest
}

// timeSample is how much of a task's time had gone into waits at a time.
type timeSample struct {
	at     time.Time
	waited [pastimes]time.Duration // that for busy is not used
}

// begin starts the clock.
func (t *taskTime) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spent.at = time.Now()
	for i := range t.samples {
		t.samples[i] = t.spent
	}
}

// wait notes that the task begins to wait.
func (t *taskTime) wait(as pastime) {
	t.mu.Lock()
	t.doing, t.since = as, time.Now()
	t.mu.Unlock()
}

// resume notes that the wait is over. One that was no longer than least was none.
func (t *taskTime) resume(least time.Duration) {
	t.mu.Lock()
	if d := time.Since(t.since); d > least {
		t.spent.waited[t.doing] += d
	}
	t.doing = busy
	t.mu.Unlock()
}

// now is what was spent so far, the present wait included. The caller holds the lock.
func (t *taskTime) now() timeSample {
	s := t.spent
	s.at = time.Now()
	if t.doing != busy {
		s.waited[t.doing] += s.at.Sub(t.since)
	}
	return s
}

// sample remembers what was spent so far.
func (t *taskTime) sample() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.samples[t.next] = t.now()
	t.next = (t.next + 1) % samples
}

// shares tells how the task has spent the last seconds. They add up to 1.
func (t *taskTime) shares() (shares [pastimes]float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, before := t.now(), &t.samples[t.next]
	whole := now.at.Sub(before.at)
	if before.at.IsZero() || whole <= 0 {
		shares[idle] = 1
		return shares
	}
	rest := whole
	for _, p := range []pastime{backpressured, idle} {
		// A wait that turned out to be none was one while it lasted.
		d := min(max(0, now.waited[p]-before.waited[p]), rest)
		rest -= d
		shares[p] = float64(d) / float64(whole)
	}
	shares[busy] = 1 - shares[backpressured] - shares[idle]
	return shares
}

// sampleTime notes from time to time how the tasks spend theirs.
func (a *attempt) sampleTime(ctx context.Context) error {
	for {
		if err := sleep(ctx, sampleEvery); err != nil {
			return err
		}
		for _, t := range a.tasks {
			t.time.sample()
		}
	}
}
