package transform

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/connectors/retry"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/schema"
)

// ParseConfig is the block of a parse.
type ParseConfig struct {
	Field  string                  `key:"field" doc:"The field with the encoded value." required:"true"`
	As     string                  `key:"as" doc:"Name of the field that takes the result. Default: the same field."`
	Format connectors.FormatConfig `key:"format" doc:"What the value is written in, as the key format of a source; json without it."`
	Base64 bool                    `key:"base64" doc:"The field is text in base64. One that is declared as bytes is taken as such without it."`
}

func init() {
	Register(Spec{
		Updates: PassesUpdates,
		Name:    "parse", Doc: "Reads a field that is written in a format of its own.",
		NewConfig: func() any { return &ParseConfig{} }, Build: buildParse,
	})
}

type parse struct {
	ParseConfig
	name     string
	from, to int
	objects  bool
}

func buildParse(config any, env *Env) Step {
	s := &parse{ParseConfig: *config.(*ParseConfig), name: env.Name, objects: env.In.layout.Untouched()}
	if s.As == "" {
		s.As = s.Field
	}
	if _, err := format.NewInput(s.Format); err != nil {
		env.fault([]string{"format"}, err)
	}
	ref, ok := s.source(env, s.Field, connectors.String, connectors.Bytes)
	if !ok {
		return nil
	}
	s.from, s.to = ref.Slot, env.In.Base().NewSlot()
	made := expr.Ref{Slot: s.to, Covered: 1}
	shape := FormatType(s.Format)
	if shape != nil {
		made.Type = expr.Of(connectors.Map)
		if ref.Type == 0 || ref.Type.MayBeNull() {
			made.Type = made.Type.Nullable()
		}
	}
	env.Output(env.In.SetShaped(s.As, made, shape))
	return s
}

// source finds the field that a step reads, which must be able to hold one of some kinds.
func (s *parse) source(env *Env, field string, kinds ...connectors.Kind) (ref expr.Ref, ok bool) {
	ref, err := env.In.Field([]string{field})
	if err == nil && ref.Type != 0 {
		fits := false
		for _, k := range kinds {
			fits = fits || ref.Type.Has(k)
		}
		if !fits {
			err = fmt.Errorf("%s is %s, and %s is parsed", field, ref.Type, kinds[0])
		}
	}
	if err != nil {
		env.fault([]string{"field"}, err)
	}
	return ref, !env.faulted
}

// FormatType is the type of records that a format says itself; nil where it does not.
func FormatType(cfg connectors.FormatConfig) *schema.Type {
	if cols, err := format.Columns(cfg); err == nil && cols != nil {
		return schema.OfColumns(cols)
	}
	if text := format.JSONSchema(cfg); text != nil {
		if t, err := schema.ParseJSON(text); err == nil {
			return t
		}
	}
	return nil
}

func (s *parse) Start(env RunEnv) Instance { return &parseRun{parse: s, env: env} }

type parseRun struct {
	*parse
	env     RunEnv
	input   format.Input // nil for JSON
	started bool
	record  connectors.Record
}

// begin makes the input at the first batch, when there is a context to wait in.
func (r *parseRun) begin(ctx context.Context) (err error) {
	if r.started {
		return nil
	}
	if r.input, err = format.NewInput(r.Format); err != nil {
		return connectors.Permanent(err)
	}
	if r.input != nil {
		p := retry.Policy{What: "start the format of step " + r.name}
		if err := p.Do(ctx, func(ctx context.Context) error { return r.input.Start(ctx, format.Env{}) }); err != nil {
			return err
		}
	}
	r.started = true
	return nil
}

func (r *parseRun) Process(ctx context.Context, b *connectors.Batch, sel []uint16) error {
	if err := r.begin(ctx); err != nil {
		return err
	}
	return eachRow(ctx, &r.env, r.name, r.objects, b, sel, func(row uint16) error {
		slots := b.Row(int(row))
		v, err := r.value(ctx, &b.Records[row], slots[r.from], &b.Arena)
		slots[r.to] = v
		return err
	})
}

// eachRow calls f for each row that is no tombstone, hands those that it refuses over and
// the others on.
func eachRow(ctx context.Context, env *RunEnv, step string, objects bool, b *connectors.Batch, sel []uint16, f func(row uint16) error) (err error) {
	if objects {
		if sel, err = objectsOnly(ctx, env, step, b, sel); err != nil {
			return err
		}
	}
	n := 0
	for _, row := range sel {
		if !b.Records[row].Tombstone() {
			err := f(row)
			if err != nil && !format.IsRefused(err) {
				return err
			}
			if err != nil {
				if b.Records[row].Op.Retracts() {
					continue // the row that it takes back was handed over itself
				}
				e := &expr.EvalError{Reason: err.Error(), Kind: kindOf(err)}
				if err := env.Fail(ctx, b, row, failure(step, "", b, row, e)); err != nil {
					return err
				}
				continue
			}
		}
		sel[n] = row
		n++
	}
	if n == 0 {
		return nil
	}
	return env.Emit(ctx, 0, b, sel[:n])
}

// stepError is a refusal with a kind of its own.
type stepError struct {
	kind string
	error
}

func (e stepError) Unwrap() error { return e.error }

func refuse(kind string, err error) error { return format.Refuse(stepError{kind, err}) }

func kindOf(err error) string {
	var s stepError
	if errors.As(err, &s) {
		return s.kind
	}
	return "decode"
}

// value is what a field holds, read in the step's format.
func (r *parseRun) value(ctx context.Context, rec *connectors.Record, v connectors.Value, arena *connectors.Arena) (out connectors.Value, err error) {
	switch v.Kind() {
	case connectors.Absent, connectors.Null:
		return connectors.NullValue(), nil
	case connectors.String, connectors.Bytes:
	default:
		return out, refuse(expr.KindType, fmt.Errorf("field %s is %s, and text or bytes are parsed", r.Field, v.Kind()))
	}
	raw := v.Raw()
	if v.Kind() == connectors.String && r.Base64 {
		room := arena.Grow(base64.StdEncoding.DecodedLen(len(raw)))
		decoded, err := base64.StdEncoding.AppendDecode(room, raw)
		if err != nil {
			return out, refuse("decode", fmt.Errorf("field %s: it is no text in base64", r.Field))
		}
		raw = arena.Keep(decoded)
	}
	if r.input != nil {
		// The marks of a record's headers are of its value, not of a field.
		r.record = connectors.Record{Value: raw, Origin: rec.Origin, Offset: rec.Offset}
		if r.record.Value == nil {
			r.record.Value = []byte{}
		}
		if raw, err = r.input.JSON(ctx, arena.Grow(2*len(raw)+64), &r.record); err != nil {
			if format.IsRefused(err) {
				err = refuse("decode", fmt.Errorf("field %s: %w", r.Field, err))
			}
			return out, err
		}
		raw = arena.Keep(raw)
	}
	if out, err = format.ParseValue(raw, arena); err != nil {
		return out, refuse("decode", fmt.Errorf("field %s: %w", r.Field, err))
	}
	return out, nil
}
