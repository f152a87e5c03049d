// Package retry makes calls to other systems again until they succeed.
package retry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// Policy says how calls are made again. Its zero value is ready.
type Policy struct {
	First time.Duration // wait after the first failure, 100ms if 0; each later one is twice as long
	Most  time.Duration // longest wait, 10s if 0
	Log   *slog.Logger  // is told of failures, ever more rarely; nil for nobody
	What  string        // what is being done, for the log and the error
	// Watch is told of the call while it fails; nil for nobody.
	Watch *Watch
}

// Do calls f until it returns nil, an error that trying again cannot mend
// (Permanent, ErrFenced, *RowsError, ErrLost, ErrAmbiguous), or ctx ends, and returns the last
// error. A *connectors.RetryAfterError says how long to wait at least. Waits have a random
// part, so that many who failed together do not come back together.
func (p Policy) Do(ctx context.Context, f func(context.Context) error) error {
	wait, most := p.First, p.Most
	if wait <= 0 {
		wait = 100 * time.Millisecond
	}
	if most <= 0 {
		most = 10 * time.Second
	}
	f, done := p.Watch.watch(p.What, f)
	defer done()
	for try := 1; ; try++ {
		err := f(ctx)
		if err == nil || final(err) {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w (the last try: %w)", context.Cause(ctx), err)
		}
		if p.Log != nil && try&(try-1) == 0 { // at 1, 2, 4, 8 …
			p.Log.Warn("a call failed, trying again", "call", p.What, "tries", try, "err", err)
		}
		pause := wait/2 + rand.N(wait)
		var after *connectors.RetryAfterError
		if errors.As(err, &after) {
			pause = max(pause, after.After)
		}
		if !sleep(ctx, pause) {
			return fmt.Errorf("%w (the last try: %w)", context.Cause(ctx), err)
		}
		wait = min(2*wait, most)
	}
}

// final reports whether trying again cannot change the answer.
func final(err error) bool {
	var refused *connectors.RowsError
	return connectors.IsPermanent(err) || errors.As(err, &refused) || errors.Is(err, connectors.ErrFenced) ||
		errors.Is(err, connectors.ErrLost) || errors.Is(err, connectors.ErrAmbiguous)
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
