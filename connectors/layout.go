package connectors

// EditKind is what an Edit does.
type EditKind uint8

// The edits of a layout.
const (
	EditSet    EditKind = iota // Name becomes the value of Slot; a new field follows the others
	EditDrop                   // all fields called Name go
	EditKeep                   // only the fields in Names stay, in the order they have
	EditRename                 // the fields called Name are called To; a field that was called To goes if there was one called Name
)

// Edit is one change of a record's fields.
type Edit struct {
	Kind  EditKind
	Name  string
	To    string   // EditRename
	Names []string // EditKeep
	Slot  int      // EditSet
}

// Layout says how a record's value is made up, the same for all records at one
// place of the graph: from the fields of its raw bytes, or from nothing where
// Empty, the edits are applied in order. The zero Layout is the raw value
// untouched. A set acts on all occurrences of a duplicate name and leaves one,
// in the first one's place; drop and rename likewise.
type Layout struct {
	Empty bool
	Edits []Edit
}

// Untouched reports whether the value is the raw one.
func (l *Layout) Untouched() bool { return !l.Empty && len(l.Edits) == 0 }

// Rows is what a sink is given: the rows of a batch that reached it, in order.
// It and all that it gives out are borrowed until Write returns.
type Rows struct {
	Batch *Batch
	Sel   []uint16 // indexes into Batch.Records
	// Values holds the encoded value of each row, by position in Sel, made in
	// the sink's format. nil is a tombstone.
	Values [][]byte
	// Layout says which fields the value has, for sinks that write columns.
	Layout *Layout
	// DeadLetter holds, for rows that an earlier step refused, by position in
	// Sel, what went wrong. nil where the rows are ordinary ones. The records have
	// these facts in their headers already, or are rows of a table that holds them;
	// expressions of the sink have no value for them.
	DeadLetter []*RecordError
	// Headers are what the sink's format says in headers: each row that has a value gets
	// them, and no row keeps those of its record with such a name. One with a nil value
	// only takes the record's away. Dead letters have none.
	Headers []Header
}

// Replaces reports whether the format has taken a record's header of that name over.
func (r *Rows) Replaces(name string) bool {
	for i := range r.Headers {
		if r.Headers[i].Key == name {
			return true
		}
	}
	return false
}

// Len is the number of rows.
func (r *Rows) Len() int { return len(r.Sel) }

// Record is the source record of row i.
func (r *Rows) Record(i int) *Record { return &r.Batch.Records[r.Sel[i]] }

// Slot is the value in a slot of row i.
func (r *Rows) Slot(i, slot int) Value {
	return r.Batch.Slots[int(r.Sel[i])*r.Batch.Stride+slot]
}

// Expr is an expression in a connector's configuration. The engine compiles it
// when the pipeline is loaded and evaluates it for each row before Write.
type Expr struct {
	Text string
	// Slot is where Rows.Slot finds the value; set by the engine.
	Slot int
}

// Set reports whether the user wrote the expression.
func (e Expr) Set() bool { return e.Text != "" }

// Ref names what a step reads, in a step's own configuration: a source or step,
// or one branch of a step as step.branch. The file's position is the key's.
type Ref string
