package pipeline

import (
	"fmt"
	"strings"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/spec"
	"github.com/sluice-etl/sluice/storage"
)

// longestDefaultExpiry is how long what a Kafka sink prepares can be committed where the
// file does not say: as long as its transactions are left open at most.
const longestDefaultExpiry = 15 * time.Minute

// checkAddresses refuses addresses whose scheme this program does not know.
func (b *planner) checkAddresses() {
	cp := &b.spec.Checkpoint
	for _, a := range []struct{ key, address string }{{"storage", cp.Storage}, {"savepoints", cp.Savepoints.Dir}} {
		if a.address == "" {
			continue
		}
		if _, err := storage.Open(a.address); err != nil {
			b.fault([]string{"checkpoint", a.key}, err)
		}
	}
}

// checkGuarantees looks at whether what the sinks promise can be kept with the settings
// of checkpoints.
func (b *planner) checkGuarantees() {
	warned := false
	for _, s := range b.plan.sinks {
		s.guarantee = promised(s.spec)
		if s.guarantee != connectors.ExactlyOnce {
			continue
		}
		if e, ok := s.spec.Config.(connectors.Expirer); ok {
			b.checkExpiry(s.spec, e)
		}
		if b.plan.Guarantee(s.guarantee) == s.guarantee || warned {
			continue
		}
		warned = true
		b.spec.Warn([]string{"checkpoint", "mode"}, spec.CodeWeaker,
			fmt.Sprintf("sink %s promises exactly_once and the pipeline does not keep it: in mode at_least_once a restart can count records twice, "+
				"where a step reads from several tasks", s.spec.Name),
			"leave mode out, unless repeated results do no harm")
	}
}

// promised is what a sink promises by itself; empty where its settings have faults.
func promised(s *spec.Sink) connectors.Guarantee {
	if s.Config == nil {
		return ""
	}
	sink, err := s.Spec.New(s.Config)
	if err != nil {
		return ""
	}
	return sink.Guarantee()
}

// checkExpiry compares how long what the sink prepares can be committed with how long
// that may take: until the next checkpoint, for it to complete, and over a restart.
func (b *planner) checkExpiry(s *spec.Sink, e connectors.Expirer) {
	expiry, key := e.Expiry()
	if key == "" {
		return
	}
	path, said := append(s.ConfigPath(), key), key
	if expiry == 0 {
		expiry, said = longestDefaultExpiry, key+", by default at most"
	}
	cp := &b.spec.Checkpoint
	restart := longestDelay(&b.spec.Restart)
	needed := cp.Interval + cp.Timeout + restart
	switch {
	case expiry <= cp.Interval:
		b.fault(path, fmt.Errorf("%s %s is not above checkpoint.interval %s: each transaction would be aborted before its checkpoint", said, short(expiry), short(cp.Interval)))
	case expiry < needed:
		b.spec.Warn(path, spec.CodeExpiry,
			fmt.Sprintf("%s %s, is shorter than interval %s + timeout %s + a restart's delay of %s: a slow checkpoint before a restart is lost, and the pipeline goes back to the one before",
				said, short(expiry), short(cp.Interval), short(cp.Timeout), short(restart)),
			fmt.Sprintf("set %s above %s, as far as the target allows, or lower checkpoint.timeout", key, short(needed)))
	}
	if cp.Retained == 1 {
		b.spec.Warn([]string{"checkpoint", "retained"}, spec.CodeExpiry,
			fmt.Sprintf("what sink %s has prepared can expire, and then the pipeline goes back to the checkpoint before: with one kept, a damaged one is replaced by nothing, and the pipeline stops until somebody decides", s.Name),
			"leave it out: 3 are kept by default")
	}
}

// longestDelay is the longest time from a failure to the next start.
func longestDelay(r *spec.Restart) time.Duration {
	switch r.Strategy {
	case spec.RestartFixed, spec.RestartFailureRate:
		return r.Delay
	case spec.RestartExponential:
		return time.Duration(float64(r.Max) * (1 + r.Jitter))
	case spec.RestartNone:
	}
	return 0
}

// short is a duration without parts that are zero at its end.
func short(d time.Duration) string {
	text := d.Round(time.Second).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// severalInputs reports whether a task of the plan takes records from more than one
// task, so that barriers are aligned.
func (p *Plan) severalInputs() bool {
	parallelism := p.Spec.Parallelism
	if parallelism == 0 {
		parallelism = 2 // one for each core: as many as may be
	}
	for _, c := range p.chains {
		if c.source == nil && c.lanes(parallelism) > 1 {
			return true
		}
	}
	return false
}

// Guarantee is what a sink that promises g keeps in the pipeline: the weaker of its
// promise and the mode.
func (p *Plan) Guarantee(g connectors.Guarantee) connectors.Guarantee {
	if g == connectors.ExactlyOnce && p.Spec.Checkpoint.Mode == spec.ModeAtLeastOnce && p.severalInputs() {
		return connectors.AtLeastOnce
	}
	return g
}
