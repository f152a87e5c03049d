package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/transform"
)

func (a *app) listCommand() *cobra.Command {
	return &cobra.Command{
		Use:       "list [connectors|transforms|functions|formats|NAME]",
		Short:     "Lists what this program holds, or the keys of one connector, transform or format",
		Example:   "  etl list\n  etl list kafka\n  etl list functions",
		Args:      cobra.MaximumNArgs(1),
		ValidArgs: []string{"connectors", "transforms", "functions", "formats"},
		RunE: func(_ *cobra.Command, args []string) error {
			what := ""
			if len(args) > 0 {
				what = args[0]
			}
			return a.list(what)
		},
	}
}

// entry is one thing that the program holds.
type entry struct {
	Kind      string              `json:"kind"`
	Name      string              `json:"name"`
	Doc       string              `json:"doc"`
	Example   string              `json:"example,omitempty"`
	Guarantee string              `json:"guarantee,omitempty"`
	Keys      []connectors.KeyDoc `json:"keys,omitempty"`
}

// aggregateFunction is the kind of functions that stand in an aggregate's select.
const aggregateFunction = "aggregate function"

func entries() []entry {
	var out []entry
	add := func(kind, name, doc, example string, config any) {
		out = append(out, entry{Kind: kind, Name: name, Doc: doc, Example: example, Keys: connectors.KeysOf(config)})
	}
	for _, s := range connectors.Sources() {
		add("source", s.Name, s.Doc, s.Example, s.NewConfig())
	}
	for _, s := range connectors.Sinks() {
		add("sink", s.Name, s.Doc, s.Example, s.NewConfig())
		out[len(out)-1].Guarantee = string(promised(s))
	}
	for _, s := range connectors.Lookups() {
		add("lookup", s.Name, s.Doc, s.Example, s.NewConfig())
	}
	for _, s := range transform.All() {
		add("transform", s.Name, s.Doc, "", s.NewConfig())
	}
	for _, s := range format.Formats() {
		add("format", s.Name, s.Doc, s.Example, s.NewConfig())
	}
	for _, f := range expr.Functions() {
		add("function", f.Signature, f.Doc, f.Example, nil)
	}
	for _, f := range expr.AggregateFunctions() {
		add(aggregateFunction, f.Signature, f.Doc, f.Example, nil)
	}
	return out
}

func (a *app) list(what string) error {
	var chosen []entry
	detail := false
	for _, e := range entries() {
		switch what {
		case "":
			if e.Kind != "function" && e.Kind != aggregateFunction {
				chosen = append(chosen, e)
			}
		case "functions":
			if e.Kind == "function" || e.Kind == aggregateFunction {
				chosen = append(chosen, e)
			}
		case "connectors":
			if e.Kind == "source" || e.Kind == "sink" || e.Kind == "lookup" {
				chosen = append(chosen, e)
			}
		case e.Kind + "s":
			chosen = append(chosen, e)
		default:
			if e.Name == what || strings.HasPrefix(e.Name, what+"(") {
				chosen, detail = append(chosen, e), true
			}
		}
	}
	if len(chosen) == 0 {
		return usageError(errors.New("there is nothing called " + what + "; see etl list"))
	}
	if a.json {
		return json.NewEncoder(a.out).Encode(chosen)
	}
	return a.printEntries(chosen, detail)
}

func (a *app) printEntries(chosen []entry, detail bool) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	for _, e := range chosen {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", e.Kind, e.Name, e.Doc)
		if !detail {
			continue
		}
		if e.Example != "" && len(e.Keys) == 0 {
			_, _ = fmt.Fprintf(w, "  example\t%s\t\n", e.Example)
		}
		for _, k := range e.Keys {
			_, _ = fmt.Fprintf(w, "  %s\t%s\t%s%s\n", keyName(k), k.Type, k.Doc, keyNotes(k))
		}
	}
	return w.Flush()
}
