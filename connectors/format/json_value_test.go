package format

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

func TestLookupFindsTheLastField(t *testing.T) {
	for _, c := range []struct{ json, key, want string }{
		{`{"a":1,"b":"x"}`, "b", `string "x"`},
		{`{ "a" : 1 , "a" : [ 2 , "}" ] }`, "a", `list [ 2 , "}" ]`},
		{`{"a":1,"\u0061":2}`, "a", `int 2`},
		{`{"a\\":1,"a\"b":"q\n"}`, `a"b`, `string "q\n"`},
		{`{"a\\u0062":1}`, `ab`, `absent`},
		{`{"a\\u0062":1}`, `a\u0062`, `int 1`},
		{`{"a":{"b":null}}`, "b", `absent`},
		{`{"a":null}`, "a", `null`},
		{`{"a":-1.50,"b":true}`, "a", `float -1.5`},
		{`{"":{}}`, "", `map {}`},
		{`{}`, "", `absent`},
	} {
		v, ok := Lookup([]byte(c.json), c.key, nil)
		if got := show(v); got != c.want || ok == (c.want == "absent") {
			t.Errorf("%s of %s: got %s, %v, want %s", c.key, c.json, got, ok, c.want)
		}
	}
}

func TestListsAreReadByIndexAndInOrder(t *testing.T) {
	list := []byte(` [ 1 , "a]\"" , [ 2 , [ ] ] , { "a" : "]" } , null , true ] `[1:])
	want := []string{"int 1", `string "a]\""`, "list [ 2 , [ ] ]", `map { "a" : "]" }`, "null", "bool true"}
	arena := &connectors.Arena{}
	var got []string
	Elements(list, arena, func(v connectors.Value) bool { got = append(got, show(v)); return true })
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q", got)
	}
	for i := -1; i <= len(want); i++ {
		v, ok := Index(list, i, arena)
		if in := i >= 0 && i < len(want); ok != in || in && show(v) != want[i] {
			t.Errorf("element %d: %s, %v", i, show(v), ok)
		}
	}
	if n := Len(list); n != len(want) {
		t.Errorf("length %d", n)
	}
	n := 0
	Elements(list, arena, func(connectors.Value) bool { n++; return n < 2 })
	if n != 2 {
		t.Errorf("went on for %d elements", n)
	}
}

func TestEntriesYieldEachNameOnceWithItsLastValue(t *testing.T) {
	many := make([]string, 0, 40)
	for i := range 40 {
		many = append(many, fmt.Sprintf(`"k%d":%d`, i%25, i))
	}
	for _, c := range []struct {
		json, want string
		n          int
	}{
		{`{"a":1,"b":2,"a":3}`, "b=int 2 a=int 3", 2},
		{`{"a":1,"\u0061":2,"b\n":"\t"}`, "a=int 2 b\n=string \"\\t\"", 2},
		{`{}`, "", 0},
		{`{ }`, "", 0},
		{"{" + strings.Join(many, ",") + "}", "", 25},
	} {
		var got []string
		Entries([]byte(c.json), &connectors.Arena{}, func(key string, v connectors.Value) bool {
			got = append(got, key+"="+show(v))
			return true
		})
		if c.want != "" && strings.Join(got, " ") != c.want || len(got) != c.n || Len([]byte(c.json)) != c.n {
			t.Errorf("%s: got %q", c.json, got)
		}
	}
}

func TestParseValueChecksCompletely(t *testing.T) {
	for _, c := range []struct{ json, want string }{
		{` {"a":[1.0]} `, `map {"a":[1.0]}`}, {`[]`, `list []`}, {`"x\u00e4"`, `string "xä"`}, {`1.10`, `float 1.1`},
		{`null`, `null`}, {`true`, `bool true`}, {`-12`, `int -12`}, {` 1e400 `, `decimal 1e400`},
		{`[01]`, `invalid value at byte 2: expected no digit after a leading zero`},
		{`{"a":"\x"}`, `invalid value at byte 6: expected an escape such as \n or \u00e4 after the backslash`},
		{``, `invalid value at byte 0: the value is empty`},
		{`1 2`, `invalid value at byte 2: expected the end of the value`},
		{"\"\xff\"", `invalid value at byte 1: expected UTF-8 within the string`},
		{strings.Repeat("[", 1000) + strings.Repeat("]", 1000), "list " + strings.Repeat("[", 1000) + strings.Repeat("]", 1000)},
		{strings.Repeat("[", 1001), `invalid value at byte 1000: the value is nested more deeply than max_depth allows`},
	} {
		v, err := ParseValue([]byte(c.json), &connectors.Arena{})
		got := show(v)
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", c.json, got, c.want)
		}
	}
}

func TestValuesSurviveTheWayThroughAny(t *testing.T) {
	at := time.Date(2026, 11, 29, 12, 0, 0, 1, time.FixedZone("", 3600))
	for _, c := range []struct {
		v    connectors.Value
		want any
		back string
	}{
		{connectors.Value{}, nil, "null"},
		{connectors.IntValue(math.MaxInt64), math.MaxInt64, "int 9223372036854775807"},
		{connectors.FloatValue(1), 1.0, "float 1"},
		{connectors.DecimalValue("12345678901234567890"), json.Number("12345678901234567890"), "decimal 12345678901234567890"},
		{connectors.StringValue("x"), "x", `string "x"`},
		{connectors.BoolValue(true), true, "bool true"},
		{connectors.BytesValue([]byte("x")), []byte("x"), `bytes "eA=="`},
		{connectors.TimestampValue(at), at, `timestamp "2026-11-29T12:00:00.000000001+01:00"`},
		{connectors.DurationValue(time.Second), time.Second, `duration "1s"`},
		{connectors.ListValue([]byte(`[1,"a",null,[]]`)), []any{1, "a", nil, []any{}}, `list [1,"a",null,[]]`},
		{connectors.MapValue([]byte(`{"b":1.5,"a":{"c":12345678901234567890},"b":2}`)), map[string]any{"b": 2, "a": map[string]any{"c": json.Number("12345678901234567890")}},
			`map {"a":{"c":12345678901234567890},"b":2}`},
	} {
		got := ToAny(c.v, nil)
		if stamp, ok := got.(time.Time); ok && stamp.Equal(at) {
			got = at
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("got %#v, want %#v", got, c.want)
		}
		back, err := FromAny(got, &connectors.Arena{})
		if err != nil || show(back) != c.back {
			t.Errorf("got %s, %v, want %s", show(back), err, c.back)
		}
	}
}

func TestFromAnyTakesWhatExpressionsGive(t *testing.T) {
	type named string
	n := 5
	for _, c := range []struct {
		x    any
		want string
	}{
		{int8(-1), "int -1"}, {uint32(7), "int 7"}, {uint64(math.MaxUint64), "decimal 18446744073709551615"}, {float32(0.5), "float 0.5"},
		{[]int{1, 2}, "list [1,2]"}, {[]string{"a\n"}, `list ["a\n"]`}, {[]string(nil), "list []"}, {[2]bool{true}, "list [true,false]"},
		{map[string]int{"b": 1, "a": 2}, `map {"a":2,"b":1}`}, {map[string][]any{"x": {nil, 1.5, map[string]any{}}}, `map {"x":[null,1.5,{}]}`},
		{named("x"), `string "x"`}, {&n, "int 5"}, {(*int)(nil), "null"}, {[]any{[]byte("x"), json.Number("1e400"), &n}, `list ["eA==",1e400,5]`},
		{[]any{time.Second}, `list ["1s"]`},
		{json.Number("x"), "a json.Number holds no number"},
		{func() {}, "a func() is no value of a record"}, {map[int]int{}, "a map[int]int is no value of a record"}, {[]any{math.NaN()}, "NaN and infinity cannot be written as JSON"},
		{struct{}{}, "a struct {} is no value of a record"},
	} {
		v, err := FromAny(c.x, &connectors.Arena{})
		got := show(v)
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%#v: got %s, want %s", c.x, got, c.want)
		}
	}
	loop := []any{nil}
	loop[0] = loop
	if _, err := FromAny(loop, nil); err == nil {
		t.Error("a list within itself is taken")
	}
}

// FuzzValue compares the primitives on lists and maps with encoding/json.
func FuzzValue(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":"\ud83d"}],"\u0061":-0.0,"c":1e400}`))
	f.Add([]byte(` [ [ ] , { } , "\\\"" , 1.50 , true , null ] `))
	for _, broken := range []string{`{"a":"`, `["`, `{"a`, `{`, `[[`, `{"a":"\`, `["\u12"`, `{"a" 1`, `[-`, `{"a":`, `}`, `[1 2`} {
		f.Add([]byte(broken))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		// Text that is not valid does no harm.
		Lookup(text, "a", nil)
		Index(text, 1, nil)
		Len(text)
		Elements(text, nil, func(v connectors.Value) bool { ToAny(v, nil); return true })
		Entries(text, nil, func(_ string, v connectors.Value) bool { ToAny(v, nil); return true })
		v, err := ParseValue(text, nil)
		if err != nil {
			return
		}
		dec := json.NewDecoder(strings.NewReader(string(text)))
		dec.UseNumber()
		var want any
		if err := dec.Decode(&want); err != nil {
			t.Fatalf("taken, but %v", err)
		}
		if got := ToAny(v, &connectors.Arena{}); !alike(got, want) {
			t.Fatalf("got %#v, want %#v", got, want)
		}
		if m, ok := want.(map[string]any); ok {
			for k, w := range m {
				if got, ok := Lookup(v.Raw(), k, nil); !ok || !alike(ToAny(got, nil), w) {
					t.Fatalf("%q: got %s, want %v", k, show(got), w)
				}
			}
		}
	})
}

// alike compares what ToAny gives with what encoding/json reads.
func alike(got, want any) bool {
	switch want := want.(type) {
	case json.Number:
		v, err := FromAny(got, nil)
		if err != nil {
			return false
		}
		out, err := AppendValue(nil, v)
		return err == nil && sameNumber(string(out), string(want))
	case []any:
		list, ok := got.([]any)
		if !ok || len(list) != len(want) {
			return false
		}
		for i := range list {
			if !alike(list[i], want[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		m, ok := got.(map[string]any)
		if !ok || len(m) != len(want) {
			return false
		}
		for k := range want {
			if x, ok := m[k]; !ok || !alike(x, want[k]) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(got, want)
}
