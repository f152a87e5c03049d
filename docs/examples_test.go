package docs

import (
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/pipeline/transform"
)

// described is a block of a pipeline file with what is said of it.
type described struct {
	kind, name, doc, example string
	config                   any
}

// reference finds a block by its kind and name.
func reference(kind, name string) (described, bool) {
	for _, d := range registered() {
		if d.kind == kind && d.name == name {
			return d, true
		}
	}
	if s, ok := transform.Lookup(name); ok && kind == "step" {
		return described{config: s.NewConfig()}, true
	}
	return described{}, false
}

// registered are all connectors and formats.
func registered() []described {
	var out []described
	for _, s := range connectors.Sources() {
		out = append(out, described{"source", s.Name, s.Doc, s.Example, s.NewConfig()})
	}
	for _, s := range connectors.Sinks() {
		out = append(out, described{"sink", s.Name, s.Doc, s.Example, s.NewConfig()})
	}
	for _, s := range connectors.Lookups() {
		out = append(out, described{"lookup", s.Name, s.Doc, s.Example, s.NewConfig()})
	}
	for _, s := range format.Formats() {
		out = append(out, described{"format", s.Name, s.Doc, s.Example, s.NewConfig()})
	}
	return out
}

// whole is the example in the block that it belongs to; empty for none.
func (d described) whole() string {
	if d.example == "" {
		return ""
	}
	switch d.kind {
	case "lookup":
		return "transforms:\n  - name: found\n    lookup:\n" + indent("      ", d.example) + "      on: {id: user_id}\n      as: found\n"
	case "format":
		return "source:\n  kafka: {brokers: [localhost:9092], topics: [events], format: " + strings.TrimSpace(d.example) + "}\n"
	}
	return d.kind + ":\n" + indent("  ", d.example)
}

func indent(prefix, text string) string {
	var b strings.Builder
	for line := range strings.Lines(strings.Trim(text, "\n") + "\n") {
		b.WriteString(prefix + line)
	}
	return b.String()
}

func TestEveryConnectorAndFormatHasAnExampleThatLoads(t *testing.T) {
	for _, d := range registered() {
		t.Run(d.kind+" "+d.name, func(t *testing.T) {
			if d.example == "" {
				t.Fatal("it has no Example in its Spec")
			}
			check(t, d.kind+" "+d.name, block{fragment: true, text: d.whole()}.whole())
		})
	}
}
