// Package jsonschema holds the format json_schema: JSON that is checked by a schema, which
// can be in a schema registry.
package jsonschema

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/connectors/format/registry"
)

// config is the options of the format.
type config struct {
	Schema     Text            `key:"schema" doc:"The JSON Schema, as a text or as YAML."`
	SchemaFile string          `key:"schema_file" file:"true" doc:"File with the schema, from the folder of the pipeline's file."`
	References []string        `key:"references" file:"true" doc:"Files with schemas that the schema refers to, by their $id or their file name, each behind those that it refers to itself. A sink registers each under a subject of its own."`
	Registry   registry.Config `key:"registry" doc:"Schema registry that speaks Confluent's API: values are marked with the schema that they are written with."`
	Checked    bool            `key:"validate" doc:"Values are checked; otherwise only marks are read and written."`

	draft *registry.Draft // the schema as it is written; nil where there is none
	check *Validator
}

// SchemaMarks says where values have the marks of their schemas.
func (c *config) SchemaMarks() (read, inHeaders bool) { return c.Registry.Marks() }

// Text is a schema as text or as a block of YAML.
type Text string

// UnmarshalConfig reads both forms.
func (s *Text) UnmarshalConfig(v any) error {
	switch v := v.(type) {
	case string:
		*s = Text(v)
		return nil
	case format.SchemaText:
		text, err := v.Alone()
		*s = Text(text)
		return err
	case map[string]any:
		text, err := json.Marshal(v)
		*s = Text(text)
		return err
	}
	return errors.New("a JSON Schema is wanted, as a text or a block")
}

// Validate reads the schema and reports what contradicts itself.
func (c *config) Validate() error {
	faults := []error{c.Registry.Check()}
	key := "schema"
	text := string(c.Schema)
	if c.SchemaFile != "" {
		key = "schema_file"
		if text != "" {
			return &connectors.FieldError{Key: key, Msg: "there are both schema and schema_file", Help: "keep one of them"}
		}
		data, err := os.ReadFile(c.SchemaFile)
		if err != nil {
			return &connectors.FieldError{Key: key, Msg: "it cannot be read: " + err.Error()}
		}
		text = string(data)
	}
	switch {
	case text != "":
		faults = append(faults, c.load(key, text))
	case len(c.References) > 0:
		faults = append(faults, &connectors.FieldError{Key: "references", Msg: "there is no schema that refers to them", Help: "write schema or schema_file"})
	}
	return errors.Join(faults...)
}

func (c *config) usable() error {
	if c.draft == nil && !c.Registry.Set() {
		return &connectors.FieldError{Key: "schema", Msg: "a schema or a registry is wanted", Help: "write registry: {url: …}, schema_file or schema"}
	}
	return nil
}

func init() {
	format.Register(format.Spec{
		Name:      "json_schema",
		Doc:       "JSON that is checked by a JSON Schema, in the file or in a schema registry.",
		NewConfig: func() any { return &config{Registry: registry.Default(), Checked: true} },
		Input: func(c any) (format.Input, error) {
			in := &input{config: c.(*config)}
			return in, in.usable()
		},
		Output: func(c any) (format.Output, error) {
			out := &output{config: c.(*config)}
			return out, out.usable()
		},
		Schema: func(c any) []byte {
			if cfg := c.(*config); cfg.check != nil && cfg.Checked {
				return []byte(cfg.draft.Text)
			}
			return nil
		},
		Example: `{json_schema: {schema: {type: object, properties: {id: {type: integer}}, required: [id]}}}`,
	})
}

// input reads values.
type input struct {
	*config
	client *registry.Client
	checks map[registry.Mark]*Validator
}

// Start implements format.Input.
func (in *input) Start(_ context.Context, env format.Env) (err error) {
	in.checks = map[registry.Mark]*Validator{}
	if in.Registry.Set() {
		in.client, err = registry.New(&in.Registry, env.Log)
	}
	return err
}

// JSON implements format.Input.
func (in *input) JSON(ctx context.Context, dst []byte, r *connectors.Record) ([]byte, error) {
	payload, check := r.Value, in.check
	if in.client != nil {
		mark, _, rest, err := registry.Split(r)
		if err != nil {
			return nil, err
		}
		payload = rest
		if in.Checked && check == nil {
			if check, err = in.validator(ctx, mark); err != nil {
				return nil, err
			}
		}
	}
	if in.Checked {
		if err := check.Check(payload); err != nil {
			return nil, err
		}
	}
	return append(dst, payload...), nil
}

func (in *input) validator(ctx context.Context, m registry.Mark) (*Validator, error) {
	if v := in.checks[m]; v != nil {
		return v, nil
	}
	s, err := in.client.Get(ctx, m)
	if err != nil {
		return nil, err
	}
	if s.Type != "JSON" {
		return nil, format.Refuse(fmt.Errorf("the value is marked with schema %s, which is of %s and no JSON Schema", m, s.Type))
	}
	v, err := compile(s)
	if err != nil {
		return nil, format.Refuse(fmt.Errorf("the value is marked with schema %s, which cannot be used: %w", m, err))
	}
	if len(in.checks) >= in.Registry.Cache {
		clear(in.checks)
	}
	in.checks[m] = v
	return v, nil
}

func compile(s registry.Schema) (*Validator, error) {
	var refs []Document
	for _, r := range s.References {
		refs = append(refs, Document(r))
	}
	return Compile(s.Text, refs...)
}

// output writes values.
type output struct {
	*config
	mark registry.Marker
}

// Start implements format.Output.
func (o *output) Start(ctx context.Context, env format.Env) error {
	if !o.Registry.Set() {
		return nil
	}
	client, err := registry.New(&o.Registry, env.Log)
	if err != nil {
		return err
	}
	subject, err := o.Registry.SubjectOf(env.Topic, "")
	if err != nil {
		return err
	}
	if o.draft != nil {
		s, err := client.Register(ctx, subject, o.draft, env.ReadOnly)
		if err == nil {
			o.mark, err = o.Registry.Marker(s, nil)
		}
		return err
	}
	s, ok, err := client.Latest(ctx, subject)
	if err != nil {
		return err
	}
	if !ok {
		return connectors.Permanent(fmt.Errorf("the subject %s has no schema: write schema or schema_file, which is registered then", subject))
	}
	if s.Type != "JSON" {
		return connectors.Permanent(fmt.Errorf("the newest schema of subject %s is of %s and no JSON Schema", subject, s.Type))
	}
	if o.check, err = compile(s); err != nil {
		return connectors.Permanent(fmt.Errorf("the newest schema of subject %s cannot be used: %w", subject, err))
	}
	o.mark, err = o.Registry.Marker(s, nil)
	return err
}

// Encode implements format.Output.
func (o *output) Encode(_ context.Context, rows *connectors.Rows, fail func(i int, err error)) error {
	rows.Headers = o.mark.Headers
	for i, value := range rows.Values {
		if value == nil {
			continue
		}
		if o.Checked {
			if err := o.check.Check(value); err != nil {
				rows.Values[i] = nil
				fail(i, err)
				continue
			}
		}
		if mark := o.mark.Prefix; len(mark) > 0 {
			a := &rows.Batch.Arena
			rows.Values[i] = a.Keep(append(append(a.Grow(len(mark)+len(value)), mark...), value...))
		}
	}
	return nil
}
