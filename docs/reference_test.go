package docs

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/spec"
	"github.com/sluice-etl/sluice/pipeline/transform"
)

var update = flag.Bool("update", false, "write the generated tables into the pages")

// A generated table stands between a comment that names it and one that ends it.
var generated = regexp.MustCompile(`(?s)(<!-- (keys: [a-z ]+|transforms|functions|aggregate functions) -->\n)(.*?)(<!-- end -->)`)

func TestTablesAreThoseOfTheProgram(t *testing.T) {
	described := map[string]bool{}
	for _, page := range []string{"language.md", "functions.md", "connectors.md", "checkpoints.md"} {
		before, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		after := generated.ReplaceAllStringFunc(string(before), func(part string) string {
			m := generated.FindStringSubmatch(part)
			described[m[2]] = true
			table, err := table(m[2])
			if err != nil {
				t.Errorf("%s: %v", page, err)
				return part
			}
			return m[1] + table + m[4]
		})
		if *update && after != string(before) {
			err = os.WriteFile(page, []byte(after), 0o644)
		} else if after != string(before) {
			err = errors.New("its tables are out of date: go test ./docs -update")
		}
		if err != nil {
			t.Errorf("%s: %v", page, err)
		}
	}
	for _, s := range connectors.Sources() {
		if !described["keys: source "+s.Name] {
			t.Errorf("connectors.md has no table for the source %s", s.Name)
		}
	}
	for _, s := range connectors.Sinks() {
		if !described["keys: sink "+s.Name] {
			t.Errorf("connectors.md has no table for the sink %s", s.Name)
		}
	}
	for _, s := range connectors.Lookups() {
		if !described["keys: lookup "+s.Name] {
			t.Errorf("connectors.md has no table for the lookup %s", s.Name)
		}
	}
}

// table is the text of the table so named.
func table(name string) (string, error) {
	if name == "transforms" {
		return transformTable(), nil
	}
	if name == "functions" {
		return functionTable(expr.Functions()), nil
	}
	if name == "aggregate functions" {
		return functionTable(expr.AggregateFunctions()), nil
	}
	if name == "keys: checkpoint" {
		p, _ := spec.Parse("empty", []byte("pipeline: empty\n"), spec.Options{})
		return keyTable("", &p.Checkpoint), nil
	}
	kind := strings.Fields(strings.TrimPrefix(name, "keys: "))
	if len(kind) == 2 && kind[0] == "source" {
		if s, ok := connectors.LookupSource(kind[1]); ok {
			return keyTable(s.Doc, s.NewConfig()), nil
		}
	}
	if len(kind) == 2 && kind[0] == "sink" {
		if s, ok := connectors.LookupSink(kind[1]); ok {
			return keyTable(s.Doc, s.NewConfig()), nil
		}
	}
	if len(kind) == 2 && kind[0] == "lookup" {
		if s, ok := connectors.LookupLookup(kind[1]); ok {
			return keyTable(s.Doc, s.NewConfig()), nil
		}
	}
	if len(kind) == 2 && kind[0] == "step" {
		if s, ok := transform.Lookup(kind[1]); ok {
			return keyTable("", s.NewConfig()), nil
		}
	}
	return "", fmt.Errorf("nothing is called %q", name)
}

func transformTable() string {
	var b strings.Builder
	b.WriteString("| key | does |\n| --- | --- |\n")
	for _, s := range transform.All() {
		fmt.Fprintf(&b, "| `%s` | %s |\n", s.Name, s.Doc)
	}
	return b.String()
}

func functionTable(list []expr.Function) string {
	var b strings.Builder
	b.WriteString("| function | does | example | gives |\n| --- | --- | --- | --- |\n")
	cell := strings.NewReplacer("|", `\|`, "\n", " ")
	for _, f := range list {
		fmt.Fprintf(&b, "| `%s` | %s | `%s` | `%s` |\n", cell.Replace(f.Signature), cell.Replace(f.Doc), cell.Replace(f.Example), cell.Replace(f.Result))
	}
	return b.String()
}

// keyTable lists the keys of a configuration with their defaults.
func keyTable(doc string, config any) string {
	var b strings.Builder
	if doc != "" {
		b.WriteString(doc + "\n\n")
	}
	var rows strings.Builder
	writeKeys(&rows, "", reflect.ValueOf(config).Elem())
	if rows.Len() == 0 {
		return b.String() + "It has no keys.\n"
	}
	b.WriteString("| key | meaning | default |\n| --- | --- | --- |\n" + rows.String())
	return b.String()
}

func writeKeys(b *strings.Builder, prefix string, v reflect.Value) {
	for _, f := range connectors.Fields(v.Type()) {
		if f.Key == "" || f.Key == "." {
			continue
		}
		field := v.Field(f.Index)
		key := prefix + f.Key
		if field.Kind() == reflect.Struct && nested(field.Type()) {
			writeKeys(b, key+".", field)
			continue
		}
		meaning := f.Doc
		if len(f.Enum) > 0 {
			meaning += " One of `" + strings.Join(f.Enum, "`, `") + "`."
		}
		def := defaultText(field)
		if f.Required {
			def = "required"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", key, strings.ReplaceAll(meaning, "|", `\|`), def)
	}
}

// nested reports whether a type is a block of keys.
func nested(t reflect.Type) bool {
	fields := connectors.Fields(t)
	return len(fields) > 0 && fields[0].Key != ""
}

// defaultText is a default as a file would have it; empty for none.
func defaultText(v reflect.Value) string {
	if v.IsZero() {
		return ""
	}
	var text string
	switch x := v.Interface().(type) {
	case connectors.FormatConfig:
		text = x.Name
	case fmt.Stringer:
		text = x.String()
	default:
		if v.Kind() == reflect.Struct {
			return "" // its meaning tells
		}
		text = fmt.Sprint(x)
	}
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return "`" + text + "`"
}
