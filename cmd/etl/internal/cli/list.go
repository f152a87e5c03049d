package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
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
	Kind    string     `json:"kind"`
	Name    string     `json:"name"`
	Doc     string     `json:"doc"`
	Example string     `json:"example,omitempty"`
	Keys    []keyEntry `json:"keys,omitempty"`
}

// aggregateFunction is the kind of functions that stand in an aggregate's select.
const aggregateFunction = "aggregate function"

// keyEntry is one key of a block.
type keyEntry struct {
	Key      string   `json:"key"`
	Type     string   `json:"type"`
	Default  string   `json:"default,omitempty"`
	Required bool     `json:"required,omitempty"`
	Secret   bool     `json:"secret,omitempty"`
	Enum     []string `json:"enum,omitempty"`
	Doc      string   `json:"doc"`
}

func entries() []entry {
	var out []entry
	for _, s := range connectors.Sources() {
		out = append(out, entry{Kind: "source", Name: s.Name, Doc: s.Doc, Keys: keysOf(s.NewConfig())})
	}
	for _, s := range connectors.Sinks() {
		out = append(out, entry{Kind: "sink", Name: s.Name, Doc: s.Doc, Keys: keysOf(s.NewConfig())})
	}
	for _, s := range connectors.Lookups() {
		out = append(out, entry{Kind: "lookup", Name: s.Name, Doc: s.Doc, Keys: keysOf(s.NewConfig())})
	}
	for _, s := range transform.All() {
		out = append(out, entry{Kind: "transform", Name: s.Name, Doc: s.Doc, Keys: keysOf(s.NewConfig())})
	}
	for _, s := range format.Formats() {
		out = append(out, entry{Kind: "format", Name: s.Name, Doc: s.Doc, Keys: keysOf(s.NewConfig())})
	}
	for _, f := range expr.Functions() {
		out = append(out, entry{Kind: "function", Name: f.Signature, Doc: f.Doc, Example: f.Example})
	}
	for _, f := range expr.AggregateFunctions() {
		out = append(out, entry{Kind: aggregateFunction, Name: f.Signature, Doc: f.Doc, Example: f.Example})
	}
	return out
}

// keysOf describes a configuration's keys with the defaults that it holds.
func keysOf(config any) []keyEntry {
	v := reflect.ValueOf(config)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return nil
	}
	var out []keyEntry
	for _, f := range connectors.Fields(v.Elem().Type()) {
		k := keyEntry{Key: f.Key, Type: typeName(f.Type), Required: f.Required, Secret: f.Secret, Enum: f.Enum, Doc: f.Doc}
		if k.Key == "." {
			k.Key = "(the value itself)"
		}
		if field := v.Elem().Field(f.Index); !field.IsZero() && !f.Secret && simple(f.Type) {
			k.Default = fmt.Sprint(field.Interface())
		}
		out = append(out, k)
	}
	return out
}

func simple(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Bool, reflect.String, reflect.Int, reflect.Int32, reflect.Int64, reflect.Float64:
		return true
	}
	return false
}

// typeName is a type in the words of the pipeline language.
func typeName(t reflect.Type) string {
	switch reflect.Zero(t).Interface().(type) {
	case connectors.Expr:
		return "expression"
	case connectors.Template:
		return "text with {expressions}"
	case connectors.Assignments:
		return "map of expressions"
	case connectors.Keys:
		return "fields, or map of expressions"
	case connectors.TimeSpan:
		return "duration"
	case connectors.ByteSize:
		return "size"
	case connectors.FormatConfig:
		return "format"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return typeName(t.Elem())
	case reflect.Slice:
		return "list of " + typeName(t.Elem())
	case reflect.Map:
		return "map of " + typeName(t.Elem())
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "integer"
	case reflect.Float64:
		return "number"
	}
	return "block"
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
		if e.Example != "" {
			_, _ = fmt.Fprintf(w, "  example\t%s\t\n", e.Example)
		}
		for _, k := range e.Keys {
			note := ""
			if k.Required {
				note = " Required."
			}
			if k.Default != "" {
				note += " Default: " + k.Default + "."
			}
			if len(k.Enum) > 0 {
				note += " One of: " + strings.Join(k.Enum, ", ") + "."
			}
			_, _ = fmt.Fprintf(w, "  %s\t%s\t%s%s\n", k.Key, k.Type, k.Doc, note)
		}
	}
	return w.Flush()
}
