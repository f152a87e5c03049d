package files

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/columns"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/connectors/format/formattest"
	_ "github.com/sluice-etl/sluice/connectors/format/pattern"
)

// nested are lists, maps and records, empty, with null, and in one another.
var nested = []golden{
	{"[int]", `{"type":"array","items":"long"}`, "repeated int64", "[-9223372036854775808,9223372036854775807]", nil},
	{"[int]", `{"type":"array","items":"long"}`, "repeated int64", "[]", nil},
	{"[int]", `{"type":"array","items":"long"}`, "repeated int64", "[1,null]", columnsOnly(refused)},
	{"[int?]", `{"type":"array","items":["null","long"]}`, "google.protobuf.ListValue", "[1,null,2]", nil},
	{"[[string]]", `{"type":"array","items":{"type":"array","items":"string"}}`, "google.protobuf.ListValue", `[[],["a",""],["б"]]`, nil},
	{"dictionary(int)", `{"type":"map","values":"long"}`, "map<string, int64>", `{"":0,"a.b":-1}`, nil},
	{"dictionary(int)", `{"type":"map","values":"long"}`, "map<string, int64>", `{}`, nil},
	{"dictionary(decimal(38, 2))", `{"type":"map","values":` + dec(38, 2) + `}`, "map<string, string>", `{"a":123456789012345678901234567890123456.78}`, map[string]string{"protobuf": refused + "text"}},
	{
		"[{n: int}, {kids: [[{at: timestamp?}]]}]",
		`{"type":"record","name":"s","fields":[{"name":"n","type":"long"},{"name":"kids","type":{"type":"array","items":{"type":"record","name":"k","fields":[{"name":"at","type":["null",{"type":"long","logicalType":"timestamp-micros"}]}]}}}]}`,
		"S", `{"n":1,"kids":[{"at":"2026-01-31T23:59:59.5Z"},{"at":null}]}`,
		map[string]string{"protobuf": `{"n":1,"kids":[{"at":"2026-01-31T23:59:59.5Z"},{}]}`},
	},
}

const (
	millis      = `{"type":"long","logicalType":"timestamp-millis"}`
	nanos       = `{"type":"long","logicalType":"timestamp-nanos"}`
	localMillis = `{"type":"long","logicalType":"local-timestamp-millis"}`
	localNanos  = `{"type":"long","logicalType":"local-timestamp-nanos"}`
	interval    = `{"type":"fixed","name":"d","size":12,"logicalType":"duration"}`
)

// times are those that formats have each in their own units.
var times = []golden{
	{"timestamp", millis, "google.protobuf.Timestamp", `"1969-12-31T23:59:59.999Z"`, nil},
	{"timestamp", millis, "google.protobuf.Timestamp", `"2026-01-31T23:59:59.1234Z"`, map[string]string{"avro": refused}},
	{"timestamp", nanos, "google.protobuf.Timestamp", `"1969-12-31T23:59:59.999999999Z"`, map[string]string{"avro file": refused, "parquet file": refused}},
	{"timestamp", millis, "google.protobuf.Timestamp", `"9999-12-31T23:59:59.999Z"`, nil},
	{"timestamp", nanos, "google.protobuf.Timestamp", `"9999-12-31T23:59:59Z"`, map[string]string{"avro": refused}},
	{"timestamp", millis, "google.protobuf.Timestamp", `"soon"`, all(refused)},
	{"timestamp_local", localMillis, "string", `"1969-12-31T23:59:59.999"`, nil},
	{"timestamp_local", localNanos, "string", `"2026-01-31T23:59:59.123456789"`, map[string]string{"avro file": refused, "parquet file": refused}},
	{"time", `{"type":"int","logicalType":"time-millis"}`, "string", `"00:00:00"`, nil},
	{"time", `{"type":"int","logicalType":"time-millis"}`, "string", `"23:59:59.9999"`, map[string]string{"avro": refused}},
	{"date", `{"type":"int","logicalType":"date"}`, "string", `"0001-01-01"`, nil},
	{"date", `{"type":"int","logicalType":"date"}`, "string", `"2026-02-30"`, map[string]string{"avro": refused, "csv": refused, "csv file": refused, "avro file": refused, "parquet file": refused}},
	{"uuid", `{"type":"fixed","name":"u","size":16,"logicalType":"uuid"}`, "string", `"123e4567-e89b-12d3-a456-426614174000"`, nil},
	{"float", `"double"`, "double", "-0.0", all("-0")},
	{"float", `"double"`, "double", `"nan"`, all(refused)},
	{"int", `"long"`, "int64", `"NaN"`, all(refused)},
}

// tombstone is what a row becomes that is no value.
const tombstone = "tombstone"

// columnType is the type that formats of columns have for the field.
func (g *golden) columnType(t *testing.T) connectors.Type {
	t.Helper()
	text := "[{f: '" + g.typ + "'}]"
	if strings.HasPrefix(g.typ, "[") {
		text = "[{f: " + g.typ + "}]"
	}
	var declared any
	err := yaml.Unmarshal([]byte(text), &declared)
	var cols columns.List
	if err == nil {
		err = cols.UnmarshalConfig(declared)
	}
	if err != nil {
		t.Fatal(err)
	}
	return cols[0].Type
}

// csvType is the type of a column of CSV, which holds lists and maps as JSON.
func (g *golden) csvType(t connectors.Type) string {
	switch {
	case t.Base != connectors.Sequence && t.Base != connectors.Struct && t.Base != connectors.Dictionary:
		return g.typ
	case t.Nullable:
		return "json?"
	}
	return "json"
}

// wanted is what becomes of the value in a format, where that is something else than it was.
func (g *golden) wanted(format string) (string, bool) {
	if w, ok := g.want[format]; ok {
		return w, true
	}
	var v any
	if g.value != "" && json.Unmarshal([]byte(g.value), &v) != nil {
		return "", false
	}
	text, isText := v.(string)
	_, err := base64.StdEncoding.DecodeString(text)
	switch {
	case format == "json" && g.value == "":
		return "null", true // as any step writes it
	case format != "text" && format != "raw":
		return "", false
	case g.value == "null":
		return tombstone, true
	case g.value == "" || !isText || format == "raw" && err != nil:
		return refused, true
	}
	return "", false
}

// columnsOnly is the same of every format whose lists are of one type.
func columnsOnly(want string) map[string]string {
	return map[string]string{"avro": want, "protobuf": want, "avro file": want, "parquet file": want}
}

// jsonTrip reads the field out of JSON, and makes JSON of what was read.
func jsonTrip(t *testing.T, row string) (string, error) {
	t.Helper()
	in, err := format.NewDecoder(connectors.FormatConfig{}, []format.Field{{Path: []string{"f"}, Slot: 0, Exact: true}}, false)
	if err != nil {
		return "", err
	}
	layout := &connectors.Layout{Empty: true, Edits: []connectors.Edit{{Kind: connectors.EditSet, Name: "f", Slot: 0}}}
	out, err := format.NewEncoder(connectors.FormatConfig{}, layout, format.EncoderOptions{})
	if err != nil {
		return "", err
	}
	b := &connectors.Batch{}
	b.Size(1, 1)
	b.Records[0].Value = []byte(row)
	var failed error
	sel := in.Decode(b, []uint16{0}, func(_ uint16, e *format.SyntaxError) { failed = e })
	b.Records[0].Value = []byte{}
	rows := &connectors.Rows{Batch: b, Sel: sel, Layout: layout}
	if failed == nil {
		out.Encode(rows, func(_ int, e error) { failed = e })
	}
	if failed != nil {
		return "", failed
	}
	return string(rows.Values[0]), nil
}

func TestTextThatIsNotUTF8IsRefused(t *testing.T) {
	for _, tt := range []struct {
		name    string
		options map[string]any
		value   string
	}{
		{"avro", map[string]any{"schema": `{"type":"record","name":"r","fields":[{"name":"f","type":"string"}]}`}, "\x02\xff"},
		{"avro", map[string]any{"schema": `{"type":"record","name":"r","fields":[{"name":"f","type":{"type":"map","values":"int"}}]}`}, "\x02\x02\xff\x02\x00"},
		{"protobuf", map[string]any{"schema": `syntax = "proto3"; message M { string f = 1; }`}, "\x0a\x01\xff"},
		{"protobuf", map[string]any{"schema": `syntax = "proto2"; message M { optional string f = 1; }`}, "\x0a\x01\xff"},
		{"json_schema", map[string]any{"schema": map[string]any{"type": "object"}}, "{\"f\":\"\xff\"}"},
		{"csv", map[string]any{"columns": []any{"f"}}, "\xff"},
		{"csv", map[string]any{"columns": []any{map[string]any{"f": "string"}}}, "\"\xff\""},
		{"text", nil, "\xff"},
		{"key_value", nil, "f=\xff"},
		{"regex", map[string]any{"pattern": "(?P<f>.*)"}, "\xff"},
	} {
		got, err := formattest.Read(formattest.Input(t, formattest.Config(tt.name, tt.options)), []byte(tt.value))
		if !format.IsRefused(err) {
			t.Errorf("%s: %q became %q, %v", tt.name, tt.value, got, err)
		}
	}
	if got, err := formattest.Read(formattest.Input(t, formattest.Config("raw", nil)), []byte("\xff")); err != nil || got != `{"value":"/w=="}` {
		t.Errorf("raw: %s, %v", got, err)
	}
}
