package expr

import "github.com/sluice-etl/sluice/connectors"

// WholeRaw is the slot that Scope.This gives when the record's raw bytes are the
// whole value.
const WholeRaw = -1

// Scope tells the compiler which fields an expression may read and where they
// are.
type Scope interface {
	// Field resolves the path of a field, such as ["user", "id"] for user.id: it
	// gives the slot that holds the value of path[:Covered], and what is known of
	// its type. What is left of the path is looked up in that value for each
	// record. An error says why the field cannot exist here; it may be an *Error,
	// whose position does not count.
	Field(path []string) (Ref, error)
	// This gives the slot that holds the whole value as a map, or WholeRaw when
	// the record's raw bytes are it, in JSON.
	This() (slot int, err error)
}

// Ref is where a field's value is.
type Ref struct {
	Slot    int
	Covered int // how many names of the path the slot covers, at least 1
	Type    Type
	// Inner is what is known of the value of the whole path where Covered is less than
	// all of it; zero for nothing. A value that is not there is null.
	Inner Type
}

// Options say what an expression is for.
type Options struct {
	// Want is the type that the value must have; zero is Any. Where a value turns
	// out to be of another kind at run time, that is an EvalError.
	Want Type
	// Name is what the expression is, for messages: "filter", "price_eur".
	Name string
	// Deterministic refuses functions whose value is not decided by the record,
	// such as now and uuid: in keys, which are evaluated anew after a restart.
	Deterministic bool
	// Limits bound the text and each evaluation; zero fields are the defaults.
	Limits Limits
}

// Limits bound an expression. Going over is an Error at load or an EvalError.
type Limits struct {
	Text  int // bytes of the expression's text
	Nodes int // parts that the text is made of
	Depth int // nesting of the text
	Steps int // visited list elements, and pieces of 64 bytes of text gone through, in one evaluation
	Bytes int // bytes made in one evaluation
}

// DefaultLimits is what zero fields of Limits stand for.
var DefaultLimits = Limits{Text: 64 << 10, Nodes: 10_000, Depth: 200, Steps: 10_000_000, Bytes: 16 << 20}

func (l Limits) orDefault() Limits {
	or := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	or(&l.Text, DefaultLimits.Text)
	or(&l.Nodes, DefaultLimits.Nodes)
	or(&l.Depth, DefaultLimits.Depth)
	or(&l.Steps, DefaultLimits.Steps)
	or(&l.Bytes, DefaultLimits.Bytes)
	return l
}

// Program is a compiled expression. It is immutable and may be evaluated by many
// subtasks at once, each with its own Env.
type Program struct {
	text      string
	typ       Type
	run       fn
	cond      cond // where the value may be a bool
	want      Type
	root      *site
	vars      int
	fields    [][]string
	whole     bool
	tombstone bool
	varies    bool
	slot      int // the slot that the expression is nothing but, or -1
	native    bool
	limits    Limits
}

// Text is the source of the expression.
func (p *Program) Text() string { return p.text }

// Want is the type that the value must have, see Options.
func (p *Program) Want() Type { return p.want }

// Type is what is known of the expression's value.
func (p *Program) Type() Type { return p.typ }

// Fields are the paths of the fields that the expression reads, without
// repetition, in the order of the text.
func (p *Program) Fields() [][]string { return p.fields }

// This reports whether the expression reads the whole value.
func (p *Program) This() bool { return p.whole }

// Constant gives the value of an expression that is the same for all records.
func (p *Program) Constant() (connectors.Value, bool) {
	if p.root.constant == nil {
		return connectors.Value{}, false
	}
	return *p.root.constant, true
}

// Slot gives the slot that the expression is nothing but a name for.
func (p *Program) Slot() (int, bool) { return p.slot, p.slot >= 0 }

// ReadsTombstone reports whether the expression asks for meta.tombstone, and so
// has a value for records without one.
func (p *Program) ReadsTombstone() bool { return p.tombstone }

// Varies reports whether the expression reads of the record what is another thing in
// each change of a row: its offset, timestamp, operation or headers. Over an updating
// stream it gives for a row that is taken back something else than it gave for the row.
func (p *Program) Varies() bool { return p.varies }

// Native reports whether our own code evaluates the whole expression. Otherwise
// a function in it is run by expr's virtual machine on converted arguments,
// which is slower by a microsecond or more.
func (p *Program) Native() bool { return p.native }
