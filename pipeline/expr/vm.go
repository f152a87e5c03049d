package expr

import (
	"fmt"
	"strings"

	exprlang "github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/builtin"
	"github.com/expr-lang/expr/vm"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
)

// foreign tells whether name is a builtin of expr-lang that we have no code for:
// its virtual machine runs it on converted arguments. The rest of the expression
// is ours, so that the rules of numbers and nulls hold all the same.
func foreign(name string) bool {
	_, known := builtin.Index[name]
	return known && functions[name] == nil && loops[name].run == nil && !refused[name]
}

// refused is the builtins of expr-lang whose values ours cannot hold.
var refused = map[string]bool{"timezone": true}

// boxed is about how many bytes a byte of a container's text becomes.
const boxed = 8

// vmState is the virtual machine of an Env with the variables it is given.
type vmState struct {
	machine vm.VM
	vars    map[string]any
}

// foreignCall compiles the call of a builtin that the virtual machine runs.
func (c *compiler) foreignCall(at *site, name string, args []ast.Node) *node {
	names := make([]string, len(args))
	parts := make([]fn, len(args))
	env := map[string]any{}
	pure := true
	for i, a := range args {
		x := c.compile(a)
		names[i] = fmt.Sprintf("a%d", i)
		if zero := zeroOf(x.typ); zero != nil {
			env[names[i]] = zero
		}
		parts[i], pure = x.run, pure && x.pure
	}
	program, err := exprlang.Compile(name+"("+strings.Join(names, ", ")+")", exprlang.Env(env), exprlang.AllowUndefinedVariables())
	if err != nil {
		msg, _, _ := strings.Cut(err.Error(), " (1:")
		return c.errorf(at, "%s(): %s", name, msg)
	}
	c.vm = true
	run := func(e *Env, s *site, args []connectors.Value) connectors.Value {
		return e.runForeign(s, name, program, names, args)
	}
	return &node{typ: Any, slot: -1, at: at, pure: pure, run: onStack(at, run, parts)}
}

// zeroOf tells expr-lang's checker a type that is known, by a value of it.
func zeroOf(t Type) any {
	k, ok := t.Kind()
	if !ok {
		return nil
	}
	switch k {
	case connectors.Bool:
		return false
	case connectors.Int:
		return 0
	case connectors.Float:
		return 0.0
	case connectors.String:
		return ""
	case connectors.List:
		return []any{}
	case connectors.Map:
		return map[string]any{}
	default:
	}
	return nil
}

func (e *Env) runForeign(s *site, name string, program *vm.Program, names []string, args []connectors.Value) (out connectors.Value) {
	if e.vm.vars == nil {
		e.vm.vars = map[string]any{}
	}
	clear(e.vm.vars)
	for i, a := range args {
		if k := a.Kind(); (k == connectors.List || k == connectors.Map) && !e.spend(s, boxed*len(a.Raw())) {
			return failure
		}
		e.vm.vars[names[i]] = format.ToAny(a, e.arena())
	}
	result, err := e.vm.machine.Run(program, e.vm.vars)
	if err != nil {
		// The machine's own message may show values.
		kinds := make([]string, len(args))
		for i, a := range args {
			kinds[i] = article(a.Kind())
		}
		return e.failf(s, KindArgument, "%s() does not work for %s", name, strings.Join(kinds, " and "))
	}
	v, err := format.FromAny(result, e.arena())
	if err != nil {
		return e.failf(s, KindType, "the result of %s() is nothing that a record can hold", name)
	}
	if k := v.Kind(); (k == connectors.String || k == connectors.List || k == connectors.Map) && !e.spend(s, len(v.Raw())) {
		return failure
	}
	return v
}
