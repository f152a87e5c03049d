// Package avro holds the format avro: values with a schema, in the file or in a schema
// registry.
package avro

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/twmb/avro"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/connectors/format/registry"
)

// config is the options of the format.
type config struct {
	Schema        schemaText          `key:"schema" doc:"The schema, as the JSON of Avro in a text or as YAML. With a registry, values are read as this schema has them, whatever they are written with, and a sink registers it."`
	SchemaFile    string              `key:"schema_file" file:"true" doc:"File with the schema, from the folder of the pipeline's file."`
	References    []string            `key:"references" file:"true" doc:"Files with the schemas of types that the schema names, each behind those that it names itself. A sink registers each under a subject of its own."`
	Registry      registry.Config     `key:"registry" doc:"Schema registry that speaks Confluent's API: values are marked with the schema that they are written with."`
	Name          string              `key:"name" doc:"Full name of the record whose schema a sink makes of the types of its rows."`
	IgnoreUnknown bool                `key:"ignore_unknown" doc:"A sink leaves fields out that the schema does not have; otherwise such a row is a record error."`
	MaxSize       connectors.ByteSize `key:"max_size" doc:"Largest JSON that a value may become; a larger one is a record error."`

	schema *avro.Schema
	root   *node
	draft  *registry.Draft // the schema as it is written
}

// SchemaMarks says where values have the marks of their schemas.
func (c *config) SchemaMarks() (read, inHeaders bool) { return c.Registry.Marks() }

// schemaText is a schema as text or as a block of YAML.
type schemaText string

// UnmarshalConfig reads both forms.
func (s *schemaText) UnmarshalConfig(v any) error {
	switch v := v.(type) {
	case string:
		*s = schemaText(v)
		return nil
	case format.SchemaText:
		whole, _, err := parseSchema(v.Text, v.References)
		if err == nil {
			*s = schemaText(whole.String()) // with the types that it names
		}
		return err
	case map[string]any, []any:
		text, err := json.Marshal(v)
		*s = schemaText(text)
		return err
	}
	return errors.New("a schema of Avro is wanted, as a text or a block")
}

// Validate reads the schema and reports what contradicts itself.
func (c *config) Validate() error {
	faults := []error{c.Registry.Check()}
	text, key := string(c.Schema), "schema"
	if c.SchemaFile != "" {
		if text != "" {
			return &connectors.FieldError{Key: "schema_file", Msg: "there are both schema and schema_file", Help: "keep one of them"}
		}
		key = "schema_file"
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
		faults = append(faults, &connectors.FieldError{Key: "references", Msg: "there is no schema that names their types", Help: "write schema or schema_file"})
	}
	if c.MaxSize < 1 {
		faults = append(faults, &connectors.FieldError{Key: "max_size", Msg: "a size above 0 is wanted"})
	}
	return errors.Join(faults...)
}

func init() {
	format.Register(format.Spec{
		Name:      "avro",
		Doc:       "Avro, with a schema in the file or in a schema registry.",
		NewConfig: func() any { return &config{Registry: registry.Default(), Name: "row", MaxSize: 64 << 20} },
		Input: func(c any) (format.Input, error) {
			cfg := c.(*config)
			if cfg.root == nil && !cfg.Registry.Set() {
				return nil, &connectors.FieldError{Key: "schema", Msg: "Avro is read with a schema or with a registry", Help: "write registry: {url: …}, schema_file or schema"}
			}
			return &input{config: cfg}, nil
		},
		Output: func(c any) (format.Output, error) { return &output{config: c.(*config)}, nil },
		Columns: func(c any) ([]connectors.Column, error) {
			if root := c.(*config).root; root != nil {
				return root.columns(), nil
			}
			return nil, nil
		},
		Example: "{avro: {registry: {url: \"http://localhost:8081\"}}}",
	})
}

// input reads values.
type input struct {
	*config
	client  *registry.Client
	readers map[registry.Mark]*node
}

// Start implements format.Input.
func (in *input) Start(_ context.Context, env format.Env) (err error) {
	in.readers = map[registry.Mark]*node{}
	if in.Registry.Set() {
		in.client, err = registry.New(&in.Registry, env.Log)
	}
	return err
}

// JSON implements format.Input.
func (in *input) JSON(ctx context.Context, dst []byte, r *connectors.Record) ([]byte, error) {
	if in.client == nil {
		return decode(dst, r.Value, in.root, int(in.MaxSize))
	}
	mark, _, payload, err := registry.Split(r)
	if err != nil {
		return nil, err
	}
	n := in.readers[mark]
	if n == nil {
		if n, err = in.reader(ctx, mark); err != nil {
			return nil, err
		}
	}
	return decode(dst, payload, n, int(in.MaxSize))
}

// reader makes what reads values of a schema of the registry.
func (in *input) reader(ctx context.Context, m registry.Mark) (*node, error) {
	s, err := in.client.Get(ctx, m)
	if err != nil {
		return nil, err
	}
	if s.Type != "AVRO" {
		return nil, format.Refuse(fmt.Errorf("the value is marked with schema %s, which is of %s and not of Avro", m, s.Type))
	}
	writer, n, err := parseSchema(s.Text, s.References)
	if err != nil {
		return nil, format.Refuse(fmt.Errorf("the value is marked with schema %s, which cannot be used: %w", m, err))
	}
	if in.root != nil {
		if n, err = resolve(writer, in.schema, n, in.root); err != nil {
			return nil, err
		}
	}
	if len(in.readers) >= in.Registry.Cache {
		clear(in.readers)
	}
	in.readers[m] = n
	return n, nil
}
