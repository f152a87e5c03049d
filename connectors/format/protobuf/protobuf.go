// Package protobuf holds the format protobuf: messages by a .proto file, a set of
// descriptors, or a schema registry.
package protobuf

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/connectors/format/registry"
)

// config is the options of the format.
type config struct {
	SchemaFile    string              `key:"schema_file" file:"true" doc:".proto file with the message, from the folder of the pipeline's file."`
	Schema        schemaText          `key:"schema" doc:"The text of a .proto file, instead of schema_file."`
	Imports       []string            `key:"imports" file:"true" doc:"Folders in which the .proto file finds those that it imports, besides its own."`
	Descriptors   string              `key:"descriptors" file:"true" doc:"File that protoc --include_imports --descriptor_set_out made, instead of schema_file."`
	Message       string              `key:"message" doc:"Name of the message; not needed where the schema has only one, or a registry's values say it."`
	Registry      registry.Config     `key:"registry" doc:"Schema registry that speaks Confluent's API: values are marked with the schema that they are written with."`
	JSONNames     bool                `key:"json_names" doc:"Fields of rows have the names of Protobuf's JSON, such as userId; otherwise those of the .proto file, such as user_id."`
	IgnoreUnknown bool                `key:"ignore_unknown" doc:"A sink leaves fields out that the message does not have; otherwise such a row is a record error."`
	MaxSize       connectors.ByteSize `key:"max_size" doc:"Largest JSON that a value may become; a larger one is a record error."`

	draft *registry.Draft                // the schema as it is written; nil where there is none
	root  protoreflect.MessageDescriptor // nil where the registry says it
}

// schemaText is the text of a .proto file.
type schemaText string

// UnmarshalConfig reads it.
func (s *schemaText) UnmarshalConfig(v any) error {
	switch v := v.(type) {
	case string:
		*s = schemaText(v)
		return nil
	case format.SchemaText:
		text, err := v.Alone()
		*s = schemaText(text)
		return err
	}
	return errors.New("the text of a .proto file is wanted")
}

// SchemaMarks says where values have the marks of their schemas.
func (c *config) SchemaMarks() (read, inHeaders bool) { return c.Registry.Marks() }

// Validate reads the schema and reports what contradicts itself.
func (c *config) Validate() error {
	faults := []error{c.Registry.Check()}
	key, given := "", 0
	for k, v := range map[string]string{"schema_file": c.SchemaFile, "schema": string(c.Schema), "descriptors": c.Descriptors} {
		if v != "" {
			key = k
			given++
		}
	}
	if given > 1 {
		return &connectors.FieldError{Key: key, Msg: "there is more than one of schema, schema_file and descriptors", Help: "keep one of them"}
	}
	if key != "" {
		if err := c.load(key); err != nil {
			faults = append(faults, &connectors.FieldError{Key: key, Msg: err.Error()})
		}
	}
	if c.MaxSize < 1 {
		faults = append(faults, &connectors.FieldError{Key: "max_size", Msg: "a size above 0 is wanted"})
	}
	return errors.Join(faults...)
}

func (c *config) load(key string) error {
	if key == "descriptors" {
		files, err := fromDescriptors(c.Descriptors)
		if err != nil {
			return err
		}
		if c.Message == "" {
			return errors.New("write the full name of the message in message")
		}
		d, err := files.FindDescriptorByName(protoreflect.FullName(c.Message))
		if err != nil {
			return fmt.Errorf("there is no message %s in it", c.Message)
		}
		m, ok := d.(protoreflect.MessageDescriptor)
		if !ok {
			return fmt.Errorf("%s is no message", c.Message)
		}
		c.root = m
		return nil
	}
	from := &sources{folders: c.Imports, texts: map[string]string{}}
	name := mainFile
	if key == "schema" {
		from.texts[name] = string(c.Schema)
	} else {
		name = from.place(c.SchemaFile)
	}
	file, err := compile(context.Background(), name, from)
	if err != nil {
		return err
	}
	c.draft = from.draft(file, map[string]*registry.Draft{})
	c.draft.Name = ""
	c.root, err = messageOf(file, c.Message)
	return err
}

func (c *config) usable() error {
	if c.root == nil && !c.Registry.Set() {
		return &connectors.FieldError{Key: "schema_file", Msg: "Protobuf needs a schema or a registry", Help: "write registry: {url: …} or schema_file"}
	}
	return nil
}

func init() {
	format.Register(format.Spec{
		Name:      "protobuf",
		Doc:       "Protobuf messages, by a .proto file, a set of descriptors or a schema registry.",
		NewConfig: func() any { return &config{Registry: registry.Default(), MaxSize: 64 << 20} },
		Input: func(c any) (format.Input, error) {
			cfg := c.(*config)
			return &input{reader: reader{config: cfg}}, cfg.usable()
		},
		Output: func(c any) (format.Output, error) {
			cfg := c.(*config)
			return &output{writer: writer{config: cfg}}, cfg.usable()
		},
		Columns: func(c any) ([]connectors.Column, error) {
			cfg := c.(*config)
			if cfg.root == nil {
				return nil, nil
			}
			return cfg.columns(cfg.root, map[protoreflect.FullName]bool{cfg.root.FullName(): true}), nil
		},
		Example: "{protobuf: {registry: {url: \"http://localhost:8081\"}}}",
	})
}

// input reads messages.
type input struct {
	reader
	client *registry.Client
	files  map[registry.Mark]protoreflect.FileDescriptor
	own    *dynamicpb.Message // of the message of the configuration, used again
}

// Start implements format.Input.
func (in *input) Start(_ context.Context, env format.Env) (err error) {
	in.files = map[registry.Mark]protoreflect.FileDescriptor{}
	if in.root != nil {
		in.own = dynamicpb.NewMessage(in.root)
	}
	if in.Registry.Set() {
		in.client, err = registry.New(&in.Registry, env.Log)
	}
	return err
}

// JSON implements format.Input.
func (in *input) JSON(ctx context.Context, dst []byte, r *connectors.Record) ([]byte, error) {
	payload, m := r.Value, in.own
	if in.client != nil {
		mark, index, rest, err := registry.Split(r)
		if err != nil {
			return nil, err
		}
		d, rest, err := in.find(ctx, mark, index, rest)
		if err != nil {
			return nil, err
		}
		if payload = rest; m == nil {
			m = dynamicpb.NewMessage(d)
		}
	}
	proto.Reset(m)
	if err := proto.Unmarshal(payload, m); err != nil {
		return nil, format.Refuse(fmt.Errorf("the value is no message %s: %s", m.Descriptor().FullName(), plain(err)))
	}
	in.depth, in.limit = 0, len(dst)+int(in.MaxSize)
	out, err := in.message(dst, m)
	if err != nil {
		return nil, format.Refuse(err)
	}
	return out, nil
}

// plain is an error of the library, whose texts have a special space in them.
func plain(err error) string { return strings.ReplaceAll(err.Error(), "\u00a0", " ") }

// find is the message that a value is marked with, and the value behind all marks.
func (in *input) find(ctx context.Context, m registry.Mark, index, payload []byte) (protoreflect.MessageDescriptor, []byte, error) {
	f := in.files[m]
	if f == nil {
		s, err := in.client.Get(ctx, m)
		if err != nil {
			return nil, nil, err
		}
		if s.Type != "PROTOBUF" {
			return nil, nil, format.Refuse(fmt.Errorf("the value is marked with schema %s, which is of %s and not of Protobuf", m, s.Type))
		}
		if f, err = fromText(ctx, s.Text, s.References); err != nil {
			return nil, nil, format.Refuse(fmt.Errorf("the value is marked with schema %s, which cannot be used: %w", m, err))
		}
		if len(in.files) >= in.Registry.Cache {
			clear(in.files)
		}
		in.files[m] = f
	}
	at := []int{0}
	var err error
	switch {
	case index == nil:
		at, payload, err = registry.Index(payload)
	case len(index) > 0:
		at, _, err = registry.Index(index)
	}
	d, ok := byIndex(f, at)
	if err != nil || !ok {
		return nil, nil, format.Refuse(fmt.Errorf("the value names a message that schema %s does not have", m))
	}
	return d, payload, nil
}

// output writes messages.
type output struct {
	writer
	descriptor protoreflect.MessageDescriptor
	mark       registry.Marker
}

// Start implements format.Output.
func (o *output) Start(ctx context.Context, env format.Env) error {
	o.descriptor = o.root
	if !o.Registry.Set() {
		return nil
	}
	client, err := registry.New(&o.Registry, env.Log)
	if err != nil {
		return err
	}
	name := o.Message
	if o.descriptor != nil {
		name = string(o.descriptor.FullName())
	}
	subject, err := o.Registry.SubjectOf(env.Topic, name)
	if err != nil {
		return err
	}
	var s registry.Schema
	if o.draft != nil {
		s, err = client.Register(ctx, subject, o.draft, env.ReadOnly)
	} else {
		s, err = o.follow(ctx, client, subject)
	}
	if err != nil {
		return err
	}
	o.mark, err = o.Registry.Marker(s, indexOf(o.descriptor))
	return err
}

// follow writes by the newest schema of a subject.
func (o *output) follow(ctx context.Context, client *registry.Client, subject string) (registry.Schema, error) {
	s, ok, err := client.Latest(ctx, subject)
	if err != nil {
		return s, err
	}
	if !ok || s.Type != "PROTOBUF" {
		return s, connectors.Permanent(fmt.Errorf("the subject %s has no schema of Protobuf: write schema_file, which is registered then", subject))
	}
	file, err := fromText(ctx, s.Text, s.References)
	if err == nil {
		o.descriptor, err = messageOf(file, o.Message)
	}
	if err != nil {
		return s, connectors.Permanent(fmt.Errorf("the newest schema of subject %s: %w", subject, err))
	}
	return s, nil
}

// Encode implements format.Output.
func (o *output) Encode(_ context.Context, rows *connectors.Rows, fail func(i int, err error)) error {
	rows.Headers = o.mark.Headers
	for i, value := range rows.Values {
		if value == nil {
			continue
		}
		room := append(rows.Batch.Arena.Grow(len(value)+len(o.mark.Prefix)), o.mark.Prefix...)
		out, err := o.encode(room, value)
		if err != nil {
			rows.Values[i] = nil
			fail(i, err)
			continue
		}
		rows.Values[i] = rows.Batch.Arena.Keep(out)
	}
	return nil
}

func (o *output) encode(dst, value []byte) ([]byte, error) {
	o.arena.Reset()
	o.depth = 0
	v, err := format.ParseValue(value, &o.arena)
	if err != nil {
		return dst, err
	}
	m := dynamicpb.NewMessage(o.descriptor)
	if err := o.fill(m, v); err != nil {
		return dst, err
	}
	out, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(dst, m)
	if err != nil {
		err = errors.New(plain(err))
	}
	return out, err
}
