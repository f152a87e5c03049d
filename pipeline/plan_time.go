package pipeline

import (
	"fmt"

	"github.com/sluice-etl/sluice/pipeline/spec"
	"github.com/sluice-etl/sluice/pipeline/transform"
)

// warnOfTime warns where a step goes by event time, and the records of a source that
// feeds it have none but a time that does not tell when they happened.
func (b *planner) warnOfTime() {
	steps := map[int]string{} // the first such step of each scope
	for i := range b.spec.Transforms {
		t := &b.spec.Transforms[i]
		n := b.plan.byName[t.Name]
		if n == nil || n.chain == nil || !byEventTime(t.Config) || steps[n.chain.scope] != "" {
			continue
		}
		steps[n.chain.scope] = t.Name
	}
	for _, c := range b.plan.chains {
		if c.source == nil || c.source.spec.Timestamp.Set() {
			continue
		}
		s, step := c.source.spec, steps[c.scope]
		if step == "" || s.Spec.LooseTime == "" {
			continue
		}
		b.spec.Warn(s.Path, spec.CodeNoTime,
			fmt.Sprintf("step %s goes by event time, and without a timestamp that of each record of source %s is %s", step, s.Name, s.Spec.LooseTime),
			"add timestamp: an expression for the time in the records")
	}
}

// byEventTime reports whether a step so configured gives other results where the
// event times of its records are others.
func byEventTime(config any) bool {
	timed := func(w *transform.Window) bool { return w.Timed() && !w.Processing }
	switch c := config.(type) {
	case *transform.AggregateConfig:
		return timed(&c.Window)
	case *transform.TopConfig:
		return timed(&c.Window)
	case *transform.JoinConfig:
		return timed(&c.Window) || c.Within != nil || c.Latest
	}
	return false
}
