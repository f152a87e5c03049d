package protobuf

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"strings"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format/registry"
)

// mainFile is the name of a schema that has none.
const mainFile = "schema.proto"

// fromText compiles the text of a .proto file with those that it imports.
func fromText(ctx context.Context, text string, refs []registry.Reference) (protoreflect.FileDescriptor, error) {
	if f, ok := fromBase64(text); ok {
		return f, nil
	}
	files := map[string]string{mainFile: text}
	for _, r := range refs {
		files[r.Name] = r.Text
	}
	return compile(ctx, mainFile, &protocompile.SourceResolver{Accessor: protocompile.SourceAccessorFromMap(files)})
}

// fromBase64 reads a descriptor in base64, as some clients register it instead of the text.
func fromBase64(text string) (protoreflect.FileDescriptor, bool) {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil {
		return nil, false
	}
	var d descriptorpb.FileDescriptorProto
	if proto.Unmarshal(raw, &d) != nil {
		return nil, false
	}
	f, err := protodesc.NewFile(&d, protoregistry.GlobalFiles)
	return f, err == nil
}

func compile(ctx context.Context, name string, from protocompile.Resolver) (protoreflect.FileDescriptor, error) {
	c := protocompile.Compiler{Resolver: protocompile.WithStandardImports(from)}
	files, err := c.Compile(ctx, name)
	if err != nil {
		return nil, err
	}
	return files[0], nil
}

// fromDescriptors reads a set of descriptors, as protoc --descriptor_set_out makes it.
func fromDescriptors(path string) (*protoregistry.Files, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(data, &set); err != nil {
		return nil, fmt.Errorf("it is no set of descriptors: %w", err)
	}
	return protodesc.NewFiles(&set)
}

// messageOf finds a message of a file, the only one where no name is given.
func messageOf(f protoreflect.FileDescriptor, name string) (protoreflect.MessageDescriptor, error) {
	if name == "" {
		if n := f.Messages().Len(); n != 1 {
			return nil, fmt.Errorf("the schema has %d messages: write which one in message", n)
		}
		return f.Messages().Get(0), nil
	}
	if m := find(f.Messages(), name); m != nil {
		return m, nil
	}
	return nil, fmt.Errorf("there is no message %s in the schema", name)
}

func find(list protoreflect.MessageDescriptors, name string) protoreflect.MessageDescriptor {
	for i := range list.Len() {
		m := list.Get(i)
		if string(m.FullName()) == name || string(m.Name()) == name {
			return m
		}
		if inner := find(m.Messages(), name); inner != nil {
			return inner
		}
	}
	return nil
}

// byIndex finds the message that the indexes of a value lead to.
func byIndex(f protoreflect.FileDescriptor, index []int) (m protoreflect.MessageDescriptor, ok bool) {
	list := f.Messages()
	for _, i := range index {
		if i < 0 || i >= list.Len() {
			return nil, false
		}
		m = list.Get(i)
		list = m.Messages()
	}
	return m, m != nil
}

// indexOf is the inverse of byIndex.
func indexOf(m protoreflect.MessageDescriptor) []int {
	if outer, ok := m.Parent().(protoreflect.MessageDescriptor); ok {
		return append(indexOf(outer), m.Index())
	}
	return []int{m.Index()}
}

// wellKnown are the types of messages with a form of their own in JSON.
var wellKnown = map[protoreflect.FullName]connectors.Type{
	"google.protobuf.Timestamp": {Base: connectors.Instant}, "google.protobuf.Duration": {Base: connectors.Text},
	"google.protobuf.DoubleValue": {Base: connectors.Real}, "google.protobuf.FloatValue": {Base: connectors.Real, Bits: 32},
	"google.protobuf.Int64Value": {Base: connectors.Integer}, "google.protobuf.UInt64Value": {Base: connectors.Integer, Unsigned: true},
	"google.protobuf.Int32Value": {Base: connectors.Integer, Bits: 32}, "google.protobuf.UInt32Value": {Base: connectors.Integer, Bits: 32, Unsigned: true},
	"google.protobuf.BoolValue": {Base: connectors.Boolean}, "google.protobuf.StringValue": {Base: connectors.Text},
	"google.protobuf.BytesValue": {Base: connectors.Binary}, "google.protobuf.Struct": {}, "google.protobuf.Value": {},
	"google.protobuf.ListValue": {}, "google.protobuf.Any": {}, "google.protobuf.FieldMask": {}, "google.protobuf.Empty": {},
}

// isWrapper reports whether a message stands for its only field.
func isWrapper(name protoreflect.FullName) bool {
	return name.Parent() == "google.protobuf" && strings.HasSuffix(string(name), "Value") && wellKnown[name].Base != connectors.Dynamic
}

// columns are the fields of a message with their types.
func (c *config) columns(m protoreflect.MessageDescriptor, open map[protoreflect.FullName]bool) []connectors.Column {
	cols := []connectors.Column{}
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		t := c.typ(f, open)
		t.Nullable = t.Nullable || f.HasPresence() && f.Cardinality() != protoreflect.Required
		cols = append(cols, connectors.Column{Name: c.nameOf(f), Type: t})
	}
	return cols
}

func (c *config) typ(f protoreflect.FieldDescriptor, open map[protoreflect.FullName]bool) connectors.Type {
	switch {
	case f.IsMap():
		elem := c.single(f.MapValue(), open)
		return connectors.Type{Base: connectors.Dictionary, Elem: &elem}
	case f.IsList():
		elem := c.single(f, open)
		return connectors.Type{Base: connectors.Sequence, Elem: &elem}
	}
	return c.single(f, open)
}

func (c *config) single(f protoreflect.FieldDescriptor, open map[protoreflect.FullName]bool) connectors.Type {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return connectors.Type{Base: connectors.Boolean}
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return connectors.Type{Base: connectors.Integer, Bits: 32}
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return connectors.Type{Base: connectors.Integer, Bits: 32, Unsigned: true}
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return connectors.Type{Base: connectors.Integer, Bits: 64}
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return connectors.Type{Base: connectors.Integer, Bits: 64, Unsigned: true}
	case protoreflect.FloatKind:
		return connectors.Type{Base: connectors.Real, Bits: 32}
	case protoreflect.DoubleKind:
		return connectors.Type{Base: connectors.Real, Bits: 64}
	case protoreflect.StringKind:
		return connectors.Type{Base: connectors.Text}
	case protoreflect.BytesKind:
		return connectors.Type{Base: connectors.Binary}
	case protoreflect.EnumKind:
		return connectors.Type{Nullable: true} // a number where it has no name
	default:
	}
	name := f.Message().FullName()
	if t, ok := wellKnown[name]; ok {
		return t
	}
	if open[name] {
		return connectors.Type{}
	}
	open[name] = true
	defer delete(open, name)
	return connectors.Type{Base: connectors.Struct, Fields: c.columns(f.Message(), open)}
}

// nameOf is what a field is called in rows.
func (c *config) nameOf(f protoreflect.FieldDescriptor) string {
	if c.JSONNames {
		return f.JSONName()
	}
	return f.TextName()
}
