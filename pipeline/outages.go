package pipeline

import (
	"cmp"
	"slices"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// Outage is what a pipeline waits for, since it cannot be reached and is tried again.
type Outage struct {
	What  string    // such as kafka broker 10.0.0.1:9092, or a step of the start
	Since time.Time // when it failed first
	Error string    // of the last try
	// Part says that other parts of the same system answer.
	Part bool
	// Starting says that What is a step of the start: nothing flows before it works.
	Starting bool
}

// outage is the step of a start that fails for now.
type outage struct {
	what  string // empty for none
	since time.Time
	err   error
}

// waits notes how a step of a start that is repeated has gone.
func (c *Control) waits(step string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.waiting = outage{}
	case c.waiting.what == step:
		c.waiting.err = err
	default:
		c.waiting = outage{what: step, since: time.Now(), err: err}
	}
}

// Outages are what the pipeline waits for at present, the oldest first. What several of
// its clients cannot reach is told once.
func (c *Control) Outages() []Outage {
	c.mu.Lock()
	run, w, phase := c.run, c.waiting, c.status.Phase
	c.mu.Unlock()
	var out []Outage
	if w.what != "" && (phase == Starting || phase == Restarting) {
		out = append(out, Outage{What: w.what, Since: w.since, Error: w.err.Error(), Starting: true})
	}
	if run == nil {
		return out
	}
	for _, t := range run.a.tasks {
		if t.reader != nil {
			out = addOutages(out, t.reader.reader)
		}
	}
	for _, s := range run.a.sinks {
		out = addOutages(out, s.sink)
	}
	slices.SortFunc(out, func(a, b Outage) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.What, b.What)) })
	return out
}

// addOutages adds what a reader or sink tells and others have not told.
func addOutages(out []Outage, of any) []Outage {
	teller, ok := of.(connectors.OutageTeller)
	if !ok {
		return out
	}
	for _, o := range teller.Outages() {
		i := slices.IndexFunc(out, func(x Outage) bool { return x.What == o.What })
		if i < 0 {
			out = append(out, Outage{What: o.What, Since: o.Since, Error: o.Err.Error(), Part: o.Part})
			continue
		}
		out[i].Part = out[i].Part && o.Part
		if o.Since.Before(out[i].Since) {
			out[i].Since = o.Since
		}
	}
	return out
}
