package files

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/files/avrofile"
	"github.com/sluice-etl/sluice/connectors/files/csvfile"
	"github.com/sluice-etl/sluice/connectors/files/parquet"
	"github.com/sluice-etl/sluice/connectors/format/formattest"

	_ "github.com/sluice-etl/sluice/connectors/format/avro"
	_ "github.com/sluice-etl/sluice/connectors/format/csv"
	_ "github.com/sluice-etl/sluice/connectors/format/jsonschema"
	_ "github.com/sluice-etl/sluice/connectors/format/protobuf"
	_ "github.com/sluice-etl/sluice/connectors/format/text"
)

// golden is one value of a type, in every format. Where a format is not named in want, the
// value comes back as it was given.
type golden struct {
	typ, avro, proto string // the field's type in columns, in Avro's schema, in a .proto file
	value            string // JSON; empty for a field that is not there
	want             map[string]string
}

const refused = "refused: "

// The table is that of docs/formats.md.
var goldens = []golden{
	{"int", `"long"`, "int64", "-9223372036854775808", nil},
	{"int", `"long"`, "int64", "9223372036854775807", nil},
	{"int", `"long"`, "int64", "9223372036854775808", all(refused + "64 bits")},
	{"int", `"long"`, "int64", "1.5", all(refused + "integer")},
	{"uint64", dec(20, 0), "uint64", "18446744073709551615", map[string]string{"avro file": refused + "decimal(20, 0)"}},
	{"uint64", dec(20, 0), "uint64", "-1", map[string]string{"csv": refused, "csv file": refused, "avro file": refused, "parquet file": refused, "protobuf": refused}},
	{"decimal(38, 10)", dec(38, 10), "string", "1234567890123456789012345678.0123456789", map[string]string{"protobuf": refused + "text"}},
	{"decimal(38, 0)", dec(38, 0), "string", "-99999999999999999999999999999999999999", map[string]string{"protobuf": refused + "text"}},
	{"decimal(4, 2)", dec(4, 2), "string", "1.234", all(refused)},
	{"float", `"double"`, "double", `"NaN"`, nil},
	{"float", `"double"`, "double", `"Infinity"`, nil},
	{"float", `"double"`, "double", `"-Infinity"`, nil},
	{"float", `"double"`, "double", "5e-324", nil},
	{"float32", `"float"`, "float", "1e300", all(refused)},
	{"float", `"double"`, "double", "0.1", nil},
	{"float", `"double"`, "double", "9007199254740993", nearest("9007199254740992", "9.007199254740992e+15")},
	{"float", `"double"`, "double", "0.1000000000000000055511151231257827", nearest("0.1", "0.1")},
	{"float32", `"float"`, "float", "16777217", nearest("16777216", "1.6777216e+07")},
	{"string?", `["null","string"]`, "optional string", `""`, nil},
	{"string?", `["null","string"]`, "optional string", "null", map[string]string{"protobuf": "absent"}},
	{"string?", `["null","string"]`, "optional string", "", map[string]string{"protobuf": "absent", "avro": "null", "csv": "null", "csv file": "null", "avro file": "null", "parquet file": "null"}},
	{"string", `"string"`, "string", "null", map[string]string{"avro": refused, "protobuf": refused, "csv": refused, "avro file": refused, "parquet file": refused}},
	{"string", `"string"`, "string", `""`, nil},
	{"string", `"string"`, "string", `"a,\"b\"\r\n\u0000б"`, nil},
	{"bytes", `"bytes"`, "bytes", `"/wA="`, nil},
	{"bytes", `"bytes"`, "bytes", `"%"`, all(refused)},
	{"bool", `"boolean"`, "bool", "true", nil},
	{"bool", `"boolean"`, "bool", "1", all(refused)},
	{"timestamp", `{"type":"long","logicalType":"timestamp-micros"}`, "google.protobuf.Timestamp", `"2026-01-31T23:59:59.123456Z"`, nil},
	{"timestamp", `{"type":"long","logicalType":"timestamp-micros"}`, "google.protobuf.Timestamp", `"0001-01-01T00:00:00Z"`, nil},
	{"timestamp", `{"type":"long","logicalType":"timestamp-micros"}`, "google.protobuf.Timestamp", `"2026-01-31T23:59:59.123456789Z"`, map[string]string{"avro": refused, "avro file": refused, "parquet file": refused}},
	{"timestamp_local", `{"type":"long","logicalType":"local-timestamp-micros"}`, "string", `"2026-01-31T23:59:59.5"`, nil},
	{"date", `{"type":"int","logicalType":"date"}`, "string", `"1969-12-31"`, nil},
	{"time", `{"type":"long","logicalType":"time-micros"}`, "string", `"23:59:59.5"`, nil},
	{"uuid", `{"type":"string","logicalType":"uuid"}`, "string", `"123e4567-e89b-12d3-a456-426614174000"`, nil},
	{"json", `"string"`, "google.protobuf.Value", `{"a":[1,null,"x"]}`, map[string]string{"avro": refused}},
}

func dec(precision, scale int) string {
	return `{"type":"bytes","logicalType":"decimal","precision":` + strconv.Itoa(precision) + `,"scale":` + strconv.Itoa(scale) + `}`
}

// nearest is what becomes of a number that no float is: formats of text keep its digits.
func nearest(inStreams, inFiles string) map[string]string {
	return map[string]string{"avro": inStreams, "protobuf": inStreams, "avro file": inFiles, "parquet file": inFiles}
}

func all(want string) map[string]string {
	m := map[string]string{}
	for _, f := range []string{"avro", "protobuf", "csv", "csv file", "avro file", "parquet file"} {
		m[f] = want
	}
	return m
}

func TestEachValueComesBackAsItWasOrIsRefused(t *testing.T) {
	for _, g := range slices.Concat(goldens, nested, times) {
		typ := g.columnType(t)
		row := `{"f":` + g.value + `}`
		if g.value == "" {
			row = `{}`
		}
		for name, roundTrip := range trips(g, typ) {
			want := row
			if w, ok := g.wanted(name); ok && !strings.HasPrefix(w, refused) && w != "absent" && w != tombstone {
				want = `{"f":` + w + `}`
			} else if ok {
				want = w
			}
			if want == "absent" {
				want = "{}"
			}
			got, err := roundTrip(t, row)
			if reason, ok := strings.CutPrefix(want, refused); ok {
				if err == nil || !strings.Contains(err.Error(), reason) || !strings.Contains(err.Error(), "f") {
					t.Errorf("%s, %s, %s: became %s, %v, want to be refused with %q", name, g.typ, row, got, err, reason)
				}
				continue
			}
			if err != nil || got != want {
				t.Errorf("%s, %s, %s: became %s, %v, want %s", name, g.typ, row, got, err, want)
			}
		}
	}
}

type trip func(t *testing.T, row string) (string, error)

func trips(g golden, typ connectors.Type) map[string]trip {
	cols := []connectors.Column{{Name: "f", Type: typ}}
	stream := func(name string, options map[string]any) trip {
		return func(t *testing.T, row string) (string, error) {
			cfg := formattest.Config(name, options)
			v, err := formattest.Write(formattest.Output(t, cfg, formattest.Env("t")), row)
			if err != nil || v == nil {
				return tombstone, err
			}
			return formattest.Read(formattest.Input(t, cfg), v)
		}
	}
	return map[string]trip{
		"json":        jsonTrip,
		"text":        stream("text", map[string]any{"field": "f"}),
		"raw":         stream("raw", map[string]any{"field": "f"}),
		"json_schema": stream("json_schema", map[string]any{"schema": map[string]any{"type": "object"}}),
		"csv":         stream("csv", map[string]any{"columns": []any{map[string]any{"f": g.csvType(typ)}}}),
		"avro":        stream("avro", map[string]any{"schema": `{"type":"record","name":"r","fields":[{"name":"f","type":` + g.avro + `}]}`}),
		"protobuf":    stream("protobuf", map[string]any{"schema": "syntax = \"proto3\"; import \"google/protobuf/timestamp.proto\"; import \"google/protobuf/struct.proto\"; message M { " + g.proto + " f = 1; } message S { int64 n = 1; repeated K kids = 2; } message K { optional google.protobuf.Timestamp at = 1; }", "message": "M"}),
		"csv file": func(_ *testing.T, row string) (string, error) {
			o := csvfile.NewOptions()
			o.Columns = cols
			if typ.Base == connectors.Sequence || typ.Base == connectors.Struct || typ.Base == connectors.Dictionary {
				o.Columns = []connectors.Column{{Name: "f", Type: connectors.Type{Base: connectors.Document, Nullable: typ.Nullable}}}
			}
			o.Null = `\N`
			e, err := csvfile.NewEncoder(o, o.Columns)
			if err != nil {
				return "", err
			}
			e.Begin([][]byte{[]byte(row)})
			out, err := e.Append(csvfile.Head(o, o.Columns), 0)
			if err != nil {
				return "", err
			}
			r, err := csvfile.NewReader(bytes.NewReader(out), o, 1<<20)
			if err != nil {
				return "", err
			}
			return rest(r)
		},
		"avro file":    file(cols, formatAvro),
		"parquet file": file(cols, formatParquet),
	}
}

// file writes a row into a file and reads it.
func file(cols []connectors.Column, name string) trip {
	return func(t *testing.T, row string) (string, error) {
		f, err := avroForm(cols, compressionSnappy, "")
		if name == formatParquet {
			f, err = parquetForm(parquet.Layout{Columns: cols, Compression: compressionSnappy, RowGroup: 1 << 20})
		}
		if err != nil {
			return "", err
		}
		e, err := f.encoder()
		if err != nil {
			return "", err
		}
		e.Begin([][]byte{[]byte(row)})
		one, err := e.Append(nil, 0)
		if err != nil {
			return "", err
		}
		whole, err := f.packer().Pack(f.head, one, 1)
		if err != nil {
			return "", err
		}
		if f.convert == nil {
			r, err := avrofile.Open(bytes.NewReader(whole), 1<<20)
			if err != nil {
				return "", err
			}
			return rest(r)
		}
		var out bytes.Buffer
		if err := f.convert(t.Context(), &out, bytes.NewReader(whole)); err != nil {
			return "", err
		}
		r, err := parquet.Open(bytes.NewReader(out.Bytes()), int64(out.Len()), 1<<20)
		if err != nil {
			return "", err
		}
		return rest(r)
	}
}

// rest is the only row of a file.
func rest(r interface {
	Next(dst []byte) ([]byte, error)
}) (string, error) {
	row, err := r.Next(nil)
	if err != nil {
		return "", err
	}
	if _, err := r.Next(nil); !errors.Is(err, io.EOF) {
		return "", errors.New("there is another row")
	}
	return string(row), nil
}
