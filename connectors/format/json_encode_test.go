package format

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

func set(name string, slot int) connectors.Edit {
	return connectors.Edit{Kind: connectors.EditSet, Name: name, Slot: slot}
}

func drop(name string) connectors.Edit { return connectors.Edit{Kind: connectors.EditDrop, Name: name} }

func keep(names ...string) connectors.Edit {
	return connectors.Edit{Kind: connectors.EditKeep, Names: names}
}

func rename(name, to string) connectors.Edit {
	return connectors.Edit{Kind: connectors.EditRename, Name: name, To: to}
}

func edits(e ...connectors.Edit) connectors.Layout { return connectors.Layout{Edits: e} }

// encodeAll encodes the records of b, after a decoder left its spans where spans
// says so, and renders errors in place of values.
func encodeAll(t *testing.T, b *connectors.Batch, sel []uint16, l connectors.Layout, lines, spans bool) []string {
	t.Helper()
	if spans {
		d, err := NewDecoder(jsonFormat, nil, true)
		if err != nil {
			t.Fatal(err)
		}
		d.Decode(b, slices.Clone(sel), func(uint16, *SyntaxError) {})
	}
	e, err := NewEncoder(jsonFormat, &l, EncoderOptions{Lines: lines})
	if err != nil {
		t.Fatal(err)
	}
	rows := &connectors.Rows{Batch: b, Sel: sel}
	faults := map[int]error{}
	e.Encode(rows, func(i int, err error) { faults[i] = err })
	out := make([]string, len(sel))
	for i, v := range rows.Values {
		switch {
		case faults[i] != nil && v == nil:
			out[i] = "! " + faults[i].Error()
		case v == nil:
			out[i] = "tombstone"
		default:
			out[i] = string(v)
		}
	}
	return out
}

func TestEncodeAppliesEdits(t *testing.T) {
	const raw = `{"a":1.10,"b":"x\u0041","c":[1, 2],"d":1e400}`
	const dup = `{"a":1,"b":2,"a":3,"c":4,"a":5}`
	for _, c := range []struct {
		name, raw string
		layout    connectors.Layout
		want      string
	}{
		{"untouched", raw, edits(), raw},
		{"a new field follows", raw, edits(set("n", 0)), `{"a":1.10,"b":"x\u0041","c":[1, 2],"d":1e400,"n":"v0"}`},
		{"new fields in the order written", raw, edits(set("z", 0), set("n", 1)), `{"a":1.10,"b":"x\u0041","c":[1, 2],"d":1e400,"z":"v0","n":"v1"}`},
		{"a changed field keeps its place", raw, edits(set("b", 1)), `{"a":1.10,"b":"v1","c":[1, 2],"d":1e400}`},
		{"set twice, the last counts", raw, edits(set("b", 1), set("b", 2)), `{"a":1.10,"b":"v2","c":[1, 2],"d":1e400}`},
		{"new and set twice", raw, edits(set("n", 1), set("m", 0), set("n", 2)), `{"a":1.10,"b":"x\u0041","c":[1, 2],"d":1e400,"n":"v2","m":"v0"}`},
		{"drop the first", raw, edits(drop("a")), `{"b":"x\u0041","c":[1, 2],"d":1e400}`},
		{"drop the last", raw, edits(drop("d")), `{"a":1.10,"b":"x\u0041","c":[1, 2]}`},
		{"drop what is not there", raw, edits(drop("q")), raw},
		{"drop all", raw, edits(drop("a"), drop("b"), drop("c"), drop("d")), `{}`},
		{"drop all, then set", raw, edits(keep(), set("n", 0)), `{"n":"v0"}`},
		{"drop and set: it is a new field", raw, edits(drop("a"), set("a", 0)), `{"b":"x\u0041","c":[1, 2],"d":1e400,"a":"v0"}`},
		{"set and drop", raw, edits(set("n", 0), set("a", 0), drop("n"), drop("a")), `{"b":"x\u0041","c":[1, 2],"d":1e400}`},
		{"keep in the record's order", raw, edits(keep("d", "a", "q")), `{"a":1.10,"d":1e400}`},
		{"keep new ones too", raw, edits(set("n", 0), set("m", 1), keep("n", "c")), `{"c":[1, 2],"n":"v0"}`},
		{"rename", raw, edits(rename("b", "n")), `{"a":1.10,"n":"x\u0041","c":[1, 2],"d":1e400}`},
		{"rename onto another", raw, edits(rename("d", "a")), `{"b":"x\u0041","c":[1, 2],"a":1e400}`},
		{"rename what is not there", raw, edits(rename("q", "a")), raw},
		{"rename to itself", raw, edits(rename("a", "a")), raw},
		{"rename what was set", raw, edits(set("n", 0), rename("n", "a")), `{"b":"x\u0041","c":[1, 2],"d":1e400,"a":"v0"}`},
		{"rename one new field onto another", raw, edits(set("n", 0), set("m", 0), set("n", 0), set("m", 0), rename("n", "m")), `{"a":1.10,"b":"x\u0041","c":[1, 2],"d":1e400,"m":"v0"}`},
		{"swap by renames", raw, edits(rename("a", "t"), rename("b", "a"), rename("t", "b")), `{"b":1.10,"a":"x\u0041","c":[1, 2],"d":1e400}`},
		{"rename and set the old name", raw, edits(rename("a", "n"), set("a", 0)), `{"n":1.10,"b":"x\u0041","c":[1, 2],"d":1e400,"a":"v0"}`},
		{"names are escaped", `{}`, edits(set("a\"\n", 0), set("ä", 1)), `{"a\"\n":"v0","ä":"v1"}`},
		{"escaped names are met", `{"\u0061":1,"b":2}`, edits(set("a", 0)), `{"a":"v0","b":2}`},
		{"escaped names stay", `{"\u0061":1,"b":2}`, edits(set("b", 0)), `{"\u0061":1,"b":"v0"}`},
		{"duplicates: set leaves one in the first one's place", dup, edits(set("a", 0)), `{"a":"v0","b":2,"c":4}`},
		{"duplicates: drop takes all", dup, edits(drop("a")), `{"b":2,"c":4}`},
		{"duplicates: rename leaves the last value in the first one's place", dup, edits(rename("a", "n")), `{"n":5,"b":2,"c":4}`},
		{"duplicates: keep lets them be", dup, edits(keep("a", "c")), `{"a":1,"a":3,"c":4,"a":5}`},
		{"duplicates: what is not mentioned stays", dup, edits(set("n", 0)), `{"a":1,"b":2,"a":3,"c":4,"a":5,"n":"v0"}`},
		{"duplicates in two spellings", `{"a":1,"\u0061":2}`, edits(set("a", 0)), `{"a":"v0"}`},
		{"an empty object", ` { } `, edits(set("n", 0)), `{"n":"v0"}`},
		{"white space between the fields stays", "{ \"a\" : 1 ,\n \"b\" : 2 } ", edits(set("n", 0)), "{\"a\" : 1 ,\n \"b\" : 2,\"n\":\"v0\"}"},
		{"map", raw, connectors.Layout{Empty: true, Edits: []connectors.Edit{set("x", 1), set("a", 0)}}, `{"x":"v1","a":"v0"}`},
		{"map to nothing", raw, connectors.Layout{Empty: true}, `{}`},
		{"map, then edits", raw, connectors.Layout{Empty: true, Edits: []connectors.Edit{set("x", 1), set("a", 0), rename("x", "y"), rename("b", "q"), drop("a")}}, `{"y":"v1"}`},
		{"map does not look at the value", `not JSON`, connectors.Layout{Empty: true, Edits: []connectors.Edit{set("x", 1)}}, `{"x":"v1"}`},
		{"edits of a list", `[1]`, edits(set("n", 0)), `! fields can be changed in an object only, and the value is none`},
		{"edits of no JSON", `{"a":1`, edits(set("n", 0)), `! invalid value at byte 6: the value ends too early`},
		{"edits of an object without commas", `{"a":1 "b":2}`, edits(set("n", 0)), `! invalid value at byte 7: expected ',' or '}' after the field`},
		{"edits of an object and more", `{"a":1}]`, edits(set("n", 0)), `! invalid value at byte 7: expected the end of the value`},
		{"edits of nothing", ``, edits(set("n", 0)), `! invalid value at byte 0: the value is empty`},
	} {
		for _, spans := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/spans=%v", c.name, spans), func(t *testing.T) {
				b, sel := batchOf(3, c.raw, c.raw)
				for r := range sel {
					for s := range 3 {
						b.Row(r)[s] = connectors.StringValue(fmt.Sprintf("v%d", s))
					}
				}
				for r, got := range encodeAll(t, b, sel, c.layout, false, spans) {
					if got != c.want {
						t.Errorf("record %d\ngot  %s\nwant %s", r, got, c.want)
					}
				}
			})
		}
	}
}

func TestEncodeBorrowsUntouchedValues(t *testing.T) {
	b, sel := batchOf(0, `{"a":1}`)
	for _, lines := range []bool{false, true} {
		e, err := NewEncoder(jsonFormat, &connectors.Layout{}, EncoderOptions{Lines: lines})
		if err != nil {
			t.Fatal(err)
		}
		rows := &connectors.Rows{Batch: b, Sel: sel}
		e.Encode(rows, func(_ int, err error) { t.Error(err) })
		if &rows.Values[0][0] != &b.Records[0].Value[0] {
			t.Error("the value was copied")
		}
	}
}

func TestEncodeKeepsARecordOnItsLine(t *testing.T) {
	for _, c := range []struct {
		name, raw, want string
		layout          connectors.Layout
	}{
		{"line breaks between tokens", "{\r\n\"a\":\n1}\n", "{  \"a\": 1} ", edits()},
		{"line breaks beside edits", "{\n\"a\"\n:[\n1],\n\"b\":2\n}", "{\"a\" :[ 1], \"b\":2,\"n\":\"x\"}", edits(set("n", 0))},
		{"escaped ones stay", `{"a":"x\n\"\\"}`, `{"a":"x\n\"\\"}`, edits()},
		{"a line break within a string", "{\"a\":\"x\ny\"}", "! a raw line break within a string cannot be written as a line of JSON", edits()},
		{"an empty value", "", "! an empty value cannot be written as a line of JSON", edits()},
		{"only space", " \n ", "! an empty value cannot be written as a line of JSON", edits()},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, sel := batchOf(1, c.raw)
			b.Row(0)[0] = connectors.StringValue("x")
			got := encodeAll(t, b, sel, c.layout, true, true)[0]
			if got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
			if string(b.Records[0].Value) != c.raw {
				t.Error("the record itself was changed")
			}
		})
	}
}

func TestEncodePassesTombstonesOn(t *testing.T) {
	for _, l := range []connectors.Layout{edits(), edits(set("a", 0)), {Empty: true}} {
		b, sel := batchOf(1, "")
		b.Records[0].Value = nil
		if got := encodeAll(t, b, sel, l, false, true)[0]; got != "tombstone" {
			t.Error(got)
		}
		if got := encodeAll(t, b, sel, l, true, true)[0]; got != "null" {
			t.Error(got)
		}
	}
}

func TestEncodeWritesEveryKind(t *testing.T) {
	at := time.Date(2026, 11, 29, 12, 0, 0, 120_000_000, time.FixedZone("", 5*3600+1800))
	for _, c := range []struct {
		v    connectors.Value
		want string
	}{
		{connectors.Value{}, `null`},
		{connectors.NullValue(), `null`},
		{connectors.BoolValue(true), `true`},
		{connectors.IntValue(math.MinInt64), `-9223372036854775808`},
		{connectors.FloatValue(1e21), `1e+21`},
		{connectors.FloatValue(11208.352), `11208.352`},
		{connectors.FloatValue(3), `3`},
		{connectors.FloatValue(math.NaN()), `! write field "n": NaN and infinity cannot be written as JSON`},
		{connectors.FloatValue(math.Inf(-1)), `! write field "n": NaN and infinity cannot be written as JSON`},
		{connectors.DecimalValue("1.10"), `1.10`},
		{connectors.StringValue("a\"\\\x00\x1f\n</ü\u2028"), `"a\"\\\u0000\u001f\n</ü` + "\u2028\""},
		{connectors.StringValue("\b\f\r\x7f"), `"\b\f\r` + "\x7f\""},
		{connectors.StringValue("x\xffy\xc3"), "\"x\uFFFDy\uFFFD\""},
		{connectors.StringValue("eightbyt\tes"), `"eightbyt\tes"`},
		{connectors.BytesValue([]byte{0, 255, 1}), `"AP8B"`},
		{connectors.BytesValue(nil), `""`},
		{connectors.TimestampValue(at), `"2026-11-29T12:00:00.12+05:30"`},
		{connectors.TimestampValue(time.Unix(0, 0)), `"1970-01-01T00:00:00Z"`},
		{connectors.TimestampValue(time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC)), `! write field "n": a timestamp outside of the years 0 to 9999 cannot be written as RFC 3339`},
		{connectors.DurationValue(90 * time.Minute), `"1h30m0s"`},
		{connectors.ListValue([]byte(`[1, 2]`)), `[1, 2]`},
		{connectors.MapValue([]byte(`{}`)), `{}`},
	} {
		b, sel := batchOf(1, `{}`)
		b.Row(0)[0] = c.v
		want := c.want
		if !strings.HasPrefix(want, "!") {
			want = `{"n":` + want + `}`
		}
		if got := encodeAll(t, b, sel, edits(set("n", 0)), false, false)[0]; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestEncodeServesBatchesOfSeveralDecoders(t *testing.T) {
	e, err := NewEncoder(jsonFormat, &connectors.Layout{Edits: []connectors.Edit{drop("b"), set("c", 0)}}, EncoderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	first, _ := NewDecoder(jsonFormat, nil, true)
	second, _ := NewDecoder(jsonFormat, nil, true)
	for round := range 3 {
		for _, decoders := range [][]Decoder{{first}, {second}, {first, second}, {second, first}} {
			b, sel := batchOf(1, `{"a":1,"b":2}`, `{"b":1,"a":2}`, `{"c":1,"a":2,"b":3}`, `{"a":1,"b":2}`)
			for r := range sel {
				b.Row(r)[0] = connectors.IntValue(9)
			}
			for i, d := range decoders {
				d.Decode(b, slices.Clone(sel[2*i:]), func(_ uint16, err *SyntaxError) { t.Error(err) })
			}
			rows := &connectors.Rows{Batch: b, Sel: sel}
			e.Encode(rows, func(_ int, err error) { t.Error(err) })
			if got := string(slices.Concat(rows.Values...)); got != `{"a":1,"c":9}{"a":2,"c":9}{"c":9,"a":2}{"a":1,"c":9}` {
				t.Fatalf("round %d: %s", round, got)
			}
		}
	}
}

func TestEncodeOfManyFieldSetsStaysRight(t *testing.T) {
	var l connectors.Layout
	for i := range 12 {
		l.Edits = append(l.Edits, set(fmt.Sprintf("f%d", i), 0))
	}
	for mask := range 1 << 12 {
		var have, missing []string
		for i := range 12 {
			f := fmt.Sprintf(`"f%d":`, i)
			if mask&(1<<i) != 0 {
				have = append(have, f)
			} else {
				missing = append(missing, f)
			}
		}
		b, sel := batchOf(1, "{"+strings.Join(have, "1,")+map[bool]string{true: "1"}[len(have) > 0]+"}")
		b.Row(0)[0] = connectors.IntValue(7)
		want := "{" + strings.Join(append(have, missing...), "7,") + "7}"
		if mask%64 != 0 {
			continue
		}
		if got := encodeAll(t, b, sel, l, false, false)[0]; got != want {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
	}
}

func TestEncodeTellsAnEmptyNameFromTheFirstNameMet(t *testing.T) {
	l := edits(drop("a"))
	for _, spans := range []bool{false, true} {
		d, err := NewDecoder(jsonFormat, nil, true)
		if err != nil {
			t.Fatal(err)
		}
		e, err := NewEncoder(jsonFormat, &l, EncoderOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range []struct{ value, want string }{
			{`{"":1}`, `{"":1}`}, {`{"a":1}`, `{}`}, {`{"a":2}`, `{}`}, {`{"":2}`, `{"":2}`},
		} {
			b, sel := batchOf(0, c.value)
			if spans {
				sel = d.Decode(b, sel, func(_ uint16, err *SyntaxError) { t.Fatal(err) })
			}
			rows := &connectors.Rows{Batch: b, Sel: sel}
			e.Encode(rows, func(_ int, err error) { t.Fatal(err) })
			if got := string(rows.Values[0]); got != c.want {
				t.Errorf("record %d of %s, with spans %v: %s, want %s", i, c.value, spans, got, c.want)
			}
		}
	}
}
