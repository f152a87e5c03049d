package transform

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/connectors/retry"
	"github.com/sluice-etl/sluice/pipeline/expr"
)

// EncodeConfig is the block of an encode.
type EncodeConfig struct {
	Field  string                  `key:"field" doc:"The field to write in a format: any value for json, a map for formats with fields." required:"true"`
	As     string                  `key:"as" doc:"Name of the field that takes the result. Default: the same field."`
	Format connectors.FormatConfig `key:"format" doc:"What the value is written in, as the key format of a sink; json without it."`
	Bytes  bool                    `key:"bytes" doc:"The result is bytes, for formats that are no text; in JSON they are text in base64."`
}

func init() {
	Register(Spec{
		Updates: PassesUpdates,
		Name:    "encode", Doc: "Writes a field in a format of its own.",
		NewConfig: func() any { return &EncodeConfig{} }, Build: buildEncode,
	})
}

type encode struct {
	EncodeConfig
	name     string
	from, to int
	objects  bool
}

func buildEncode(config any, env *Env) Step {
	s := &encode{EncodeConfig: *config.(*EncodeConfig), name: env.Name, objects: env.In.layout.Untouched()}
	if s.As == "" {
		s.As = s.Field
	}
	if _, err := format.NewOutput(s.Format); err != nil {
		env.fault([]string{"format"}, err)
	}
	if format.MarksInHeaders(s.Format) {
		env.fault([]string{"format"}, errors.New("a field has no headers, which registry.mark: header puts schemas into: leave mark out"))
	}
	ref, err := env.In.Field([]string{s.Field})
	if err != nil {
		env.fault([]string{"field"}, err)
	}
	if env.faulted {
		return nil
	}
	s.from, s.to = ref.Slot, env.In.Base().NewSlot()
	made := expr.Ref{Slot: s.to, Covered: 1, Type: expr.Of(connectors.String)}
	if s.Bytes {
		made.Type = expr.Of(connectors.Bytes)
	}
	if ref.Type == 0 || ref.Type.MayBeNull() {
		made.Type = made.Type.Nullable()
	}
	env.Output(env.In.Set(s.As, made))
	return s
}

func (s *encode) Start(env RunEnv) Instance {
	r := &encodeRun{encode: s, env: env}
	r.note = func(_ int, err error) { r.failed = err }
	return r
}

type encodeRun struct {
	*encode
	env     RunEnv
	output  format.Output // nil for JSON
	started bool
	rows    connectors.Rows
	failed  error
	note    func(int, error)
}

func (r *encodeRun) begin(ctx context.Context) (err error) {
	if r.started {
		return nil
	}
	if r.output, err = format.NewOutput(r.Format); err != nil {
		return connectors.Permanent(err)
	}
	if r.output != nil {
		p := retry.Policy{What: "start the format of step " + r.name}
		if err := p.Do(ctx, func(ctx context.Context) error { return r.output.Start(ctx, format.Env{}) }); err != nil {
			return err
		}
	}
	r.rows.Sel, r.rows.Values, r.started = []uint16{0}, [][]byte{nil}, true
	return nil
}

func (r *encodeRun) Process(ctx context.Context, b *connectors.Batch, sel []uint16) error {
	if err := r.begin(ctx); err != nil {
		return err
	}
	r.rows.Batch = b
	return eachRow(ctx, &r.env, r.name, r.objects, b, sel, func(row uint16) error {
		slots := b.Row(int(row))
		v, err := r.value(ctx, b, row, slots[r.from])
		slots[r.to] = v
		return err
	})
}

var errNoText = errors.New("the result is no text: write bytes: true")

func (r *encodeRun) value(ctx context.Context, b *connectors.Batch, row uint16, v connectors.Value) (out connectors.Value, err error) {
	if v.IsNull() {
		return connectors.NullValue(), nil
	}
	text, err := format.AppendValue(b.Arena.Grow(256), v)
	if err != nil {
		return out, refuse("encode", fmt.Errorf("field %s: %w", r.Field, err))
	}
	text = b.Arena.Keep(text)
	if r.output != nil {
		if v.Kind() != connectors.Map {
			return out, refuse(expr.KindType, fmt.Errorf("field %s is %s, and a map is written in this format", r.Field, v.Kind()))
		}
		r.rows.Sel[0], r.rows.Values[0], r.failed = row, text, nil
		if err := r.output.Encode(ctx, &r.rows, r.note); err != nil {
			return out, err
		}
		if r.failed != nil {
			return out, refuse("encode", fmt.Errorf("field %s: %w", r.Field, r.failed))
		}
		if text = r.rows.Values[0]; text == nil {
			return connectors.NullValue(), nil
		}
	}
	switch {
	case r.Bytes:
		return connectors.BytesValue(text), nil
	case !utf8.Valid(text):
		return out, refuse("encode", fmt.Errorf("field %s: %w", r.Field, errNoText))
	}
	return connectors.TextValue(connectors.String, text), nil
}
