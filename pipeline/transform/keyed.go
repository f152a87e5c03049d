package transform

import (
	"context"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// Slots that every chain with a keyed step at its head begins with.
const (
	KeySlot  = iota // Bytes: the canonical encoding of the record's key
	HashSlot        // Int: xxh64 of it
	keySlots
)

// UpdateRule says what a kind of step does with an updating stream.
type UpdateRule uint8

// The rules.
const (
	RefusesUpdates UpdateRule = iota // a load error
	PassesUpdates                    // works on each row by itself, so that the stream stays what it is
	TakesUpdates                     // takes rows back that it had counted
)

// KeyedStep is a step with keyed state: compiled, immutable and shared by all
// subtasks. It stands at the head of a chain, behind an exchange by key.
type KeyedStep interface {
	Start(run KeyedRun) (KeyedInstance, error)
}

// KeyedInstance is a keyed step at work in one subtask, used by one goroutine.
type KeyedInstance interface {
	// Process handles the rows sel of one input, in the order in which they came.
	// The key of a row is in KeySlot and HashSlot, see RowKey.
	Process(ctx context.Context, input int, b *connectors.Batch, sel []uint16) error
	// Watermark tells that event time has come to wm in all inputs: what is due by
	// then fires, in order of time. It is state.MaxTime once, at the end of bounded
	// input. It rises from call to call.
	Watermark(ctx context.Context, wm int64) error
	// Tick tells the processing time, a few times a second.
	Tick(ctx context.Context, now time.Time) error
	// Barrier is called before the store is forked: whatever the instance holds
	// back in its own memory goes to the store or out.
	Barrier(ctx context.Context) error
}

// KeyedRun is what a working keyed step is given.
type KeyedRun struct {
	RunEnv
	// Store is the step's state. What it held in the restored checkpoint is there.
	Store state.Store
	// Groups is the number of key groups.
	Groups int
	// Watermark is how far event time has come for a key group: that of the inputs, or
	// the restored one where that was further. Rows are late by it.
	Watermark func(group int) int64
	// Late counts rows that are too late and that no branch reads.
	Late func(n int)
	// Now is the processing time.
	Now func() time.Time
}

// RowKey is the key of a row. It borrows from the batch.
func RowKey(b *connectors.Batch, row uint16, groups int) state.Key {
	at := int(row) * b.Stride
	hash := uint64(b.Slots[at+HashSlot].Int())
	return state.Key{Bytes: b.Slots[at+KeySlot].Raw(), Hash: hash, Group: int(hash % uint64(groups))}
}

// KeyedEnv is what a keyed step is built with. The step is cut in two by the
// exchange: keys and arguments are evaluated before it, over In, and travel in slots
// of the keyed chain; what the step does and gives out is over those.
type KeyedEnv struct {
	// Name is the step's name.
	Name string
	// In is what is known of the records of each input.
	In []*View
	// Row is the view behind the exchange of records that travel whole, see CarryRow.
	Row *View
	// Fault reports one fault of the configuration, as in Env.
	Fault func(keys []string, err error)
	// Reads reports whether anything reads the named branch of the step.
	Reads func(branch string) bool
	// Timestamped says that the sources above have an event time of their own, so
	// that a ttl runs in event time.
	Timestamped bool

	inputs  []KeyedInput
	out     []*View
	faulted bool
}

// KeyedInput is what the chain before the exchange does for one input.
type KeyedInput struct {
	Keys    []*expr.Program
	Carries []Carry
	Rows    bool // records travel whole
}

// Carry is a value that travels: of a program over the input's view, into a slot
// of the keyed chain.
type Carry struct {
	Program *expr.Program
	Slot    int
}

// NewKeyedEnv makes the environment of a step whose inputs look like in and whose
// chain begins with row.
func NewKeyedEnv(name string, in []*View, row *View) *KeyedEnv {
	for row.base.slots < keySlots {
		row.base.NewSlot()
	}
	return &KeyedEnv{Name: name, In: in, Row: row, inputs: make([]KeyedInput, len(in))}
}

// Inputs tells what the chains before the exchange have to do.
func (e *KeyedEnv) Inputs() []KeyedInput { return e.inputs }

// Faulted reports whether a fault was reported.
func (e *KeyedEnv) Faulted() bool { return e.faulted }

// Key says by what the records of an input are keyed. It must be decided by the
// record alone.
func (e *KeyedEnv) Key(input int, keys ...*expr.Program) { e.inputs[input].Keys = keys }

// Compile compiles an expression over the records of an input, to be evaluated
// before the exchange, and reports its faults.
func (e *KeyedEnv) Compile(input int, x connectors.Expr, opts expr.Options, keys ...string) *expr.Program {
	p, err := expr.Compile(x.Text, e.In[input], opts)
	if err != nil {
		e.Report(keys, err)
		return nil
	}
	return p
}

// Report reports a fault of the configuration.
func (e *KeyedEnv) Report(keys []string, err error) {
	e.faulted = true
	e.Fault(keys, err)
}

// Carry makes the value of p, over an input's records, travel, and tells its slot
// behind the exchange.
func (e *KeyedEnv) Carry(input int, p *expr.Program) int {
	in := &e.inputs[input]
	for _, c := range in.Carries {
		if slot, ok := p.Slot(); ok {
			if other, same := c.Program.Slot(); same && other == slot {
				return c.Slot
			}
		}
	}
	c := Carry{Program: p, Slot: e.Row.base.NewSlot()}
	in.Carries = append(in.Carries, c)
	return c.Slot
}

// CarryRow makes the records of an input travel whole: value, key and headers.
// Behind the exchange their fields are read through Row. Without it a record has
// nothing but Time, Mark, Op, Origin, Offset and the slots that were asked for.
func (e *KeyedEnv) CarryRow(input int) { e.inputs[input].Rows = true }

// Fields is the scope of an input's records for expressions that are evaluated
// behind the exchange: each field that one names travels.
func (e *KeyedEnv) Fields(input int) expr.Scope { return &carried{e, input} }

// carried resolves names to slots behind the exchange.
type carried struct {
	env   *KeyedEnv
	input int
}

func (c *carried) Field(path []string) (expr.Ref, error) {
	ref, err := c.env.In[c.input].Field(path)
	if err != nil {
		return expr.Ref{}, err
	}
	p := expr.Field(path[:ref.Covered], ref)
	return expr.Ref{Slot: c.env.Carry(c.input, p), Covered: ref.Covered, Type: ref.Type, Inner: ref.Inner}, nil
}

func (c *carried) This() (int, error) {
	p, err := expr.Compile("this", c.env.In[c.input], expr.Options{})
	if err != nil {
		return 0, err
	}
	in := &c.env.inputs[c.input]
	for _, o := range in.Carries {
		if o.Program.Text() == "this" {
			return o.Slot, nil
		}
	}
	return c.env.Carry(c.input, p), nil
}

// NewSlot adds a slot to the keyed chain, for the step to fill.
func (e *KeyedEnv) NewSlot() int { return e.Row.base.NewSlot() }

// Project is the view of records that the step makes anew, without fields so far.
func (e *KeyedEnv) Project() *View { return e.Row.Project() }

// Output tells what is known of the records of an output, in order: the main one,
// then the branches.
func (e *KeyedEnv) Output(v *View) { e.out = append(e.out, v) }

// Outputs are the views of the outputs.
func (e *KeyedEnv) Outputs() []*View { return e.out }

// Rows gathers records that a step makes and emits them in batches.
type Rows struct {
	env    *RunEnv
	output int
	stride int
	batch  connectors.Batch
	sel    []uint16
}

// NewRows makes an empty one for an output whose chain has stride slots.
func NewRows(env *RunEnv, output, stride int) *Rows {
	return &Rows{env: env, output: output, stride: stride}
}

// Reserve makes room for n records that must stand in one batch, such as the two of
// an update.
func (r *Rows) Reserve(ctx context.Context, n int) error {
	if len(r.batch.Records)+n <= connectors.MaxBatch {
		return nil
	}
	return r.Flush(ctx)
}

// Add adds a record made anew and gives its slots, all absent. What goes into them
// must live until Flush: the arena's memory does.
func (r *Rows) Add(ctx context.Context, time int64, op connectors.Op) ([]connectors.Value, error) {
	if err := r.Reserve(ctx, 1); err != nil {
		return nil, err
	}
	return r.add(connectors.Record{Value: emptyObject, Time: time, Mark: connectors.NoMark, Op: op}), nil
}

// emptyObject stands for a value that is made of slots only: such a record is no
// tombstone.
var emptyObject = []byte("{}")

// AddRecord adds a copy of a record that is kept elsewhere, whose bytes must live
// until Flush.
func (r *Rows) AddRecord(ctx context.Context, rec connectors.Record) ([]connectors.Value, error) {
	if err := r.Reserve(ctx, 1); err != nil {
		return nil, err
	}
	return r.add(rec), nil
}

func (r *Rows) add(rec connectors.Record) []connectors.Value {
	b := &r.batch
	b.Stride = r.stride
	b.Records = append(b.Records, rec)
	at := len(b.Slots)
	for range r.stride {
		b.Slots = append(b.Slots, connectors.Value{})
	}
	return b.Slots[at : at+r.stride : at+r.stride]
}

// Batch is the batch being gathered: for programs that are evaluated over its rows.
func (r *Rows) Batch() *connectors.Batch { return &r.batch }

// Drop takes back the last n records that were added.
func (r *Rows) Drop(n int) {
	b := &r.batch
	b.Records = b.Records[:len(b.Records)-n]
	b.Slots = b.Slots[:len(b.Slots)-n*r.stride]
}

// Arena is memory that lives until Flush.
func (r *Rows) Arena() *connectors.Arena { return &r.batch.Arena }

// Flush emits what was gathered. Steps call it before they return from Process,
// Watermark, Tick and Barrier.
func (r *Rows) Flush(ctx context.Context) error {
	b := &r.batch
	if len(b.Records) == 0 {
		return nil
	}
	r.sel = r.sel[:0]
	for i := range b.Records {
		r.sel = append(r.sel, uint16(i))
	}
	err := r.env.Emit(ctx, r.output, b, r.sel)
	clear(b.Records)
	clear(b.Slots)
	b.Records, b.Slots, b.Scan, b.Originals = b.Records[:0], b.Slots[:0], b.Scan[:0], nil
	b.Arena.Reset()
	return err
}
