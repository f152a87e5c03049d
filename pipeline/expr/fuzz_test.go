package expr

import (
	"testing"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
)

// FuzzExpressions looks for texts and records that make the compiler or the
// evaluation panic, run away or give a value that is not of the type found.
func FuzzExpressions(f *testing.F) {
	for _, fn := range Functions() {
		f.Add(fn.Example, sample)
	}
	for _, h := range hot {
		f.Add(h.text, h.rec)
	}
	for name, text := range bombs() {
		if len(text) < 2000 {
			f.Add(text, `{"name": "`+name+`"}`)
		}
	}
	for _, text := range []string{"n ?? i", "xs[1:][0]", "let a = 1; a", "if b { 1 } else { 2 }", "1 < i < 3", "m?.a?.[b]", "xs | filter(# > 1) | map(.a)", "{(s): 1}", "`raw`", "-i ** 2", "i not in xs", "#", "a.b.c()", "::len(xs)", "timestamp(i).Year()"} {
		f.Add(text, sample)
	}
	f.Fuzz(func(t *testing.T, text, rec string) {
		if v, err := format.ParseValue([]byte(rec), &connectors.Arena{}); err != nil || v.Kind() != connectors.Map {
			return
		}
		scope, b := record(t, rec)
		p, err := Compile(text, scope, Options{Limits: Limits{Steps: 10_000, Bytes: 1 << 20}})
		if err != nil {
			checkErrors(t, text, err)
			return
		}
		e := NewEnv()
		v, fault := p.Eval(e, b, 0)
		if fault != nil {
			if fault.Kind == "" || fault.Reason == "" || fault.Offset < 0 || fault.Offset+fault.Length > len(text) {
				t.Fatalf("%+v", fault)
			}
			return
		}
		if k := v.Kind(); k != connectors.Absent && !p.Type().Has(k) {
			t.Fatalf("%s is %s, not of the type %s", text, k, p.Type())
		}
		if k := v.Kind(); k == connectors.List || k == connectors.Map {
			if _, err := format.ParseValue(v.Raw(), &connectors.Arena{}); err != nil {
				t.Fatalf("%s gives invalid JSON %q: %v", text, v.Raw(), err)
			}
		}
		if len(e.stack) != 0 || len(e.scratch) != 0 {
			t.Fatalf("%s leaves %d values and %d bytes behind", text, len(e.stack), len(e.scratch))
		}
	})
}
