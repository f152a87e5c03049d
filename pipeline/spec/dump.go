package spec

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
)

// ordered is a map with its keys in order.
type ordered []member

type member struct {
	key   string
	value any // nil, bool, int64, float64, string, []any or ordered
}

func (o *ordered) add(key string, value any) {
	switch v := value.(type) {
	case nil:
		return
	case string:
		if v == "" {
			return
		}
	case []any:
		if len(v) == 0 {
			return
		}
	}
	*o = append(*o, member{key, value})
}

// Digest is the SHA-256, in hex, of what the pipeline means: with defaults,
// without comments, layout, description, tests and secrets.
func (p *Pipeline) Digest() string {
	d := dumper{p: p, forDigest: true}
	var b bytes.Buffer
	writeJSON(&b, d.pipeline())
	sum := sha256.Sum256(b.Bytes())
	return hex.EncodeToString(sum[:])
}

// Redacted is the pipeline as it is in effect, as YAML: defaults filled in,
// secrets replaced by ***.
func (p *Pipeline) Redacted() []byte {
	d := dumper{p: p}
	var b bytes.Buffer
	writeYAML(&b, d.pipeline(), 0)
	return b.Bytes()
}

// MarshalJSON is what Redacted writes, as JSON.
func (p *Pipeline) MarshalJSON() ([]byte, error) {
	d := dumper{p: p}
	var b bytes.Buffer
	writeJSON(&b, d.pipeline())
	return b.Bytes(), nil
}

// dumper writes a pipeline out again.
type dumper struct {
	p         *Pipeline
	forDigest bool
}

func (d *dumper) pipeline() ordered {
	p := d.p
	var out ordered
	out.add("pipeline", p.Name)
	if !d.forDigest {
		out.add("description", p.Description)
	}
	if p.Parallelism > 0 {
		out.add("parallelism", int64(p.Parallelism))
	}
	out.add("max_parallelism", int64(p.MaxParallelism))
	d.onError(&out, p.OnError, OnError{})
	out.add("checkpoint", d.value(reflect.ValueOf(&p.Checkpoint).Elem(), d.node("checkpoint")))
	out.add("restart", d.restart())
	var sources, sinks ordered
	for i := range p.Sources {
		s := &p.Sources[i]
		var o ordered
		d.uid(&o, s.UID, s.Name)
		o.add(s.Kind, d.config(s.Config, s.ConfigPath()))
		o.add("timestamp", s.Timestamp.Text)
		o.add("schema", d.schema(s))
		o.add("watermark", d.watermark(s.Watermark))
		d.onError(&o, s.OnError, p.OnError)
		sources.add(s.Name, o)
	}
	var steps []any
	for i := range p.Transforms {
		t := &p.Transforms[i]
		var o ordered
		o.add("name", t.Name)
		d.uid(&o, t.UID, t.Name)
		if t.Spec.Inputs == nil {
			o.add("from", refs(t.From))
		}
		o.add(t.Kind, d.config(t.Config, t.ConfigPath()))
		d.onError(&o, t.OnError, p.OnError)
		steps = append(steps, o)
	}
	for i := range p.Sinks {
		s := &p.Sinks[i]
		var o ordered
		d.uid(&o, s.UID, s.Name)
		o.add("from", refs(s.From))
		o.add(s.Kind, d.config(s.Config, s.ConfigPath()))
		d.onError(&o, s.OnError, p.OnError)
		sinks.add(s.Name, o)
	}
	out.add("sources", sources)
	out.add("transforms", steps)
	out.add("sinks", sinks)
	return out
}

func (d *dumper) uid(o *ordered, uid, name string) {
	if uid != name {
		o.add("uid", uid)
	}
}

// schema is what the file says of a source's fields; for the digest, what that means.
func (d *dumper) schema(s *Source) any {
	switch n := d.node(below(s.Path, "schema")...); {
	case s.Schema == nil:
		return nil
	case d.forDigest || n == nil:
		return s.Schema.String()
	default:
		return d.written(n)
	}
}

func refs(list []Ref) any {
	if len(list) == 1 {
		return list[0].String()
	}
	var out []any
	for _, r := range list {
		out = append(out, r.String())
	}
	return out
}

func (d *dumper) onError(o *ordered, e, inherited OnError) {
	if e == inherited {
		return
	}
	if e.Action == DeadLetter {
		o.add("on_error", ordered{{string(DeadLetter), e.Sink}})
	} else {
		o.add("on_error", string(e.Action))
	}
	if e.Max > 0 {
		o.add("max_errors", fmt.Sprintf("%d per %s", e.Max, spanText(e.Per)))
	}
}

func (d *dumper) restart() any {
	r := d.p.Restart
	switch r.Strategy {
	case RestartFixed:
		return ordered{{string(r.Strategy), ordered{{"attempts", int64(r.Attempts)}, {"delay", spanText(r.Delay)}}}}
	case RestartFailureRate:
		return ordered{{string(r.Strategy), ordered{{"max", int64(r.Attempts)}, {"per", spanText(r.Per)}, {"delay", spanText(r.Delay)}}}}
	case RestartExponential:
		return ordered{{string(r.Strategy), ordered{
			{"initial", spanText(r.Initial)}, {"max", spanText(r.Max)}, {"multiplier", r.Multiplier},
			{"jitter", r.Jitter}, {"reset_after", spanText(r.ResetAfter)},
		}}}
	default:
		return string(r.Strategy)
	}
}

// spanText is a duration as users write it: without zero units at its end.
func spanText(t time.Duration) string {
	s := t.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

func (d *dumper) node(path ...string) *node {
	if d.p.root == nil {
		return nil
	}
	return d.p.root.at(path)
}

// config writes a configuration; path leads to its block in the file.
func (d *dumper) config(config any, path []string) any {
	if config == nil {
		return nil
	}
	n := d.node(path...)
	own := d.value(reflect.ValueOf(config).Elem(), n)
	if block := d.lookupBlock(config, n); block != nil {
		keys, _ := own.(ordered)
		return append(block, keys...)
	}
	return own
}

// value writes a Go value of a configuration. n is where the file has it, nil
// for a default.
func (d *dumper) value(v reflect.Value, n *node) any {
	if n != nil && n.secret {
		return d.redacted()
	}
	switch x := v.Interface().(type) {
	case Failures:
		if x != Unlimited {
			return int64(x)
		}
	case Savepoints:
		return x.dump()
	case connectors.FormatConfig:
		return d.format(x, n)
	case connectors.Expr:
		return x.Text
	case connectors.Assignments:
		var o ordered
		for i := range x {
			o = append(o, member{x[i].Name, d.value(reflect.ValueOf(&x[i].Expr).Elem(), n.get(x[i].Name))})
		}
		return o
	case connectors.Keys:
		return d.keyList(x, n)
	case time.Duration:
		return spanText(x)
	case connectors.TimeSpan:
		return spanText(time.Duration(x))
	}
	return d.byKind(v, n)
}

// byKind writes a value of a type that has no form of its own in files.
func (d *dumper) byKind(v reflect.Value, n *node) any {
	if v.CanAddr() && v.Addr().Type().Implements(valueType) {
		if s, ok := v.Interface().(fmt.Stringer); ok {
			return s.String()
		}
		if n == nil || n.kind == nullNode {
			return nil
		}
		return d.written(n)
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return nil
		}
		return d.value(v.Elem(), n)
	case reflect.Struct:
		return d.structure(v, n)
	case reflect.Slice:
		out := []any{}
		for i := range v.Len() {
			out = append(out, d.value(v.Index(i), item(n, i)))
		}
		return out
	case reflect.Map:
		return d.dictionary(v, n)
	case reflect.Bool:
		return v.Bool()
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return v.Int()
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return int64(v.Uint())
	case reflect.Float32, reflect.Float64:
		return v.Float()
	case reflect.String:
		return v.String()
	default:
		return nil
	}
}

// format is a format by its name, with options where the file has any.
func (d *dumper) format(f connectors.FormatConfig, n *node) any {
	switch {
	case f.Name == "":
		return defaultFormat
	case len(f.Options) == 0 || n == nil || n.kind != mapNode:
		return f.Name
	}
	out := ordered{}
	for _, e := range n.entries {
		out.add(e.key, d.options(format.OptionsOf(f.Name), e.value))
	}
	return out
}

// options are those of a format, or of a block within it of the type t, as the file has
// them but for what is secret.
func (d *dumper) options(t reflect.Type, n *node) any {
	if t == nil || n.kind != mapNode {
		return d.written(n)
	}
	out := ordered{}
	fields := fieldsOf(t)
	for _, e := range n.entries {
		i := slices.IndexFunc(fields, func(f connectors.Field) bool { return f.Key == e.key })
		switch {
		case i >= 0 && fields[i].Secret:
			out.add(e.key, d.redacted())
		case i >= 0 && fields[i].Type == reflect.TypeFor[connectors.FormatConfig]():
			var inner connectors.FormatConfig
			if inner.UnmarshalConfig(e.value.value()) != nil {
				break
			}
			out.add(e.key, d.format(inner, e.value))
		case i >= 0 && fields[i].Type.Kind() == reflect.Struct && !reflect.PointerTo(fields[i].Type).Implements(valueType):
			out.add(e.key, d.options(fields[i].Type, e.value))
		default:
			out.add(e.key, d.written(e.value))
		}
	}
	return out
}

func item(n *node, i int) *node {
	switch {
	case n == nil:
		return nil
	case n.kind == listNode && i < len(n.items):
		return n.items[i]
	case n.scalar():
		return n
	}
	return nil
}

func (d *dumper) redacted() any {
	if d.forDigest {
		return nil
	}
	return hidden
}

func (d *dumper) structure(v reflect.Value, n *node) any {
	fields := fieldsOf(v.Type())
	if f := whole(fields); f != nil {
		return d.value(v.Field(f.Index), n)
	}
	out := ordered{}
	for _, f := range fields {
		value := d.value(v.Field(f.Index), n.get(f.Key))
		if f.Secret && !v.Field(f.Index).IsZero() {
			value = d.redacted()
		}
		if o, ok := value.(ordered); ok && len(o) == 0 {
			continue
		}
		out.add(f.Key, value)
	}
	return out
}

func (d *dumper) dictionary(v reflect.Value, n *node) any {
	keys := make([]string, 0, v.Len())
	for _, k := range v.MapKeys() {
		keys = append(keys, k.String())
	}
	out := ordered{}
	for _, k := range keysOf(keys, func(k string) string { return k }) {
		out.add(k, d.value(v.MapIndex(reflect.ValueOf(k).Convert(v.Type().Key())), n.get(k)))
	}
	return out
}

// written is a value as the file has it, secrets left out.
func (d *dumper) written(n *node) any {
	switch {
	case n.secret:
		return d.redacted()
	case n.kind == mapNode:
		out := ordered{}
		for _, e := range n.entries {
			out.add(e.key, d.written(e.value))
		}
		return out
	case n.kind == listNode:
		out := []any{}
		for _, item := range n.items {
			out = append(out, d.written(item))
		}
		return out
	}
	return n.value()
}
