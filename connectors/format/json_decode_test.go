package format

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
)

func TestDecodeFillsWantedFields(t *testing.T) {
	for _, c := range []struct{ name, value, paths, want string }{
		{"kinds", `{"a":1,"b":-2.50,"c":true,"d":false,"e":null,"f":"x","g":[1, 2],"h":{"i":{}}}`, "a b c d e f g h z",
			`int 1 | float -2.5 | bool true | bool false | null | string "x" | list [1, 2] | map {"i":{}} | absent`},
		{"white space everywhere", " {\n\t\"a\" : 1 ,\r\n \"b\" : [ 1 , { } , [ ] ] , \"c\": \"x\" } ", "a b c",
			`int 1 | list [ 1 , { } , [ ] ] | string "x"`},
		{"escapes in values", `{"a":"\u0061\n\"\\\/\u00e4\ud83d\ude00","b":""}`, "a b", `string "a\n\"\\/ä😀" | string ""`},
		{"escapes in names", `{"\u0061bc":1,"x\"y":2}`, `abc x"y`, `int 1 | int 2`},
		{"text beyond ASCII", `{"ключ":"日本語テキスト"}`, "ключ", `string "日本語テキスト"`},
		{"nested", `{"a":{"b":{"c":1},"d":2},"e":3}`, "a.b.c a.d e a.b", `int 1 | int 2 | int 3 | map {"c":1}`},
		{"nested through what is no object", `{"a":[{"b":1}],"c":"x"}`, "a.b c.d", `absent | absent`},
		{"nested in a duplicate: the last one counts whole", `{"a":{"b":1,"c":2},"a":{"c":3}}`, "a.b a.c", `absent | int 3`},
		{"nested in a duplicate that is no object", `{"a":{"b":1},"a":5}`, "a.b a", `absent | int 5`},
		{"the whole value and fields of it", ` {"a":{"b":1}} `, ". a.b", `map {"a":{"b":1}} | int 1`},
		{"the whole value, a list", ` [1,"x"] `, ". a", `list [1,"x"] | absent`},
		{"the whole value, a string", `"x\ty"`, ". a", `string "x\ty" | absent`},
		{"the whole value, a number", `17`, ". a", `int 17 | absent`},
		{"the whole value, null", `null`, ". a", `null | absent`},
		{"empty object", `{}`, "a", `absent`},
		{"empty name", `{"":1,"a":2}`, "a", `int 2`},
		{"empty names", `{"":1,"a":2,"":3,"b":4}`, "a b", `int 2 | int 4`},
		{"limits of int", `{"a":9223372036854775807,"b":-9223372036854775808,"c":9223372036854775808}`, "a b c",
			`int 9223372036854775807 | int -9223372036854775808 | decimal 9223372036854775808`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := decodeOne(t, jsonFormat, c.value, strings.Fields(c.paths)...)
			if err != nil {
				t.Fatal(err)
			}
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestDecodeFindsTheEmptyName(t *testing.T) {
	d, err := NewDecoder(jsonFormat, []Field{{Path: []string{""}, Slot: 0}, {Path: []string{"a"}, Slot: 1}}, false)
	if err != nil {
		t.Fatal(err)
	}
	b, sel := batchOf(2, `{"":1,"a":2}`, `{"a":3,"":4}`, `{"":5,"":6}`)
	d.Decode(b, sel, func(_ uint16, err *SyntaxError) { t.Error(err) })
	if got := render(b.Slots); got != "int 1 | int 2 | int 4 | int 3 | int 6 | absent" {
		t.Error(got)
	}
}

func TestDecodeNamesAMemberThatNobodyReads(t *testing.T) {
	many := "{"
	for i := range 2 * maxKeys {
		many += fmt.Sprintf(`"n%d":{"%s":1},`, i, strings.Repeat("n", i))
	}
	fields := []Field{{Path: []string{"a"}, Slot: 0}, {Path: []string{"b", "c"}, Slot: 1}, {Slot: 2, Others: true}, {Path: []string{"b"}, Slot: 3, Others: true}}
	for _, c := range []struct{ value, others, below string }{
		{`{"a":1,"b":{"c":2}}`, "absent", "absent"},
		{`{}`, "absent", "absent"},
		{`{"x":1}`, `string "x"`, "absent"},
		{`{"a":1,"x":{"a":1},"y":2}`, `string "x"`, "absent"},
		{`{"x":1,"x":2,"a":3}`, `string "x"`, "absent"},
		{`{"a":1,"a":2,"\u0061":{"x":1}}`, "absent", "absent"},
		{`{"\u00e4\"":1}`, `string "ä\""`, "absent"},
		{`{"":1,"x":1}`, `string ""`, "absent"},
		{` { "x y" : "z" , "a" : 1 }`, `string "x y"`, "absent"},
		{`{"b":{"c":1,"x":2}}`, "absent", `string "x"`},
		{`{"b":{"x":2},"b":{"c":1}}`, "absent", "absent"},
		{`[{"x":1}]`, "absent", "absent"},
		{`"x"`, "absent", "absent"},
		{many + `"a":1}`, `string "n0"`, "absent"},
		{many[:len(many)-1] + `}`, `string "n0"`, "absent"},
	} {
		d, err := NewDecoder(jsonFormat, fields, false)
		if err != nil {
			t.Fatal(err)
		}
		b, sel := batchOf(4, c.value, c.value) // the second time its names are known
		d.Decode(b, sel, func(_ uint16, err *SyntaxError) { t.Error(err) })
		for i := range 2 {
			if got, below := render(b.Row(i)[2:3]), render(b.Row(i)[3:]); got != c.others || below != c.below {
				t.Errorf("%.60s: %s and %s, want %s and %s", c.value, got, below, c.others, c.below)
			}
		}
	}
}

func TestDecodeFindsFieldsWithDotsInTheirNames(t *testing.T) {
	d, err := NewDecoder(jsonFormat, []Field{{Path: []string{"a.b"}, Slot: 0}, {Path: []string{"a", "b"}, Slot: 1}}, false)
	if err != nil {
		t.Fatal(err)
	}
	b, sel := batchOf(2, `{"a.b":1,"a":{"b":2}}`)
	d.Decode(b, sel, func(_ uint16, err *SyntaxError) { t.Error(err) })
	if got := render(b.Row(0)); got != "int 1 | int 2" {
		t.Error(got)
	}
}

func TestDecodeSaysWhereAndWhatIsWrong(t *testing.T) {
	deep := strings.Repeat("[", 1001) + strings.Repeat("]", 1001)
	for _, c := range []struct{ name, value, want string }{
		{"no JSON", `hello`, `byte 0: expected a value`},
		{"cut within a string", `{"w":"abc`, `byte 9: the value ends within a string`},
		{"cut within an unread string", `{"u":"abc`, `byte 9: the value ends within a string`},
		{"cut within a name", `{"w`, `byte 3: the value ends within a string`},
		{"cut behind a name", `{"w"`, `byte 4: the value ends too early`},
		{"cut behind a colon", `{"w":`, `byte 5: the value ends too early`},
		{"cut behind an unread colon", `{"u":`, `byte 5: the value ends too early`},
		{"cut behind a value", `{"w":1`, `byte 6: the value ends too early`},
		{"cut behind a comma", `{"w":1,`, `byte 7: the value ends too early`},
		{"cut within a list", `{"u":[1,`, `byte 8: the value ends too early`},
		{"only a bracket", `{`, `byte 1: the value ends too early`},
		{"only space", "  \n", `byte 0: the value is empty`},
		{"something behind", `{"w":1} x`, `byte 8: expected the end of the value`},
		{"two values", `{}{}`, `byte 2: expected the end of the value`},
		{"a comma too many", `{"w":1,}`, `byte 7: expected a field name in double quotes`},
		{"a comma too many in a list", `{"u":[1,]}`, `byte 8: expected a value`},
		{"no comma", `{"w":1 "u":2}`, `byte 7: expected ',' or '}' after the field`},
		{"no comma in a list", `{"u":[1 2]}`, `byte 8: expected ',' or ']' after the element`},
		{"no colon", `{"w" 1}`, `byte 5: expected ':' after the field name`},
		{"a zero byte for a name", "{\x000}", `byte 1: expected a field name in double quotes`},
		{"no quotes", `{w:1}`, `byte 1: expected a field name in double quotes`},
		{"no quotes in an unread map", `{"u":{w:1}}`, `byte 6: expected a field name in double quotes`},
		{"the wrong bracket", `{"u":[1}}`, `byte 7: expected ',' or ']' after the element`},
		{"a wrong literal", `{"u":nul}`, `byte 5: expected true, false or null`},
		{"a literal with a tail", `{"u":nullx}`, `byte 9: expected ',' or '}' after the field`},
		{"NaN", `{"u":NaN}`, `byte 5: expected a value`},
		{"a number with letters", `{"w":12ab}`, `byte 7: expected ',' or '}' after the field`},
		{"a number that ends early", `{"w":-}`, `byte 6: expected a digit`},
		{"half an escape", `{"w":"\u12"}`, `byte 6: expected an escape such as \n or \u00e4 after the backslash`},
		{"too deep", deep, `byte 1000: the value is nested more deeply than max_depth allows`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := decodeOne(t, jsonFormat, c.value, "w")
			if err == nil {
				t.Fatal("no error")
			}
			if got := err.Error(); got != "invalid value at "+c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestDecodeHoldsItsLimits(t *testing.T) {
	cfg := connectors.FormatConfig{Name: "json", Options: map[string]any{"max_size": int64(16), "max_depth": int64(3)}}
	for _, c := range []struct {
		value string
		ok    bool
	}{
		{`{"w":{"a":[]}}`, true},
		{`{"w":{"a":[[]]}}`, false},
		{`{"u":[[[]]]}`, false},
		{`{"x":{"y":{"z":{}}}}`, false},
		{`{"w":"12345678"}`, true},
		{`{"w":"123456789"}`, false},
	} {
		if _, err := decodeOne(t, cfg, c.value, "w", "x.y.z"); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.value, err)
		}
	}
}

func TestDecodeLeavesOutBadRowsAndKeepsTombstones(t *testing.T) {
	d, err := NewDecoder(jsonFormat, []Field{{Path: []string{"a"}, Slot: 0}}, false)
	if err != nil {
		t.Fatal(err)
	}
	b, sel := batchOf(1, `{"a":1}`, `{"a":`, ``, ``, `{"a":2}`, `not read`)
	b.Records[3].Value = nil
	var bad []uint16
	ok := d.Decode(b, sel[:5], func(row uint16, _ *SyntaxError) { bad = append(bad, row) })
	if fmt.Sprint(ok, bad) != "[0 3 4] [1 2]" {
		t.Error(ok, bad)
	}
	if got := render(b.Slots); got[:36] != "int 1 | absent | absent | absent | i" {
		t.Error(got)
	}
}

func TestDecodeRemembersFieldOrdersWithoutMixingThemUp(t *testing.T) {
	d, err := NewDecoder(jsonFormat, []Field{{Path: []string{"a"}, Slot: 0}, {Path: []string{"o", "c"}, Slot: 1}}, true)
	if err != nil {
		t.Fatal(err)
	}
	var values, want []string
	for i := range 900 {
		switch i % 6 {
		case 0:
			values, want = append(values, fmt.Sprintf(`{"x":0,"a":%d,"o":{"c":2,"d":3}}`, i)), append(want, fmt.Sprintf("int %d | int 2", i))
		case 1:
			values, want = append(values, `{"x":0,"o":{"d":2,"c":4}}`), append(want, "absent | int 4")
		case 2:
			values, want = append(values, `{"o":{}, "a" :7}`), append(want, "int 7 | absent")
		case 3:
			values, want = append(values, fmt.Sprintf(`{"new%d":1,"a":"x"}`, i)), append(want, `string "x" | absent`)
		case 4:
			values, want = append(values, `{"a":1,"x":0,"a":2,"a":3}`), append(want, "int 3 | absent")
		case 5:
			values, want = append(values, `{"`+strings.Repeat("k", 300)+`":0,"a":8}`), append(want, "int 8 | absent")
		}
	}
	b, sel := batchOf(2, values...)
	d.Decode(b, sel, func(row uint16, err *SyntaxError) { t.Error(row, err) })
	for i := range values {
		if got := render(b.Row(i)); got != want[i] {
			t.Fatalf("%d: %s: got %s, want %s", i, values[i], got, want[i])
		}
	}
}

// FuzzDecode compares with encoding/json: what is accepted, and what the wanted
// fields hold.
func FuzzDecode(f *testing.F) {
	for _, d := range differences {
		f.Add([]byte(d.value), "w", "x")
	}
	f.Add([]byte(`{"a":{"b":[1,2,{"c":"d\n"}]},"e":1.5e3,"f":-0.0}`), "a", "b")
	f.Add([]byte(`{"a":{"b":{"c":1},"b":"\ud83d\ude00"},"\u0061":null}`), "a", "b")
	f.Add([]byte(` [ "x" , { } , true ] `), "a", "b")
	f.Fuzz(func(t *testing.T, value []byte, key, inner string) {
		fields := []Field{{Path: []string{key}, Slot: 0}, {Path: []string{key, inner}, Slot: 1}, {Path: []string{inner}, Slot: 2}}
		valid := json.Valid(value) && !bytes.HasPrefix(value, []byte("\xef\xbb\xbf"))
		for _, cfg := range []connectors.FormatConfig{jsonFormat, strictFormat()} {
			d, err := NewDecoder(cfg, fields, true)
			if err != nil {
				t.Fatal(err)
			}
			// Twice, so that the second record is read with what the first one taught.
			b, sel := batchOf(3, string(value), string(value))
			var fault *SyntaxError
			ok := d.Decode(b, sel, func(_ uint16, err *SyntaxError) { fault = err })
			if len(ok) == 1 {
				t.Fatal("the same bytes are read in two ways")
			}
			if fault != nil {
				if fault.Offset > len(value) {
					t.Fatalf("offset %d of %d", fault.Offset, len(value))
				}
				if valid && json.Valid(bytes.ToValidUTF8(value, nil)) && len(bytes.ToValidUTF8(value, nil)) == len(value) {
					t.Fatalf("refused: %v", fault)
				}
				continue
			}
			if cfg.Options != nil && !valid {
				t.Fatal("strict takes what encoding/json refuses")
			}
			if valid {
				compareFields(t, b, value, key, inner)
			}
		}
	})
}

func compareFields(t *testing.T, b *connectors.Batch, value []byte, key, inner string) {
	t.Helper()
	top := lastFields(value)
	want := []string{top[key], lastFields([]byte(top[key]))[inner], top[inner]}
	for r := range 2 {
		for slot, w := range want {
			v := b.Row(r)[slot]
			if w == "" || v.Kind() == connectors.Absent {
				if w != "" || v.Kind() != connectors.Absent {
					t.Fatalf("slot %d holds %s, want %q", slot, show(v), w)
				}
				continue
			}
			sameJSON(t, v, w)
		}
	}
}

// lastFields are the fields of an object as written, the last one of each name.
func lastFields(b []byte) map[string]string {
	out := map[string]string{}
	fields, err := orderedFields(b)
	if err != nil {
		return out
	}
	for _, f := range fields {
		out[f.key] = f.value
	}
	return out
}

// sameJSON checks a value against its text as encoding/json reads it.
func sameJSON(t *testing.T, v connectors.Value, want string) {
	t.Helper()
	got, err := AppendValue(nil, v)
	if err != nil {
		t.Fatal(err)
	}
	switch want[0] {
	case '"':
		var a, b string
		if json.Unmarshal(got, &a) != nil || json.Unmarshal([]byte(want), &b) != nil || a != b || v.Text() != b {
			t.Fatalf("got %s, want %s", got, want)
		}
	case '{', '[':
		if string(got) != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	case 't', 'f', 'n':
		if string(got) != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	default:
		if !sameNumber(string(got), want) {
			t.Fatalf("got %s, want %s", got, want)
		}
	}
}
