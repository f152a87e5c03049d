package transform

import (
	"context"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
)

// Step is one step at one place of the graph: compiled, immutable and shared by
// all subtasks. Start makes the working instance of one of them.
type Step interface {
	Start(env RunEnv) Instance
}

// Instance is a step at work in one subtask, used by one goroutine.
type Instance interface {
	// Process handles the rows sel of b and gives what comes out to Emit, any
	// number of times, before it returns. It may write to sel, which is its own
	// until it emits it.
	Process(ctx context.Context, b *connectors.Batch, sel []uint16) error
}

// Gate is implemented by steps that slow their chain down. The task that runs
// the chain hands on at most SliceRows records at once, and none before Due; it
// looks for barriers while it waits.
type Gate interface {
	SliceRows() int
	Due() time.Time
}

// RunEnv is what a working step is given.
type RunEnv struct {
	// Emit passes rows on through one output: 0 the only one, or the index of a
	// branch. The receiver owns sel from then on, until Emit returns.
	Emit func(ctx context.Context, output int, b *connectors.Batch, sel []uint16) error
	// Fail hands a row over to on_error. A non-nil answer stops the pipeline.
	Fail func(ctx context.Context, b *connectors.Batch, row uint16, e *connectors.RecordError) error
	// Dropped counts records that the step leaves out as it should, such as a
	// filter's.
	Dropped func(n int)
	// Exprs is the state of the subtask's expressions.
	Exprs *expr.Env
	// Subtasks is how many instances share the step.
	Subtasks int
}

// Env is what a step is built with.
type Env struct {
	// Name is the step's name.
	Name string
	// In is what is known of the records that come in; the scope of expressions.
	In *View
	// Fault reports one fault of the configuration: at the keys below the step's
	// block, such as ["price_eur"], nil for the block itself.
	Fault func(keys []string, err error)

	out     []*View
	faulted bool
}

// Output tells what is known of the records of an output, in order of the outputs.
func (e *Env) Output(v *View) { e.out = append(e.out, v) }

// Outputs are the views of the outputs.
func (e *Env) Outputs() []*View { return e.out }

// Compile compiles an expression over what comes in and reports its faults.
func (e *Env) Compile(x connectors.Expr, want expr.Type, keys ...string) *expr.Program {
	p, err := expr.Compile(x.Text, e.In, expr.Options{Want: want})
	if err != nil {
		e.fault(keys, err)
		return nil
	}
	return p
}

func (e *Env) fault(keys []string, err error) {
	e.faulted = true
	e.Fault(keys, err)
}

// failure makes the record error of an expression that failed for a row.
func failure(step, text string, b *connectors.Batch, row uint16, e *expr.EvalError) *connectors.RecordError {
	r := &b.Records[row]
	return &connectors.RecordError{
		Origin: r.Origin, Offset: r.Offset, Step: step, Expr: text, Reason: e.Reason, Kind: e.Kind,
	}
}

// failures collects the rows that an expression refuses while it works through
// a batch, so that they are handed to on_error after it.
type failures struct {
	step string
	text string
	rows []uint16
	errs []*expr.EvalError
	add  func(row uint16, e *expr.EvalError)
}

func newFailures(step, text string) *failures {
	f := &failures{step: step, text: text}
	f.add = func(row uint16, e *expr.EvalError) {
		f.rows, f.errs = append(f.rows, row), append(f.errs, e)
	}
	return f
}

// report hands the collected rows over.
func (f *failures) report(ctx context.Context, env *RunEnv, b *connectors.Batch) error {
	if len(f.rows) == 0 {
		return nil
	}
	for i, row := range f.rows {
		if b.Records[row].Op.Retracts() {
			continue // the row that it takes back was handed over itself
		}
		if err := env.Fail(ctx, b, row, failure(f.step, f.text, b, row, f.errs[i])); err != nil {
			return err
		}
	}
	clear(f.errs)
	f.rows, f.errs = f.rows[:0], f.errs[:0]
	return nil
}

// objectsOnly hands the rows whose value is no object to on_error and leaves them
// out: fields can be changed in an object only.
func objectsOnly(ctx context.Context, env *RunEnv, step string, b *connectors.Batch, sel []uint16) ([]uint16, error) {
	n := 0
	for _, row := range sel {
		v := b.Records[row].Value
		at := 0
		for at < len(v) && (v[at] == ' ' || v[at] == '\n' || v[at] == '\r' || v[at] == '\t') {
			at++
		}
		if v == nil || at < len(v) && v[at] == '{' {
			sel[n] = row
			n++
			continue
		}
		if b.Records[row].Op.Retracts() {
			continue
		}
		e := &expr.EvalError{Reason: "the value is no object, and only objects have fields to change", Kind: expr.KindType}
		if err := env.Fail(ctx, b, row, failure(step, "", b, row, e)); err != nil {
			return nil, err
		}
	}
	return sel[:n], nil
}

// splitTombstones moves the rows without a value behind the others and returns
// both parts. The order within each is kept.
func splitTombstones(b *connectors.Batch, sel, scratch []uint16) (values, tombstones []uint16) {
	scratch = scratch[:0]
	n := 0
	for _, row := range sel {
		if b.Records[row].Tombstone() {
			scratch = append(scratch, row)
			continue
		}
		sel[n] = row
		n++
	}
	return sel[:n], scratch
}
