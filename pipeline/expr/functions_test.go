package expr

import (
	"slices"
	"strings"
	"testing"

	"github.com/expr-lang/expr/builtin"
)

func TestEveryFunctionsExampleIsTrue(t *testing.T) {
	for _, f := range Functions() {
		t.Run(f.Name, func(t *testing.T) {
			if got := eval(t, f.Example, `{}`); got != f.Result {
				t.Errorf("%s\n got %s\nwant %s", f.Example, got, f.Result)
			}
			if f.Doc == "" || f.Signature == "" || functions[f.Name] == nil && loops[f.Name].run == nil {
				t.Errorf("%+v is incomplete", f)
			}
		})
	}
	for name := range loops {
		found := false
		for _, f := range loopDocs {
			found = found || f.Name == name
		}
		if !found {
			t.Errorf("%s is not described", name)
		}
	}
}

func TestEveryBuiltinOfExprLangIsThere(t *testing.T) {
	var machine, missing []string
	for _, name := range builtin.Names {
		switch {
		case foreign(name):
			machine = append(machine, name)
		case functions[name] == nil && loops[name].run == nil:
			missing = append(missing, name)
		}
	}
	slices.Sort(machine)
	if got := strings.Join(machine, " "); got != "bitand bitnand bitnot bitor bitshl bitshr bitushr bitxor splitAfter" {
		t.Errorf("the machine runs %s; say so in the package's documentation", got)
	}
	if got := strings.Join(missing, " "); got != "timezone" {
		t.Errorf("refused are %s", got)
	}
}

func TestFieldsMayBeCalledAsFunctionsAre(t *testing.T) {
	check(t, `{"count": 3, "date": "d", "len": 2, "max": {"min": 1}, "nulls": null}`, [][2]string{
		{`count + len`, "5"},
		{`date + string(count)`, `"d3"`},
		{`max.min + max(1, len)`, "3"},
		{`map([1], count + #)`, "[4]"},
		{`let len = 7; len`, "7"},
		{`{count: count, null: nulls}`, `{"count":3,"null":null}`},
	})
}
