package transform

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/schema"
)

// The inputs of a join.
const (
	leftSide = iota
	rightSide
)

var sideNames = [2]string{expr.LeftSide, expr.RightSide}

// boundNames are what results of windows can read beside the records.
var boundNames = [2]string{"window_start", "window_end"}

// joinSide says what of a side's records is kept, in slots of the keyed chain.
type joinSide struct {
	slots []int
	whole bool // the record itself is kept too
	paths []string
	// passing says which of them belong to the record beside its value, so that a change
	// of a row has others than the row.
	passing []bool
}

// joinOutput says how results are made of the records of both sides.
type joinOutput struct {
	selects []assign // computed fields; others are slots of the sides
	stride  func() int
}

// joinBuild builds a join.
type joinBuild struct {
	env  *KeyedEnv
	c    *JoinConfig
	step *joinStep
	refs map[string]expr.Ref // of paths that expressions named so far
	keys [2][]*expr.Program  // what makes the key, by side
	// taken are the fields of the result that are nothing but a field of an input, by that.
	taken map[string]string
}

func buildJoin(config any, env *KeyedEnv) KeyedStep {
	b := &joinBuild{env: env, c: config.(*JoinConfig), refs: map[string]expr.Ref{}, taken: map[string]string{}}
	b.step = &joinStep{name: env.Name, config: b.c, tombstone: -1, bounds: [2]int{-1, -1}}
	b.step.out.stride = env.Row.Base().Stride
	b.checkUpdates()
	b.on()
	b.within()
	b.times()
	if b.c.leftOnly() {
		b.wholeLeft()
	} else {
		b.result()
	}
	if env.Faulted() {
		return nil
	}
	for side := range b.step.sides {
		b.step.sides[side].sort()
	}
	b.step.definition = b.definition()
	return b.step
}

// checkUpdates refuses inputs whose rows may be taken back, where the form cannot do so.
func (b *joinBuild) checkUpdates() {
	for side, v := range b.env.In {
		u := v.Updates()
		b.step.updating[side] = u != nil
		if u == nil || b.c.plain() {
			continue
		}
		if b.c.Latest && side == rightSide {
			continue // judged once the keys are known
		}
		b.env.Report([]string{sideNames[side]}, errors.New("it is an updating stream, whose rows may be taken back, and only a plain join (with ttl and no window, within or latest) takes results back"))
	}
}

// on takes the condition apart.
func (b *joinBuild) on() {
	on, err := expr.CompileOn(b.c.On.Text, b.env.In[leftSide], b.env.In[rightSide], b.scope(false), expr.Options{Name: "on", Deterministic: true})
	if err != nil {
		b.env.Report([]string{"on"}, err)
		return
	}
	b.env.Key(leftSide, on.Left...)
	b.env.Key(rightSide, on.Right...)
	b.step.rest, b.keys = on.Rest, [2][]*expr.Program{on.Left, on.Right}
	for _, p := range on.Left {
		b.step.keys = append(b.step.keys, strings.TrimPrefix(p.Text(), expr.LeftSide+"."))
	}
	for side, keys := range b.keys {
		for _, p := range keys {
			if b.step.updating[side] && p.Varies() {
				b.env.Report([]string{"on"}, varies(p))
			}
		}
	}
	if !b.c.Latest {
		return
	}
	b.deleted(on.Right)
	if b.step.updating[rightSide] {
		b.keyedBy(on.Right)
	}
}

// deleted has tombstones of a table travel, where they have a key to be joined by.
func (b *joinBuild) deleted(keys []*expr.Program) {
	for _, p := range keys {
		if len(p.Fields()) > 0 || p.This() {
			return
		}
	}
	p, err := expr.Compile("meta.tombstone", b.env.In[rightSide], expr.Options{})
	if err != nil {
		b.env.Report(nil, err)
		return
	}
	b.step.tombstone = b.env.Carry(rightSide, p)
}

// keyedBy demands that the rows of a table are told apart by what it is joined by.
func (b *joinBuild) keyedBy(keys []*expr.Program) {
	var names []string
	for _, p := range keys {
		if f := p.Fields(); len(f) == 1 && len(f[0]) == 1 && !p.This() {
			names = append(names, f[0][0])
		}
	}
	want := b.env.In[rightSide].Updates().Key
	slices.Sort(names)
	if len(want) == 0 || !slices.Equal(names, slices.Sorted(slices.Values(want))) {
		b.env.Report([]string{"right"}, fmt.Errorf("it is an updating stream of which there may be several rows for a key of `on`; a latest join takes one whose rows are told apart by exactly these fields, and here it is by %s", listOr(want, "none")))
	}
}

func listOr(names []string, none string) string {
	if len(names) == 0 {
		return none
	}
	return strings.Join(names, ", ")
}

// within compiles the bounds that left records say.
func (b *joinBuild) within() {
	if w := b.c.Within; w != nil && w.From.Set() && w.To.Set() {
		b.step.from = b.bound(w.From, "from")
		b.step.to = b.bound(w.To, "to")
	}
}

func (b *joinBuild) bound(x connectors.Expr, key string) int {
	p, err := expr.CompileTime(x.Text, expr.LeftSide, b.env.In[leftSide], expr.Options{Name: key, Deterministic: true, Want: expr.Of(connectors.Int)})
	if err != nil {
		b.env.Report([]string{"within", key}, err)
		return 0
	}
	return b.env.Carry(leftSide, p)
}

// times decides which time the join goes by.
func (b *joinBuild) times() {
	switch {
	case b.c.windowed():
		b.step.processing = b.c.Window.Processing
	case b.c.plain():
		b.step.processing = !b.env.Timestamped
	}
}

// wholeLeft makes the result left records as they are.
func (b *joinBuild) wholeLeft() {
	// Only left records travel whole: what is known of the right ones says nothing.
	b.env.Row = Receive(b.env.Row.Base(), b.env.In[leftSide]).AppendOnly()
	kept := b.env.keepRows(leftSide)
	view := kept.view
	s := &b.step.sides[leftSide]
	s.whole = true
	for i, slot := range kept.slots {
		s.keep(slot, kept.names[i])
	}
	if b.c.plain() && (b.c.Type == joinAnti || b.step.updating[leftSide] || b.step.updating[rightSide]) {
		var key []string
		if u := b.env.In[leftSide].Updates(); u != nil {
			key = u.Key
		}
		view = view.Updating(key).Spread(b.spread(func(path string) string { return strings.TrimPrefix(path, expr.LeftSide+".") }))
	}
	b.env.Output(view)
}

// spread is Updates.Spread of the result, of which name tells how a field of an input is
// called there.
func (b *joinBuild) spread(name func(path string) string) (names []string) {
	for side, v := range b.env.In {
		u := v.Updates()
		if u == nil || b.c.leftOnly() && side == rightSide { // left rows stay where they are
			continue
		}
		for _, field := range u.Spread {
			names = append(names, name(sideNames[side]+"."+field))
		}
		for i, p := range b.keys[side] {
			field := sideNames[side] + "." + strings.TrimPrefix(p.Text(), sideNames[side]+".")
			other := sideNames[1-side] + "." + strings.TrimPrefix(b.keys[1-side][i].Text(), sideNames[1-side]+".")
			if _, taken := b.taken[field]; !taken && b.taken[other] != "" {
				field = other
			}
			names = append(names, name(field))
		}
	}
	return names
}

// result makes the view of what is made of both records.
func (b *joinBuild) result() {
	scope := b.scope(true)
	view := b.env.Project()
	fields := b.c.Select
	if len(fields) == 0 {
		for _, name := range sideNames {
			fields = append(fields, connectors.Assignment{Name: name, Expr: connectors.Expr{Text: name}})
		}
	}
	var others []string
	if b.c.windowed() {
		others = boundNames[:]
	}
	changing := b.c.plain() && (b.c.Type != joinInner || b.step.updating[leftSide] || b.step.updating[rightSide])
	for _, f := range fields {
		p, err := expr.CompileBoth(f.Expr.Text, scope, expr.Options{Name: f.Name, Deterministic: changing}, others...)
		if err != nil {
			b.env.Report([]string{"select", f.Name}, err)
			continue
		}
		slot, plain := p.Slot()
		if !plain {
			slot = b.env.NewSlot()
			b.step.out.selects = append(b.step.out.selects, assign{text: f.Expr.Text, prog: p, slot: slot})
		}
		if paths := p.Fields(); plain && len(paths) == 1 {
			b.taken[strings.Join(paths[0], ".")] = f.Name
		}
		view = view.SetShaped(f.Name, expr.Ref{Slot: slot, Covered: 1, Type: p.Type()}, b.shape(p))
	}
	if changing {
		view = view.Updating(nil).Spread(b.spread(b.resultName))
	}
	b.env.Output(view)
}

// resultName is what a field of an input is called in the result.
func (b *joinBuild) resultName(path string) string {
	if name := b.taken[path]; name != "" {
		return name
	}
	side, field, _ := strings.Cut(path, ".")
	if whole := b.taken[side]; whole != "" {
		return whole + "." + field
	}
	return path
}

// shape is what is declared of the value of a program that is nothing but a field or
// a whole record.
func (b *joinBuild) shape(p *expr.Program) *schema.Type {
	paths := p.Fields()
	if _, bare := p.Slot(); !bare || len(paths) != 1 {
		return nil
	}
	side := slices.Index(sideNames[:], paths[0][0])
	if side < 0 {
		return nil
	}
	record := recordShape(b.env.In[side])
	if record == nil {
		return nil
	}
	shape, known, err := record.At(paths[0][1:])
	switch {
	case err != nil || !known:
		return nil
	case b.c.outer(1-side) && shape != nil:
		return nullable(shape)
	}
	return shape
}

// recordShape is what is declared of whole records, nil where nothing is.
func recordShape(v *View) *schema.Type {
	if !v.Complete() {
		return nil
	}
	t := &schema.Type{Base: schema.Map, Fields: []schema.Field{}}
	for _, f := range v.Fields() {
		shape := f.Shape
		if shape == nil {
			shape = &schema.Type{Nullable: true}
		}
		t.Fields = append(t.Fields, schema.Field{Name: f.Name, Type: shape})
	}
	return t
}

// scope is the scope of expressions over both records. In results the record of a
// side may be missing.
func (b *joinBuild) scope(result bool) *joinScope {
	s := &joinScope{b: b}
	if result {
		s.missing = [2]bool{b.c.outer(rightSide), b.c.outer(leftSide)}
	}
	return s
}

// joinScope resolves left.f and right.f to the slots in which they travel.
type joinScope struct {
	b       *joinBuild
	missing [2]bool
}

func (s *joinScope) Field(path []string) (expr.Ref, error) {
	side := slices.Index(sideNames[:], path[0])
	if side < 0 {
		return s.b.bounds(path[0])
	}
	text := strings.Join(path, "\x00")
	ref, known := s.b.refs[text]
	if !known {
		var err error
		if ref, err = s.resolve(side, path[1:]); err != nil {
			return expr.Ref{}, err
		}
		s.b.step.sides[side].keep(ref.Slot, strings.Join(path[1:ref.Covered], "."))
		s.b.refs[text] = ref
	}
	if s.missing[side] && ref.Type != 0 {
		ref.Type = ref.Type.Nullable()
	}
	return ref, nil
}

// bounds resolves the bounds of a window.
func (b *joinBuild) bounds(name string) (expr.Ref, error) {
	i := slices.Index(boundNames[:], name)
	if i < 0 || !b.c.windowed() {
		return expr.Ref{}, &expr.Error{Msg: "`" + name + "` is no record of the join", Help: "write left or right"}
	}
	if b.step.bounds[i] < 0 {
		b.step.bounds[i] = b.env.NewSlot()
	}
	return expr.Ref{Slot: b.step.bounds[i], Covered: 1, Type: expr.Of(connectors.Int)}, nil
}

func (s *joinScope) resolve(side int, path []string) (ref expr.Ref, err error) {
	env := s.b.env
	switch {
	case len(path) == 0:
		ref.Slot, err = env.Fields(side).This()
		ref.Covered = 1
		return ref, err
	case path[0] == "meta":
		p, err := expr.Compile(metaText(path), env.In[side], expr.Options{})
		if err != nil {
			return ref, err
		}
		return expr.Ref{Slot: env.Carry(side, p), Covered: 1 + len(path), Type: p.Type()}, nil
	}
	ref, err = env.Fields(side).Field(path)
	ref.Covered++
	return ref, err
}

// metaText is the expression that a path below meta was written as.
func metaText(path []string) string {
	if len(path) == 3 && path[1] == "headers" {
		return "meta.headers[" + strconv.Quote(path[2]) + "]"
	}
	return strings.Join(path, ".")
}

func (s *joinScope) This() (int, error) {
	return 0, &expr.Error{Msg: "`this` does not say of which record of the join", Help: "write left or right"}
}

// keep notes that a value of the side's records is kept.
func (s *joinSide) keep(slot int, path string) {
	if !slices.Contains(s.slots, slot) {
		s.slots = append(s.slots, slot)
		s.paths = append(s.paths, path)
	}
}

// sort brings what is kept into an order that does not hang on where the file names it.
func (s *joinSide) sort() {
	order := make([]int, len(s.slots))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return strings.Compare(s.paths[i], s.paths[j]) })
	slots, paths := make([]int, len(order)), make([]string, len(order))
	for to, from := range order {
		slots[to], paths[to] = s.slots[from], s.paths[from]
	}
	s.slots, s.paths, s.passing = slots, paths, make([]bool, len(order))
	for i, path := range paths {
		s.passing[i] = strings.HasPrefix(path, "meta.")
	}
}

// kept is what is kept of the side's records, as text.
func (s *joinSide) kept() string {
	if s.whole {
		return "records with " + strings.Join(s.paths, ",")
	}
	return strings.Join(s.paths, ",")
}

// definition is the text of all that decides what the state means: what makes the
// key, the form and the type, and what is kept of each record.
func (b *joinBuild) definition() string {
	c := b.c
	var form string
	switch {
	case c.windowed():
		form = "window " + c.Window.String()
	case c.Within != nil && c.Within.From.Set():
		form = fmt.Sprintf("within from %s to %s ttl %s", c.Within.From.Text, c.Within.To.Text, c.TTL)
	case c.Within != nil:
		form = fmt.Sprintf("within before %s after %s", c.Within.Before, c.Within.After)
	case c.Latest:
		form = fmt.Sprintf("latest ttl %s", c.TTL)
	default:
		form = fmt.Sprintf("ttl %s by processing time %t", c.TTL, b.step.processing)
	}
	return fmt.Sprintf("%s join on %s %s keeps left %s right %s", c.Type, c.On.Text, form,
		b.step.sides[leftSide].kept(), b.step.sides[rightSide].kept())
}
