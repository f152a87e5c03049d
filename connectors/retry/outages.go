package retry

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// Outages are what calls of a Policy wait for at present. It is embedded by sinks that are
// to tell of it: it implements connectors.OutageTeller. Its zero value is ready.
type Outages struct {
	mu    sync.Mutex
	calls map[*call]bool // that have failed, and are made again
}

var _ connectors.OutageTeller = (*Outages)(nil)

// call is one that is being made until it succeeds.
type call struct{ outage connectors.Outage }

// Outages implements connectors.OutageTeller. Calls for the same thing are told of once.
func (o *Outages) Outages() []connectors.Outage {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []connectors.Outage
	for c := range o.calls {
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
func (o *Outages) watch(what string, f func(context.Context) error) (watched func(context.Context) error, done func()) {
	if o == nil {
		return f, func() {}
	}
	c := &call{outage: connectors.Outage{What: what}}
	watched = func(ctx context.Context) error {
		err := f(ctx)
		if err == nil || final(err) || ctx.Err() != nil {
			return err
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		if c.outage.Err = err; c.outage.Since.IsZero() {
			c.outage.Since = time.Now()
		}
		if o.calls == nil {
			o.calls = map[*call]bool{}
		}
		o.calls[c] = true
		return err
	}
	return watched, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.calls, c)
	}
}
