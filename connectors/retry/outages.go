package retry

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// Watch knows what calls of a Policy wait for at present. It is embedded by sinks that are
// to tell of it, and makes them connectors.OutageTeller. Its zero value is ready.
type Watch struct {
	mu    sync.Mutex
	calls map[*call]bool // that have failed, and are made again
}

var _ connectors.OutageTeller = (*Watch)(nil)

// call is one that is being made until it succeeds.
type call struct{ outage connectors.Outage }

// Outages implements connectors.OutageTeller. Calls for the same thing are told of once.
func (w *Watch) Outages() []connectors.Outage {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []connectors.Outage
	for c := range w.calls {
		i := slices.IndexFunc(out, func(x connectors.Outage) bool { return x.What == c.outage.What })
		switch {
		case i < 0:
			out = append(out, c.outage)
		case c.outage.Since.Before(out[i].Since):
			out[i] = c.outage
		}
	}
	return out
}

// watch is f, which notes that it fails until done is called. A call that was ended by who
// made it tells of no outage.
func (w *Watch) watch(what string, f func(context.Context) error) (watched func(context.Context) error, done func()) {
	if w == nil {
		return f, func() {}
	}
	c := &call{outage: connectors.Outage{What: what}}
	watched = func(ctx context.Context) error {
		err := f(ctx)
		if err == nil || final(err) || ctx.Err() != nil {
			return err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if c.outage.Err = err; c.outage.Since.IsZero() {
			c.outage.Since = time.Now()
		}
		if w.calls == nil {
			w.calls = map[*call]bool{}
		}
		w.calls[c] = true
		return err
	}
	return watched, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.calls, c)
	}
}
