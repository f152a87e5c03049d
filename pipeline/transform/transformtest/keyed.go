// Package transformtest runs keyed steps without the engine: tests feed records and
// the advance of time, and look at what comes out.
package transformtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/state"
	"github.com/sluice-etl/sluice/pipeline/state/statetest"
	"github.com/sluice-etl/sluice/pipeline/transform"
)

// Options say what is around the step.
type Options struct {
	Groups      int              // key groups, 128 by default
	Store       state.Store      // a statetest.Model by default
	Reads       []string         // branches of the step that something reads
	Timestamped bool             // the sources have an event time
	Updating    map[int][]string // by input: the stream is updating, with this key
	Now         func() time.Time // processing time; fixed at 1970 by default
	Discard     bool             // what comes out is not kept: for benchmarks
}

// Row is one record to feed.
type Row struct {
	JSON string // empty is a tombstone
	Time int64
	// Mark is the watermark of the record's split before it; the zero Row has none.
	Mark      *int64
	Op        connectors.Op
	Topic     string // "t" by default
	Partition int32
	Offset    int64
	Key       string
	Headers   []connectors.Header
	Made      bool // a step made it: it has no place in a source
}

// Out is one record that came out.
type Out struct {
	Output int
	Op     connectors.Op
	JSON   string
	Time   int64
}

// String is short and readable: the operation but for inserts, and the value.
func (o Out) String() string {
	if o.Op == connectors.Insert {
		return o.JSON
	}
	return o.Op.String() + " " + o.JSON
}

// Keyed is a keyed step at work, alone.
type Keyed struct {
	t        testing.TB
	opts     Options
	env      *transform.KeyedEnv
	step     transform.KeyedStep
	instance transform.KeyedInstance
	decoders []format.Decoder
	encoders []format.Encoder
	layouts  []*connectors.Layout
	exprs    *expr.Env
	out      []Out
	failed   []*connectors.RecordError
	late     int
	dropped  int
	wm       int64
}

// Faults builds a step and returns the faults of its configuration, as "keys: message".
func Faults(kind string, config any, opts Options) []string {
	_, _, faults := build(kind, config, opts)
	return faults
}

func build(kind string, config any, opts Options) (*transform.KeyedEnv, transform.KeyedStep, []string) {
	spec, ok := transform.Lookup(kind)
	if !ok {
		return nil, nil, []string{"there is no transform " + kind}
	}
	inputs := 1
	if spec.Inputs != nil {
		inputs = len(spec.Inputs(config))
	}
	var in []*transform.View
	for i := range inputs {
		v := transform.NewView(transform.NewBase())
		if key, ok := opts.Updating[i]; ok {
			v = v.Updating(key)
		}
		in = append(in, v)
	}
	var faults []string
	if v, ok := config.(connectors.Validator); ok {
		if err := v.Validate(); err != nil {
			faults = append(faults, err.Error())
		}
	}
	env := transform.NewKeyedEnv("step", in, transform.NewView(transform.NewBase()))
	env.Fault = func(keys []string, err error) { faults = append(faults, fmt.Sprintf("%v: %v", keys, err)) }
	env.Reads = func(branch string) bool { return slices.Contains(opts.Reads, branch) }
	env.Timestamped = opts.Timestamped
	return env, spec.BuildKeyed(config, env), faults
}

// NewKeyed starts a step.
func NewKeyed(t testing.TB, kind string, config any, opts Options) *Keyed {
	t.Helper()
	if opts.Groups == 0 {
		opts.Groups = 128
	}
	if opts.Store == nil {
		opts.Store = statetest.NewModel(opts.Groups)
	}
	if opts.Now == nil {
		opts.Now = func() time.Time { return time.Unix(0, 0) }
	}
	env, step, faults := build(kind, config, opts)
	if len(faults) > 0 {
		t.Fatalf("the configuration has faults: %v", faults)
	}
	k := &Keyed{t: t, opts: opts, env: env, step: step, exprs: expr.NewEnv(), wm: state.MinTime}
	k.exprs.Now = opts.Now
	for _, in := range env.In {
		d, err := format.NewDecoder(connectors.FormatConfig{}, in.Base().Fields(), true)
		k.must(err)
		k.decoders = append(k.decoders, d)
	}
	for _, v := range env.Outputs() {
		e, err := format.NewEncoder(connectors.FormatConfig{}, v.Layout(), format.EncoderOptions{})
		k.must(err)
		k.encoders, k.layouts = append(k.encoders, e), append(k.layouts, v.Layout())
	}
	k.Restart()
	return k
}

func (k *Keyed) must(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Fatal(err)
	}
}

// Restart makes a new instance on the state that there is, as after a barrier and a restore.
func (k *Keyed) Restart() {
	k.t.Helper()
	if k.instance != nil {
		k.must(k.instance.Barrier(context.Background()))
	}
	instance, err := k.step.Start(transform.KeyedRun{
		RunEnv: transform.RunEnv{
			Emit: k.emit,
			Fail: func(_ context.Context, _ *connectors.Batch, _ uint16, e *connectors.RecordError) error {
				k.failed = append(k.failed, e)
				return nil
			},
			Dropped: func(n int) { k.dropped += n }, Exprs: k.exprs, Subtasks: 1,
		},
		Store: k.opts.Store, Groups: k.opts.Groups,
		Watermark: func(int) int64 { return k.wm }, Late: func(n int) { k.late += n }, Now: k.opts.Now,
	})
	k.must(err)
	k.instance = instance
}

func (k *Keyed) emit(_ context.Context, output int, b *connectors.Batch, sel []uint16) error {
	if k.opts.Discard {
		return nil
	}
	rows := connectors.Rows{Batch: b, Sel: sel, Layout: k.layouts[output]}
	var failed error
	k.encoders[output].Encode(&rows, func(_ int, err error) { failed = errors.Join(failed, err) })
	for i, row := range sel {
		r := &b.Records[row]
		k.out = append(k.out, Out{Output: output, Op: r.Op, JSON: string(rows.Values[i]), Time: r.Time})
	}
	return failed
}

// Feed hands rows to an input, in one batch.
func (k *Keyed) Feed(input int, rows ...Row) {
	k.t.Helper()
	b, sel := k.batch(input, rows)
	k.must(k.instance.Process(context.Background(), input, b, sel))
	k.must(k.opts.Store.Err())
}

// batch does what the engine does before the exchange.
func (k *Keyed) batch(input int, rows []Row) (*connectors.Batch, []uint16) {
	k.t.Helper()
	up := &connectors.Batch{}
	up.Size(len(rows), k.env.In[input].Base().Stride())
	var sel []uint16
	for i, r := range rows {
		topic := r.Topic
		if topic == "" {
			topic = "t"
		}
		rec := connectors.Record{Origin: &connectors.Origin{Topic: topic, Partition: r.Partition}, Offset: r.Offset, Time: r.Time, Mark: connectors.NoMark, Op: r.Op}
		if r.JSON != "" {
			rec.Value = []byte(r.JSON)
		}
		if rec.Headers = r.Headers; r.Made {
			rec.Origin, rec.Offset = nil, 0
		}
		if r.Mark != nil {
			rec.Mark = *r.Mark
		}
		if r.Key != "" {
			rec.Key = []byte(r.Key)
		}
		up.Records[i] = rec
		sel = append(sel, uint16(i))
	}
	sel = k.decoders[input].Decode(up, sel, func(row uint16, err *format.SyntaxError) {
		k.t.Fatalf("row %d: %v", row, err)
	})
	b := &connectors.Batch{Stride: k.env.Row.Base().Stride()}
	var out []uint16
	for _, row := range sel {
		if k.exchange(input, up, int(row), b) {
			out = append(out, uint16(len(b.Records)-1))
		}
	}
	return b, out
}

func (k *Keyed) exchange(input int, up *connectors.Batch, row int, b *connectors.Batch) bool {
	k.t.Helper()
	in := k.env.Inputs()[input]
	slots := make([]connectors.Value, b.Stride)
	var key []byte
	for _, p := range in.Keys {
		v, err := p.Eval(k.exprs, up, row)
		if err != nil {
			k.fail(up, row, p, err)
			return false
		}
		key = state.AppendKey(key, v)
	}
	made := state.MakeKey(key, k.opts.Groups)
	slots[transform.KeySlot], slots[transform.HashSlot] = connectors.BytesValue(key), connectors.IntValue(int64(made.Hash))
	for _, c := range in.Carries {
		v, err := c.Program.Eval(k.exprs, up, row)
		if err != nil {
			k.fail(up, row, c.Program, err)
			return false
		}
		slots[c.Slot] = v
	}
	rec := up.Records[row]
	if !in.Rows {
		rec.Value, rec.Key, rec.Headers = []byte("{}"), nil, nil
	}
	b.Records, b.Slots = append(b.Records, rec), append(b.Slots, slots...)
	return true
}

func (k *Keyed) fail(b *connectors.Batch, row int, p *expr.Program, err *expr.EvalError) {
	k.failed = append(k.failed, &connectors.RecordError{
		Origin: b.Records[row].Origin, Offset: b.Records[row].Offset, Step: "step", Expr: p.Text(), Reason: err.Reason, Kind: err.Kind,
	})
}

// Batch is a batch as the exchange makes it, for benchmarks and tests of allocation.
func (k *Keyed) Batch(input int, rows ...Row) (*connectors.Batch, []uint16) {
	return k.batch(input, rows)
}

// Definition is what the meaning of the step's state hangs on.
func (k *Keyed) Definition() string {
	return k.step.(interface{ Definition() string }).Definition()
}

// Layout is what a checkpoint says of how the step keeps its state.
func (k *Keyed) Layout() []byte {
	k.t.Helper()
	layout, err := json.Marshal(k.step.(transform.Layouter).Layout())
	k.must(err)
	return layout
}

// Instance is the step at work.
func (k *Keyed) Instance() transform.KeyedInstance { return k.instance }

// Watermark advances event time.
func (k *Keyed) Watermark(wm int64) {
	k.t.Helper()
	k.wm = wm
	k.must(k.instance.Watermark(context.Background(), wm))
	k.must(k.opts.Store.Err())
}

// Tick tells the processing time that Options.Now gives.
func (k *Keyed) Tick() {
	k.t.Helper()
	k.must(k.instance.Tick(context.Background(), k.opts.Now()))
}

// Take gives what came out since the last call.
func (k *Keyed) Take() []Out {
	out := k.out
	k.out = nil
	return out
}

// TakeJSON is Take as text, see Out.String.
func (k *Keyed) TakeJSON() []string {
	var out []string
	for _, o := range k.Take() {
		out = append(out, o.String())
	}
	return out
}

// Failed are the records that were refused so far.
func (k *Keyed) Failed() []*connectors.RecordError { return k.failed }

// Late is how many rows were too late so far, with no branch reading them.
func (k *Keyed) Late() int { return k.late }

// Dropped is how many rows were left out as they should so far.
func (k *Keyed) Dropped() int { return k.dropped }

// Store is the step's state.
func (k *Keyed) Store() state.Store { return k.opts.Store }
