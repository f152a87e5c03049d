package expr

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/builtin"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/parser/lexer"

	"github.com/sluice-etl/sluice/connectors"
)

// Aggregation is an expression over groups of records: an outer expression over
// the results of aggregate functions, such as sum(price) / count().
type Aggregation struct {
	// Calls are the calls of aggregate functions, in the order of the text; equal ones
	// come once.
	Calls []AggregateCall
	// Result is the outer expression.
	Result *Program
}

// AggregateCall is one call of an aggregate function.
type AggregateCall struct {
	// Name is the function without _if.
	Name string
	// Text is the call as it is written. Where variables are defined before it, the
	// text from there on. Calls of the same text are equal.
	Text string
	// Args are the arguments, over the records. Their Text is the argument alone, as
	// that of a call. What they give is of the function's types or null. One with Program.Constant, such as the share of a quantile, is
	// an option: its value need not travel.
	Args []*Program
	// If is the condition that a record must fulfil to count, nil for none.
	If *Program
}

// conditional is the end of the names of functions that take a condition.
const conditional = "_if"

// aggregation is what the compiler knows while it works on an Aggregation.
type aggregation struct {
	in     Scope
	result func(i int, call *AggregateCall) (Ref, error)
	calls  []AggregateCall
	known  map[string]*node // by the words of the call
	within string           // the function whose argument is being compiled
}

// CompileAggregation parses an expression of aggregate functions. Their arguments
// and conditions are compiled over in, everything outside of the calls over outer,
// which holds the keys of a group, and over the results of the calls: result tells
// for the call with the index i of Calls, which is asked for once, where its result
// will be. An error of result is a fault at the call. The error is an Errors, as
// that of Compile.
func CompileAggregation(text string, in, outer Scope, result func(i int, call *AggregateCall) (Ref, error), o Options) (*Aggregation, error) {
	agg := &aggregation{in: in, result: result, known: map[string]*node{}}
	c := &compiler{text: text, scope: keysOnly{outer}, opts: o, limits: o.Limits.orDefault(), extents: map[ast.Node]extent{}, agg: agg}
	p, err := c.all()
	if err != nil {
		return nil, err
	}
	return &Aggregation{Calls: agg.calls, Result: p}, nil
}

// shadow makes the parser read the names of aggregate functions as calls where it
// has builtins of that name with an own syntax.
func shadow(config *conf.Config) {
	for name := range aggregates {
		config.Functions[name] = &builtin.Function{Name: name}
	}
}

// aggregateOf splits the name of an aggregate function into its base and _if.
func aggregateOf(name string) (f *function, withIf bool) {
	if f := aggregates[name]; f != nil {
		return f, false
	}
	base, withIf := strings.CutSuffix(name, conditional)
	return aggregates[base], withIf
}

func aggregateNames() []string { return slices.Collect(maps.Keys(aggregates)) }

// elsewhereAggregate says where an aggregate function may stand, for one that stands
// in another place.
func elsewhereAggregate(name string) string {
	return name + "() is an aggregate function, and those stand only in the `select` of an `aggregate` step"
}

// aggregateHelp is what is said where a function of lists was given something else:
// the aggregate function of the same name may have been meant.
func aggregateHelp(name string) string {
	if aggregates[name] == nil {
		return ""
	}
	return "as an aggregate function it stands only in the `select` of an `aggregate` step"
}

// aggregate compiles the call of an aggregate function.
func (c *compiler) aggregate(n *ast.CallNode, name string) *node {
	f, withIf := aggregateOf(name)
	at := c.site(n)
	if c.agg.within != "" {
		help := "a value per record is made by a step before it"
		if functions[name] != nil || loops[name].run != nil {
			help = fmt.Sprintf("here `%s` is the aggregate function; that of lists is written `::%s(…)`", name, name)
		}
		return c.fault(at, fmt.Sprintf("%s() cannot stand in an argument of %s()", name, c.agg.within), help)
	}
	words := c.words(n)
	if known := c.agg.known[words]; known != nil {
		return &node{typ: known.typ, slot: known.slot, at: at, run: known.run}
	}
	call, ok := c.aggregateCall(at, f, withIf, n.Arguments)
	if !ok {
		return c.dead(at)
	}
	ref, err := c.agg.result(len(c.agg.calls), call)
	if err != nil {
		return c.scopeFault(at, err)
	}
	c.agg.calls = append(c.agg.calls, *call)
	typ, slot := ref.Type, ref.Slot
	if typ == 0 {
		typ = Any
	}
	out := &node{typ: typ, slot: slot, at: at, run: func(e *Env) connectors.Value { return e.row[slot] }}
	c.agg.known[words] = out
	return out
}

// dead is a part that stands in for one whose faults are noted.
func (c *compiler) dead(at *site) *node {
	return &node{typ: Any, slot: -1, at: at, run: func(*Env) connectors.Value { return failure }}
}

// aggregateCall compiles the arguments of a call.
func (c *compiler) aggregateCall(at *site, f *function, withIf bool, args []ast.Node) (*AggregateCall, bool) {
	call := &AggregateCall{Name: f.Name, Text: c.text[c.textFrom(at.offset) : at.offset+at.length]}
	var test ast.Node
	if withIf || f.Name == countName && len(args) == 1 {
		withIf = true
		if len(args) > 0 {
			test, args = args[len(args)-1], args[:len(args)-1]
		}
	}
	most := len(f.params)
	if f.Name == countName {
		most = 0
	}
	if len(args) != most || withIf && test == nil {
		return nil, c.wrongNumber(at, f, withIf)
	}
	faults := len(c.errs)
	for i, a := range args {
		call.Args = append(call.Args, c.argument(f, a, f.params[i].typ.Nullable(), f.params[i].name))
	}
	if test != nil {
		call.If = c.argument(f, test, Bool, "condition")
	}
	return call, len(c.errs) == faults
}

func (c *compiler) wrongNumber(at *site, f *function, withIf bool) bool {
	form, name := f.Signature, f.Name
	if withIf && f.Name != countName {
		name += conditional
		form = name + strings.TrimPrefix(strings.Replace(form, ")", ", condition bool)", 1), f.Name)
	} else if withIf {
		name += conditional
		form = name + "(condition bool) int"
	}
	help := "it is " + form
	if f.Name == countName {
		help += "; count() counts records, count(x != null) those with a value, count_distinct(x) different values"
	}
	c.fault(at, name+"() does not take these arguments", help)
	return false
}

// argument compiles an argument, or a condition, over the records.
func (c *compiler) argument(f *function, n ast.Node, want Type, name string) *Program {
	agg := *c.agg
	agg.within = f.Name
	from, to := c.span(n)
	from = c.textFrom(from)
	sub := &compiler{
		text: c.text[:to], start: from, offs: c.offs, scope: c.agg.in, limits: c.limits, extents: c.extents, tokens: c.tokens, parts: c.parts, agg: &agg,
		opts: Options{Want: want, Name: name, Deterministic: c.opts.Deterministic, Limits: c.opts.Limits},
	}
	for _, l := range c.locals {
		l.outside = l.pure == nil
		sub.locals = append(sub.locals, l)
	}
	// All arguments together may cost at load what one expression may.
	sub.fold, sub.steps, sub.bytes = c.folding(), c.steps, c.bytes
	root := sub.compile(n)
	c.parts, c.steps, c.bytes = sub.parts, sub.steps, sub.bytes
	var p *Program
	if want != Bool && !root.typ.Overlaps(want) {
		sub.fault(root.at, fmt.Sprintf("%s() takes %s for `%s`, and %s is %s", f.Name, want.NonNull(), name, root.at.name, root.typ), "it is "+f.Signature)
	} else {
		p = sub.program(root)
	}
	for _, e := range sub.errs {
		if f.Name == countName && want == Bool && e.Offset == root.at.offset && e.Help == "" {
			e.Help = "count() counts records, count(x != null) those with a value, count_distinct(x) different values"
		}
		c.fault(&site{offset: from + e.Offset, length: e.Length}, e.Msg, e.Help)
	}
	return p
}

// textFrom is where the text of a part begins that is at offset at. Where there are
// variables it is the beginning of all, so that equal texts mean the same.
func (c *compiler) textFrom(at int) int {
	if len(c.locals) > 0 {
		return 0
	}
	return at
}

// words is the text of n without its blanks, which tells equal calls. Variables
// count by what they stand for.
func (c *compiler) words(n ast.Node) string {
	from, to := c.span(n)
	var b strings.Builder
	for _, t := range c.tokens {
		if c.offset(t.From) >= from && c.offset(t.To) <= to && t.Kind != lexer.EOF {
			fmt.Fprintf(&b, "%s %q ", t.Kind, t.Value)
		}
	}
	for _, l := range c.locals {
		fmt.Fprintf(&b, "%s=%d ", l.name, l.at)
	}
	return b.String()
}

// keysOnly is the scope outside of aggregate functions.
type keysOnly struct{ Scope }

const intoCall = "put it into an aggregate function, as in `first(%s)`, or into `by`"

func (k keysOnly) Field(path []string) (Ref, error) {
	ref, err := k.Scope.Field(path)
	if err != nil {
		name := strings.Join(path, ".")
		return Ref{}, &Error{Msg: fmt.Sprintf("`%s` stands outside of an aggregate function and is no key: %v", name, err), Help: fmt.Sprintf(intoCall, name)}
	}
	return ref, nil
}

func (k keysOnly) This() (int, error) {
	return 0, &Error{Msg: "`this` is a record, and outside of an aggregate function there is a group of them", Help: "as in `first(this)`"}
}
