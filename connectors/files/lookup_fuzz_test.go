package files

import (
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	keys "github.com/sluice-etl/sluice/pipeline/state"
)

// Whatever a file holds, it is refused or gives rows that are JSON objects.
func FuzzLookupFile(f *testing.F) {
	for _, text := range []string{"{\"id\":1}\n{\"id\":\"a\",\"x\":[]}", "id,n\n1,2\n\"a\"\"b\",\n", "\ufeffid\n", "id,n\n\"", "{}", "id;n\n1;2"} {
		f.Add(text, true)
		f.Add(text, false)
	}
	f.Fuzz(func(t *testing.T, text string, csv bool) {
		c := newLookupConfig().(*LookupConfig)
		if csv {
			c.Format, c.Types = formatCSV, map[string]string{"n": typeInt}
		}
		r := tableReader{config: c, columns: []string{"id"}, append: keys.AppendKey}
		if err := r.read(strings.NewReader(text)); err != nil {
			return
		}
		var arena connectors.Arena
		for i := range r.table.entries {
			e := &r.table.entries[i]
			key := r.table.chunks[e.chunk][e.at : e.at+e.key]
			v, err := format.ParseValue(r.table.Row(key), &arena)
			if err != nil || v.Kind() != connectors.Map {
				t.Fatalf("row %q: %v", r.table.Row(key), err)
			}
		}
	})
}
