package pattern_test

import (
	"testing"
	"unicode/utf8"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/connectors/format/formattest"
	_ "github.com/sluice-etl/sluice/connectors/format/pattern"
)

// What is read is JSON; what is written is read back as it was, whatever stands between.
func FuzzPatterns(f *testing.F) {
	f.Add([]byte(`level=info msg="two \"words\""`), " ", "=")
	f.Add([]byte(`a==x--b==y`), "--", "==")
	f.Add([]byte(`{"k":"a-"}`), "--", "=")
	f.Add([]byte("10.0.0.1 200"), ";", ":")
	regex := formattest.Input(f, formattest.Config("regex", map[string]any{
		"pattern": `(?s)(?P<host>\S+) (?P<status>\d+)?(?P<took>[^ ]*)(?P<rest> .*)?`,
		"types":   []any{map[string]any{"status": "int"}, map[string]any{"took": "float"}},
	}))
	f.Fuzz(func(t *testing.T, b []byte, pairs, separator string) {
		if out, err := formattest.Read(regex, b); err == nil {
			valid(t, b, out)
		}
		if pairs == "" || separator == "" || pairs == separator || !utf8.ValidString(pairs+separator) {
			return
		}
		cfg := formattest.Config("key_value", map[string]any{"pairs": pairs, "separator": separator})
		in, out := formattest.Input(t, cfg), formattest.Output(t, cfg, formattest.Env(""))
		read, err := formattest.Read(in, b)
		if err != nil {
			return
		}
		valid(t, b, read)
		again, err := formattest.Write(out, read)
		if err != nil {
			return // a name that has no form
		}
		if got, err := formattest.Read(in, again); err != nil || got != read {
			t.Errorf("%s became %q and then %s, %v", read, again, got, err)
		}
	})
}

func valid(t *testing.T, b []byte, out string) {
	t.Helper()
	var arena connectors.Arena
	if _, err := format.ParseValue([]byte(out), &arena); err != nil {
		t.Fatalf("%q became %s: %v", b, out, err)
	}
}
