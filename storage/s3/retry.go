package s3

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// Pauses between tries: a random part of one that doubles, so that clients which
// failed together do not come back together.
const (
	firstPause = 100 * time.Millisecond
	maxPause   = 5 * time.Second
	briefTries = 3
)

// do tries until it works, the answer is final, retry_timeout is over or ctx ends.
// What it returns is an *Error, or wraps the cause of ctx's end, with the failure of
// the last try before it.
func (b *bucket) do(ctx context.Context, op, key string, try func(ctx context.Context) error) error {
	end := time.Now().Add(b.client.config.RetryTimeout)
	var last error // why the try before did not work
	for n := 1; ; n++ {
		if err := b.pace.wait(ctx); err != nil {
			return errors.Join(cancelled(ctx, op, key), last)
		}
		err := try(ctx)
		if err == nil {
			b.pace.ok()
			return nil
		}
		if ctx.Err() != nil {
			return errors.Join(cancelled(ctx, op, key), last)
		}
		e := classify(b.name, op, key, err)
		e.tries = n
		if e.slow {
			b.pace.slow()
		}
		if e.kind == brief {
			b.client.renew()
		}
		pause := rand.N(min(maxPause, firstPause<<min(n-1, 10)) + 1)
		switch {
		case e.kind == settled || e.kind == person:
			return e
		case e.kind == brief && n >= briefTries:
			e.kind = person
			return e
		case time.Now().Add(pause).After(end):
			return e
		}
		if last = e; sleep(ctx, pause) != nil {
			return errors.Join(cancelled(ctx, op, key), last)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// The rate of requests while a server asks for fewer of them.
const (
	minRate     = 5.0              // a second: below this nothing would ever be done
	rateStep    = 1.0              // what an answer adds, a second
	slowOnce    = time.Second      // one slowdown for all the requests that were refused together
	measureOver = 10 * time.Second // over which the rate at a slowdown is measured
)

// pace is how fast requests to a bucket may go: without limit until the server
// complains, then at half the rate of that moment, rising with each answer until it
// is back at twice that rate.
type pace struct {
	mu      sync.Mutex
	rate    float64 // a second; 0 is no limit
	free    float64 // at this rate there is no limit any more
	next    time.Time
	slowed  time.Time
	since   time.Time // of counted
	counted float64
}

// wait waits for a request's turn.
func (p *pace) wait(ctx context.Context) error {
	p.mu.Lock()
	now := time.Now()
	if now.Sub(p.since) > measureOver {
		p.since, p.counted = now, 0
	}
	p.counted++
	var pause time.Duration
	if p.rate > 0 {
		if p.next.Before(now) {
			p.next = now
		}
		pause = p.next.Sub(now)
		p.next = p.next.Add(time.Duration(float64(time.Second) / p.rate))
	}
	p.mu.Unlock()
	return sleep(ctx, pause)
}

// slow halves the rate.
func (p *pace) slow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if now.Sub(p.slowed) < slowOnce {
		return
	}
	p.slowed = now
	if p.rate == 0 {
		p.rate = p.counted / max(1, now.Sub(p.since).Seconds())
		p.free = max(2*p.rate, 2*minRate)
	}
	p.rate = max(minRate, p.rate/2)
}

// ok makes it faster.
func (p *pace) ok() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rate == 0 {
		return
	}
	if p.rate += rateStep; p.rate >= p.free {
		p.rate = 0
	}
}
