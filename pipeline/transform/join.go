package transform

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
)

// The types of a join.
const (
	joinInner = "inner"
	joinLeft  = "left"
	joinRight = "right"
	joinFull  = "full"
	joinSemi  = "semi"
	joinAnti  = "anti"
)

// JoinConfig is the block of a join.
type JoinConfig struct {
	Left   connectors.Ref         `key:"left" doc:"What the left records are read from." required:"true"`
	Right  connectors.Ref         `key:"right" doc:"What the right records are read from." required:"true"`
	On     connectors.Expr        `key:"on" doc:"Equalities between an expression of left.* and one of right.*, joined by &&, and further conditions." required:"true"`
	Type   string                 `key:"type" doc:"Which records come out: inner: pairs; left, right, full: pairs, and the records of that side without a match; semi, anti: left records with a match, or without one." enum:"inner|left|right|full|semi|anti"`
	Window Window                 `key:"window" doc:"Joins records of the same window: tumbling, sliding or session."`
	Within *JoinWithin            `key:"within" doc:"Joins records whose event times are near each other: {before, after} as spans around the left record, or {from, to} as times that the left record says."`
	Latest bool                   `key:"latest" doc:"Joins each left record with the newest right value of its key as of its event time."`
	TTL    TTL                    `key:"ttl" doc:"How long records are kept where nothing else says it, or forever."`
	Select connectors.Assignments `key:"select" doc:"The fields of the result, over left.*, right.*, and with a window window_start and window_end; by default left and right with the whole records."`
}

// JoinWithin are the bounds of an interval join: the right record's event time lies
// between them, both included.
type JoinWithin struct {
	Before connectors.TimeSpan `key:"before" doc:"How long before the left record the right one may be."`
	After  connectors.TimeSpan `key:"after" doc:"How long after the left record the right one may be."`
	From   connectors.Expr     `key:"from" doc:"The earliest event time of a right record, as an expression of left.*."`
	To     connectors.Expr     `key:"to" doc:"The latest event time of a right record, as an expression of left.*."`
}

// TTL is a span of time, or forever.
type TTL struct {
	Span    time.Duration
	Forever bool
}

// UnmarshalConfig reads a span such as 30d, or forever.
func (t *TTL) UnmarshalConfig(v any) error {
	if v == "forever" {
		t.Forever = true
		return nil
	}
	var span connectors.TimeSpan
	if err := span.UnmarshalConfig(v); err != nil {
		return fmt.Errorf("%w, or forever", err)
	}
	if t.Span = time.Duration(span); t.Span < time.Millisecond {
		return errors.New("it must be a span of at least 1ms, or forever")
	}
	return nil
}

// set reports whether the file says it.
func (t TTL) set() bool { return t.Forever || t.Span > 0 }

func (t TTL) millis() int64 { return t.Span.Milliseconds() }

func (t TTL) String() string {
	if t.Forever {
		return "forever"
	}
	return t.Span.String()
}

func init() {
	Register(Spec{
		Name:       "join",
		Doc:        "Joins the records of two inputs that have equal keys.",
		NewConfig:  func() any { return &JoinConfig{Type: joinInner} },
		BuildKeyed: buildJoin,
		Inputs: func(config any) []connectors.Ref {
			c := config.(*JoinConfig)
			return []connectors.Ref{c.Left, c.Right}
		},
		Updates:   TakesUpdates,
		OpenState: openJoin,
	})
}

// windowed reports whether the join is one of windows.
func (c *JoinConfig) windowed() bool { return c.Window.Kind != NoWindow }

// plain reports whether nothing but the ttl bounds what is kept.
func (c *JoinConfig) plain() bool { return !c.windowed() && c.Within == nil && !c.Latest }

// leftOnly reports whether the result is left records.
func (c *JoinConfig) leftOnly() bool { return c.Type == joinSemi || c.Type == joinAnti }

// outer reports whether records of a side come out without a match.
func (c *JoinConfig) outer(side int) bool {
	switch c.Type {
	case joinFull:
		return true
	case joinLeft, joinAnti:
		return side == leftSide
	case joinRight:
		return side == rightSide
	}
	return false
}

// Validate implements connectors.Validator.
func (c *JoinConfig) Validate() error {
	var faults []error
	fault := func(key, msg, help string) {
		faults = append(faults, &connectors.FieldError{Key: key, Msg: msg, Help: help})
	}
	c.checkForm(fault)
	if c.leftOnly() && len(c.Select) > 0 {
		fault("select", "a "+c.Type+" join gives the left record as it is", "put a `map` behind the join")
	}
	if c.windowed() && !c.Window.Timed() {
		fault("window", "a window of a number of records is not the same for both sides", "use tumbling, sliding or session")
	}
	if c.Latest && c.Type != joinInner && c.Type != joinLeft {
		fault("type", "a latest join is inner or left: the right side is a table of which each left record takes one row", "")
	}
	if c.Within != nil {
		c.Within.check(fault)
	}
	return errors.Join(faults...)
}

const joinForms = "write window, within: {before, after}, within: {from, to}, latest: true, or ttl alone to keep both sides for so long"

// checkForm demands that the keys say one form of join.
func (c *JoinConfig) checkForm(fault func(key, msg, help string)) {
	var forms []string
	if c.windowed() {
		forms = append(forms, "window")
	}
	if c.Within != nil {
		forms = append(forms, "within")
	}
	if c.Latest {
		forms = append(forms, "latest")
	}
	switch {
	case len(forms) > 1:
		fault(forms[1], "a join is of one form, and this one has "+strings.Join(forms, " and "), joinForms)
	case len(forms) == 0 && !c.TTL.set():
		fault("ttl", "nothing says how long the records of both sides are kept", joinForms+"; ttl: forever keeps everything")
	case c.TTL.set() && c.windowed():
		fault("ttl", "a window says how long records are kept", "remove it")
	case c.TTL.set() && c.Within != nil && !c.Within.From.Set() && !c.Within.To.Set():
		fault("ttl", "before and after say how long records are kept", "remove it")
	}
}

func (w *JoinWithin) check(fault func(key, msg, help string)) {
	const help = "write {before: 1h, after: 5m}, or {from: left.date_time, to: left.expires}"
	spans, times := w.Before != 0 || w.After != 0, w.From.Set() || w.To.Set()
	switch {
	case spans && times:
		fault("within", "the bounds are either spans or times", help)
	case times && !w.From.Set():
		fault("within.from", "the earliest time of the right record is missing", help)
	case times && !w.To.Set():
		fault("within.to", "the latest time of the right record is missing", help)
	case w.Before+w.After < 0:
		fault("within", "the bounds are the wrong way round: nothing is between them", "before and after added up must not be below zero")
	}
	for key, d := range map[string]connectors.TimeSpan{"within.before": w.Before, "within.after": w.After} {
		if time.Duration(d)%time.Millisecond != 0 {
			fault(key, "it must be in whole milliseconds, which times are in", "")
		}
	}
}

// joinStep is a join at one place of the graph.
type joinStep struct {
	name       string
	config     *JoinConfig
	definition string
	keys       []string // what the parts of a key are, by the left side
	// sides says what is kept of the records of each side.
	sides [2]joinSide
	out   joinOutput
	rest  *expr.Program // what must hold beside the equal keys; nil for nothing
	// updating says which inputs take rows back.
	updating [2]bool
	// processing says that time is that of processing.
	processing bool
	// from and to are the slots of the bounds that left records say, for within.
	from, to int
	// bounds are the slots of a window's start and end, -1 where nothing reads them.
	bounds [2]int
	// tombstone is the slot that tells deleted rows of the right side, for latest.
	tombstone int
}

// Definition is what the meaning of the step's state hangs on.
func (s *joinStep) Definition() string { return s.definition }

func (s *joinStep) Start(run KeyedRun) (KeyedInstance, error) {
	base := newJoinRun(s, run)
	switch {
	case s.config.windowed() && s.config.Window.Kind == SessionWindow:
		return newSessionJoin(base), nil
	case s.config.windowed():
		return newWindowJoin(base), nil
	case s.config.Within != nil:
		return newWithinJoin(base), nil
	case s.config.Latest:
		return newLatestJoin(base), nil
	}
	return newPlainJoin(base), nil
}
