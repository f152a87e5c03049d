package expr

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"

	"github.com/sluice-etl/sluice/connectors"
)

// Function describes a function of the language.
type Function struct {
	Name      string
	Signature string // such as "split(text string, separator string, n int?) list"
	Doc       string // what it does, in a sentence
	Example   string // an expression
	Result    string // the example's value, as JSON
}

// Functions lists all functions, sorted by name.
func Functions() []Function {
	var list []Function
	for _, f := range functions {
		list = append(list, f.Function)
	}
	list = append(list, loopDocs...)
	return slices.SortedFunc(slices.Values(list), func(a, b Function) int { return cmp.Compare(a.Name, b.Name) })
}

// param is a parameter, read from the signature.
type param struct {
	name string
	typ  Type
}

// function is a function with the way to run it. One of run1, run2, run3, run
// and build is set.
type function struct {
	Function
	params   []param
	least    int  // parameters that must be given
	variadic bool // the last parameter may be repeated
	result   Type
	same     bool // the result has the type of the first argument
	changing bool // the value is not decided by the arguments

	run1 func(e *Env, s *site, a connectors.Value) connectors.Value
	run2 func(e *Env, s *site, a, b connectors.Value) connectors.Value
	run  func(e *Env, s *site, args []connectors.Value) connectors.Value
	// build compiles a call whose constant arguments are worth a look at load.
	// nil says that a fault was noted.
	build func(c *compiler, at *site, args []*node) fn
}

func doc(signature, words, example, result string) Function {
	name, _, _ := strings.Cut(signature, "(")
	return Function{Name: name, Signature: signature, Doc: words, Example: example, Result: result}
}

// functions is filled by the files that define them.
var functions = map[string]*function{}

// define adds functions; their signatures are read at start.
func define(list ...function) {
	for i := range list {
		f := &list[i]
		f.parse()
		if functions[f.Name] != nil || f.Doc == "" {
			panic("function " + f.Name + " is defined twice or without words")
		}
		functions[f.Name] = f
	}
}

var typeWords = map[string]Type{
	"any": Any, "bool": Bool, "int": intBit, "float": floatBit, "decimal": decBit, "number": Number,
	"string": textBit, "bytes": bytesBit, "timestamp": stampBit, "duration": spanBit, "list": listBit,
	"map": mapBit, "null": nullBit, "time": Time,
}

func parseType(text string) Type {
	var t Type
	for word := range strings.SplitSeq(text, "|") {
		one, ok := typeWords[word]
		if !ok {
			panic("no type is called " + word)
		}
		t |= one
	}
	return t
}

// parse reads "name(p type, q type?, r type...) result".
func (f *function) parse() {
	open, end := strings.IndexByte(f.Signature, '('), strings.LastIndexByte(f.Signature, ')')
	f.Name = f.Signature[:open]
	if list := f.Signature[open+1 : end]; list != "" {
		for p := range strings.SplitSeq(list, ", ") {
			name, typ, _ := strings.Cut(p, " ")
			switch {
			case strings.HasSuffix(typ, "..."):
				typ, f.variadic = strings.TrimSuffix(typ, "..."), true
				f.least++
			case strings.HasSuffix(typ, "?"):
				typ = strings.TrimSuffix(typ, "?")
			default:
				f.least++
			}
			f.params = append(f.params, param{name, parseType(typ)})
		}
	}
	result := strings.TrimSpace(f.Signature[end+1:])
	if f.same = result == "same"; !f.same {
		f.result = parseType(result)
	}
}

func (f *function) param(i int) param { return f.params[min(i, len(f.params)-1)] }

func functionNames() []string {
	return append(slices.Collect(maps.Keys(functions)), slices.Collect(maps.Keys(loops))...)
}

// callNode compiles a call that expr-lang knows no builtin for, and methods.
func (c *compiler) callNode(n *ast.CallNode) *node {
	switch callee := n.Callee.(type) {
	case *ast.IdentifierNode:
		if f, _ := aggregateOf(callee.Value); f != nil && c.agg != nil {
			return c.aggregate(n, callee.Value)
		}
		return c.call(n, callee.Value, n.Arguments)
	case *ast.MemberNode:
		name, _ := callee.Property.(*ast.StringNode)
		if name == nil {
			break
		}
		f := methods[name.Value]
		if f == "" {
			help := didYouMean(name.Value, functionNames())
			if functions[name.Value] != nil || loops[name.Value].run != nil {
				help = fmt.Sprintf("write `%s(…)` or `… | %s()`", name.Value, name.Value)
			}
			return c.fault(c.site(callee.Property), "values have no method `"+name.Value+"`", help)
		}
		return c.call(n, f, append([]ast.Node{callee.Node}, n.Arguments...))
	}
	return c.errorf(c.site(n), "`%s` cannot be called", c.site(n.Callee).name)
}

// call compiles a call of a function by its name.
func (c *compiler) call(n ast.Node, name string, args []ast.Node) *node {
	if _, ok := loops[name]; ok {
		return c.loopCall(n, name, args)
	}
	at := c.site(n)
	f := functions[name]
	if f == nil {
		if foreign(name) {
			return c.foreignCall(at, name, args)
		}
		from := c.offset(n.Location().From)
		return c.unknown(&site{offset: from - c.start, length: c.offset(n.Location().To) - from}, name)
	}
	nodes, faults := make([]*node, len(args)), len(c.errs)
	for i, a := range args {
		nodes[i] = c.compile(a)
	}
	c.ofRecords(name, faults)
	if !c.arguments(at, f, nodes) {
		return &node{typ: Any, slot: -1, at: at, run: func(*Env) connectors.Value { return failure }}
	}
	out := &node{typ: f.result, slot: -1, at: at, pure: !f.changing}
	if f.same {
		out.typ = nodes[0].typ.NonNull() & f.params[0].typ
	}
	for _, a := range nodes {
		out.pure = out.pure && a.pure
	}
	out.run = f.bind(c, at, nodes)
	if out.run == nil {
		return &node{typ: Any, slot: -1, at: at, run: func(*Env) connectors.Value { return failure }}
	}
	return out
}

// unknown notes that no function of that name can be called here.
func (c *compiler) unknown(at *site, name string) *node {
	if f, _ := aggregateOf(name); f != nil {
		return c.fault(at, elsewhereAggregate(name), "")
	}
	return c.fault(at, "no function is called `"+name+"`", c.functionHelp(name))
}

// arguments checks the number and the types of a call's arguments.
func (c *compiler) arguments(at *site, f *function, args []*node) bool {
	faults := len(c.errs)
	switch {
	case len(args) < f.least || len(args) > len(f.params) && !f.variadic:
		c.fault(at, fmt.Sprintf("%s() does not take %d arguments", f.Name, len(args)), "it is "+f.Signature)
		return false
	case f.changing && c.opts.Deterministic:
		c.fault(at, f.Name+"() is not allowed here, since its value must be the same whenever the record is read again", "")
		return false
	}
	for i, a := range args {
		if p := f.param(i); !a.typ.Overlaps(p.typ) {
			c.fault(a.at, fmt.Sprintf("%s() takes %s for `%s`, and %s is %s", f.Name, p.typ, p.name, a.at.name, a.typ), "it is "+f.Signature)
		}
	}
	return len(c.errs) == faults
}

// bind makes the code of a call.
func (f *function) bind(c *compiler, at *site, args []*node) fn {
	switch {
	case f.build != nil:
		return f.build(c, at, args)
	case f.run1 != nil:
		run, arg, do, want := f.run1, args[0], args[0].run, f.param(0).typ
		return func(e *Env) connectors.Value {
			v := do(e)
			if want&(1<<v.Kind()) == 0 {
				return e.badArgument(f, 0, arg.at, v)
			}
			if !e.read(at, v) {
				return failure
			}
			return run(e, at, v)
		}
	case f.run2 != nil:
		run, l, r := f.run2, checked(f, 0, args[0]), checked(f, 1, args[1])
		return func(e *Env) connectors.Value {
			a := l(e)
			if a.Kind() == failed {
				return a
			}
			b := r(e)
			if b.Kind() == failed {
				return b
			}
			if !e.read(at, a) || !e.read(at, b) {
				return failure
			}
			return run(e, at, a, b)
		}
	}
	return onStack(at, f.run, checkedAll(f, args))
}

func checkedAll(f *function, args []*node) []fn {
	parts := make([]fn, len(args))
	for i, a := range args {
		parts[i] = checked(f, i, a)
	}
	return parts
}

// onStack makes the code of a call with any number of arguments.
func onStack(at *site, run func(*Env, *site, []connectors.Value) connectors.Value, parts []fn) fn {
	return func(e *Env) connectors.Value {
		base := len(e.stack)
		for _, part := range parts {
			v := part(e)
			if v.Kind() == failed {
				return v
			}
			if !e.read(at, v) {
				return failure
			}
			e.stack = append(e.stack, v)
		}
		out := run(e, at, e.stack[base:len(e.stack):len(e.stack)])
		e.stack = e.stack[:base]
		return out
	}
}

// checked is the argument i of a call, which fails where it has another type
// than the parameter. That is looked at for each record, also where the scope
// promised a type: functions rely on it.
func checked(f *function, i int, a *node) fn {
	run, want := a.run, f.param(i).typ
	return func(e *Env) connectors.Value {
		v := run(e)
		if want&(1<<v.Kind()) == 0 {
			return e.badArgument(f, i, a.at, v)
		}
		return v
	}
}

func (e *Env) badArgument(f *function, i int, s *site, v connectors.Value) connectors.Value {
	p := f.param(i)
	switch {
	case v.Kind() == failed:
		return v
	case v.IsNull():
		return e.null(s, "given to "+f.Name+"()", placeholderOf(p.typ))
	}
	help := aggregateHelp(f.Name)
	if help != "" {
		help = "; " + help
	}
	return e.failf(s, KindType, "%s() takes %s for `%s`, and %s is %s%s", f.Name, p.typ, p.name, s.name, article(v.Kind()), help)
}

// placeholderOf is what messages propose in place of a null argument.
func placeholderOf(t Type) string {
	switch {
	case t.Overlaps(Text):
		return `""`
	case t.Overlaps(Number):
		return "0"
	case t.Overlaps(listBit):
		return "[]"
	case t.Overlaps(mapBit):
		return "{}"
	case t.Overlaps(spanBit):
		return `duration("0s")`
	}
	return "…"
}
