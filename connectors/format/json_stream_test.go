package format

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-etl/sluice/connectors"
)

// object draws an object of few names, in any order, with duplicates, two
// spellings, and white space or none.
func object(t *rapid.T) string {
	names := rapid.SliceOfN(rapid.SampledFrom([]string{`"a"`, `"b"`, `"c"`, `"d"`, `"e\""`, `"\u0061"`, `"a long name of no interest"`, `"f"`}), 0, 6).Draw(t, "names")
	space := rapid.SampledFrom([]string{"", "", " "}).Draw(t, "space")
	values := []string{"1", `"x"`, `[1, 2]`, `{"a":null}`, `12.50`, `"a\n"`, `123456789012`}
	parts := make([]string, len(names))
	for i, n := range names {
		parts[i] = n + ":" + space + rapid.SampledFrom(values).Draw(t, "value")
	}
	return "{" + strings.Join(parts, ","+space) + "}"
}

// What a decoder and an encoder remember of one record must not show in another.
func TestRecordsOfAStreamDoNotInfluenceEachOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := layoutFrom(rapid.SliceOfN(rapid.Byte(), 3, 18).Draw(t, "layout"))
		spans := rapid.Bool().Draw(t, "spans")
		fields := []Field{{Path: []string{"a"}, Slot: 3}, {Path: []string{"d", "a"}, Slot: 4}}
		d, err := NewDecoder(jsonFormat, fields, spans)
		if err != nil {
			t.Fatal(err)
		}
		e, err := NewEncoder(jsonFormat, &l, EncoderOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pool := rapid.SliceOfN(rapid.Custom(object), 1, 4).Draw(t, "objects")
		for range rapid.IntRange(1, 3).Draw(t, "batches") {
			values := rapid.SliceOfN(rapid.SampledFrom(pool), 1, 12).Draw(t, "records")
			checkStream(t, d, e, l, values)
		}
	})
}

func checkStream(t *rapid.T, d Decoder, e Encoder, l connectors.Layout, values []string) {
	b, sel := batchOf(5, values...)
	d.Decode(b, sel, func(_ uint16, err *SyntaxError) { t.Fatal(err) })
	for r := range sel {
		b.Row(r)[0], b.Row(r)[1] = connectors.StringValue("new"), connectors.IntValue(7)
	}
	rows := &connectors.Rows{Batch: b, Sel: sel}
	e.Encode(rows, func(_ int, err error) { t.Fatal(err) })
	for r, value := range values {
		top := lastFields([]byte(value))
		for slot, want := range map[int]string{3: top["a"], 4: lastFields([]byte(top["d"]))["a"]} {
			got, _ := AppendValue(nil, b.Row(r)[slot])
			if want == "" {
				want = "null"
			}
			if string(got) != strings.Replace(want, "12.50", "12.5", 1) {
				t.Fatalf("slot %d of %s holds %s", slot, value, got)
			}
		}
		before, err := orderedFields([]byte(value))
		if err != nil {
			t.Fatal(err)
		}
		want := model(before, l, func(slot int) string { return [...]string{`"new"`, "7", "null"}[slot] })
		got, err := orderedFields(rows.Values[r])
		if err != nil || fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
			t.Fatalf("%s became %s, want %q", value, rows.Values[r], want)
		}
	}
}

func TestSpansTakeBoundedMemory(t *testing.T) {
	d, err := NewDecoder(jsonFormat, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	huge := "{" + strings.Repeat(`"a":1,`, 200_000) + `"a":1}`
	large := "{" + strings.Repeat(`"a":1,`, 40_000) + `"a":1}`
	b, sel := batchOf(0, append(slices.Repeat([]string{large}, 20), huge)...)
	d.Decode(b, sel, func(_ uint16, err *SyntaxError) { t.Error(err) })
	if n := cap(b.Scan); n > 4*maxScanWords {
		t.Errorf("%d words are kept", n)
	}
}

func TestRecordsWithVeryManyFields(t *testing.T) {
	const n = 8_000
	parts := make([]string, 0, 2*n)
	for i := range n {
		parts = append(parts, fmt.Sprintf(`"field%d":%d`, i, i), `"again":1`)
	}
	raw := "{" + strings.Join(parts, ",") + "}"
	l := edits(set("field7999", 0), rename("again", "once"), set("new", 0))
	for _, spans := range []bool{true, false} {
		b, sel := batchOf(1, raw, `{"again":2}`, raw)
		for r := range sel {
			b.Row(r)[0] = connectors.StringValue("x")
		}
		got := encodeAll(t, b, sel, l, false, spans)
		want := strings.ReplaceAll(raw, `,"again":1`, "")
		want = strings.Replace(want, `"field0":0`, `"field0":0,"once":1`, 1)
		want = strings.Replace(want, `"field7999":7999}`, `"field7999":"x","new":"x"}`, 1)
		if !slices.Equal(got, []string{want, `{"once":2,"field7999":"x","new":"x"}`, want}) {
			t.Errorf("spans %v: something else came out", spans)
		}
	}
}
