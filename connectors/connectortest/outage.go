package connectortest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// How long targets are down: a minute where time is virtual.
const (
	virtualOutage = time.Minute
	shortOutage   = 300 * time.Millisecond
)

// outage takes the target away in the middle of a life.
func outage(ctx context.Context, w *world) error {
	down := w.target.Network.Down
	long := shortOutage
	if w.target.Virtual {
		long = virtualOutage
	}
	l := &life{world: w}
	if err := l.advance(ctx); err != nil {
		return fmt.Errorf("before the outage: %w", err)
	}
	l.step = 0 // once more, from where it is
	down(true)
	back := make(chan struct{})
	time.AfterFunc(long, func() {
		down(false)
		close(back)
	})
	err := l.run(ctx)
	<-back
	return err
}

// silence checks that nothing is acknowledged that the target, which is down, has not
// got, and that the process that met it goes on without loss.
func silence(ctx context.Context, w *world) error {
	p, _, err := fed(ctx, w)
	if err != nil {
		return err
	}
	if err := p.feed(ctx, 20, whole); err != nil {
		return err
	}
	last, err := p.prepare(ctx, true)
	if err != nil {
		return err
	}
	if last, err = w.complete(last); err != nil {
		return err
	}
	done, err := unanswered(ctx, w, func(ctx context.Context) error { return p.commit(ctx, last) })
	if done && err == nil {
		err = w.verify(ctx, p.next, p.sink.Guarantee())
	}
	if err != nil {
		return fmt.Errorf("committed while the target was down: %w", err)
	}
	if err := (&life{world: w, p: p}).commit(ctx, last); err != nil {
		return restart(ctx, w, p)
	}
	if p.feed(ctx, 20, whole) != nil {
		return restart(ctx, w, p)
	}
	var s *snapshot
	done, err = unanswered(ctx, w, func(ctx context.Context) (err error) { s, err = p.prepare(ctx, true); return err })
	if done && err == nil && p.committer == nil {
		err = w.verify(ctx, p.next, p.sink.Guarantee())
	}
	if err != nil {
		return fmt.Errorf("prepared while the target was down: %w", err)
	}
	// What that one did not hand over the next one does, or the writer asks for a restart.
	if p.feed(ctx, 20, whole) != nil {
		return restart(ctx, w, p)
	}
	if s, err = p.prepare(ctx, true); err != nil {
		return restart(ctx, w, p)
	}
	if s, err = w.complete(s); err != nil {
		return err
	}
	if err := p.commit(ctx, s); err != nil {
		return err
	}
	return p.finish(ctx)
}

// unanswered runs f for a moment while the target is down, and reports whether it says
// that it is done.
func unanswered(ctx context.Context, w *world, f func(ctx context.Context) error) (done bool, err error) {
	w.target.Network.Down(true)
	defer w.target.Network.Down(false)
	short, cancel := context.WithTimeout(ctx, shortOutage)
	defer cancel()
	switch err := f(short); {
	case err == nil:
		return true, nil
	case connectors.IsPermanent(err):
		return false, fmt.Errorf("a permanent error where waiting helps: %w", err)
	}
	return false, nil
}

// throttled has the target put off some requests.
func throttled(ctx context.Context, w *world) error {
	l := &life{world: w}
	if err := l.advance(ctx); err != nil {
		return err
	}
	l.step = 0
	w.target.Network.Throttle(3)
	return l.run(ctx)
}

// mostReplies is how many of a life's replies are lost, each in a run of its own.
const mostReplies = 16

// lostReplies lists the requests of a life whose replies can be lost.
func lostReplies(ctx context.Context, w *world) ([]testCase, error) {
	requests := w.target.Network.Requests
	before := requests()
	if err := (&life{world: w}).run(ctx); err != nil {
		return nil, fmt.Errorf("with all replies: %w", err)
	}
	n := requests() - before
	if n == 0 {
		return nil, errors.New("Network.Requests counts no request of a whole life")
	}
	step := max(1, (n+mostReplies-1)/mostReplies)
	var cases []testCase
	for i := 1; i <= n; i += step {
		cases = append(cases, testCase{fmt.Sprintf("request %d of %d", i, n), func(ctx context.Context, w *world) error {
			w.target.Network.LoseReply(i)
			defer w.target.Network.LoseReply(0)
			return (&life{world: w}).run(ctx)
		}})
	}
	return cases, nil
}
