package transform

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/transform/accumulate"
)

// AggregateConfig is the block of an aggregate.
type AggregateConfig struct {
	By       connectors.Keys        `key:"by" doc:"What records are grouped by: a list of fields, or names with expressions. Without it all records are one group, which one subtask works on."`
	Window   Window                 `key:"window" doc:"The window that groups are cut by: {tumbling: 10s}, with offset; {tumbling: hour, day, week or month}, with zone and offset; {sliding: {size, every}}; {session: {gap, max}}; {count: n}. time: processing goes by the clock instead of the records' time."`
	Select   connectors.Assignments `key:"select" doc:"The fields of the result, each with an expression over aggregate functions, the fields of by and, with a window of time, window_start and window_end." required:"true"`
	Having   connectors.Expr        `key:"having" doc:"A condition over the fields of the result; rows for which it is not true are left out."`
	Emit     Emit                   `key:"emit" doc:"When results are given out: on_close, once, which is the default with a window; on_change, as updates, which is the default without; {every: 10s}, as updates at most so often."`
	Lateness connectors.TimeSpan    `key:"lateness" doc:"How long a window waits for late records after the watermark has passed its end."`
	TTL      TTL                    `key:"ttl" doc:"Without a window of time: how long a group is kept that nothing changes, in event time where the sources have a timestamp, or forever."`
}

// The fields of a result that tell its window, in milliseconds since 1970.
const (
	windowStart = "window_start"
	windowEnd   = "window_end"
)

// lateBranch is the output of records that come too late.
const lateBranch = "late"

func init() {
	Register(Spec{
		Name:       "aggregate",
		Doc:        "Counts, sums and the like over groups of records, in windows or as they change.",
		NewConfig:  func() any { return &AggregateConfig{} },
		BuildKeyed: buildAggregate,
		Side:       []string{lateBranch},
		Updates:    TakesUpdates,
		OpenState:  openAggregate,
	})
}

// emit is when results are given out.
func (c *AggregateConfig) emit() Emit {
	if c.Window.Kind != NoWindow {
		return c.Emit.or(EmitOnClose)
	}
	return c.Emit.or(EmitOnChange)
}

// Validate implements connectors.Validator.
func (c *AggregateConfig) Validate() error {
	var faults []error
	fault := func(key, msg, help string) {
		faults = append(faults, &connectors.FieldError{Key: key, Msg: msg, Help: help})
	}
	c.checkNames(fault)
	emit := c.emit()
	switch {
	case emit.Updating() && c.Window.Kind == SlidingWindow:
		fault("emit", "a sliding window gives each result once: one record would change all the windows that it is in", "write emit: on_close, or use a tumbling window")
	case emit.Updating() && c.Window.Kind == SessionWindow:
		fault("emit", "a session gives its result once: a record can move its ends and join it to another", "write emit: on_close")
	case emit.Updating() && c.Window.Kind == CountWindow:
		fault("emit", "a window of a number of records gives its result once, when it is full", "write emit: on_close")
	}
	switch {
	case c.Lateness < 0:
		fault("lateness", "it cannot be negative", "")
	case c.Lateness > 0 && (!c.Window.Timed() || c.Window.Processing):
		fault("lateness", "only windows by the time of records can have late ones", "remove it, or add such a window")
	}
	if c.TTL.set() && c.Window.Timed() {
		fault("ttl", "the state of a window goes when the window closes", "remove it")
	}
	return errors.Join(faults...)
}

// checkNames refuses a field that the result would have twice.
func (c *AggregateConfig) checkNames(fault func(key, msg, help string)) {
	if len(c.Select) == 0 {
		fault("select", "there is no field in it", "write {name: count()} or the like")
	}
	reserved := func(name string) bool { return c.Window.Timed() && (name == windowStart || name == windowEnd) }
	for _, k := range c.By {
		if reserved(k.Name) {
			fault("by."+k.Name, "the result has a field of that name, which tells the window", "give the key another name: by: {name: "+k.Expr.Text+"}")
		}
	}
	for i, a := range c.Select {
		switch {
		case reserved(a.Name):
			fault("select."+a.Name, "the result has a field of that name anyway", "remove it, or give it another name")
		case slices.ContainsFunc(c.By, func(k connectors.Assignment) bool { return k.Name == a.Name }):
			fault("select."+a.Name, "the result has a field of that name from by", "remove it, or give it another name")
		case slices.ContainsFunc(c.Select[:i], func(o connectors.Assignment) bool { return o.Name == a.Name }):
			fault("select."+a.Name, "it is there twice", "remove one of the two")
		}
	}
}

// aggregate is a compiled step.
type aggregate struct {
	name     string
	window   Window
	emit     Emit
	lateness int64
	ttl      TTL
	stamped  bool // a ttl runs in event time
	late     bool // something reads the branch of late rows
	updates  bool // rows are taken back
	keys     []int
	start    int // slots of window_start and window_end
	end      int
	calls    []aggregateCall
	fixed    []int // of calls, those that share one value
	loose    []int // and those that have a table each
	size     int   // of the shared value without its head
	selects  []assign
	columns  []int // slots of the fields of select
	having   *expr.Program
	filter   string
	stride   func() int
	define   string
	names    []string // of the key's fields
	fields   []string // of select
}

// aggregateCall is one aggregate function at work.
type aggregateCall struct {
	fn   accumulate.Function
	form accumulate.Form
	text string
	args []int // the slots of arguments
	near bool  // they are side by side
	cond int   // slot of the condition, -1 for none
	off  int   // within the shared value
	size int   // -1 for a table of its own
	out  int   // slot of the result
}

func buildAggregate(config any, env *KeyedEnv) KeyedStep {
	c := config.(*AggregateConfig)
	s := &aggregate{
		name: env.Name, window: c.Window, emit: c.emit(), lateness: millisOf(c.Lateness), ttl: c.TTL,
		stamped: env.Timestamped, late: env.Reads(lateBranch), updates: env.In[0].Updates() != nil,
		start: -1, end: -1, filter: c.Having.Text, names: keyNames(c.By),
		stride: env.Row.Base().Stride,
	}
	if s.updates && c.Window.Kind != NoWindow {
		env.Report([]string{"window"}, errors.New("the input is an updating stream, and a window cannot take back what it gave out: "+
			"aggregate without a window, or let the step before emit each result once (emit: on_close)"))
	}
	b := &aggregateBuilder{env: env, step: s, known: map[string]int{}}
	out := b.keys(c.By)
	out = b.selects(c.Select, out)
	b.having(c.Having, out)
	if s.late {
		env.CarryRow(0)
	}
	if env.Faulted() {
		return nil
	}
	if s.emit.Updating() {
		out = out.Updating(b.rowKey(c.By))
	}
	s.layout()
	s.define = b.definition(c)
	env.Output(out)
	env.Output(env.Row)
	return s
}

// Definition is what the state's meaning hangs on.
func (s *aggregate) Definition() string { return s.define }

func millisOf(d connectors.TimeSpan) int64 { return int64(d) / 1e6 }

// aggregateBuilder compiles the parts of a step.
type aggregateBuilder struct {
	env   *KeyedEnv
	step  *aggregate
	known map[string]int // index of a call, by its function and fields
}

// keys keys the records, and makes the view of a result with its keys and window.
func (b *aggregateBuilder) keys(by connectors.Keys) *View {
	programs := b.env.KeyBy(0, by, "by")
	out := b.env.Project()
	for i, k := range by {
		slot, t := b.env.NewSlot(), expr.Any
		if i < len(programs) {
			t = keyType(programs[i])
		}
		out = out.Set(k.Name, expr.Ref{Slot: slot, Covered: 1, Type: t})
		b.step.keys = append(b.step.keys, slot)
	}
	if b.step.window.Timed() {
		for _, f := range []struct {
			name string
			slot *int
		}{{windowStart, &b.step.start}, {windowEnd, &b.step.end}} {
			*f.slot = b.env.NewSlot()
			out = out.Set(f.name, expr.Ref{Slot: *f.slot, Covered: 1, Type: expr.Of(connectors.Int)})
		}
	}
	return out
}

// selects compiles the fields of the result. None of them sees another.
func (b *aggregateBuilder) selects(fields connectors.Assignments, keys *View) *View {
	out := keys
	for _, f := range fields {
		agg, err := expr.CompileAggregation(f.Expr.Text, b.env.In[0], keys, b.call, expr.Options{Name: f.Name, Deterministic: b.step.emit.Updating()})
		if err != nil {
			b.env.Report([]string{"select", f.Name}, err)
			out = out.Set(f.Name, expr.Ref{Slot: b.env.NewSlot(), Covered: 1, Type: expr.Any}) // having may name it
			continue
		}
		slot, bare := agg.Result.Slot()
		if !bare {
			slot = b.env.NewSlot()
			b.step.selects = append(b.step.selects, assign{text: f.Expr.Text, prog: agg.Result, slot: slot})
		}
		b.step.columns, b.step.fields = append(b.step.columns, slot), append(b.step.fields, f.Name)
		out = out.Set(f.Name, expr.Ref{Slot: slot, Covered: 1, Type: agg.Result.Type()})
	}
	return out
}

// call places one call of an aggregate function and tells where its result will be.
func (b *aggregateBuilder) call(_ int, call *expr.AggregateCall) (expr.Ref, error) {
	s := b.step
	same := plainCall(call)
	if i, ok := b.known[same]; ok && same != "" {
		return expr.Ref{Slot: s.calls[i].out, Covered: 1, Type: s.calls[i].fn.Type()}, nil
	}
	if s.updates {
		for _, p := range append(slices.Clip(call.Args), call.If) {
			if p != nil && p.Varies() {
				return expr.Ref{}, varies(p)
			}
		}
	}
	o := accumulate.Options{Updating: s.updates}
	fn, err := accumulate.New(call, o)
	if err != nil {
		return expr.Ref{}, err
	}
	c := aggregateCall{fn: fn, form: accumulate.FormOf(call, o), text: call.Text, cond: -1, size: fn.Size(), out: b.env.NewSlot(), near: true}
	for i, p := range call.Args {
		if _, option := p.Constant(); option && i > 0 {
			break
		}
		if call.If != nil {
			p = expr.When(call.If, p)
		}
		slot := b.env.Carry(0, p)
		c.near = c.near && (i == 0 || slot == c.args[i-1]+1)
		c.args = append(c.args, slot)
	}
	if call.If != nil && len(c.args) == 0 {
		c.cond = b.env.Carry(0, call.If) // others count no record of which an argument is null
	}
	b.known[same] = len(s.calls)
	s.calls = append(s.calls, c)
	return expr.Ref{Slot: c.out, Covered: 1, Type: fn.Type()}, nil
}

// plainCall tells calls apart whose arguments are nothing but fields; empty for
// others, whose text may mean different things.
func plainCall(call *expr.AggregateCall) string {
	if call.If != nil {
		return ""
	}
	words := []string{call.Name}
	for _, p := range call.Args {
		slot, bare := p.Slot()
		if !bare {
			return ""
		}
		words = append(words, strconv.Itoa(slot))
	}
	return strings.Join(words, " ")
}

func (b *aggregateBuilder) having(x connectors.Expr, out *View) {
	if !x.Set() {
		return
	}
	p, err := expr.Compile(x.Text, out, expr.Options{Want: expr.Bool, Name: "having", Deterministic: b.step.emit.Updating()})
	if err == nil && p.This() {
		err = errors.New("`this` is not there yet: name the fields of the result")
	}
	if err != nil {
		b.env.Report([]string{"having"}, err)
		return
	}
	b.step.having = p
}

// rowKey are the fields by which the rows of an updating result are told apart.
func (b *aggregateBuilder) rowKey(by connectors.Keys) []string {
	names := []string{}
	for _, k := range by {
		names = append(names, k.Name)
	}
	if b.step.window.Timed() {
		names = append(names, windowStart, windowEnd)
	}
	return names
}

func (b *aggregateBuilder) definition(c *AggregateConfig) string {
	s := b.step
	var d strings.Builder
	d.WriteString("aggregate by")
	for _, k := range c.By {
		fmt.Fprintf(&d, " %q", k.Expr.Text)
	}
	fmt.Fprintf(&d, " window %s of", s.window.String())
	for _, call := range s.calls {
		fmt.Fprintf(&d, " %q", call.text)
	}
	if s.updates {
		d.WriteString(" over updates")
	}
	if s.window.Timed() && s.emit.Updating() {
		d.WriteString(" as updates")
	}
	if s.ttl.Span > 0 {
		d.WriteString(" with ttl")
	}
	return d.String()
}

// layout decides where the states of the calls are.
func (s *aggregate) layout() {
	for i := range s.calls {
		c := &s.calls[i]
		if c.size < 0 {
			s.loose = append(s.loose, i)
			continue
		}
		s.fixed = append(s.fixed, i)
		c.off = s.size
		s.size += c.size
	}
}

// Start implements KeyedStep.
func (s *aggregate) Start(run KeyedRun) (KeyedInstance, error) {
	switch s.window.Kind {
	case TumblingWindow:
		return newAggregateTumbling(s, run), nil
	case SlidingWindow:
		return newAggregateSliding(s, run), nil
	case SessionWindow:
		return newAggregateSession(s, run), nil
	default:
	}
	return newAggregateGroups(s, run), nil
}
