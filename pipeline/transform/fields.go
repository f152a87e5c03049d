package transform

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
)

// SetConfig is the block of a set.
type SetConfig struct {
	Fields connectors.Assignments `key:"." doc:"Fields to add or replace, each with an expression over the record as it comes in." required:"true"`
}

// MapConfig is the block of a map.
type MapConfig struct {
	Fields connectors.Assignments `key:"." doc:"The fields that the record will have, each with an expression over the record as it comes in." required:"true"`
}

// DropConfig is the block of a drop.
type DropConfig struct {
	Fields []string `key:"." doc:"Fields to remove." required:"true"`
}

// KeepConfig is the block of a keep.
type KeepConfig struct {
	Fields []string `key:"." doc:"The only fields to keep." required:"true"`
}

// RenameConfig is the block of a rename.
type RenameConfig struct {
	Fields map[string]string `key:"." doc:"Old name to new name." required:"true"`
}

func init() {
	Register(Spec{
		Updates: PassesUpdates,
		Name:    "set", Doc: "Adds or replaces fields.",
		NewConfig: func() any { return &SetConfig{} }, Build: buildSet,
	})
	Register(Spec{
		Updates: PassesUpdates,
		Name:    "map", Doc: "Makes the record these fields and no others.",
		NewConfig: func() any { return &MapConfig{} }, Build: buildMap,
	})
	Register(Spec{
		Updates: PassesUpdates,
		Name:    "drop", Doc: "Removes fields.",
		NewConfig: func() any { return &DropConfig{} }, Build: buildDrop,
	})
	Register(Spec{
		Updates: PassesUpdates,
		Name:    "keep", Doc: "Removes all fields but these.",
		NewConfig: func() any { return &KeepConfig{} }, Build: buildKeep,
	})
	Register(Spec{
		Updates: PassesUpdates,
		Name:    "rename", Doc: "Gives fields other names.",
		NewConfig: func() any { return &RenameConfig{} }, Build: buildRename,
	})
}

// assign is one field that a step computes.
type assign struct {
	name string
	text string
	prog *expr.Program
	slot int
}

// assignStep computes fields; what the record looks like afterwards is in the layout.
type assignStep struct {
	name    string
	assigns []assign
	objects bool // values may be no objects, and must be
	anew    bool // the record is these fields and no others
}

func buildSet(config any, env *Env) Step {
	return buildAssign(config.(*SetConfig).Fields, env.In, env.In.layout.Untouched(), env)
}

func buildMap(config any, env *Env) Step {
	return buildAssign(config.(*MapConfig).Fields, env.In.Project(), false, env)
}

// buildAssign compiles the fields over what comes in, so that none sees another
// one's new value, and puts them into out.
func buildAssign(fields connectors.Assignments, out *View, objects bool, env *Env) Step {
	s := &assignStep{name: env.Name, objects: objects, anew: out.layout.Empty && len(out.layout.Edits) == 0}
	if len(fields) == 0 {
		env.fault(nil, errors.New("there is no field in it"))
	}
	for _, f := range fields {
		p := env.Compile(f.Expr, expr.Any, f.Name)
		if p == nil {
			continue
		}
		slot := env.In.Base().NewSlot()
		s.assigns = append(s.assigns, assign{name: f.Name, text: f.Expr.Text, prog: p, slot: slot})
		out = out.SetShaped(f.Name, expr.Ref{Slot: slot, Covered: 1, Type: p.Type()}, env.In.shapeOf(p))
	}
	if env.faulted {
		return nil
	}
	if u := env.In.Updates(); u != nil {
		out = out.Updating(s.key(u, out.Updates())).Spread(s.spread(u))
	}
	env.Output(out)
	return s
}

// key tells by which fields rows are told apart afterwards: by those that were not
// touched, or else by those that took the values of the old ones over.
func (s *assignStep) key(before, after *Updates) []string {
	if len(after.Key) == len(before.Key) && !s.anew {
		return after.Key
	}
	key := make([]string, 0, len(before.Key))
	for _, name := range before.Key {
		taker := s.taker(name)
		if taker == "" {
			return nil
		}
		key = append(key, taker)
	}
	return key
}

// spread is Updates.Spread afterwards.
func (s *assignStep) spread(before *Updates) []string {
	names := slices.Clone(before.Spread)
	for i, name := range names {
		if taker := s.taker(name); s.anew && taker != "" {
			names[i] = taker
		}
	}
	return names
}

// taker is the field that takes the value of another one over, empty for none.
func (s *assignStep) taker(name string) string {
	i := slices.IndexFunc(s.assigns, func(a assign) bool {
		paths := a.prog.Fields()
		_, bare := a.prog.Slot()
		return bare && len(paths) == 1 && strings.Join(paths[0], ".") == name
	})
	if i < 0 {
		return ""
	}
	return s.assigns[i].name
}

func (s *assignStep) Start(env RunEnv) Instance {
	run := &assignRun{assignStep: s, env: env}
	for _, a := range s.assigns {
		run.failed = append(run.failed, newFailures(s.name, a.text))
	}
	return run
}

type assignRun struct {
	*assignStep
	env     RunEnv
	failed  []*failures
	scratch []uint16
	all     []uint16
}

// roundBytes bounds what the expressions of a step make before the rows so far are
// handed on, so that large results of many rows are not in memory at once.
const roundBytes = 8 << 20

func (r *assignRun) Process(ctx context.Context, b *connectors.Batch, sel []uint16) error {
	if r.objects {
		var err error
		if sel, err = objectsOnly(ctx, &r.env, r.name, b, sel); err != nil {
			return err
		}
	}
	total := len(sel)
	r.all = append(r.all[:0], sel...)
	values, tombstones := splitTombstones(b, sel, r.scratch)
	r.scratch = tombstones
	for {
		done, rest, err := r.fill(ctx, b, values)
		if err != nil {
			return err
		}
		if len(rest) == 0 {
			if len(tombstones) > 0 {
				done = mergeRows(r.all[:total], done, tombstones)
			}
			return r.emit(ctx, b, done)
		}
		// A tombstone goes on after all rows before it, and before those that are left.
		early := 0
		for early < len(tombstones) && tombstones[early] < rest[0] {
			early++
		}
		out := mergeRows(append([]uint16(nil), r.all[:total]...), done, tombstones[:early])
		if err := r.emit(ctx, b, out); err != nil {
			return err
		}
		r.forget(b, done)
		values, tombstones = rest, tombstones[early:]
	}
}

func (r *assignRun) emit(ctx context.Context, b *connectors.Batch, rows []uint16) error {
	if len(rows) == 0 {
		return nil
	}
	return r.env.Emit(ctx, 0, b, rows)
}

// fill computes the fields of the first rows, as many as the bound on what is made
// allows, and returns those that have them all and the rows that are left.
func (r *assignRun) fill(ctx context.Context, b *connectors.Batch, rows []uint16) (done, rest []uint16, err error) {
	for i := range r.assigns {
		a := &r.assigns[i]
		var left []uint16
		rows, left = a.prog.FillSome(r.env.Exprs, b, rows, a.slot, roundBytes, r.failed[i].add)
		if err := r.failed[i].report(ctx, &r.env, b); err != nil {
			return nil, nil, err
		}
		if len(left) > 0 {
			rest = append(append(make([]uint16, 0, len(left)+len(rest)), left...), rest...)
		}
	}
	return rows, rest, nil
}

// forget lets go of what was made for rows that were handed on.
func (r *assignRun) forget(b *connectors.Batch, rows []uint16) {
	for _, row := range rows {
		slots := b.Row(int(row))
		for i := range r.assigns {
			slots[r.assigns[i].slot] = connectors.Value{}
		}
	}
}

// mergeRows puts the rows of a and b, which are parts of all, back into the order they have in all.
func mergeRows(all, a, b []uint16) []uint16 {
	n := 0
	for _, row := range all {
		switch {
		case len(a) > 0 && a[0] == row:
			a = a[1:]
		case len(b) > 0 && b[0] == row:
			b = b[1:]
		default:
			continue
		}
		all[n] = row
		n++
	}
	return all[:n]
}

// pass is a step that changes only what is known of the records.
type pass struct {
	name    string
	objects bool
}

func (p pass) Start(env RunEnv) Instance { return &passRun{p, env} }

type passRun struct {
	pass
	env RunEnv
}

func (p *passRun) Process(ctx context.Context, b *connectors.Batch, sel []uint16) (err error) {
	if p.objects {
		if sel, err = objectsOnly(ctx, &p.env, p.name, b, sel); err != nil {
			return err
		}
	}
	if len(sel) == 0 {
		return nil
	}
	return p.env.Emit(ctx, 0, b, sel)
}

func buildDrop(config any, env *Env) Step {
	out := env.In
	for i, name := range config.(*DropConfig).Fields {
		if err := checkField(env.In, name); err != nil {
			env.fault([]string{strconv.Itoa(i)}, err)
		}
		out = out.Drop(name, "step "+env.Name+" drops it")
	}
	return finish(env, out)
}

func buildKeep(config any, env *Env) Step {
	names := config.(*KeepConfig).Fields
	for i, name := range names {
		if err := checkField(env.In, name); err != nil {
			env.fault([]string{strconv.Itoa(i)}, err)
		}
	}
	return finish(env, env.In.Keep(names))
}

func finish(env *Env, out *View) Step {
	if env.faulted {
		return nil
	}
	env.Output(out)
	return pass{name: env.Name, objects: env.In.layout.Untouched()}
}

// checkField refuses a field that is known not to be there.
func checkField(v *View, name string) error {
	if v.has(name) {
		return nil
	}
	if why, ok := v.gone[name]; ok {
		return v.dropped(name, why)
	}
	return v.unknown(name)
}

// renameStep puts the values of renamed fields where their new names find them.
type renameStep struct {
	name    string
	moves   []move
	objects bool
}

type move struct{ from, old, slot int }

func buildRename(config any, env *Env) Step {
	fields := config.(*RenameConfig).Fields
	s := &renameStep{name: env.Name, objects: env.In.layout.Untouched()}
	out := env.In
	names := make([]string, 0, len(fields))
	for from := range fields {
		names = append(names, from)
	}
	slices.Sort(names)
	for _, from := range names {
		to := fields[from]
		if _, chained := fields[to]; chained || to == from || to == "" {
			env.fault([]string{from}, fmt.Errorf("a field cannot be renamed to %q here: write two rename steps", to))
			continue
		}
		ref, err := env.In.Field([]string{from})
		if err != nil {
			env.fault([]string{from}, err)
			continue
		}
		m := move{from: ref.Slot, old: -1, slot: env.In.Base().NewSlot()}
		typ := ref.Type
		if old, err := env.In.Field([]string{to}); err == nil {
			m.old = old.Slot
			if typ != 0 && typ.MayBeNull() {
				typ = unionOf(typ, old.Type) // a record without the field keeps what had its new name
			}
		}
		s.moves = append(s.moves, m)
		out = out.Rename(from, to, expr.Ref{Slot: m.slot, Covered: 1, Type: typ}, "step "+env.Name+" renames it to "+to)
	}
	if env.faulted {
		return nil
	}
	env.Output(out)
	return s
}

// unionOf is the type of values of either type; 0 is nothing known.
func unionOf(t, u expr.Type) expr.Type {
	if t == 0 || u == 0 {
		return 0
	}
	return t | u
}

func (s *renameStep) Start(env RunEnv) Instance { return &renameRun{renameStep: s, env: env} }

type renameRun struct {
	*renameStep
	env RunEnv
}

// Process copies values; a record without the field keeps what had its new name.
func (r *renameRun) Process(ctx context.Context, b *connectors.Batch, sel []uint16) (err error) {
	if r.objects {
		if sel, err = objectsOnly(ctx, &r.env, r.name, b, sel); err != nil {
			return err
		}
	}
	if len(sel) == 0 {
		return nil
	}
	for _, row := range sel {
		slots := b.Row(int(row))
		for _, m := range r.moves {
			v := slots[m.from]
			if v.Kind() == connectors.Absent && m.old >= 0 {
				v = slots[m.old]
			}
			slots[m.slot] = v
		}
	}
	return r.env.Emit(ctx, 0, b, sel)
}
