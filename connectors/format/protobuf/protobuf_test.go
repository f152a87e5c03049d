package protobuf

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/connectors/format/formattest"
	"github.com/sluice-etl/sluice/connectors/format/registry"
)

const everything = `syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
message Row {
  int32 i32 = 1; int64 i64 = 2; uint64 u64 = 3; sint64 s64 = 4; fixed32 f32 = 5;
  float fl = 6; double db = 7; bool ok = 8; string text = 9; bytes raw = 10;
  optional int64 maybe = 11;
  enum Colour { RED = 0; BLUE = 5; }
  Colour colour = 12;
  repeated int64 list = 13;
  map<string, Inner> dict = 14;
  map<int64, bool> numbers = 15;
  Inner inner = 16;
  google.protobuf.Timestamp at = 17;
  google.protobuf.Duration span = 18;
  google.protobuf.Int64Value wrapped = 19;
  google.protobuf.Struct free = 20;
  oneof choice { string left = 21; int32 right = 22; }
  Row self = 23;
  int64 snake_case = 24;
  message Inner { string name = 1; repeated Inner kids = 2; }
}
`

func withSchema(text string, more ...any) connectors.FormatConfig {
	options := map[string]any{"schema": text}
	for i := 0; i < len(more); i += 2 {
		options[more[i].(string)] = more[i+1]
	}
	return formattest.Config("protobuf", options)
}

const zeros = `"i32":0,"i64":0,"u64":0,"s64":0,"f32":0,"fl":0,"db":0,"ok":false,"text":"","raw":"",`

func TestValuesGoThroughProtobufAsTheyAre(t *testing.T) {
	tests := []struct{ name, row, want string }{
		{"nothing", `{}`, `{` + zeros + `"colour":"RED","list":[],"dict":{},"numbers":{},"snake_case":0}`},
		{"limits", `{"i32":-2147483648,"i64":9223372036854775807,"u64":18446744073709551615,"s64":-9223372036854775808,"f32":4294967295,"fl":0.1,"db":5e-324,"ok":true,"text":"a\nб","raw":"/wA=","maybe":0,"colour":"BLUE","list":[1,-1],"dict":{"k":{"name":"x","kids":[{"name":"y","kids":[]}]}},"numbers":{"-5":true},"inner":{"name":"","kids":[]},"at":"2026-01-31T23:59:59.123456789Z","span":"5400.500s","wrapped":7,"free":{"a":[1,null,"x"]},"right":5,"snake_case":1}`, ""},
		{"numbers that are none", `{"fl":"NaN","db":"-Infinity"}`, `{` + strings.Replace(strings.Replace(zeros, `"fl":0`, `"fl":"NaN"`, 1), `"db":0`, `"db":"-Infinity"`, 1) + `"colour":"RED","list":[],"dict":{},"numbers":{},"snake_case":0}`},
		{"an enum without a name", `{"colour":7}`, `{` + zeros + `"colour":7,"list":[],"dict":{},"numbers":{},"snake_case":0}`},
		{"null is absent", `{"maybe":null,"at":null,"list":null}`, `{` + zeros + `"colour":"RED","list":[],"dict":{},"numbers":{},"snake_case":0}`},
	}
	out := formattest.Output(t, withSchema(everything), formattest.Env(""))
	in := formattest.Input(t, withSchema(everything))
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			value, err := formattest.Write(out, tt.row)
			if err != nil {
				t.Fatal(err)
			}
			if value == nil {
				t.Fatal("an empty message became a tombstone")
			}
			want := tt.want
			if want == "" {
				want = tt.row
			}
			if got, err := formattest.Read(in, value); err != nil || got != want {
				t.Errorf("got  %s, %v\nwant %s", got, err, want)
			}
		})
	}
}

func TestWhatAMessageDoesNotHoldIsRefusedWithTheField(t *testing.T) {
	out := formattest.Output(t, withSchema(everything), formattest.Env(""))
	for row, want := range map[string]string{
		`{"i32":2147483648}`:               "field i32: the integer does not fit 32 bits",
		`{"u64":-1}`:                       "field u64: an integer from 0 on",
		`{"i64":1.5}`:                      "field i64: an integer is wanted",
		`{"text":null}`:                    "field text: it is null, which the message cannot tell from its zero",
		`{"nope":1}`:                       "field nope: the message shop.Row has no such field",
		`{"colour":"GREEN"}`:               "field colour: the enum Colour has no such name",
		`{"inner":{"kids":[{"name":1}]}}`:  "field inner: field kids: [0]: field name: text is wanted, not int",
		`{"left":"a","right":1}`:           "only one can be there",
		`{"at":"soon"}`:                    "field at: a point in time like",
		`{"raw":"%"}`:                      "field raw: bytes are wanted, as text in base64",
		`{"numbers":{"x":true}}`:           "field numbers: x: the key is no number",
		`[1]`:                              "an object is wanted, not list",
		`{"list":1}`:                       "field list: a list is wanted",
		`{"span":"1 month"}`:               "a google.protobuf.Duration is wanted",
		`{"at":"2026-01-31T00:00:00Z","at`: "invalid value",
	} {
		if _, err := formattest.Write(out, row); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", row, err, want)
		}
	}
}

func TestNamesAndUnknownFields(t *testing.T) {
	cfg := withSchema(`syntax = "proto3"; message M { int64 user_id = 1; }`, "json_names", true, "ignore_unknown", true)
	value, err := formattest.Write(formattest.Output(t, cfg, formattest.Env("")), `{"userId":5,"more":1}`)
	if err != nil {
		t.Fatal(err)
	}
	value = append(value, 0x10, 0x01) // a field that the schema does not have
	if got, err := formattest.Read(formattest.Input(t, cfg), value); err != nil || got != `{"userId":5}` {
		t.Errorf("%s, %v", got, err)
	}
}

func TestABrokenMessageIsRefused(t *testing.T) {
	in := formattest.Input(t, withSchema(everything))
	for name, value := range map[string]string{"cut off": "\x0a", "text that is none": "\x4a\x01\xff", "no message": "{}"} {
		if _, err := formattest.Read(in, []byte(value)); !format.IsRefused(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	deep := []byte{}
	for range 300 {
		deep = append(append([]byte{0xba, 0x01}, varint(len(deep))...), deep...)
	}
	if _, err := formattest.Read(in, deep); !format.IsRefused(err) || !strings.Contains(err.Error(), "nested deeper") {
		t.Error(err)
	}
}

func varint(n int) (b []byte) {
	for n >= 0x80 {
		b = append(b, byte(n)|0x80)
		n >>= 7
	}
	return append(b, byte(n))
}

func TestFilesAreCompiledWithTheirImports(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.proto": `syntax = "proto3"; import "sub/b.proto"; message A { sub.B b = 1; } message Other {}`, "sub/b.proto": `syntax = "proto3"; package sub; message B { int64 n = 1; }`,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg := formattest.Config("protobuf", map[string]any{"schema_file": "a.proto", "message": "A"})
	cols, err := format.Columns(format.InFolder(cfg, dir))
	if err != nil || len(cols) != 1 || cols[0].Type.Fields[0].Name != "n" || !cols[0].Type.Nullable {
		t.Errorf("%+v, %v", cols, err)
	}
	for want, options := range map[string]map[string]any{
		"the schema has 2 messages":   {"schema_file": filepath.Join(dir, "a.proto")},
		"no message C":                {"schema_file": filepath.Join(dir, "a.proto"), "message": "C"},
		"schema_file: ":               {"schema_file": filepath.Join(dir, "none.proto")},
		"schema: ":                    {"schema": "message {"},
		"more than one of":            {"schema": "x", "descriptors": "y"},
		"Protobuf needs a schema":     {},
		"an address like http://loca": {"registry": map[string]any{"url": "x"}},
	} {
		_, err := format.NewInput(formattest.Config("protobuf", options))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", options, err, want)
		}
	}
}

func TestMessagesOfARegistry(t *testing.T) {
	reg := srfake.New()
	t.Cleanup(reg.Close)
	const text = `syntax = "proto3"; package p; message A { int64 n = 1; } message B { message C { string s = 1; } }`
	url := map[string]any{"url": reg.URL()}
	out := formattest.Output(t, withSchema(text, "message", "p.B.C", "registry", url), formattest.Env("topic"))
	value, err := formattest.Write(out, `{"s":"x"}`)
	if err != nil || value[0] != 0 {
		t.Fatalf("%x, %v", value, err)
	}
	in := formattest.Input(t, formattest.Config("protobuf", map[string]any{"registry": url}))
	if got, err := formattest.Read(in, value); err != nil || got != `{"s":"x"}` {
		t.Errorf("%s, %v", got, err)
	}
	// The first message has the short index, and a header can hold it all.
	if got, err := formattest.Read(in, append(value[:5:5], 0, 0x08, 0x05)); err != nil || got != `{"n":5}` {
		t.Errorf("%s, %v", got, err)
	}
	header := connectors.Header{Key: registry.Header, Value: value[:8]}
	if got, err := formattest.Read(in, []byte("\x0a\x01y"), header); err != nil || got != `{"s":"y"}` {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := formattest.Read(in, append(value[:5:5], 2, 8, 0)); !format.IsRefused(err) {
		t.Error(err)
	}
	reg.SeedSchema("avro-value", 1, 99, sr.Schema{Schema: `"int"`})
	if _, err := formattest.Read(in, []byte("\x00\x00\x00\x00\x63\x00")); !format.IsRefused(err) {
		t.Error(err)
	}
}

func TestASinkRegistersTheFilesThatItsSchemaImports(t *testing.T) {
	reg := srfake.New()
	t.Cleanup(reg.Close)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"shop/a.proto":    `syntax = "proto3"; package shop; import "shop/b.proto"; import "google/protobuf/timestamp.proto"; message A { B b = 1; google.protobuf.Timestamp at = 2; }`,
		"shop/b.proto":    `syntax = "proto3"; package shop; message B { int64 n = 1; }`,
		"shop/none.proto": `syntax = "proto3";`,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const row = `{"b":{"n":7},"at":"2026-01-31T00:00:00Z"}`
	for topic, options := range map[string]map[string]any{
		"file": {"schema_file": filepath.Join(dir, "shop/a.proto")},
		"text": {"schema": `syntax = "proto3"; package shop; import "shop/b.proto"; import "google/protobuf/timestamp.proto"; message A { B b = 1; google.protobuf.Timestamp at = 2; }`},
	} {
		options["imports"] = []any{dir}
		options["registry"] = map[string]any{"url": reg.URL(), "reference_strategy": "qualified"}
		value, err := formattest.Write(formattest.Output(t, formattest.Config("protobuf", options), formattest.Env(topic)), row)
		if err != nil {
			t.Fatal(err)
		}
		s, ok := reg.GetSchema(topic+"-value", 1)
		if want := (sr.SchemaReference{Name: "shop/b.proto", Subject: "shop.b", Version: 1}); !ok || len(s.References) != 1 || s.References[0] != want {
			t.Errorf("%s: references %+v, want %+v", topic, s.References, want)
		}
		in := formattest.Input(t, formattest.Config("protobuf", map[string]any{"registry": map[string]any{"url": reg.URL()}}))
		if got, err := formattest.Read(in, value); err != nil || got != row {
			t.Errorf("%s: %s, %v", topic, got, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("\x08\x01\x12\x00"))
	in := formattest.Input(f, withSchema(everything))
	f.Fuzz(func(t *testing.T, b []byte) {
		out, err := formattest.Read(in, b)
		if err != nil {
			return
		}
		var arena connectors.Arena
		if _, err := format.ParseValue([]byte(out), &arena); err != nil {
			t.Fatalf("%x became %s: %v", b, out, err)
		}
	})
}

// FuzzSchema reads messages of strangers by schemas of strangers, as they come out of a
// registry.
func FuzzSchema(f *testing.F) {
	f.Add(everything, []byte("\x08\x01\x12\x00"))
	f.Add(`syntax = "proto3"; message A { map<string, A> a = 1; oneof o { bytes b = 2; A c = 3; } repeated sint64 d = 4; }`, []byte("\x0a\x04\x0a\x00\x12\x00\x1a\x00"))
	f.Add(`syntax = "proto2"; message A { required group G = 1 { optional A a = 2 [default = 1]; } extensions 5 to 9; }`, []byte("\x0b\x0c"))
	f.Add(`edition = "2023"; import "google/protobuf/any.proto"; message A { google.protobuf.Any a = 1; }`, []byte("\x0a\x02\x0a\x00"))
	f.Fuzz(func(t *testing.T, schema string, b []byte) {
		cfg := withSchema(schema, "max_size", "1MiB")
		if format.Check(cfg) != nil {
			return
		}
		if _, err := format.Columns(cfg); err != nil {
			t.Fatal(err)
		}
		out, err := formattest.Read(formattest.Input(t, cfg), b)
		if err != nil {
			return
		}
		var arena connectors.Arena
		if _, err := format.ParseValue([]byte(out), &arena); err != nil || len(out) > 2<<20 {
			t.Fatalf("%x by %s became %s: %v", b, schema, out, err)
		}
	})
}
