package expr

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"

	exprlang "github.com/expr-lang/expr"
	"pgregory.net/rapid"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
)

// grammar draws expressions of which expr-lang and we think alike: of known
// types, on numbers that do not overflow, with ASCII text.
type grammar struct {
	t     *rapid.T
	depth int
	inner bool // within a predicate over ints
}

func (g *grammar) pick(n int) int {
	if g.depth <= 0 {
		return rapid.IntRange(0, 1).Draw(g.t, "leaf")
	}
	return rapid.IntRange(0, n-1).Draw(g.t, "form")
}

func (g *grammar) sub() *grammar { return &grammar{g.t, g.depth - 1, g.inner} }

func (g *grammar) one(list ...string) string { return rapid.SampledFrom(list).Draw(g.t, "one") }

func (g *grammar) predicate() string {
	in := &grammar{g.t, min(g.depth-1, 1), true}
	return in.boolean()
}

func (g *grammar) integer() string {
	s := g.sub()
	switch g.pick(12) {
	case 0:
		if g.inner {
			return "#"
		}
		return g.one("i", "j", "z")
	case 1:
		return strconv.Itoa(rapid.IntRange(0, 9).Draw(g.t, "int"))
	case 2, 3:
		return "(" + s.integer() + g.one(" + ", " - ", " * ", " % ") + s.integer() + ")"
	case 4:
		return "len(" + g.one(s.text(), s.list()) + ")"
	case 5:
		return "sum(" + s.list() + ")"
	case 6:
		return "count(" + s.list() + ", " + s.predicate() + ")"
	case 7:
		return "(" + s.boolean() + " ? " + s.integer() + " : " + s.integer() + ")"
	case 8:
		return "(n ?? " + s.integer() + ")"
	case 9:
		return g.one("-", "abs(") + "(" + s.integer() + ")"
	case 10:
		return "indexOf(" + s.text() + ", " + s.text() + ")"
	}
	return "int(" + s.float() + ")"
}

func (g *grammar) float() string {
	s := g.sub()
	switch g.pick(6) {
	case 0:
		return g.one("f", "h")
	case 1:
		return g.one("0.5", "2.25", "1e3")
	case 2, 3:
		return "(" + s.float() + g.one(" + ", " - ", " * ") + g.one(s.float(), s.integer()) + ")"
	case 4:
		return "(" + s.integer() + " / " + s.integer() + ")"
	}
	return g.one("floor(", "ceil(", "round(", "abs(", "float(") + s.float() + ")"
}

func (g *grammar) boolean() string {
	s := g.sub()
	switch g.pick(11) {
	case 0:
		return g.one("true", "b", "c", "(n == null)", "(i != nil)")
	case 1:
		if g.inner {
			return "(# " + g.one("<", ">=", "==", "!=") + " 3)"
		}
		return g.one("(i > 3)", "(s == \"abc\")", "(f <= 1.5)")
	case 2:
		return "(" + g.one(s.integer(), s.float()) + g.one(" < ", " <= ", " > ", " >= ", " == ", " != ") + g.one(s.integer(), s.float()) + ")"
	case 3:
		return "(" + s.text() + g.one(" < ", " == ", " != ", " contains ", " startsWith ", " endsWith ", " not contains ") + s.text() + ")"
	case 4:
		return "(" + s.boolean() + g.one(" && ", " || ", " and ", " or ", " == ") + s.boolean() + ")"
	case 5:
		return "!(" + s.boolean() + ")"
	case 6:
		return "(" + s.integer() + g.one(" in ", " not in ") + s.list() + ")"
	case 7:
		return g.one("all(", "any(", "none(", "one(") + s.list() + ", " + s.predicate() + ")"
	case 8:
		return "(" + s.text() + " matches " + g.one(`"^a"`, `"[bc]+$"`, `"x|y"`) + ")"
	case 9:
		return "(" + s.integer() + " in " + strconv.Itoa(rapid.IntRange(-2, 3).Draw(g.t, "low")) + "..5)"
	}
	return "(" + s.boolean() + " ? " + s.boolean() + " : " + s.boolean() + ")"
}

func (g *grammar) text() string {
	s := g.sub()
	switch g.pick(10) {
	case 0:
		return g.one("s", "u", "m.t", "this_.k")
	case 1:
		return g.one(`"abc"`, `"a,b"`, `""`, `"X y"`)
	case 2, 3:
		return "(" + s.text() + " + " + s.text() + ")"
	case 4:
		return g.one("lower(", "upper(", "trim(") + s.text() + ")"
	case 5:
		return s.text() + fmt.Sprintf("[%d:%d]", rapid.IntRange(-3, 3).Draw(g.t, "from"), rapid.IntRange(-3, 3).Draw(g.t, "to"))
	case 6:
		return "replace(" + s.text() + ", " + s.text() + ", " + s.text() + ")"
	case 7:
		return "join(split(" + s.text() + ", \",\"), \"-\")"
	case 8:
		return "(let v = " + s.text() + "; v + v)"
	}
	return g.one("trimPrefix(", "trimSuffix(") + s.text() + ", " + s.text() + ")"
}

func (g *grammar) list() string {
	s := g.sub()
	switch g.pick(9) {
	case 0:
		return g.one("xs", "ys")
	case 1:
		return g.one("[1, 2, 3]", "1..4", "[5, 1, 5]")
	case 2:
		return "[" + s.integer() + ", " + s.integer() + "]"
	case 3:
		return "filter(" + s.list() + ", " + s.predicate() + ")"
	case 4:
		in := &grammar{g.t, min(g.depth-1, 1), true}
		return "map(" + s.list() + ", " + in.integer() + ")"
	case 5:
		return g.one("sort(", "reverse(", "uniq(", "flatten(") + s.list() + ")"
	case 6:
		return "concat(" + s.list() + ", " + s.list() + ")"
	case 7:
		return s.list() + fmt.Sprintf("[%d:]", rapid.IntRange(-2, 2).Draw(g.t, "from"))
	}
	return "sortBy(" + s.list() + ", -#)"
}

func (g *grammar) any() string {
	switch rapid.IntRange(0, 5).Draw(g.t, "type") {
	case 0:
		return g.integer()
	case 1:
		return g.float()
	case 2:
		return g.text()
	case 3:
		return g.list()
	case 4:
		return "{a: " + g.text() + ", b: [" + g.integer() + ", " + g.boolean() + "]}"
	}
	return g.boolean()
}

// alike brings values into a form in which the differences that we want do not
// show: numbers are doubles, since ours stay ints where expr-lang makes floats.
func alike(v any) any {
	switch v := v.(type) {
	case int:
		return float64(v)
	case float64:
		if v == 0 {
			return 0.0 // also of minus zero
		}
		return v
	case map[string]any:
		for k := range v {
			v[k] = alike(v[k])
		}
	}
	if r := reflect.ValueOf(v); r.IsValid() && r.Kind() == reflect.Slice {
		list := make([]any, r.Len())
		for i := range list {
			list[i] = alike(r.Index(i).Interface())
		}
		return list
	}
	return v
}

func TestWeAgreeWithTheVirtualMachine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := rapid.IntRange(-5, 9)
		text := rapid.StringMatching(`[abcXY, ]{0,5}`)
		rec := fmt.Sprintf(`{"i": %d, "j": %d, "z": 0, "f": %v.5, "h": 0.25, "s": %q, "u": %q, "b": %t, "c": %t, "n": null, "xs": [3, %d, 1], "ys": [], "m": {"t": %q}, "this_": {"k": "key"}}`,
			whole.Draw(t, "i"), whole.Draw(t, "j"), whole.Draw(t, "f"), text.Draw(t, "s"), text.Draw(t, "u"), rapid.Bool().Draw(t, "b"), rapid.Bool().Draw(t, "c"), whole.Draw(t, "x"), text.Draw(t, "t"))
		g := &grammar{t: t, depth: rapid.IntRange(0, 4).Draw(t, "depth")}
		compareWithMachine(t, g.any(), rec)
	})
}

func compareWithMachine(t *rapid.T, text, rec string) {
	v, err := format.ParseValue([]byte(rec), &connectors.Arena{})
	if err != nil {
		t.Fatal(err)
	}
	env := format.ToAny(v, &connectors.Arena{}).(map[string]any)
	theirs, theirErr := exprlang.Eval(text, env)
	scope, b := record(&testing.T{}, rec)
	p, err := Compile(text, scope, Options{})
	if err != nil {
		if theirErr == nil && !strings.Contains(err.Error(), "is so for every record") {
			t.Fatalf("%s over %s: we refuse it: %v; the machine gives %v", text, rec, err, theirs)
		}
		return
	}
	ours, fault := p.Eval(NewEnv(), b, 0)
	switch {
	case fault != nil && theirErr != nil:
	case fault != nil:
		if f, ok := theirs.(float64); fault.Kind == KindOverflow || fault.Kind == KindZero || ok && (math.IsInf(f, 0) || math.IsNaN(f)) {
			return // expr-lang divides by zero and wraps
		}
		t.Fatalf("%s over %s: we fail: %v; the machine gives %v", text, rec, fault.Reason, theirs)
	case theirErr != nil:
		t.Fatalf("%s over %s: we give a %s; the machine fails: %v", text, rec, ours.Kind(), theirErr)
	default:
		if !p.Type().Has(ours.Kind()) {
			t.Fatalf("%s: the value is %s, not of the type %s", text, ours.Kind(), p.Type())
		}
		l, r := alike(format.ToAny(ours, &b.Arena)), alike(theirs)
		if !reflect.DeepEqual(l, r) {
			t.Fatalf("%s over %s: we give %v, the machine %v", text, rec, l, r)
		}
	}
}
