package format

import (
	"encoding/json"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
)

// differences lists where reading differs from encoding/json, all of them. The
// field w is read, u is not. Strict accepts exactly what RFC 8259 does; without
// it, what no step reads is checked in structure and strings' ends only.
var differences = []struct {
	name   string
	value  string
	std    bool   // encoding/json takes it
	lax    string // what w holds, or the error
	strict bool
}{
	{"a number that is none, unread", `{"u":01.e+-,"w":1}`, false, `int 1`, false},
	{"a number that is none, read", `{"w":01}`, false, `byte 6: expected no digit after a leading zero`, false},
	{"an escape that is none, unread", `{"u":"\q","w":1}`, false, `int 1`, false},
	{"an escape that is none, read", `{"w":"\q"}`, false, `byte 6: expected an escape such as \n or \u00e4 after the backslash`, false},
	{"a control character in a string, unread", "{\"u\":\"a\nb\",\"w\":1}", false, `int 1`, false},
	{"a control character in a string, read", "{\"w\":\"a\nb\"}", false, `byte 7: expected control characters within a string to be escaped`, false},
	{"a control character in a name", "{\"a\nb\":0,\"w\":1}", false, `byte 3: expected control characters within a string to be escaped`, false},
	{"within an unread list", `{"u":[01,"\q"],"w":1}`, false, `int 1`, false},
	{"within a read list", `{"w":[01]}`, false, `byte 7: expected no digit after a leading zero`, false},
	{"invalid UTF-8, unread", "{\"u\":\"\xff\",\"w\":1}", true, `int 1`, false},
	{"invalid UTF-8, read: nothing is replaced silently", "{\"w\":\"a\xff\"}", true, `byte 7: expected UTF-8 within the string`, false},
	{"invalid UTF-8, within a read map", "{\"w\":{\"a\":\"\xff\"}}", true, `byte 11: expected UTF-8 within the string`, false},
	{"invalid UTF-8 in a name", "{\"a\xff\":0,\"w\":1}", true, `byte 3: expected UTF-8 within the string`, false},
	{"half a surrogate pair, read: U+FFFD as in encoding/json", `{"w":"\ud83dx"}`, true, "string \"\uFFFDx\"", true},
	{"half a surrogate pair, within a read list: stays as written", `{"w":["\ud83d"]}`, true, `list ["\ud83d"]`, true},
	{"an integer beyond 64 bits keeps all digits", `{"w":12345678901234567890}`, true, `decimal 12345678901234567890`, true},
	{"a fraction with more digits than a double keeps them", `{"w":0.1234567890123456789}`, true, `decimal 0.1234567890123456789`, true},
	{"a number beyond doubles keeps its text", `{"w":1e400}`, true, `decimal 1e400`, true},
	{"minus zero without a fraction is an int", `{"w":-0}`, true, `int 0`, true},
	{"a later duplicate wins, null too", `{"w":1,"w":null}`, true, `null`, true},
	{"a later duplicate replaces a map whole, it is not merged", `{"w":{"a":1},"w":{"b":2}}`, true, `map {"b":2}`, true},
	{"names match exactly, not in another case", `{"W":1}`, true, `absent`, true},
	{"a value that is no object has no fields", `[1]`, true, `absent`, true},
	{"a byte order mark", "\xef\xbb\xbf{}", false, `byte 0: expected no byte order mark before the value`, false},
	{"no bytes at all", ``, false, `byte 0: the value is empty`, false},
}

func TestDifferencesFromEncodingJSON(t *testing.T) {
	for _, d := range differences {
		t.Run(d.name, func(t *testing.T) {
			if json.Valid([]byte(d.value)) != d.std {
				t.Errorf("encoding/json takes it: %v", !d.std)
			}
			got, err := decodeOne(t, jsonFormat, d.value, "w")
			if err != nil {
				got = err.Error()[len("invalid value at "):]
			}
			if got != d.lax {
				t.Errorf("got  %s\nwant %s", got, d.lax)
			}
			if _, err := decodeOne(t, strictFormat(), d.value); (err == nil) != d.strict {
				t.Errorf("strict: %v", err)
			}
		})
	}
}

// written lists where writing differs from encoding/json.
var written = []struct {
	name     string
	text     string
	std, our string
}{
	{"no escapes for HTML", "<a&b>", `"\u003ca\u0026b\u003e"`, `"<a&b>"`},
	{"no escapes for line separators", "\u2028\u2029", `"\u2028\u2029"`, "\"\u2028\u2029\""},
	{"invalid UTF-8 becomes U+FFFD itself, not its escape", "\xff", `"\ufffd"`, "\"\uFFFD\""},
}

func TestDifferencesFromEncodingJSONInWriting(t *testing.T) {
	for _, w := range written {
		t.Run(w.name, func(t *testing.T) {
			if std, err := json.Marshal(w.text); err != nil || string(std) != w.std {
				t.Errorf("encoding/json writes %s, %v", std, err)
			}
			if our, err := AppendValue(nil, connectors.StringValue(w.text)); err != nil || string(our) != w.our {
				t.Errorf("got %s, %v, want %s", our, err, w.our)
			}
		})
	}
}
