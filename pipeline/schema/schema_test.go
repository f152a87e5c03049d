package schema

import (
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
)

func TestJSONSchemaIsReadAsTypes(t *testing.T) {
	tests := []struct{ name, schema, want string }{
		{"scalars", `{"type": "object", "required": ["a", "b", "c", "d"], "properties": {
			"a": {"type": "integer"}, "b": {"type": "number"}, "c": {"type": "boolean"}, "d": {"type": "string"}}}`,
			"{a: int, b: number, c: bool, d: string}"},
		{"a field that is not required is nullable", `{"properties": {"a": {"type": "integer"}}}`, "{a: int?}"},
		{"null as a type", `{"properties": {"a": {"type": ["string", "null"]}}, "required": ["a"]}`, "{a: string?}"},
		{"null as a choice", `{"properties": {"a": {"anyOf": [{"type": "null"}, {"type": "integer"}]}}, "required": ["a"]}`, "{a: int?}"},
		{"choices of different types", `{"properties": {"a": {"oneOf": [{"type": "string"}, {"type": "integer"}]}}, "required": ["a"]}`, "{a: any}"},
		{"numbers of both kinds", `{"properties": {"a": {"type": ["integer", "number"]}}, "required": ["a"]}`, "{a: number}"},
		{"formats", `{"properties": {"a": {"type": "string", "format": "date-time"}, "b": {"type": "string", "contentEncoding": "base64"}}, "required": ["a", "b"]}`,
			"{a: timestamp, b: bytes}"},
		{"nested", `{"properties": {"a": {"type": "array", "items": {"type": "object", "properties": {"b": {"type": "string"}}}}, "c": {"type": "object"}}, "required": ["a", "c"]}`,
			"{a: [{b: string?}], c: map}"},
		{"references", `{"$defs": {"id": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/id"}}, "required": ["a"]}`, "{a: int}"},
		{"order of the file", `{"properties": {"z": {"type": "integer"}, "a": {}}, "required": ["z"]}`, "{z: int, a: any}"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseJSON([]byte(tt.schema))
			if err != nil || got.String() != tt.want {
				t.Errorf("got %v, %v, want %s", got, err, tt.want)
			}
		})
	}
}

func TestJSONSchemaThatCannotBeUsedSaysWhere(t *testing.T) {
	tests := []struct{ schema, want string }{
		{`{`, "no valid JSON"},
		{`{"type": "array"}`, "no object with properties"},
		{`{"properties": {"a": {"properties": {"b": {"type": "whole"}}}}}`, `property a.b has the type "whole"`},
		{`{"properties": {"a": {"$ref": "other.json"}}}`, "only references within the file"},
		{`{"properties": {"a": {"$ref": "#/$defs/b"}}}`, "which the file does not have"},
		{`{"properties": {"a": {"type": 5}}}`, "the type of property a"},
		{`{"properties": {"a": 5}}`, "property a is no schema"},
		{`{"properties": {"a": {"type": "string"}, "a": {"type": "string"}}}`, "a is there twice"},
	}
	for _, tt := range tests {
		if _, err := ParseJSON([]byte(tt.schema)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.schema, err, tt.want)
		}
	}
}

func TestSchemaThatRefersToItselfEnds(t *testing.T) {
	got, err := ParseJSON([]byte(`{"properties": {"next": {"$ref": "#"}, "id": {"type": "integer"}}}`))
	if err != nil || got.Field("next") == nil {
		t.Fatal(got, err)
	}
	wide := `{"properties": {` + strings.TrimSuffix(strings.Repeat(`"x": {"$ref": "#"},`, 1), ",")
	for _, n := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		wide += `, "` + n + `": {"$ref": "#"}`
	}
	if _, err := ParseJSON([]byte(wide + "}}")); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Error(err)
	}
}

// checkOne decodes a record and checks it.
func checkOne(t *testing.T, record *Type, value string) (b *connectors.Batch, slots map[string]int, wrong string) {
	t.Helper()
	slots = map[string]int{}
	var fields []format.Field
	c := NewChecker(record, func(path []string, exact bool) int {
		slot := len(fields)
		fields = append(fields, format.Field{Path: path, Slot: slot, Exact: exact})
		slots[strings.Join(path, ".")] = slot
		return slot
	})
	b = &connectors.Batch{}
	b.Size(1, len(fields))
	b.Records[0].Value = []byte(value)
	d, err := format.NewDecoder(connectors.FormatConfig{}, fields, false)
	if err != nil {
		t.Fatal(err)
	}
	if ok := d.Decode(b, []uint16{0}, func(_ uint16, e *format.SyntaxError) { t.Fatal(e) }); len(ok) != 1 {
		t.Fatal("not decoded")
	}
	return b, slots, c.Check(b, 0)
}

func word(s string) *Type {
	t, err := Parse(s)
	if err != nil {
		panic(err)
	}
	return t
}

func object(fields ...Field) *Type { return &Type{Base: Map, Fields: fields} }

func TestFieldsBecomeWhatTheyAreDeclaredAs(t *testing.T) {
	tests := []struct{ typ, value, want string }{
		{"int", `5`, `5`},
		{"float", `5`, `5`},
		{"float", `0.12345678901234567890123`, `0.12345678901234568`},
		{"number", `1.10`, `1.1`},
		{"decimal", `1.10`, `1.10`},
		{"decimal", `9007199254740993.000`, `9007199254740993.000`},
		{"decimal", `"1.10"`, `1.10`},
		{"decimal", `7`, `7`},
		{"timestamp", `0`, `"1970-01-01T00:00:00Z"`},
		{"timestamp", `-1`, `"1969-12-31T23:59:59.999Z"`},
		{"timestamp", `"2024-03-31T02:00:00.5+02:00"`, `"2024-03-31T02:00:00.5+02:00"`},
		{"duration", `"1h30m"`, `"1h30m0s"`},
		{"bytes", `"aGk="`, `"aGk="`},
		{"any", `[1]`, `[1]`},
		{"string?", `null`, `null`},
	}
	for _, tt := range tests {
		t.Run(tt.typ+" from "+tt.value, func(t *testing.T) {
			b, slots, wrong := checkOne(t, object(Field{"f", word(tt.typ)}), `{"f": `+tt.value+`}`)
			if wrong != "" {
				t.Fatal(wrong)
			}
			v := b.Row(0)[slots["f"]]
			got, err := format.AppendValue(nil, v)
			if err != nil || string(got) != tt.want {
				t.Errorf("got %s, %v, want %s", got, err, tt.want)
			}
			if !v.IsNull() && !word(tt.typ).Decoded().Has(v.Kind()) {
				t.Errorf("a %s is not of the type %s", v.Kind(), word(tt.typ).Decoded())
			}
		})
	}
}

func TestRecordsThatViolateTheSchemaSayHow(t *testing.T) {
	inner := object(Field{"id", word("int")}, Field{"name", word("string?")})
	maybe := *inner
	maybe.Nullable = true
	record := object(Field{"n", word("int?")}, Field{"seller", inner}, Field{"buyer", &maybe},
		Field{"tags", &Type{Base: List, Nullable: true, Elem: word("string")}},
		Field{"parts", &Type{Base: List, Nullable: true, Elem: object(Field{"at", word("timestamp")}, Field{"price", word("decimal")})}})
	tests := []struct{ value, want string }{
		{`{"seller": {"id": 1}}`, ""},
		{`{"seller": {"id": 1}, "buyer": {"id": 2, "name": "x"}, "n": null, "more": [1]}`, ""},
		{`{"seller": {"id": 1}, "parts": [{"at": 5, "price": 1.5}, {"at": "2024-01-01T00:00:00Z", "price": "2"}]}`, ""},
		{`[]`, "the value is no object"},
		{`{}`, "field seller is missing: declare it as map? if it may be"},
		{`{"seller": null}`, "field seller is null"},
		{`{"seller": 7}`, "field seller is int, and the schema has map"},
		{`{"seller": {}}`, "field seller.id is missing"},
		{`{"seller": {"id": 1}, "buyer": {}}`, "field buyer.id is missing"},
		{`{"seller": {"id": 1.5}}`, "field seller.id is float, and the schema has int"},
		{`{"seller": {"id": 1, "name": 5}}`, "field seller.name is int, and the schema has string"},
		{`{"seller": {"id": 1}, "n": "1"}`, "field n is string, and the schema has int"},
		{`{"seller": {"id": 1}, "tags": ["a", 1]}`, "field tags has an element 1 that is int, and the schema has string"},
		{`{"seller": {"id": 1}, "parts": [{"price": 1}]}`, "field parts has an element 0 that has a field at that is missing"},
		{`{"seller": {"id": 1}, "parts": [{"at": 1, "price": "x"}]}`, "that is text that holds no number"},
	}
	for _, tt := range tests {
		_, _, wrong := checkOne(t, record, tt.value)
		if (wrong == "") != (tt.want == "") || !strings.Contains(wrong, tt.want) {
			t.Errorf("%s: %q, want %q", tt.value, wrong, tt.want)
		}
	}
}

func TestTextOfAWrongFormIsRefused(t *testing.T) {
	for typ, value := range map[string]string{
		"timestamp": `"yesterday"`, "duration": `"soon"`, "bytes": `"???"`, "decimal": `"1,5"`, "bool": `"true"`, "float": `1e999`, "int": `1e3`,
	} {
		if _, _, wrong := checkOne(t, object(Field{"f", word(typ)}), `{"f": `+value+`}`); wrong == "" {
			t.Errorf("%s takes %s", typ, value)
		}
	}
}

func TestCheckingAllocatesNothing(t *testing.T) {
	record := object(Field{"a", word("int")}, Field{"b", word("decimal")}, Field{"c", word("timestamp")}, Field{"d", word("string?")}, Field{"e", word("float")})
	var fields []format.Field
	c := NewChecker(record, func(path []string, exact bool) int {
		fields = append(fields, format.Field{Path: path, Slot: len(fields), Exact: exact})
		return len(fields) - 1
	})
	b := &connectors.Batch{}
	b.Size(1, len(fields))
	b.Records[0].Value = []byte(`{"a": 1, "b": 1.50, "c": "2024-01-01T00:00:00Z", "e": 3}`)
	d, err := format.NewDecoder(connectors.FormatConfig{}, fields, false)
	if err != nil {
		t.Fatal(err)
	}
	sel := []uint16{0}
	n := testing.AllocsPerRun(100, func() {
		b.SetStride(len(fields))
		d.Decode(b, sel, nil)
		if wrong := c.Check(b, 0); wrong != "" {
			t.Error(wrong)
		}
	})
	if n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzParseJSON(f *testing.F) {
	f.Add([]byte(`{"properties": {"a": {"$ref": "#/$defs/id"}}, "$defs": {"id": {"type": ["integer", "null"]}}}`))
	f.Fuzz(func(_ *testing.T, data []byte) {
		if t, err := ParseJSON(data); err == nil {
			_ = t.String()
		}
	})
}
