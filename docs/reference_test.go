package docs

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/spec"
	"github.com/sluice-etl/sluice/pipeline/transform"
)

var update = flag.Bool("update", false, "write the generated tables into the pages")

// A generated table stands between a comment that names it and one that ends it.
var generated = regexp.MustCompile(`(?s)(<!-- (keys: [a-z0-9_ ]+|transforms|functions|aggregate functions) -->\n)(.*?)(<!-- end -->)`)

func TestTablesAreThoseOfTheProgram(t *testing.T) {
	shown := map[string]bool{}
	for _, page := range []string{"language.md", "functions.md", "connectors.md", "formats.md", "checkpoints.md"} {
		before, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		after := generated.ReplaceAllStringFunc(string(before), func(part string) string {
			m := generated.FindStringSubmatch(part)
			shown[m[2]] = true
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
		if !shown["keys: source "+s.Name] {
			t.Errorf("connectors.md has no table for the source %s", s.Name)
		}
	}
	for _, s := range connectors.Sinks() {
		if !shown["keys: sink "+s.Name] {
			t.Errorf("connectors.md has no table for the sink %s", s.Name)
		}
	}
	for _, s := range connectors.Lookups() {
		if !shown["keys: lookup "+s.Name] {
			t.Errorf("connectors.md has no table for the lookup %s", s.Name)
		}
	}
	for _, s := range format.Formats() {
		if !shown["keys: format "+s.Name] {
			t.Errorf("formats.md has no table for the format %s", s.Name)
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
		return keyTable(described{config: &p.Checkpoint}), nil
	}
	kind := strings.Fields(strings.TrimPrefix(name, "keys: "))
	if len(kind) == 2 {
		if e, ok := reference(kind[0], kind[1]); ok {
			return keyTable(e), nil
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

// keyTable is the doc of a block, an example and its keys with their defaults.
func keyTable(e described) string {
	var b strings.Builder
	if e.doc != "" {
		b.WriteString(e.doc + "\n\n")
	}
	if text := e.whole(); text != "" {
		b.WriteString("```yaml fragment\n" + text + "```\n\n")
	}
	keys := connectors.KeysOf(e.config)
	if len(keys) == 0 {
		return b.String() + "It has no keys.\n"
	}
	b.WriteString("| key | type | meaning | default |\n| --- | --- | --- | --- |\n")
	for _, k := range keys {
		if k.Path == "." {
			continue
		}
		meaning := k.Doc
		if len(k.Enum) > 0 {
			meaning += " One of `" + strings.Join(k.Enum, "`, `") + "`."
		}
		if k.Secret {
			meaning += " Secret."
		}
		def := ""
		switch {
		case k.Required:
			def = "required"
		case k.Default != "":
			def = "`" + k.Default + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.Path, k.Type, strings.ReplaceAll(meaning, "|", `\|`), def)
	}
	return b.String()
}
