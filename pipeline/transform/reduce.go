package transform

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// ReduceConfig is the block of a reduce.
type ReduceConfig struct {
	By     connectors.Keys        `key:"by" doc:"What a state is kept for: fields, or expressions by name." required:"true"`
	Init   connectors.Assignments `key:"init" doc:"The fields of the state before the first record, such as {total: 0}." required:"true"`
	Update connectors.Assignments `key:"update" doc:"The fields after a record, over the record and the state before it: {total: state.total + amount}. Fields of the state that are not named stay." required:"true"`
	Emit   Emit                   `key:"emit" doc:"When the state is given out: on_change (the default) as an update of the one before, on_close once ttl has passed without a record or the input has ended, or {every: 10s}."`
	TTL    TTL                    `key:"ttl" doc:"How long a state without records is kept, in event time where the sources have a timestamp. Default: forever."`
}

// Validate checks the block.
func (c *ReduceConfig) Validate() error {
	var errs []error
	if len(c.Init) == 0 {
		errs = append(errs, &connectors.FieldError{Key: "init", Msg: "the state has no field", Help: "give each one its first value, as in {total: 0}"})
	}
	if len(c.Update) == 0 {
		errs = append(errs, &connectors.FieldError{Key: "update", Msg: "no record would change the state", Help: "say what becomes of a field, as in {total: state.total + amount}"})
	}
	names := map[string]bool{}
	var list []string
	for _, a := range c.Init {
		names[a.Name] = true
		list = append(list, a.Name)
	}
	for _, k := range c.By {
		if names[k.Name] {
			errs = append(errs, &connectors.FieldError{Key: "init." + k.Name, Msg: "by has a field of this name already", Help: "call one of them otherwise"})
		}
	}
	for _, a := range c.Update {
		if names[a.Name] {
			continue
		}
		help := "give it a first value in init"
		if near := connectors.Nearest(a.Name, list); near != "" {
			help = "did you mean " + near + "?"
		}
		errs = append(errs, &connectors.FieldError{Key: "update." + a.Name, Msg: "the state has no field " + a.Name, Help: help})
	}
	return errors.Join(errs...)
}

func init() {
	Register(Spec{
		Name:       "reduce",
		Doc:        "Keeps a state for each key that every record changes: a fold.",
		NewConfig:  func() any { return &ReduceConfig{} },
		BuildKeyed: buildReduce,
		OpenState:  openReduce,
	})
}

type reduce struct {
	name    string
	ttl     time.Duration // 0 for ever
	emit    Emit
	event   bool // ttl is a span of event time
	init    []connectors.Value
	update  []*expr.Program // by field of the state; nil where it stays
	state   []int           // slots of the state before a record
	byOut   []int
	outTo   []int
	stride  func() int
	text    string
	initial []byte // the encoded values of init
	keys    []string
	fields  []string // of the state
}

func buildReduce(config any, env *KeyedEnv) KeyedStep {
	c := config.(*ReduceConfig)
	r := &reduce{
		name: env.Name, ttl: c.TTL.Span, emit: c.Emit.or(EmitOnChange),
		event: env.Timestamped, stride: env.Row.Base().Stride, keys: keyNames(c.By),
	}
	keys := env.KeyBy(0, c.By, "by")
	scope := &stateScope{fields: env.Fields(0), refs: map[string]expr.Ref{}}
	for _, a := range c.Init {
		r.addField(env, scope, a)
	}
	if keys == nil || env.Faulted() {
		return nil
	}
	r.compile(env, c, scope)
	if env.Faulted() {
		return nil
	}
	r.output(env, c, keys, scope)
	return r
}

// addField adds a field of the state with its first value.
func (r *reduce) addField(env *KeyedEnv, scope *stateScope, a connectors.Assignment) {
	p, err := expr.Compile(a.Expr.Text, nothing{}, expr.Options{Name: a.Name, Deterministic: true})
	if err != nil {
		env.Report([]string{"init", a.Name}, err)
		return
	}
	v, ok := p.Constant()
	if !ok {
		env.Report([]string{"init", a.Name}, errors.New("the first value must be the same for all keys, such as 0, \"\" or null"))
		return
	}
	slot := env.NewSlot()
	r.init, r.state = append(r.init, v), append(r.state, slot)
	r.initial = state.AppendValue(r.initial, v)
	scope.refs[a.Name] = expr.Ref{Slot: slot, Covered: 2, Type: expr.Of(v.Kind())}
	scope.names, r.fields = append(scope.names, a.Name), append(r.fields, a.Name)
}

// compile compiles the updates. A field's type is that of its first value and of
// all that its update gives, which hangs on the fields' types: it grows until
// nothing is added.
func (r *reduce) compile(env *KeyedEnv, c *ReduceConfig, scope *stateScope) {
	for {
		r.update = make([]*expr.Program, len(r.init))
		grown := false
		for _, a := range c.Update {
			p, err := expr.Compile(a.Expr.Text, scope, expr.Options{Name: a.Name})
			if err != nil {
				env.Report([]string{"update", a.Name}, err)
				continue
			}
			ref := scope.refs[a.Name]
			if t := p.Type(); !t.Within(ref.Type) {
				ref.Type |= t
				scope.refs[a.Name] = ref
				grown = true
			}
			for i, name := range scope.names {
				if name == a.Name {
					r.update[i] = p
				}
			}
		}
		if !grown || env.Faulted() {
			return
		}
	}
}

// output describes the rows that come out: the key's fields, then the state's.
func (r *reduce) output(env *KeyedEnv, c *ReduceConfig, keys []*expr.Program, scope *stateScope) {
	view := env.Project()
	var names, text []string
	for i, k := range c.By {
		slot := env.NewSlot()
		r.byOut = append(r.byOut, slot)
		view = view.Set(k.Name, expr.Ref{Slot: slot, Covered: 1, Type: keyType(keys[i])})
		names, text = append(names, k.Name), append(text, keys[i].Text())
	}
	var def strings.Builder
	def.WriteString("reduce by " + strings.Join(text, ", "))
	for i, name := range scope.names {
		slot := env.NewSlot()
		r.outTo = append(r.outTo, slot)
		view = view.Set(name, expr.Ref{Slot: slot, Covered: 1, Type: scope.refs[name].Type})
		def.WriteString("; " + name)
		if p := r.update[i]; p != nil {
			def.WriteString(" = " + p.Text())
		}
	}
	switch {
	case r.ttl == 0:
	case r.event:
		def.WriteString(" with ttl")
	default:
		def.WriteString(" with ttl of processing time")
	}
	r.text = def.String() + r.emit.definition()
	if r.emit.Updating() {
		view = view.Updating(names)
	}
	env.Output(view)
}

// Definition is what the meaning of the state hangs on.
func (r *reduce) Definition() string { return r.text }

// Delay implements Delayer: a state that is given out on close waits for its ttl.
func (r *reduce) Delay() int64 {
	if r.emit.Mode != EmitOnClose {
		return 0
	}
	return ttlDelay(r.ttl)
}

// stateScope is the scope of updates: state.f is a field of the state, every other
// name one of the record.
type stateScope struct {
	fields expr.Scope
	refs   map[string]expr.Ref
	names  []string
}

func (s *stateScope) Field(path []string) (expr.Ref, error) {
	if path[0] != "state" {
		return s.fields.Field(path)
	}
	if len(path) < 2 {
		return expr.Ref{}, fmt.Errorf("state has the fields %s: write state.%s; a field of the record that has this name is to be renamed by a step before", strings.Join(s.names, ", "), s.names[0])
	}
	if ref, ok := s.refs[path[1]]; ok {
		return ref, nil
	}
	help := "it has " + strings.Join(s.names, ", ")
	if near := connectors.Nearest(path[1], s.names); near != "" {
		help = "did you mean state." + near + "?"
	}
	return expr.Ref{}, fmt.Errorf("the state has no field %s: %s", path[1], help)
}

func (s *stateScope) This() (int, error) { return s.fields.This() }

// nothing is the scope of expressions that may read no record.
type nothing struct{}

func (nothing) Field(path []string) (expr.Ref, error) {
	return expr.Ref{}, fmt.Errorf("there is no record yet that could have a field %s", path[0])
}

func (nothing) This() (int, error) { return 0, errors.New("there is no record yet") }
