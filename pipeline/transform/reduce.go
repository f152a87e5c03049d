package transform

import (
	"bytes"
	"context"
	"encoding/binary"
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
	TTL    connectors.TimeSpan    `key:"ttl" doc:"How long a state without records is kept, in event time where the source has a timestamp. Default: for ever."`
}

// Validate checks the block.
func (c *ReduceConfig) Validate() error {
	var errs []error
	if c.TTL < 0 {
		errs = append(errs, &connectors.FieldError{Key: "ttl", Msg: "a time cannot be negative"})
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
	})
}

type reduce struct {
	name    string
	ttl     int64
	emit    Emit
	event   bool
	init    []connectors.Value
	update  []*expr.Program // by field of the state; nil where it stays
	state   []int           // slots of the state before a record
	byOut   []int
	outTo   []int
	stride  func() int
	text    string
	initial []byte // the encoded values of init
}

func buildReduce(config any, env *KeyedEnv) KeyedStep {
	c := config.(*ReduceConfig)
	r := &reduce{
		name: env.Name, ttl: time.Duration(c.TTL).Milliseconds(), emit: c.Emit.or(EmitOnChange),
		event: env.Timestamped, stride: env.Row.Base().Stride,
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
	scope.names = append(scope.names, a.Name)
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
	def := "by " + strings.Join(text, ", ")
	for i, name := range scope.names {
		slot := env.NewSlot()
		r.outTo = append(r.outTo, slot)
		view = view.Set(name, expr.Ref{Slot: slot, Covered: 1, Type: scope.refs[name].Type})
		def += "; " + name
		if p := r.update[i]; p != nil {
			def += " = " + p.Text()
		}
	}
	r.text = def
	if r.emit.Updating() {
		view = view.Updating(names)
	}
	env.Output(view)
}

// Definition is what the meaning of the state hangs on.
func (r *reduce) Definition() string { return r.text }

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
		return expr.Ref{}, fmt.Errorf("state has the fields %s: write state.%s; a record's field of this name is this[\"state\"]", strings.Join(s.names, ", "), s.names[0])
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

// Start implements KeyedStep.
func (r *reduce) Start(run KeyedRun) (KeyedInstance, error) {
	i := &reduceRun{
		reduce: r, run: run, states: run.Store.Table("state"), timers: state.NewTimers(run.Store.Table("timers")),
		values: make([]connectors.Value, len(r.init)),
	}
	i.rows = NewRows(&i.run.RunEnv, 0, r.stride())
	if r.emit.Mode == EmitEvery {
		i.out, i.dirty, i.pace.every = run.Store.Table("out"), run.Store.Table("dirty"), r.emit.Every
	}
	return i, nil
}

// reduceRun holds for each key the time of its last record, that of its timer's
// clock where it differs, and the values of its fields.
type reduceRun struct {
	*reduce
	run    KeyedRun
	states state.Table
	out    state.Table // what was given out last, with emit every
	dirty  state.Table
	timers *state.Timers
	rows   *Rows
	pace   pace
	values []connectors.Value
	old    []byte
	buf    []byte
	key    []byte
}

// Two times stand in front of the values: the event time of the newest record, and
// when the key was touched last by the clock of its ttl.
const reduceHead = 16

// Process changes the states of the rows' keys.
func (r *reduceRun) Process(ctx context.Context, _ int, b *connectors.Batch, sel []uint16) error {
	sel = dropKeyedTombstones(&r.run, b, sel)
	now := r.run.Now().UnixMilli()
	for _, row := range sel {
		if err := r.one(ctx, b, row, now); err != nil {
			return err
		}
	}
	return r.rows.Flush(ctx)
}

func (r *reduceRun) one(ctx context.Context, b *connectors.Batch, row uint16, now int64) error {
	k := RowKey(b, row, r.run.Groups)
	stored, found := r.states.Get(0, k)
	r.old = append(r.old[:0], stored...)
	newest := b.Records[row].Time
	if found {
		if len(r.old) < reduceHead {
			return r.corrupt()
		}
		newest = max(newest, int64(binary.LittleEndian.Uint64(r.old)))
	} else {
		r.old = append(append(r.old, make([]byte, reduceHead)...), r.initial...)
	}
	touched := now
	if r.event {
		touched = newest
	}
	r.buf = binary.LittleEndian.AppendUint64(r.buf[:0], uint64(newest))
	r.buf = binary.LittleEndian.AppendUint64(r.buf, uint64(touched))
	failed, err := r.fold(ctx, b, row)
	if failed || err != nil {
		return err
	}
	r.states.Put(0, k, r.buf)
	if !found && r.ttl > 0 {
		r.timers.Set(addTime(touched, r.ttl), k, nil)
	}
	switch r.emit.Mode {
	case EmitOnChange:
		if found && bytes.Equal(r.old[reduceHead:], r.buf[reduceHead:]) {
			return nil
		}
		return r.give(ctx, k, r.old, found, r.buf)
	case EmitEvery:
		r.dirty.Put(0, k, nil)
	default:
	}
	return nil
}

func (r *reduceRun) corrupt() error {
	return connectors.Permanent(fmt.Errorf("step %s: %w", r.name, state.ErrCorrupt))
}

// fold appends the values after a record to r.buf; those before it are in r.old.
func (r *reduceRun) fold(ctx context.Context, b *connectors.Batch, row uint16) (failed bool, err error) {
	slots := b.Row(int(row))
	rest := r.old[reduceHead:]
	for _, slot := range r.state {
		if slots[slot], rest, err = state.ReadValue(rest); err != nil {
			return false, r.corrupt()
		}
	}
	for i, p := range r.update {
		v := slots[r.state[i]]
		if p != nil {
			var fault *expr.EvalError
			if v, fault = p.Eval(r.run.Exprs, b, int(row)); fault != nil {
				return true, r.run.Fail(ctx, b, row, failure(r.name, p.Text(), b, row, fault))
			}
		}
		r.buf = state.AppendValue(r.buf, v)
	}
	return false, nil
}

// give gives the values of a key out, in place of others where it replaces them.
func (r *reduceRun) give(ctx context.Context, k state.Key, old []byte, replaces bool, values []byte) error {
	if !replaces {
		return r.row(ctx, k, values, connectors.Insert)
	}
	if err := r.rows.Reserve(ctx, 2); err != nil {
		return err
	}
	if err := r.row(ctx, k, old, connectors.UpdateBefore); err != nil {
		return err
	}
	return r.row(ctx, k, values, connectors.UpdateAfter)
}

func (r *reduceRun) row(ctx context.Context, k state.Key, values []byte, op connectors.Op) error {
	if err := r.rows.Reserve(ctx, 1); err != nil {
		return err
	}
	arena := r.rows.Arena()
	at := int64(binary.LittleEndian.Uint64(values))
	rest := arena.Copy(values[reduceHead:])
	slots, err := r.rows.Add(ctx, at, op)
	if err != nil {
		return err
	}
	k.Bytes = arena.Copy(k.Bytes)
	if setKeys(slots, r.byOut, k) != nil {
		return r.corrupt()
	}
	for _, slot := range r.outTo {
		if slots[slot], rest, err = state.ReadValue(rest); err != nil {
			return r.corrupt()
		}
	}
	return nil
}

// Watermark ends the keys whose ttl is over by event time; at the end of the input
// what was not given out is.
func (r *reduceRun) Watermark(ctx context.Context, wm int64) error {
	if wm == state.MaxTime {
		return r.finish(ctx)
	}
	if r.event {
		return r.expire(ctx, wm)
	}
	return nil
}

// Tick does the same by processing time.
func (r *reduceRun) Tick(ctx context.Context, now time.Time) error {
	if r.emit.Mode == EmitEvery && r.pace.due(now) {
		if err := r.gathered(ctx); err != nil {
			return err
		}
	}
	if r.event {
		return nil
	}
	return r.expire(ctx, now.UnixMilli())
}

// expire drops the states that no record has touched for the ttl.
func (r *reduceRun) expire(ctx context.Context, now int64) error {
	if r.ttl == 0 {
		return nil
	}
	err := r.timers.Due(now, func(_ int64, k state.Key, _ []byte) error {
		k = ownKey(k, &r.key)
		v, found := r.states.Get(0, k)
		if !found {
			return nil
		}
		if len(v) < reduceHead {
			return r.corrupt()
		}
		if end := addTime(int64(binary.LittleEndian.Uint64(v[8:])), r.ttl); end > now {
			r.timers.Set(end, k, nil)
			return nil
		}
		r.buf = append(r.buf[:0], v...)
		if r.emit.Mode == EmitOnClose {
			if err := r.row(ctx, k, r.buf, connectors.Insert); err != nil {
				return err
			}
		}
		if r.emit.Mode == EmitEvery {
			if err := r.change(ctx, k); err != nil {
				return err
			}
			r.dirty.Delete(0, k)
			r.out.Delete(0, k)
		}
		r.states.Delete(0, k)
		return nil
	})
	if err != nil {
		return err
	}
	return r.rows.Flush(ctx)
}

// finish gives out, at the end of the input, what has not been.
func (r *reduceRun) finish(ctx context.Context) error {
	switch r.emit.Mode {
	case EmitEvery:
		return r.gathered(ctx)
	case EmitOnClose:
	default:
		return nil
	}
	var failed error
	r.states.Scan(0, func(k state.Key, v []byte) bool {
		if len(v) < reduceHead {
			failed = r.corrupt()
			return false
		}
		failed = r.row(ctx, k, v, connectors.Insert)
		return failed == nil
	})
	if failed != nil {
		return failed
	}
	r.states.Drop(0)
	return r.rows.Flush(ctx)
}

// gathered gives out the changes since the last time.
func (r *reduceRun) gathered(ctx context.Context) error {
	var failed error
	r.dirty.Scan(0, func(k state.Key, _ []byte) bool {
		failed = r.change(ctx, ownKey(k, &r.key))
		return failed == nil
	})
	if failed != nil {
		return failed
	}
	r.dirty.Drop(0)
	return r.rows.Flush(ctx)
}

// change gives a key's values out where they differ from what was given out last.
func (r *reduceRun) change(ctx context.Context, k state.Key) error {
	v, found := r.states.Get(0, k)
	if !found {
		return nil
	}
	r.buf = append(r.buf[:0], v...)
	before, had := r.out.Get(0, k)
	r.old = append(r.old[:0], before...)
	if len(r.buf) < reduceHead || had && len(r.old) < reduceHead {
		return r.corrupt()
	}
	if had && bytes.Equal(r.old[reduceHead:], r.buf[reduceHead:]) {
		return nil
	}
	if err := r.give(ctx, k, r.old, had, r.buf); err != nil {
		return err
	}
	r.out.Put(0, k, r.buf)
	return nil
}

// Barrier implements KeyedInstance: everything is in the store.
func (r *reduceRun) Barrier(context.Context) error { return nil }
