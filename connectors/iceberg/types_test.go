package iceberg

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	ice "github.com/apache/iceberg-go"
)

// typeCase is a type of columns: values as rows have them with what readers show, and
// values that have no place in it.
type typeCase struct {
	name    string
	typ     ice.Type
	takes   map[string]string
	refuses []string
}

func optional(id int, name string, typ ice.Type) ice.NestedField {
	return ice.NestedField{ID: id, Name: name, Type: typ}
}

var nestedType = &ice.StructType{FieldList: []ice.NestedField{
	{ID: 201, Name: "a", Type: ice.PrimitiveTypes.Int32, Required: true},
	optional(202, "b", &ice.ListType{ElementID: 203, Element: &ice.StructType{FieldList: []ice.NestedField{optional(204, "c", ice.DecimalTypeOf(38, 2))}}}),
}}

var typeCases = []typeCase{
	{"boolean", ice.PrimitiveTypes.Bool, map[string]string{`true`: `true`, `false`: `false`}, []string{`1`, `"true"`}},
	{"int", ice.PrimitiveTypes.Int32,
		map[string]string{`-2147483648`: `-2147483648`, `2147483647`: `2147483647`, `1.0`: `1`},
		[]string{`2147483648`, `-2147483649`, `1.5`, `"1"`, `{}`}},
	{"long", ice.PrimitiveTypes.Int64,
		map[string]string{`-9223372036854775808`: `-9223372036854775808`, `9223372036854775807`: `9223372036854775807`, `0`: `0`},
		[]string{`9223372036854775808`, `1e30`, `true`}},
	{"float", ice.PrimitiveTypes.Float32, map[string]string{
		`3.4028234663852886e38`: `"7f7fffff"`, `1.401298464324817e-45`: `"00000001"`, `0`: `"00000000"`, `-0.5`: `"bf000000"`,
		`"NaN"`: `"NaN"`, `"Infinity"`: `"7f800000"`, `"-Infinity"`: `"ff800000"`,
	}, []string{`3.5e38`, `"x"`}},
	{"double", ice.PrimitiveTypes.Float64, map[string]string{
		`1.7976931348623157e308`: `"7fefffffffffffff"`, `5e-324`: `"0000000000000001"`, `-1`: `"bff0000000000000"`,
		`"NaN"`: `"NaN"`, `"Infinity"`: `"7ff0000000000000"`, `"-Infinity"`: `"fff0000000000000"`,
	}, []string{`1e309`, `[]`}},
	{"decimal_int", ice.DecimalTypeOf(9, 2), map[string]string{`9999999.99`: `"9999999.99"`, `"-9999999.99"`: `"-9999999.99"`, `0`: `"0.00"`}, []string{`10000000`, `0.001`, `"NaN"`}},
	{"decimal_long", ice.DecimalTypeOf(18, 0), map[string]string{`-999999999999999999`: `"-999999999999999999"`}, []string{`1000000000000000000`, `0.5`}},
	{"decimal", ice.DecimalTypeOf(38, 10), map[string]string{
		`9999999999999999999999999999.9999999999`:  `"9999999999999999999999999999.9999999999"`,
		`-9999999999999999999999999999.9999999999`: `"-9999999999999999999999999999.9999999999"`,
		`"0.0000000001"`: `"0.0000000001"`,
	}, []string{`10000000000000000000000000000`, `0.00000000001`, `true`}},
	{"date", ice.PrimitiveTypes.Date,
		map[string]string{`"0001-01-01"`: `"0001-01-01"`, `"1969-12-31"`: `"1969-12-31"`, `"9999-12-31"`: `"9999-12-31"`},
		[]string{`"2026-02-30"`, `"10000-01-01"`, `true`}},
	{"time", ice.PrimitiveTypes.Time, map[string]string{`"00:00:00"`: `0`, `"23:59:59.999999"`: `86399999999`}, []string{`"24:00:00"`, `1`}},
	{"timestamp", ice.PrimitiveTypes.Timestamp, map[string]string{
		`"0001-01-01T00:00:00"`: `-62135596800000000`, `"1969-12-31T23:59:59.999999"`: `-1`, `"9999-12-31T23:59:59.999999"`: `253402300799999999`,
		`"1970-01-01T02:00:00+02:00"`: `7200000000`, `"1970-01-01T00:00:00.0000019"`: `1`, `"1969-12-31T23:59:59.9999995"`: `-1`,
	}, []string{`"2026-01-01T25:00:00"`, `"yesterday"`}},
	{"timestamptz", ice.PrimitiveTypes.TimestampTz, map[string]string{
		`"0001-01-01T00:00:00Z"`: `-62135596800000000`, `"1970-01-01T02:00:00+02:00"`: `0`, `"9999-12-31T23:59:59.999999Z"`: `253402300799999999`, `-1`: `-1000`,
	}, []string{`"2026-01-01T00:00:00"`, `"0001-01-01T00:00:00+01:00"`}},
	{"string", ice.PrimitiveTypes.String,
		map[string]string{`""`: `""`, `"ü😀"`: `"ü😀"`, `"\u0000\\\""`: `"\u0000\\\""`},
		[]string{`1`, "\"\xff\"", "\"ok\xc3\""}},
	{"uuid", ice.PrimitiveTypes.UUID, map[string]string{
		`"00000000-0000-0000-0000-000000000000"`: `"00000000-0000-0000-0000-000000000000"`,
		`"FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF"`: `"ffffffff-ffff-ffff-ffff-ffffffffffff"`,
	}, []string{`"x"`, `"00000000-0000-0000-0000-0000000000001"`}},
	{"fixed", ice.FixedTypeOf(4), map[string]string{`"AAAAAA=="`: `"AAAAAA=="`, `"/////w=="`: `"/////w=="`}, []string{`"AAA="`, `"AAAAAAA="`}},
	{"binary", ice.PrimitiveTypes.Binary, map[string]string{`""`: `""`, `"AP8="`: `"AP8="`}, []string{`"%"`, `1`}},
	{"list", &ice.ListType{ElementID: 301, Element: ice.PrimitiveTypes.Int32},
		map[string]string{`[]`: `[]`, `[1,null,-2147483648]`: `[1,null,-2147483648]`},
		[]string{`[2147483648]`, `{}`, `"[]"`}},
	{"lists", &ice.ListType{ElementID: 302, ElementRequired: true, Element: &ice.ListType{ElementID: 303, ElementRequired: true, Element: ice.PrimitiveTypes.String}},
		map[string]string{`[[],["","ü"]]`: `[[],["","ü"]]`},
		[]string{`[null]`, `[[null]]`, "[[\"\xff\"]]"}},
	{"map", &ice.MapType{KeyID: 304, KeyType: ice.PrimitiveTypes.String, ValueID: 305, ValueType: ice.PrimitiveTypes.Int64},
		map[string]string{`{}`: `[]`, `{"":0,"a":null}`: `[["",0],["a",null]]`},
		[]string{`{"a":"b"}`, `[]`}},
	{"map_of_ints", &ice.MapType{KeyID: 306, KeyType: ice.PrimitiveTypes.Int32, ValueID: 307, ValueType: ice.PrimitiveTypes.TimestampTz, ValueRequired: true},
		map[string]string{`{"-1":"1970-01-01T00:00:01Z","7":0}`: `[[-1,1000000],[7,0]]`},
		[]string{`{"x":0}`, `{"1":null}`, `{"2147483648":0}`}},
	{"struct", nestedType,
		map[string]string{`{"a":1}`: `{"a":1,"b":null}`, `{"a":1,"b":[{"c":0.5},{}]}`: `{"a":1,"b":[{"c":"0.50"},{"c":null}]}`},
		[]string{`{}`, `{"a":null}`, `{"a":1,"z":2}`, `{"a":1,"b":[{"c":0.001}]}`, `[]`}},
}

// allTypes makes a table with a column of every type.
func allTypes(t testing.TB) SinkConfig {
	t.Helper()
	c := localConfig(t)
	c.Create, c.Columns = false, nil
	fields := []ice.NestedField{{ID: 1, Name: "id", Type: ice.PrimitiveTypes.Int32, Required: true}}
	for i, tc := range typeCases {
		fields = append(fields, optional(i+2, tc.name, tc.typ))
	}
	createTable(t, c, ice.NewSchema(0, fields...))
	return c
}

// typesTable fills a table of every type with rows of every value of typeCases, null and
// nothing. It returns the rows as readers show them.
func typesTable(t testing.TB) (SinkConfig, []string) {
	t.Helper()
	c := allTypes(t)
	var rows []changedRow
	var want strings.Builder
	add := func(column, in, out string) {
		line := map[string]json.RawMessage{"id": json.RawMessage(fmt.Sprint(len(rows)))}
		for _, tc := range typeCases {
			line[tc.name] = json.RawMessage("null")
		}
		line[column] = json.RawMessage(out)
		text, err := json.Marshal(line)
		if err != nil {
			t.Fatal(err)
		}
		want.WriteString(string(text) + "\n")
		value := fmt.Sprintf(`{"id":%d`, len(rows))
		if column != "id" {
			value += fmt.Sprintf(`,%q:%s`, column, in)
		}
		rows = append(rows, changedRow{value: value + "}"})
	}
	for _, tc := range typeCases {
		for in, out := range tc.takes {
			add(tc.name, in, out)
		}
		add(tc.name, "null", "null")
	}
	add("id", "", fmt.Sprint(len(rows))) // nothing else
	d := drive(t, c, 1)
	if refused := d.write(0, rows...); len(refused) > 0 {
		t.Errorf("row %s is refused: %+v", rows[refused[0].Row].value, refused[0])
	}
	d.checkpoint()
	return c, sortedLines(t, want.String())
}

func TestEveryTypeIsReadBackAsItWasWritten(t *testing.T) {
	c, want := typesTable(t)
	sameRows(t, tableRows(t, c), want)
}

func sameRows(t testing.TB, got, want []string) {
	t.Helper()
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("the table has %s", line)
		}
	}
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("the table lacks %s", line)
		}
	}
	if len(got) != len(want) {
		t.Errorf("the table has %d rows, not %d", len(got), len(want))
	}
}

func TestValuesWithoutAPlaceAreRefusedWithTheirColumn(t *testing.T) {
	c := allTypes(t)
	d := drive(t, c, 1)
	for _, tc := range typeCases {
		for _, in := range tc.refuses {
			refused := d.write(0, changedRow{value: `{"id":1,"` + tc.name + `":` + in + `}`})
			named := len(refused) == 1 && (strings.Contains(refused[0].Reason, "column "+tc.name+":") || !utf8.ValidString(in) && strings.Contains(refused[0].Reason, "UTF-8"))
			if !named {
				t.Errorf("%s: %q is not refused as it should be: %+v", tc.name, in, refused)
			}
		}
	}
	for value, reason := range map[string]string{
		`{}`: "column id: there is no value", `{"id":null}`: "column id: there is no value",
		`{"id":1,"typo":2}`: "no column for the field typo", `[1]`: "no JSON object", `{"id":1`: "cannot be read", "": "tombstone",
	} {
		refused := d.write(0, changedRow{key: "1", value: value})
		if len(refused) != 1 || !strings.Contains(refused[0].Reason, reason) {
			t.Errorf("%s is not refused with %q: %+v", value, reason, refused)
		}
	}
	if refused := d.write(0, changedRow{value: `{"id":7,"int":7}`}); refused != nil {
		t.Errorf("%+v", refused)
	}
	d.checkpoint()
	if got := tableRows(t, c); len(got) != 1 || !strings.Contains(got[0], `"int":7`) {
		t.Errorf("beside refused rows the table got %q", got)
	}
}

func TestUnknownFieldsAreLeftOutOnRequest(t *testing.T) {
	c := localConfig(t)
	c.Columns = columnList(t, map[string]any{"id": "int"}, map[string]any{"at": []any{map[string]any{"x": "int?"}}})
	c.Unknown = unknownIgnore
	d := drive(t, c, 1)
	if refused := d.write(0, changedRow{value: `{"id":1,"typo":2,"at":{"x":3,"y":4}}`}); refused != nil {
		t.Errorf("%+v", refused)
	}
	d.checkpoint()
	sameRows(t, tableRows(t, c), sortedLines(t, `{"id":1,"at":{"x":3}}`))
}
