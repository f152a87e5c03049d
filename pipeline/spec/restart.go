package spec

import (
	"errors"
	"fmt"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

type fixedKeys struct {
	Attempts int           `key:"attempts" doc:"How often it is tried before the pipeline has failed."`
	Delay    time.Duration `key:"delay" doc:"Time before each try."`
}

type failureRateKeys struct {
	Max   int           `key:"max" doc:"Failures within per that are borne."`
	Per   time.Duration `key:"per" doc:"The time in which failures are counted."`
	Delay time.Duration `key:"delay" doc:"Time before each try."`
}

type exponentialKeys struct {
	Initial    time.Duration `key:"initial" doc:"Time before the first try."`
	Max        time.Duration `key:"max" doc:"Longest time before a try."`
	Multiplier float64       `key:"multiplier" doc:"What the time grows by."`
	Jitter     float64       `key:"jitter" doc:"Fraction by which the time varies."`
	ResetAfter time.Duration `key:"reset_after" doc:"Running for so long, the time starts over."`
}

// restart reads the restart strategy: a name, or a name with settings.
func (l *loader) restart(n *node) {
	fixed := fixedKeys{Attempts: 3, Delay: 10 * time.Second}
	byRate := failureRateKeys{Max: 3, Per: 5 * time.Minute, Delay: 10 * time.Second}
	exponential := exponentialKeys{time.Second, time.Minute, 2, 0.1, 10 * time.Minute}
	r := &l.p.Restart
	defer func() {
		switch r.Strategy {
		case RestartNone:
		case RestartFixed:
			r.Attempts, r.Delay = fixed.Attempts, fixed.Delay
		case RestartFailureRate:
			r.Attempts, r.Per, r.Delay = byRate.Max, byRate.Per, byRate.Delay
		default:
			e := exponential
			*r = Restart{RestartExponential, 0, 0, 0, e.Initial, e.Max, e.Multiplier, e.Jitter, e.ResetAfter}
		}
	}()
	if n == nil || n.bad || n.kind == nullNode {
		return
	}
	name, at, settings := n.text, n, (*node)(nil)
	if n.kind == mapNode && len(n.entries) == 1 {
		name, at, settings = n.entries[0].key, n.entries[0].name, n.entries[0].value
	}
	strategies := []string{string(RestartNone), string(RestartFixed), string(RestartFailureRate), string(RestartExponential)}
	targets := map[RestartStrategy]any{RestartFixed: &fixed, RestartFailureRate: &byRate, RestartExponential: &exponential, RestartNone: &struct{}{}}
	target, ok := targets[RestartStrategy(name)]
	if !ok {
		if n.kind == mapNode && len(n.entries) != 1 || n.kind == listNode {
			l.fault(n, CodeType, "restart takes one strategy", oneOf(strategies))
			return
		}
		l.fault(at, CodeEnum, "restart cannot be "+at.quote(), suggest(name, strategies))
		return
	}
	r.Strategy = RestartStrategy(name)
	if settings != nil {
		l.config(at, settings, target, "restart "+name)
	}
}

// Validate checks the settings of the strategy fixed.
func (k *fixedKeys) Validate() error {
	return errors.Join(atLeast("attempts", k.Attempts, 1), notNegative("delay", k.Delay))
}

// Validate checks the settings of the strategy failure_rate.
func (k *failureRateKeys) Validate() error {
	return errors.Join(atLeast("max", k.Max, 1), positive("per", k.Per), notNegative("delay", k.Delay))
}

// Validate checks the settings of the strategy exponential.
func (k *exponentialKeys) Validate() error {
	faults := []error{positive("initial", k.Initial), positive("reset_after", k.ResetAfter)}
	if k.Max < k.Initial {
		faults = append(faults, &connectors.FieldError{Key: "max", Msg: fmt.Sprintf("must be at least initial, which is %s", k.Initial)})
	}
	if !(k.Multiplier >= 1 && k.Multiplier <= 100) {
		faults = append(faults, &connectors.FieldError{Key: "multiplier", Msg: "must be from 1 to 100"})
	}
	if !(k.Jitter >= 0 && k.Jitter <= 1) {
		faults = append(faults, &connectors.FieldError{Key: "jitter", Msg: "must be from 0 to 1"})
	}
	return errors.Join(faults...)
}

func atLeast(key string, n, least int) error {
	if n < least {
		return &connectors.FieldError{Key: key, Msg: fmt.Sprintf("must be at least %d", least)}
	}
	return nil
}

func positive(key string, d time.Duration) error {
	if d <= 0 {
		return &connectors.FieldError{Key: key, Msg: "must be more than 0s"}
	}
	return nil
}

func notNegative(key string, d time.Duration) error {
	if d < 0 {
		return &connectors.FieldError{Key: key, Msg: "cannot be negative"}
	}
	return nil
}
