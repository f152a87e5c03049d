package spec

import (
	"testing"
)

// TestValuesAreReadByYAML12 pins what a value in a file is, also where the parser
// underneath has its own view.
func TestValuesAreReadByYAML12(t *testing.T) {
	tests := []struct {
		name, yaml string
		kind       kind
		text       string
	}{
		{"text", "k: hello world", textNode, "hello world"},
		{"yes is text", "k: yes", textNode, "yes"},
		{"on is text", "k: on", textNode, "on"},
		{"n is text", "k: n", textNode, "n"},
		{"true", "k: true", boolNode, "true"},
		{"quoted true", "k: 'true'", textNode, "true"},
		{"null", "k: ~", nullNode, "~"},
		{"nothing", "k:", nullNode, ""},
		{"int", "k: -12", intNode, "-12"},
		{"octal", "k: 0o17", intNode, "0o17"},
		{"leading zero is decimal", "k: 010", intNode, "010"},
		{"hex", "k: 0xfF", intNode, "0xfF"},
		{"beyond 64 bits", "k: 99999999999999999999", floatNode, "99999999999999999999"},
		{"underscores are text", "k: 1_000", textNode, "1_000"},
		{"sexagesimal is text", "k: 00:30", textNode, "00:30"},
		{"date is text", "k: 2026-01-31", textNode, "2026-01-31"},
		{"float", "k: 1e3", floatNode, "1e3"},
		{"version stays as written", "k: 1.10", floatNode, "1.10"},
		{"infinity", "k: -.inf", floatNode, "-.inf"},
		{"address", "k: localhost:9092", textNode, "localhost:9092"},
		{"address in braces", "k: {k: [localhost:9092, 1:2]}", textNode, "localhost:9092"},
		{"URL in braces", "k: {k: [http://a:80/b?c#d]}", textNode, "http://a:80/b?c#d"},
		{"ternary without a blank", "k: {k: [a ? b :c]}", textNode, "a ? b :c"},
		{"hash within a word", "k: a#b", textNode, "a#b"},
		{"comment", "k: a #b", textNode, "a"},
		{"comment after two lines", "k: a\n  b\n   # c\nz: 1", textNode, "a b"},
		{"literal", "k: |\n  a\n    b\n\n  c\n", textNode, "a\n  b\n\nc\n"},
		{"literal without the last break", "k: |-\n  a\n", textNode, "a"},
		{"literal with an indentation", "k: |2\n    a\n", textNode, "  a\n"},
		{"folded", "k: >-\n  a\n  b\n\n  c\n", textNode, "a b\nc"},
		{"folded at the end of the file", "k: >-\n  a\n  b", textNode, "a b"},
		{"single", "k: 'it''s'", textNode, "it's"},
		{"double", `k: "a\tb\u00e9\x41\\"`, textNode, "a\tbéA\\"},
		{"double over two lines", "k: \"a\n  b \\\n  c\"", textNode, "a b c"},
		{"windows", "k: a\r\nz: b\r\n", textNode, "a"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, _ := Parse("x.yaml", []byte(tt.yaml), Options{})
			if p.root == nil {
				t.Fatal(p.Diagnostics())
			}
			n := p.root.get("k")
			if n.kind == mapNode {
				n = n.get("k").items[0]
			}
			if n.kind != tt.kind || n.text != tt.text {
				t.Errorf("got kind %d, %q; want kind %d, %q", n.kind, n.text, tt.kind, tt.text)
			}
		})
	}
}
