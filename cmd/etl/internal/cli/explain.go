package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/spec"
)

// explained are the kinds of things that explain takes, in the order of its answers.
var explained = []string{"source", "sink", "lookup", "format", "transform"}

func (a *app) explainCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "explain [source|sink|lookup|format|transform] NAME",
		Short: "Tells what a connector, format or transform does, every key of it, and an example",
		Long: "Tells what a source, sink, lookup, format or transform does, what a sink promises, every key with its type and default, and of all but transforms an " +
			"example that runs once its addresses are yours. A name that several kinds have is explained for each of them, unless the kind is named before it.",
		Example: "  etl explain kafka\n  etl explain sink kafka\n  etl explain format csv\n  etl explain --json sink file",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(_ *cobra.Command, args []string) error {
			kind := ""
			if len(args) == 2 {
				kind = strings.TrimSuffix(args[0], "s")
			}
			return a.explain(kind, args[len(args)-1])
		},
	}
}

func (a *app) explain(kind, name string) error {
	if kind != "" && !slices.Contains(explained, kind) {
		return usageError(fmt.Errorf("there is no kind %q: write %s, or the name alone", kind, strings.Join(explained, ", ")))
	}
	var chosen []entry
	names := []string{}
	for _, e := range entries() {
		if !slices.Contains(explained, e.Kind) || kind != "" && kind != e.Kind {
			continue
		}
		if names = append(names, e.Name); e.Name == name {
			chosen = append(chosen, e)
		}
	}
	if len(chosen) == 0 {
		return unknownName(kind, name, names)
	}
	slices.SortStableFunc(chosen, func(x, y entry) int {
		return slices.Index(explained, x.Kind) - slices.Index(explained, y.Kind)
	})
	if a.json {
		enc := json.NewEncoder(a.out)
		enc.SetEscapeHTML(false)
		return enc.Encode(chosen)
	}
	for i := range chosen {
		if i > 0 {
			_, _ = fmt.Fprintln(a.out)
		}
		if err := writeExplained(a.out, &chosen[i]); err != nil {
			return err
		}
	}
	return nil
}

func unknownName(kind, name string, names []string) error {
	if kind == "" {
		kind = "connector, format or transform"
	}
	text := fmt.Sprintf("there is no %s %q", kind, name)
	if near := connectors.Nearest(name, names); near != "" {
		return usageError(fmt.Errorf("%s: did you mean %s?", text, near))
	}
	slices.Sort(names)
	return usageError(fmt.Errorf("%s; there is %s", text, strings.Join(slices.Compact(names), ", ")))
}

// writeExplained writes all that is known of one thing.
func writeExplained(out io.Writer, e *entry) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n\n", e.Kind, e.Name)
	writeWrapped(&b, "  ", e.Doc)
	if e.Guarantee != "" {
		fmt.Fprintf(&b, "\n  promises: %s\n", guaranteeText[connectors.Guarantee(e.Guarantee)])
	}
	if len(e.Keys) > 0 {
		b.WriteString("\nKeys\n\n")
	} else {
		b.WriteString("\nIt has no keys.\n")
	}
	for _, k := range e.Keys {
		fmt.Fprintf(&b, "  %s  (%s)\n", keyName(k), k.Type)
		writeWrapped(&b, "      ", k.Doc+keyNotes(k))
	}
	if e.Example != "" {
		b.WriteString("\nExample\n\n" + indented("  ", e.exampleText()))
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// exampleText is the example with the key that it stands below.
func (e *entry) exampleText() string {
	switch e.Kind {
	case "source", "sink":
		return e.Kind + ":\n" + indented("  ", e.Example)
	case "lookup":
		return "transforms:\n  - name: found\n    lookup:\n" + indented("      ", e.Example) + "      on: {id: user_id}\n      as: found\n"
	case "format":
		return "format: " + strings.TrimSpace(e.Example) + "\n"
	}
	return e.Example
}

// indented is the text with a prefix before every line.
func indented(prefix, text string) string {
	var b strings.Builder
	for line := range strings.Lines(strings.Trim(text, "\n") + "\n") {
		if strings.TrimSpace(line) != "" {
			b.WriteString(prefix)
		}
		b.WriteString(line)
	}
	return b.String()
}

// textWidth is where lines of explanations end.
const textWidth = 100

// writeWrapped writes a paragraph in lines of textWidth.
func writeWrapped(b *strings.Builder, prefix, text string) {
	line := prefix
	for word := range strings.FieldsSeq(text) {
		if len(line)+len(word) > textWidth && line != prefix {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			line = prefix
		}
		line += word + " "
	}
	b.WriteString(strings.TrimRight(line, " ") + "\n")
}

func keyName(k connectors.KeyDoc) string {
	if k.Path == "." {
		return "(the value itself)"
	}
	return k.Path
}

// keyNotes is what there is to say of a key beside its doc.
func keyNotes(k connectors.KeyDoc) string {
	note := ""
	if k.Required {
		note += " Required."
	}
	if len(k.Enum) > 0 {
		note += " One of: " + strings.Join(k.Enum, ", ") + "."
	}
	if k.Default != "" {
		note += " Default: " + k.Default + "."
	}
	if k.Secret {
		note += " Secret: it is shown nowhere; write ${VARIABLE} or ${file:/path}."
	}
	return note
}

// promised is the guarantee of a sink as its example sets it up; empty where that cannot be told.
func promised(s connectors.SinkSpec) connectors.Guarantee {
	text := "pipeline: example\nsource: {generate: {kind: bid}}\nsink:\n" + indented("  ", s.Example)
	p, err := spec.Parse("example", []byte(text), spec.Options{Env: exampleVariable})
	if err.HasErrors() || len(p.Sinks) != 1 || p.Sinks[0].Config == nil {
		return ""
	}
	sink, made := s.New(p.Sinks[0].Config)
	if made != nil {
		return ""
	}
	defer func() { _ = sink.Close() }()
	return sink.Guarantee()
}

// exampleVariable stands in for whatever variable an example reads.
func exampleVariable(string) (string, bool) { return "example", true }
