package transform

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/connectors/format/jsonschema"
	"github.com/sluice-etl/sluice/pipeline/expr"
)

// ValidateConfig is the block of a validate.
type ValidateConfig struct {
	Schema     jsonschema.Text `key:"schema" doc:"The JSON Schema, as a text or as YAML."`
	SchemaFile string          `key:"schema_file" file:"true" doc:"File with the schema, from the folder of the pipeline's file."`
	Field      string          `key:"field" doc:"A field to check, instead of the whole value."`
}

func init() {
	Register(Spec{
		Updates: PassesUpdates,
		Name:    "validate", Doc: "Checks records by a JSON Schema; what violates it goes to on_error.",
		NewConfig: func() any { return &ValidateConfig{} }, Build: buildValidate,
	})
}

type validate struct {
	name  string
	field string // empty for the whole value
	slot  int
	check *jsonschema.Validator
}

func buildValidate(config any, env *Env) Step {
	c := config.(*ValidateConfig)
	s := &validate{name: env.Name, field: c.Field}
	text, key := string(c.Schema), "schema"
	var err error
	switch {
	case (text == "") == (c.SchemaFile == ""):
		err = errors.New("one of schema and schema_file is wanted")
	case text == "":
		var data []byte
		key = "schema_file"
		data, err = os.ReadFile(c.SchemaFile)
		text = string(data)
	}
	if err == nil {
		s.check, err = jsonschema.Compile(text)
	}
	if err != nil {
		env.fault([]string{key}, fmt.Errorf("no JSON Schema to check by: %w", err))
	}
	if s.field == "" {
		s.slot, err = env.In.This()
	} else {
		var ref expr.Ref
		ref, err = env.In.Field([]string{s.field})
		s.slot = ref.Slot
	}
	if err != nil {
		env.fault([]string{"field"}, err)
	}
	if env.faulted {
		return nil
	}
	env.Output(env.In)
	return s
}

func (s *validate) Start(env RunEnv) Instance { return &validateRun{validate: s, env: env} }

type validateRun struct {
	*validate
	env  RunEnv
	text []byte
}

func (r *validateRun) Process(ctx context.Context, b *connectors.Batch, sel []uint16) error {
	return eachRow(ctx, &r.env, r.name, false, b, sel, func(row uint16) error {
		value := b.Records[row].Value
		if r.slot != expr.WholeRaw {
			v := b.Row(int(row))[r.slot]
			if v.Kind() == connectors.Absent {
				if r.field != "" {
					return nil // that a field is there is for the schema of the whole to say
				}
				return refuse("encode", errors.New("the value cannot be written as JSON, and so not be checked"))
			}
			var err error
			if r.text, err = format.AppendValue(r.text[:0], v); err != nil {
				return refuse("encode", fmt.Errorf("field %s: %w", r.field, err))
			}
			value = r.text
		}
		err := r.check.Check(value)
		if err == nil {
			return nil
		}
		if r.field != "" {
			err = fmt.Errorf("in field %s: %w", r.field, err)
		}
		return refuse("validate", err)
	})
}
