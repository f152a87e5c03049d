package avro

import (
	"strings"
	"testing"

	"github.com/twmb/avro"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/connectors/format/formattest"
)

// record is the schema of a record with one field f.
func record(typ string) string {
	return `{"type":"record","name":"r","fields":[{"name":"f","type":` + typ + `}]}`
}

func withSchema(text string) connectors.FormatConfig {
	return formattest.Config("avro", map[string]any{"schema": text})
}

const recursive = `["null",{"type":"record","name":"tree","fields":[{"name":"v","type":"int"},{"name":"kids","type":{"type":"array","items":"tree"}}]}]`

func TestValuesGoThroughAvroAsTheyAre(t *testing.T) {
	tests := []struct{ name, typ, value string }{
		{"int", `"int"`, `-2147483648`},
		{"least long", `"long"`, `-9223372036854775808`},
		{"greatest long", `"long"`, `9223372036854775807`},
		{"double", `"double"`, `0.1`},
		{"small double", `"double"`, `5e-324`},
		{"large double", `"double"`, `1.7976931348623157e+308`},
		{"float", `"float"`, `0.1`},
		{"NaN", `"double"`, `"NaN"`},
		{"infinity", `"float"`, `"-Infinity"`},
		{"boolean", `"boolean"`, `true`},
		{"text", `"string"`, `"a\nб\u0000"`},
		{"empty text", `"string"`, `""`},
		{"bytes", `"bytes"`, `"/wD+"`},
		{"no bytes", `"bytes"`, `""`},
		{"fixed", `{"type":"fixed","name":"x","size":3}`, `"/wD+"`},
		{"enum", `{"type":"enum","name":"e","symbols":["A","B"]}`, `"B"`},
		{"decimal of 38 digits", `{"type":"bytes","logicalType":"decimal","precision":38,"scale":10}`, `1234567890123456789012345678.0123456789`},
		{"negative decimal", `{"type":"bytes","logicalType":"decimal","precision":38,"scale":2}`, `-1.10`},
		{"decimal below one", `{"type":"bytes","logicalType":"decimal","precision":9,"scale":4}`, `-0.0001`},
		{"decimal 128", `{"type":"bytes","logicalType":"decimal","precision":9,"scale":0}`, `128`},
		{"decimal -128", `{"type":"bytes","logicalType":"decimal","precision":9,"scale":0}`, `-128`},
		{"fixed decimal", `{"type":"fixed","name":"x","size":16,"logicalType":"decimal","precision":38,"scale":0}`, `-99999999999999999999999999999999999999`},
		{"date", `{"type":"int","logicalType":"date"}`, `"1969-12-31"`},
		{"time-millis", `{"type":"int","logicalType":"time-millis"}`, `"23:59:59.999"`},
		{"time-micros", `{"type":"long","logicalType":"time-micros"}`, `"00:00:00.000001"`},
		{"timestamp-millis", `{"type":"long","logicalType":"timestamp-millis"}`, `"1969-12-31T23:59:59.999Z"`},
		{"timestamp-micros", `{"type":"long","logicalType":"timestamp-micros"}`, `"2026-01-31T23:59:59.123456Z"`},
		{"timestamp-nanos", `{"type":"long","logicalType":"timestamp-nanos"}`, `"1969-12-31T23:59:59.123456789Z"`},
		{"local-timestamp-millis", `{"type":"long","logicalType":"local-timestamp-millis"}`, `"2026-01-31T23:59:59.5"`},
		{"local-timestamp-micros", `{"type":"long","logicalType":"local-timestamp-micros"}`, `"0001-01-01T00:00:00"`},
		{"local-timestamp-nanos", `{"type":"long","logicalType":"local-timestamp-nanos"}`, `"2026-01-31T23:59:59.000000001"`},
		{"uuid", `{"type":"string","logicalType":"uuid"}`, `"123e4567-e89b-12d3-a456-426614174000"`},
		{"fixed uuid", `{"type":"fixed","name":"u","size":16,"logicalType":"uuid"}`, `"123e4567-e89b-12d3-a456-426614174000"`},
		{"duration", `{"type":"fixed","name":"d","size":12,"logicalType":"duration"}`, `"P1M2DT3.5S"`},
		{"null", `["null","long"]`, `null`},
		{"not null", `["long","null"]`, `7`},
		{"union with a text", `["null","long","string"]`, `"7"`},
		{"union with a number", `["null","string","long"]`, `7`},
		{"union with a double", `["null","long","double"]`, `7.5`},
		{"union with a record", `["null",{"type":"record","name":"a","fields":[{"name":"x","type":"int"}]},{"type":"record","name":"b","fields":[{"name":"y","type":"int"}]}]`, `{"y":1}`},
		{"list", `{"type":"array","items":"long"}`, `[1,2,3]`},
		{"empty list", `{"type":"array","items":"long"}`, `[]`},
		{"list of nulls", `{"type":"array","items":["null","int"]}`, `[null,1,null]`},
		{"map", `{"type":"map","values":{"type":"array","items":"string"}}`, `{"a":["x"]}`},
		{"map with an empty key", `{"type":"map","values":{"type":"array","items":"string"}}`, `{"":[]}`},
		{"empty map", `{"type":"map","values":"int"}`, `{}`},
		{"a type in itself", recursive, `{"v":1,"kids":[{"v":2,"kids":[]},{"v":3,"kids":[{"v":4,"kids":[]}]}]}`},
		{"a logical type that is not known", `{"type":"long","logicalType":"moon-phase"}`, `7`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg, row := withSchema(record(tt.typ)), `{"f":`+tt.value+`}`
			value, err := formattest.Write(formattest.Output(t, cfg, formattest.Env("")), row)
			if err != nil {
				t.Fatal(err)
			}
			got, err := formattest.Read(formattest.Input(t, cfg), value)
			if err != nil || got != row {
				t.Errorf("got %s, %v, want %s", got, err, row)
			}
			// The library reads and writes the same bytes.
			var own any
			s := avro.MustParse(record(tt.typ))
			if rest, err := s.Decode(value, &own); err != nil || len(rest) > 0 {
				t.Fatalf("%v, %d bytes left", err, len(rest))
			}
			if again, err := s.Encode(own); err != nil || string(again) != string(value) {
				t.Errorf("the library writes %x, %v, and here are %x", again, err, value)
			}
		})
	}
}

// The library writes a map's entries in any order, so these are not compared with its bytes.
func TestEntriesOfAMapKeepTheirOrder(t *testing.T) {
	cfg, row := withSchema(record(`{"type":"map","values":"int"}`)), `{"f":{"b":1,"a":2,"":3}}`
	value, err := formattest.Write(formattest.Output(t, cfg, formattest.Env("")), row)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := formattest.Read(formattest.Input(t, cfg), value); err != nil || got != row {
		t.Errorf("got %s, %v, want %s", got, err, row)
	}
}

func TestWhatASchemaDoesNotHoldIsRefusedWithTheField(t *testing.T) {
	tests := []struct{ name, typ, row, want string }{
		{"too large", `"int"`, `{"f":2147483648}`, "field f: the integer does not fit 32 bits"},
		{"uint64", `"long"`, `{"f":18446744073709551615}`, "field f: an integer of 64 bits is wanted"},
		{"fraction", `"long"`, `{"f":1.5}`, "field f: an integer is wanted"},
		{"another type", `"long"`, `{"f":"1"}`, "field f: an integer is wanted, not string"},
		{"missing", `"long"`, `{}`, "field f: it is missing, and the schema has no default for it (long)"},
		{"null", `"long"`, `{"f":null}`, "field f: long is wanted, and it is null"},
		{"scale", `{"type":"bytes","logicalType":"decimal","precision":4,"scale":2}`, `{"f":1.234}`, "more than 2 digits behind the point"},
		{"precision", `{"type":"bytes","logicalType":"decimal","precision":4,"scale":2}`, `{"f":123.45}`, "more than the 4 digits"},
		{"fixed decimal", `{"type":"fixed","name":"x","size":1,"logicalType":"decimal","precision":2,"scale":0}`, `{"f":200}`, "field f: "},
		{"fixed", `{"type":"fixed","name":"x","size":3}`, `{"f":"/w=="}`, "3 bytes are wanted, and it has 1"},
		{"bytes", `"bytes"`, `{"f":"%"}`, "as text in base64"},
		{"enum", `{"type":"enum","name":"e","symbols":["A","B"]}`, `{"f":"C"}`, "one of A, B is wanted"},
		{"finer time", `{"type":"long","logicalType":"timestamp-millis"}`, `{"f":"2026-01-31T00:00:00.0001Z"}`, "finer than 1ms"},
		{"no time", `{"type":"long","logicalType":"timestamp-millis"}`, `{"f":"soon"}`, "a point in time like"},
		{"nanoseconds out of reach", `{"type":"long","logicalType":"timestamp-nanos"}`, `{"f":"1500-01-31T00:00:00Z"}`, "1678 to 2261"},
		{"union", `["null","long",{"type":"array","items":"int"}]`, `{"f":"x"}`, "fits none of null, long, array"},
		{"in a list", `{"type":"array","items":{"type":"record","name":"x","fields":[{"name":"y","type":"int"}]}}`, `{"f":[{"y":1},{"y":"1"}]}`, "field f[1].y: an integer"},
		{"unknown field", `"long"`, `{"f":1,"g":2}`, "field g: the schema has no such field"},
		{"duration", `{"type":"fixed","name":"d","size":12,"logicalType":"duration"}`, `{"f":"P1X"}`, "a duration like"},
		{"no JSON", `"long"`, `{"f":`, "invalid value at byte 5"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := formattest.Write(formattest.Output(t, withSchema(record(tt.typ)), formattest.Env("")), tt.row)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

func TestValuesThatAreNotOfTheSchemaAreRefused(t *testing.T) {
	tests := []struct{ name, typ, value, want string }{
		{"cut off", `"long"`, "\x80", "field f: invalid value at byte 0: an integer is wanted"},
		{"longer", `"long"`, "\x02\x02", "at byte 1: the end of the value"},
		{"text that is none", `"string"`, "\x02\xff", "field f: the text is no UTF-8"},
		{"length", `"string"`, "\xfe\xff\xff\xff\x0f", "as many bytes as the length"},
		{"negative length", `"string"`, "\x01", "as many bytes as the length"},
		{"branch", `["null","int"]`, "\x04", "a branch of the union"},
		{"many nulls", `{"type":"array","items":"null"}`, "\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00", "larger than max_size"},
		{"year", `{"type":"long","logicalType":"timestamp-millis"}`, "\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", "outside of the years"},
		{"time of day", `{"type":"int","logicalType":"time-millis"}`, "\x01", "a time of day below 24 hours"},
		{"deep", recursive, strings.Repeat("\x02\x02\x02", 1) + strings.Repeat("\x02\x02", 300), "nested deeper"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := formattest.Config("avro", map[string]any{"schema": record(tt.typ), "max_size": int64(1 << 20)})
			_, err := formattest.Read(formattest.Input(t, cfg), []byte(tt.value))
			if err == nil || !format.IsRefused(err) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

func TestDefaultsAreWrittenForMissingFields(t *testing.T) {
	schema := `{"type":"record","name":"r","fields":[
		{"name":"a","type":"long"},
		{"name":"b","type":"string","default":"x"},
		{"name":"c","type":["null","int"],"default":null},
		{"name":"d","type":{"type":"bytes","logicalType":"decimal","precision":4,"scale":2},"default":"\u0001\u0000"},
		{"name":"e","type":["null","int"]},
		{"name":"g","type":{"type":"array","items":"int"},"default":[1]}]}`
	value, err := formattest.Write(formattest.Output(t, withSchema(schema), formattest.Env("")), `{"a":1}`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := formattest.Read(formattest.Input(t, withSchema(schema)), value)
	if want := `{"a":1,"b":"x","c":null,"d":2.56,"e":null,"g":[1]}`; err != nil || got != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}

func TestASchemaIsMadeOfTheTypesOfRows(t *testing.T) {
	text := connectors.Type{Base: connectors.Text}
	cols := []connectors.Column{
		{Name: "id", Type: connectors.Type{Base: connectors.Integer}}, {Name: "n", Type: connectors.Type{Base: connectors.Integer, Bits: 64, Unsigned: true}},
		{Name: "p", Type: connectors.Type{Base: connectors.Exact, Precision: 10, Scale: 2, Nullable: true}},
		{Name: "at", Type: connectors.Type{Base: connectors.Instant}}, {Name: "tags", Type: connectors.Type{Base: connectors.Sequence, Elem: &text}},
		{Name: "s", Type: connectors.Type{Base: connectors.Struct, Fields: []connectors.Column{{Name: "x", Type: text}}}},
	}
	out := formattest.Output(t, formattest.Config("avro", nil), formattest.Env("", cols...))
	row := `{"id":1,"n":18446744073709551615,"p":1.10,"at":"2026-01-31T00:00:00.000001Z","tags":["a"],"s":{"x":"y"}}`
	value, err := formattest.Write(out, row)
	if err != nil {
		t.Fatal(err)
	}
	got, err := formattest.Read(formattest.Input(t, withSchema(out.(*output).schema.String())), value)
	if err != nil || got != row {
		t.Errorf("got %s, %v, want %s", got, err, row)
	}
	for _, c := range []connectors.Column{{Name: "x"}, {Name: "a b", Type: text}, {Name: "d", Type: connectors.Type{Base: connectors.Exact}}} {
		o, err := format.NewOutput(formattest.Config("avro", nil))
		if err == nil {
			err = o.Start(t.Context(), formattest.Env("", c))
		}
		if !connectors.IsPermanent(err) || !strings.Contains(err.Error(), c.Name) {
			t.Errorf("column %s: %v", c.Name, err)
		}
	}
}

func TestFaultsOfAConfigurationAreSaid(t *testing.T) {
	for _, tt := range []struct {
		options map[string]any
		want    string
	}{
		{map[string]any{"schema": "{"}, "schema: no schema of Avro"},
		{map[string]any{"schema": `"int"`, "schema_file": "x"}, "there are both"},
		{map[string]any{"schema_file": "/none.avsc"}, "it cannot be read"},
		{map[string]any{"registry": map[string]any{"url": "localhost:8081"}}, "registry.url: an address like"},
		{map[string]any{"registry": map[string]any{"urll": "x"}}, "registry.urll: format avro has no such option"},
		{map[string]any{"registry": map[string]any{"url": "http://x", "subject_strategy": "all"}}, "one of topic, record, topic_record"},
	} {
		if err := format.Check(formattest.Config("avro", tt.options)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v, want %q", tt.options, err, tt.want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	schema := record(recursive)
	f.Add([]byte("\x02\x02\x02\x04\x00\x00"))
	_, n, err := parseSchema(schema, nil)
	if err != nil {
		f.Fatal(err)
	}
	_, wide, err := parseSchema(`{"type":"record","name":"r","fields":[{"name":"a","type":["null","string","bytes","double","float","boolean"]},
		{"name":"b","type":{"type":"map","values":{"type":"array","items":"null"}}},{"name":"c","type":{"type":"bytes","logicalType":"decimal","precision":9,"scale":4}},
		{"name":"d","type":{"type":"long","logicalType":"timestamp-nanos"}},{"name":"e","type":{"type":"fixed","name":"x","size":12,"logicalType":"duration"}}]}`, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, n := range []*node{n, wide} {
			out, err := decode(nil, b, n, 1<<16)
			if err != nil {
				continue
			}
			var arena connectors.Arena
			if _, err := format.ParseValue(out, &arena); err != nil {
				t.Fatalf("%x became %s: %v", b, out, err)
			}
		}
	})
}

// FuzzResolve reads values of strangers, written with schemas of strangers, as another
// schema has them.
func FuzzResolve(f *testing.F) {
	f.Add(first, second, []byte("\x02\x02a"))
	f.Add(`["null",{"type":"enum","name":"e","symbols":["A","B"]}]`, `{"type":"enum","name":"e","symbols":["A","C"],"default":"C"}`, []byte("\x02\x02"))
	f.Add(`{"type":"record","name":"r","fields":[{"name":"next","type":["null","r"]}]}`, `{"type":"record","name":"r","fields":[{"name":"next","type":["null","r"]},{"name":"n","type":"long","default":1}]}`, []byte("\x02\x02\x00"))
	f.Add(`{"type":"array","items":"null"}`, `{"type":"array","items":"null"}`, []byte("\xfe\xff\xff\xff\x0f\x00"))
	f.Add(`{"type":"map","values":{"type":"fixed","name":"f","size":12,"logicalType":"duration"}}`, `{"type":"map","values":["int",{"type":"fixed","name":"f","size":12}]}`, []byte("\x02\x02a0123456789ab\x00"))
	f.Fuzz(func(t *testing.T, writer, reader string, b []byte) {
		w, wn, err := parseSchema(writer, nil)
		if err != nil {
			return
		}
		r, rn, err := parseSchema(reader, nil)
		if err != nil {
			return
		}
		n, err := resolve(w, r, wn, rn)
		if err != nil {
			return
		}
		const limit = 1 << 20
		out, err := decode(nil, b, n, limit)
		if err != nil {
			return
		}
		var arena connectors.Arena
		if _, err := format.ParseValue(out, &arena); err != nil || len(out) > 2*limit {
			t.Fatalf("%x by %s as %s became %s: %v", b, writer, reader, out, err)
		}
	})
}
