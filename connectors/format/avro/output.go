package avro

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/connectors/format/registry"
)

// output writes values.
type output struct {
	*config
	encoder
	writer *node
	mark   registry.Marker
}

// Start implements format.Output.
func (o *output) Start(ctx context.Context, env format.Env) error {
	o.ignore = o.IgnoreUnknown
	if !o.Registry.Set() {
		return o.local(env)
	}
	client, err := registry.New(&o.Registry, env.Log)
	if err != nil {
		return err
	}
	if o.root == nil {
		subject, err := o.Registry.SubjectOf(env.Topic, o.Name)
		if err != nil {
			return err
		}
		newest, ok, err := client.Latest(ctx, subject)
		if err != nil {
			return err
		}
		if ok {
			return o.follow(subject, newest)
		}
		if err := o.local(env); err != nil {
			return err
		}
	}
	o.writer = o.root
	subject, err := o.Registry.SubjectOf(env.Topic, o.root.name)
	if err != nil {
		return err
	}
	s, err := client.Register(ctx, subject, o.draft, env.ReadOnly)
	if err == nil {
		o.mark, err = o.Registry.Marker(s, nil)
	}
	if err != nil {
		return err
	}
	return o.prepare()
}

// local takes the schema of the file, or makes one of the rows.
func (o *output) local(env format.Env) (err error) {
	if o.root == nil {
		var text string
		if text, err = deriveSchema(o.Name, env.Columns); err == nil {
			o.draft = &registry.Draft{Type: "AVRO", Text: text}
			o.schema, o.root, err = parseSchema(text, nil)
		}
		if err != nil {
			return connectors.Permanent(fmt.Errorf("an Avro schema of the sink's rows: %w (or write schema or schema_file)", err))
		}
	}
	o.writer = o.root
	return o.prepare()
}

// follow writes by the newest schema of a subject.
func (o *output) follow(subject string, s registry.Schema) (err error) {
	if s.Type != "AVRO" {
		return connectors.Permanent(fmt.Errorf("the newest schema of subject %s is of %s and not of Avro", subject, s.Type))
	}
	if _, o.writer, err = parseSchema(s.Text, s.References); err != nil {
		return connectors.Permanent(fmt.Errorf("the newest schema of subject %s cannot be used: %w", subject, err))
	}
	if o.mark, err = o.Registry.Marker(s, nil); err != nil {
		return err
	}
	return o.prepare()
}

// prepare encodes the defaults.
func (o *output) prepare() error {
	if o.writer.kind != "record" {
		return connectors.Permanent(errNoRecord)
	}
	return o.defaults(o.writer, map[*node]bool{})
}

func (o *output) defaults(n *node, seen map[*node]bool) error {
	if n == nil || seen[n] {
		return nil
	}
	seen[n] = true
	for _, sub := range append(append([]*node{}, n.branches...), n.elem) {
		if err := o.defaults(sub, seen); err != nil {
			return err
		}
	}
	for i := range n.fields {
		if err := o.defaults(n.fields[i].node, seen); err != nil {
			return err
		}
	}
	for i := range n.fields {
		f := &n.fields[i]
		if !f.hasDefault {
			continue
		}
		text, err := appendDefault(nil, f.node, f.fallback)
		if err == nil {
			f.encoded, err = o.encode(nil, f.node, text)
		}
		if err != nil {
			return connectors.Permanent(fmt.Errorf("the default of field %s of record %s: %w", f.name, n.name, err))
		}
	}
	return nil
}

// Encode implements format.Output.
func (o *output) Encode(_ context.Context, rows *connectors.Rows, fail func(i int, err error)) error {
	rows.Headers = o.mark.Headers
	for i, value := range rows.Values {
		if value == nil {
			continue
		}
		room := append(rows.Batch.Arena.Grow(len(value)+len(o.mark.Prefix)), o.mark.Prefix...)
		out, err := o.encode(room, o.writer, value)
		if err != nil {
			rows.Values[i] = nil
			fail(i, err)
			continue
		}
		rows.Values[i] = rows.Batch.Arena.Keep(out)
	}
	return nil
}

var namePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// deriveSchema makes the schema of rows with such fields.
func deriveSchema(name string, cols []connectors.Column) (string, error) {
	if len(cols) == 0 {
		return "", errors.New("the fields and types of the rows are not known: a schema on the source, or a map step, makes them known")
	}
	s, err := deriveRecord(name, cols)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(s)
	return string(text), err
}

func deriveRecord(name string, cols []connectors.Column) (any, error) {
	fields := []any{}
	for _, c := range cols {
		if !namePattern.MatchString(c.Name) {
			return nil, fmt.Errorf("%q is no name of a field in Avro: rename it to letters, digits and _", c.Name)
		}
		t, err := derive(name+"_"+c.Name, c.Type)
		if err != nil {
			return nil, at(c.Name, err)
		}
		f := map[string]any{"name": c.Name, "type": t}
		if c.Type.Nullable {
			f["default"] = nil
		}
		fields = append(fields, f)
	}
	return map[string]any{"type": "record", "name": name, "fields": fields}, nil
}

// derivedTypes are the types of columns without sizes.
var derivedTypes = map[connectors.Base]any{
	connectors.Boolean: "boolean", connectors.Text: "string", connectors.Binary: "bytes",
	connectors.Instant:   map[string]any{"type": "long", "logicalType": "timestamp-micros"},
	connectors.Local:     map[string]any{"type": "long", "logicalType": "local-timestamp-micros"},
	connectors.Date:      map[string]any{"type": "int", "logicalType": "date"},
	connectors.TimeOfDay: map[string]any{"type": "long", "logicalType": "time-micros"},
	connectors.UUID:      map[string]any{"type": "string", "logicalType": "uuid"},
}

func derive(name string, t connectors.Type) (out any, err error) {
	switch t.Base {
	case connectors.Integer:
		switch {
		case t.Unsigned && (t.Bits == 0 || t.Bits == 64):
			out = map[string]any{"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 0}
		case t.Bits != 0 && (t.Bits < 32 || t.Bits == 32 && !t.Unsigned):
			out = "int"
		default:
			out = "long"
		}
	case connectors.Real:
		out = "double"
		if t.Bits == 32 {
			out = "float"
		}
	case connectors.Exact:
		if t.Precision == 0 {
			return nil, errors.New("how many digits the decimal has is not known, and Avro wants to know it")
		}
		out = map[string]any{"type": "bytes", "logicalType": "decimal", "precision": t.Precision, "scale": t.Scale}
	case connectors.Sequence, connectors.Dictionary:
		if t.Elem == nil {
			return nil, fmt.Errorf("what the %s holds is not known", t.Base)
		}
		elem, err := derive(name, *t.Elem)
		if err != nil {
			return nil, err
		}
		out = map[string]any{"type": "array", "items": elem}
		if t.Base == connectors.Dictionary {
			out = map[string]any{"type": "map", "values": elem}
		}
	case connectors.Struct:
		out, err = deriveRecord(strings.ReplaceAll(name, ".", "_"), t.Fields)
	default:
		if out = derivedTypes[t.Base]; out == nil {
			return nil, fmt.Errorf("there is no type of Avro for %s", t.Base)
		}
	}
	if t.Nullable {
		out = []any{"null", out}
	}
	return out, err
}
