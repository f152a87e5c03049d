package expr

import (
	"testing"
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
