package spec

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

var rate = regexp.MustCompile(`^(\d{1,9}) +per +(\S+)$`)

// onError reads on_error and max_errors beside each other. What is not written
// is inherited.
func (l *loader) onError(n, limit *node, inherited OnError) OnError {
	out := inherited
	if n != nil && !n.bad {
		out.Action, out.Sink = "", ""
		switch {
		case n.kind == textNode && (n.text == string(Fail) || n.text == string(Skip)):
			out.Action = Action(n.text)
		case n.kind == textNode && n.text == string(DeadLetter):
			l.fault(n, CodeMissing, "dead_letter needs the name of a sink", "write on_error: {dead_letter: SINK}")
		case n.kind == mapNode && len(n.entries) == 1 && n.entries[0].key == string(DeadLetter):
			l.deadLetter(n.entries[0].value, n.entries[0].name, &out)
		default:
			help := "write fail, skip or {dead_letter: SINK}"
			if n.kind == textNode {
				help = suggest(n.text, []string{string(Fail), string(Skip), "{dead_letter: SINK}"})
			}
			l.fault(n, CodeEnum, "on_error cannot be "+n.words(), help)
		}
		if out.Action == "" {
			out.Action = Fail
		}
		if out.Action == Fail {
			out.Max, out.Per = 0, 0
		}
	}
	if limit == nil || limit.bad {
		return out
	}
	m := rate.FindStringSubmatch(limit.text)
	if m == nil || limit.kind != textNode {
		l.fault(limit, CodeValue, "max_errors cannot be "+limit.words(), "write a number per duration, such as 10 per 1m")
		return out
	}
	most, _ := strconv.Atoi(m[1])
	per, err := connectors.ParseDuration(m[2])
	switch {
	case err != nil || per <= 0:
		l.fault(limit, CodeValue, fmt.Sprintf("max_errors has no duration: %q", m[2]), "write it like 10 per 1m")
	case most == 0:
		l.fault(limit, CodeValue, "max_errors cannot be 0", "write on_error: fail, which bears none")
	case out.Action == Fail && n != nil:
		l.fault(limit, CodeValue, "max_errors has no effect beside on_error: fail, which stops at the first", "remove it, or write on_error: skip")
	case out.Action == Fail:
		l.fault(limit, CodeValue, "max_errors has no effect without on_error, since the first failure stops the pipeline", "add on_error: skip, or {dead_letter: SINK}")
	}
	out.Max, out.Per = most, per
	return out
}

func (l *loader) deadLetter(n, at *node, out *OnError) {
	if n.bad {
		return
	}
	if n.kind == nullNode || !n.scalar() {
		l.fault(at, CodeMissing, "dead_letter needs the name of a sink", "write on_error: {dead_letter: SINK}")
		return
	}
	out.Action, out.Sink = DeadLetter, n.text
	l.letters = append(l.letters, n)
}

// restartKeys are the keys of all strategies; each takes its own.
var restartKeys = map[RestartStrategy][]string{
	RestartNone:        nil,
	RestartFixed:       {"attempts", "delay"},
	RestartFailureRate: {"max", "per", "delay"},
	RestartExponential: {"initial", "max", "multiplier", "jitter", "reset_after"},
}

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
		l.fault(at, CodeEnum, fmt.Sprintf("restart cannot be %s", name), suggest(name, strategies))
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

type watermarkKeys struct {
	Delay           time.Duration  `key:"delay" doc:"How far out of order records may be."`
	IdleAfter       *time.Duration `key:"idle_after" doc:"A partition without records for so long holds nothing up."`
	MaxDrift        *time.Duration `key:"max_drift" doc:"A source that is further ahead waits."`
	MaxFuture       time.Duration  `key:"max_future" doc:"An event time further ahead of the clock is an error of its record."`
	AdvanceWhenIdle bool           `key:"advance_when_idle" doc:"Whether the clock moves event time on when all is idle."`
}

// Validate checks the settings of a watermark.
func (k *watermarkKeys) Validate() error {
	faults := []error{notNegative("delay", k.Delay), positive("max_future", k.MaxFuture)}
	if k.IdleAfter != nil {
		faults = append(faults, positive("idle_after", *k.IdleAfter))
	}
	if k.MaxDrift != nil {
		faults = append(faults, positive("max_drift", *k.MaxDrift))
	}
	return errors.Join(faults...)
}

// watermark checks the block, and refuses it as long as nothing acts on it.
func (l *loader) watermark(b block, n *node) {
	if n == nil || n.bad {
		return
	}
	at := b.node.entry("watermark").name
	if l.config(at, n, &watermarkKeys{MaxFuture: time.Hour}, "watermark") {
		l.unavailable(b.node.entry("watermark"), "watermark")
	}
}

// unavailable refuses a key whose function a later version brings.
func (l *loader) unavailable(e *entry, key string) {
	if e != nil && !e.value.bad {
		l.fault(e.name, CodeUnavailable, key+" is not available in this version", "remove it: it would have no effect")
	}
}

// laterCheckpoint are settings that a later version brings, with the value
// that changes nothing.
var laterCheckpoint = map[string]string{"savepoints": "", "claim": "no", "local_recovery": "off", "state": "memory", "incremental": "false"}

// checkpoint reads the block of that name.
func (l *loader) checkpoint(root, n *node) {
	c := &l.p.Checkpoint
	*c = defaultCheckpoint()
	at := root
	if e := root.entry("checkpoint"); e != nil {
		at = e.name
	}
	if n != nil && !n.bad {
		now := *n
		now.entries = nil
		for i := range n.entries {
			e := &n.entries[i]
			without, later := laterCheckpoint[e.key]
			switch {
			case !later:
				now.entries = append(now.entries, *e)
			case !e.value.scalar() || e.value.text != without:
				l.unavailable(e, e.key)
			}
		}
		l.config(at, &now, c, "checkpoint")
		for key, value := range map[string]string{"on_lost_commit": "accept_loss", "compression": "none"} {
			if e := n.entry(key); e != nil && e.value.text == value {
				l.unavailable(e, key+": "+value)
			}
		}
		c.LostCommitWritten = n.get("on_lost_commit") != nil
	}
	if c.Storage == "" && n.get("storage") == nil && (n == nil || n.kind == mapNode || n.kind == nullNode) {
		l.warn(at, CodeNoStorage, "checkpoints live in memory only, so that a new start of the program begins anew", "add checkpoint: {storage: \"file:///path\"}")
	}
	if c.Retained == 1 {
		l.warn(n.get("retained"), CodeRetainOne, "with one checkpoint kept there is none to fall back to when it is damaged", "leave it out: 3 are kept by default")
	}
}

// tests looks at the shape of the tests, which other commands run.
func (l *loader) tests(n *node) {
	if n == nil || n.bad || n.kind == nullNode {
		return
	}
	if n.kind != listNode {
		l.fault(n, CodeType, "tests must be a list, not "+n.words(), "start each test with `- name: …`")
		return
	}
	for _, item := range n.items {
		if item.bad {
			continue
		}
		if item.kind != mapNode {
			l.fault(item, CodeType, "a test takes keys with values, not "+item.words(), "its keys are name, input, expect")
			continue
		}
		type keys struct {
			Name   string `key:"name" required:"true" doc:"What the test shows."`
			Input  *node  `key:"input" required:"true" doc:"Records of each source."`
			Expect *node  `key:"expect" required:"true" doc:"What each sink gets."`
		}
		l.structure(item, item, reflect.ValueOf(&keys{}).Elem(), "test")
	}
}
