package transform

import (
	"context"
	"fmt"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/schema"
)

// UnnestConfig is the block of an unnest.
type UnnestConfig struct {
	Field     string `key:"field" doc:"The field that holds a list." required:"true"`
	As        string `key:"as" doc:"Name of the field that holds one element; the list goes. Default: the list's own name."`
	KeepEmpty bool   `key:"keep_empty" doc:"A record whose list is empty, null or absent stays, with null in place of the element."`
}

func init() {
	Register(Spec{
		Name:      "unnest",
		Doc:       "Makes one record of each element of a list.",
		NewConfig: func() any { return &UnnestConfig{} },
		Build:     buildUnnest,
	})
}

type unnest struct {
	UnnestConfig
	name string
	from int // slot of the list
	to   int // slot of the element
}

func buildUnnest(config any, env *Env) Step {
	s := &unnest{UnnestConfig: *config.(*UnnestConfig), name: env.Name}
	ref, err := env.In.Field([]string{s.Field})
	if err != nil {
		env.fault([]string{"field"}, err)
		return nil
	}
	if ref.Type != 0 && !ref.Type.Has(connectors.List) {
		env.fault([]string{"field"}, fmt.Errorf("%s is %s, and only a list can be taken apart", s.Field, ref.Type))
		return nil
	}
	s.from, s.to = ref.Slot, env.In.Base().NewSlot()
	out := env.In
	if s.As == "" {
		s.As = s.Field
	}
	if s.As != s.Field {
		out = out.Drop(s.Field, "step "+env.Name+" unnests it into "+s.As)
	}
	made := expr.Ref{Slot: s.to, Covered: 1}
	var elem *schema.Type
	if list := env.In.Shape(s.Field); list != nil && list.Elem != nil {
		elem = list.Elem
		made.Type = elem.Written()
		if s.KeepEmpty {
			made.Type = made.Type.Nullable()
		}
	}
	env.Output(out.SetShaped(s.As, made, elem))
	return s
}

func (s *unnest) Start(env RunEnv) Instance {
	return &unnestRun{unnest: s, env: env, out: &connectors.Batch{}}
}

// unnestRun copies each record and its slots for each element into a batch of
// its own, which borrows from the batch that came in.
type unnestRun struct {
	*unnest
	env RunEnv
	out *connectors.Batch
	sel []uint16
}

func (r *unnestRun) Process(ctx context.Context, b *connectors.Batch, sel []uint16) error {
	for _, row := range sel {
		if err := r.one(ctx, b, row); err != nil {
			return err
		}
	}
	return r.flush(ctx)
}

func (r *unnestRun) one(ctx context.Context, b *connectors.Batch, row uint16) error {
	if b.Records[row].Tombstone() {
		return r.add(ctx, b, row, connectors.NullValue())
	}
	list := b.Row(int(row))[r.from]
	switch {
	case list.IsNull():
	case list.Kind() != connectors.List:
		e := &expr.EvalError{Reason: fmt.Sprintf("field %s is no list but of type %s", r.Field, list.Kind()), Kind: "unnest"}
		return r.env.Fail(ctx, b, row, failure(r.name, "", b, row, e))
	default:
		v, err := format.ParseValue(list.Raw(), &b.Arena)
		if err != nil {
			e := &expr.EvalError{Reason: fmt.Sprintf("field %s: %v", r.Field, err), Kind: "decode"}
			return r.env.Fail(ctx, b, row, failure(r.name, "", b, row, e))
		}
		n := 0
		var failed error
		format.Elements(v.Raw(), &b.Arena, func(v connectors.Value) bool {
			n++
			failed = r.add(ctx, b, row, v)
			return failed == nil
		})
		if n > 0 || failed != nil {
			return failed
		}
	}
	if r.KeepEmpty {
		return r.add(ctx, b, row, connectors.NullValue())
	}
	r.env.Dropped(1)
	return nil
}

// add puts a copy of the record with one element into the batch that goes out.
func (r *unnestRun) add(ctx context.Context, b *connectors.Batch, row uint16, v connectors.Value) error {
	o := r.out
	if len(o.Records) == connectors.MaxBatch {
		if err := r.flush(ctx); err != nil {
			return err
		}
	}
	o.Stride = b.Stride
	o.Records = append(o.Records, b.Records[row])
	if b.Originals != nil {
		o.Originals = append(o.Originals, b.Originals[row])
	}
	o.Slots = append(o.Slots, b.Row(int(row))...)
	o.Slots[len(o.Slots)-o.Stride+r.to] = v
	return nil
}

func (r *unnestRun) flush(ctx context.Context) error {
	o := r.out
	if len(o.Records) == 0 {
		return nil
	}
	r.sel = r.sel[:0]
	for i := range o.Records {
		r.sel = append(r.sel, uint16(i))
	}
	err := r.env.Emit(ctx, 0, o, r.sel)
	clear(o.Records)
	clear(o.Slots)
	o.Records, o.Slots, o.Scan, o.Originals = o.Records[:0], o.Slots[:0], o.Scan[:0], nil
	o.Arena.Reset()
	return err
}
