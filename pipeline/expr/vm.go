package expr

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	exprlang "github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/builtin"
	"github.com/expr-lang/expr/vm"

	"github.com/sluice-etl/sluice/connectors"
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
		// The zero value tells the checker the type; any would not be checked.
		env[names[i]] = zeroOf(x.typ)
		parts[i], pure = x.run, pure && x.pure
	}
	program, err := exprlang.Compile(name+"("+strings.Join(names, ", ")+")", exprlang.Env(env))
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
	}
	return nil
}

func (e *Env) runForeign(s *site, name string, program *vm.Program, names []string, args []connectors.Value) (out connectors.Value) {
	if e.vm.vars == nil {
		e.vm.vars = map[string]any{}
	}
	clear(e.vm.vars)
	for i, a := range args {
		v, ok := e.toAny(s, a)
		if !ok {
			return failure
		}
		e.vm.vars[names[i]] = v
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
	return e.fromAny(s, result)
}

// toAny converts a value to what expr-lang works on.
func (e *Env) toAny(s *site, v connectors.Value) (any, bool) {
	switch v.Kind() {
	case connectors.Bool:
		return v.Bool(), true
	case connectors.Int:
		return int(v.Int()), true
	case connectors.Float:
		return v.Float(), true
	case connectors.String:
		return v.Text(), true
	case connectors.Bytes:
		return v.Raw(), true
	case connectors.Timestamp:
		return v.Time(), true
	case connectors.Duration:
		return v.Duration(), true
	case connectors.Decimal:
		e.fail(s, KindType, "this function does not take decimals; use float()")
		return nil, false
	case connectors.List:
		return e.toSlice(s, v)
	case connectors.Map:
		return e.toMap(s, v)
	}
	return nil, true
}

func (e *Env) toSlice(s *site, v connectors.Value) (any, bool) {
	list := []any{}
	for c := over(v.Raw()); ; {
		raw, ok := c.next()
		if !ok {
			return list, true
		}
		one, ok := e.toAny(s, valueOf(raw, e.arena()))
		if !ok || !e.step(s, 1) || !e.spend(s, 16) {
			return nil, false
		}
		list = append(list, one)
	}
}

func (e *Env) toMap(s *site, v connectors.Value) (any, bool) {
	m := map[string]any{}
	for c := over(v.Raw()); ; {
		key, ok := c.next()
		if !ok {
			return m, true
		}
		raw, _ := c.next()
		one, ok := e.toAny(s, valueOf(raw, e.arena()))
		if !ok || !e.step(s, 1) || !e.spend(s, 64) {
			return nil, false
		}
		m[stringOf(unquoted(key, e.arena()))] = one
	}
}

// fromAny converts a result of expr-lang's.
func (e *Env) fromAny(s *site, v any) connectors.Value {
	switch v := v.(type) {
	case nil:
		return connectors.NullValue()
	case bool:
		return connectors.BoolValue(v)
	case int:
		return connectors.IntValue(int64(v))
	case float64:
		return connectors.FloatValue(v)
	case string:
		return e.keep(s, v)
	case []byte:
		return connectors.BytesValue(v)
	case time.Time:
		return connectors.TimestampValue(v)
	case time.Duration:
		return connectors.DurationValue(v)
	case []any:
		return e.fromSlice(s, v)
	case [][2]any:
		b := e.open(s, '[')
		for _, pair := range v {
			if !b.value(e, e.fromSlice(s, pair[:])) {
				return failure
			}
		}
		return b.list(e)
	case map[string]any:
		return e.fromMap(s, v)
	case map[any]any:
		named := make(map[string]any, len(v))
		for k, x := range v {
			name, ok := k.(string)
			if !ok {
				return e.fail(s, KindArgument, "the names of a map's fields must be strings")
			}
			named[name] = x
		}
		return e.fromMap(s, named)
	}
	return e.fail(s, KindType, "the result is of a type that records cannot hold")
}

func (e *Env) fromSlice(s *site, list []any) connectors.Value {
	b := e.open(s, '[')
	for _, one := range list {
		if !b.value(e, e.fromAny(s, one)) {
			return failure
		}
	}
	return b.list(e)
}

func (e *Env) fromMap(s *site, m map[string]any) connectors.Value {
	b := e.open(s, '{')
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if !b.field(e, name, e.fromAny(s, m[name])) {
			return failure
		}
	}
	return b.mapping(e)
}
