package format

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/sluice-etl/sluice/connectors"
)

// model applies edits to the fields of an object in the plainest way.
func model(fields []field, l connectors.Layout, slot func(int) string) []field {
	if l.Empty {
		fields = nil
	}
	fields = slices.Clone(fields)
	for _, e := range l.Edits {
		at := slices.IndexFunc(fields, func(f field) bool { return f.key == e.Name })
		switch e.Kind {
		case connectors.EditSet:
			if at < 0 {
				fields = append(fields, field{e.Name, slot(e.Slot)})
				continue
			}
			fields[at].value = slot(e.Slot)
			fields = without(fields, e.Name, at)
		case connectors.EditDrop:
			fields = without(fields, e.Name, -1)
		case connectors.EditKeep:
			fields = slices.DeleteFunc(fields, func(f field) bool { return !slices.Contains(e.Names, f.key) })
		case connectors.EditRename:
			if at < 0 || e.Name == e.To {
				continue
			}
			for _, f := range fields {
				if f.key == e.Name {
					fields[at].value = f.value
				}
			}
			fields = without(fields, e.Name, at)
			fields[at].key = "\x00"
			fields = without(fields, e.To, -1)
			fields[slices.IndexFunc(fields, func(f field) bool { return f.key == "\x00" })].key = e.To
		}
	}
	return fields
}

// without takes out the fields of a name but for the one at keep.
func without(fields []field, name string, keep int) []field {
	i := -1
	return slices.DeleteFunc(fields, func(f field) bool { i++; return f.key == name && i != keep })
}

var modelNames = []string{"a", "b", "c", "d", `e"`}

// layoutFrom reads a layout off some bytes.
func layoutFrom(code []byte) connectors.Layout {
	l := connectors.Layout{}
	if len(code) > 0 && code[0] == 0xFF {
		l.Empty = true
	}
	for len(code) >= 3 && len(l.Edits) < 12 {
		name := modelNames[int(code[1])%len(modelNames)]
		other := modelNames[int(code[2])%len(modelNames)]
		switch code[0] % 4 {
		case 0:
			l.Edits = append(l.Edits, set(name, int(code[2])%3))
		case 1:
			l.Edits = append(l.Edits, drop(name))
		case 2:
			l.Edits = append(l.Edits, keep(name, other, "a"))
		case 3:
			l.Edits = append(l.Edits, rename(name, other))
		}
		code = code[3:]
	}
	return l
}

// FuzzEncode compares the encoder with the model: the record, edited, holds the
// same fields in the same order, with untouched values as they were written.
func FuzzEncode(f *testing.F) {
	f.Add([]byte(`{"a":1.10,"b":"x","a":[1, 2],"e\"":{}}`), []byte{0, 0, 0, 3, 0, 1, 1, 2, 0}, "text\n", false)
	f.Add([]byte(`{"\u0061":1,"c":null}`), []byte{0xFF, 0, 0, 0, 1, 1, 2, 0, 1}, "\xff", true)
	f.Add([]byte(` { } `), []byte{3, 0, 1, 0, 2, 2}, "", true)
	f.Add([]byte("{\"a\":1,\n\"b\":2}"), []byte{3, 0, 1, 3, 1, 0, 0, 0, 1}, "ü", true)
	f.Fuzz(func(t *testing.T, value, code []byte, text string, lines bool) {
		l := layoutFrom(code)
		before, err := orderedFields(value)
		if err != nil || !utf8.Valid(value) || l.Untouched() {
			return
		}
		slots := []connectors.Value{connectors.StringValue(text), connectors.IntValue(-7), {}}
		want := model(before, l, func(slot int) string {
			out, err := AppendValue(nil, slots[slot])
			if err != nil {
				t.Fatal(err)
			}
			return string(out)
		})
		for _, spans := range []bool{true, false} {
			// The empty object in between makes the encoder change its program.
			b, sel := batchOf(3, string(value), string(value), `{}`, string(value))
			for r := range sel {
				copy(b.Row(r), slots)
			}
			got := encodeAll(t, b, sel, l, lines, spans)
			if got[0] != got[1] || got[1] != got[3] {
				t.Fatalf("the same record became %q, %q and %q", got[0], got[1], got[3])
			}
			checkAgainst(t, got[0], want, lines)
		}
	})
}

func checkAgainst(t *testing.T, got string, want []field, lines bool) {
	t.Helper()
	if !json.Valid([]byte(got)) {
		t.Fatalf("no JSON: %q", got)
	}
	after, err := orderedFields([]byte(got))
	if err != nil {
		t.Fatal(err)
	}
	if lines {
		if hasLineBreak([]byte(got)) {
			t.Fatalf("a line break in %q", got)
		}
		for i := range want {
			text := []byte(want[i].value)
			lineBreaks(text)
			want[i].value = string(text)
		}
	}
	if fmt.Sprintf("%q", after) != fmt.Sprintf("%q", want) {
		t.Fatalf("got  %q\nwant %q", after, want)
	}
}
