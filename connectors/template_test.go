package connectors

import (
	"reflect"
	"strings"
	"testing"
)

func TestTemplateIsTakenApart(t *testing.T) {
	for text, want := range map[string][]string{
		"":                          nil,
		"events":                    {"events"},
		"dt={date(ts)}/h={ hour }":  {"dt=", "`date(ts)`", "/h=", "`hour`"},
		"{{a}}{x}":                  {"{a}", "`x`"},
		`{m["}"]}{ {"a": 1}["a"] }`: {"`m[\"}\"]`", "`{\"a\": 1}[\"a\"]`"},
		`{x == '\'}' ? "b" : "c"}`:  {"`x == '\\'}' ? \"b\" : \"c\"`"},
	} {
		var tpl Template
		if err := tpl.UnmarshalConfig(text); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var got []string
		for _, p := range tpl.Parts {
			if p.Literal != "" {
				got = append(got, p.Literal)
			} else {
				got = append(got, "`"+p.Expr.Text+"`")
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: parts %q, want %q", text, got, want)
		}
	}
}

func TestTemplateFaultsAreNamed(t *testing.T) {
	for text, want := range map[string]string{"a}b": "without a {", "{a": "not closed", "a{ }": "no expression"} {
		var tpl Template
		if err := tpl.UnmarshalConfig(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", text, err, want)
		}
	}
}

func TestTemplateIsWrittenForARow(t *testing.T) {
	var tpl Template
	if err := tpl.UnmarshalConfig("a-{x}-b"); err != nil {
		t.Fatal(err)
	}
	tpl.Parts[1].Expr.Slot = 1
	b := &Batch{}
	b.Size(2, 2)
	b.Row(1)[1] = StringValue("v")
	rows := &Rows{Batch: b, Sel: []uint16{1}}
	got, err := tpl.Append(nil, rows, 0, func(dst []byte, v Value) ([]byte, error) { return append(dst, v.Text()...), nil })
	if err != nil || string(got) != "a-v-b" {
		t.Errorf("got %q, %v", got, err)
	}
}
