package clickhouse

import (
	"testing"

	"github.com/sluice-etl/sluice/connectors"
)

// The server refuses a block for one document that it does not take, so none may come to it.
func TestDocumentsAreAsTheServerTakesThem(t *testing.T) {
	c := newCodec("JSON(max_dynamic_paths=8, SKIP x, SKIP REGEXP 'y')", "UTC", connectors.Type{})
	if c == nil || !c.document {
		t.Fatal("the type is not written")
	}
	for text, want := range map[string]string{
		`{ "a": 1.0, "b": [1, "x", null, {"c": -0.5e3}], "c": 123456789012345678901234567890 }`: `{"a":1.0,"b":[1,"x",null,{"c":-500.0}],"c":123456789012345678901234567890}`,
		`{"a": 1e300, "b": 18446744073709551615, "c": -9223372036854775808}`:                    `{"a":1e+300,"b":18446744073709551615,"c":-9223372036854775808}`,
		`{"a": 1, "\u0061": 2}`:               `{"a":2}`,
		`{"a": [{"b": 1, "b": {"c": 2}}]}`:    `{"a":[{"b":{"c":2}}]}`,
		`{"a": "\ud800", "\udfff": "\u00e4"}`: `{"a":"` + "\ufffd" + `","` + "\ufffd" + `":"ä"}`,
		`{"a": {"b": 1}, "c": {"b": 2}}`:      `{"a":{"b":1},"c":{"b":2}}`,
		`{"a": 1, "a.b": {}, "a.": {"c": 1}}`: `{"a":1,"a.b":{},"a.":{"c":1}}`,
		`{"a.b": 1, "a": {"b": 2}}`:           "",
		`{"a": [{"b.c": 1, "b": {"c": 1}}]}`:  "",
		`{"a": 1e999}`:                        "",
		`{"a": [[-1e999]]}`:                   "",
		"{\"a\": \"\xff\"}":                   "",
		`[1]`:                                 "",
	} {
		kind := connectors.Map
		if text[0] == '[' {
			kind = connectors.List
		}
		got, err := c.value(nil, connectors.TextValue(kind, []byte(text)))
		switch {
		case (err != nil) != (want == ""):
			t.Errorf("%s: %q, %v", text, got, err)
		case err == nil && string(got) != string(appendText(nil, want)):
			t.Errorf("%s becomes %q, want %q", text, got, want)
		}
	}
	if newCodec("Nullable(JSON(a Enum8('x' = 1)))", "UTC", connectors.Type{}) != nil {
		t.Error("a path with a type of its own is written")
	}
}
