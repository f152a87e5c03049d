package expr

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// bombs are texts that would exhaust the stack, the memory or the time of a
// process without limits. They must be refused or fail, quickly.
func bombs() map[string]string {
	r := strings.Repeat
	return map[string]string{
		"parentheses":          r("(", 20_000) + "1" + r(")", 20_000),
		"brackets":             r("[", 20_000) + r("]", 20_000),
		"maps":                 r("{a:", 10_000) + "1" + r("}", 10_000),
		"calls":                r("abs(", 10_000) + "1" + r(")", 10_000),
		"nots":                 r("!", 60_000) + "true",
		"words of not":         r("not ", 15_000) + "true",
		"minuses":              r("-", 60_000) + "1",
		"question marks":       r("?", 60_000),
		"conditions":           r("true?1:", 9_000) + "1",
		"conditions in front":  r("true?", 9_000) + "1" + r(":1", 9_000),
		"coalesces":            "1" + r("??1", 20_000),
		"powers":               "2" + r("**2", 20_000),
		"sums":                 "i" + r("+i", 30_000),
		"ands":                 "b" + r("&&b", 20_000),
		"members":              "m" + r(".a", 30_000),
		"indexes":              r("xs[", 10_000) + "0" + r("]", 10_000),
		"lets":                 r("let a=1;", 7_000) + "1",
		"ifs":                  r("if b{1}else ", 5_000) + "{1}",
		"sequences":            r("1;", 30_000) + "1",
		"pipes":                "i" + r("|abs()", 10_000),
		"predicates":           r("map(xs,", 5_000) + "#" + r(")", 5_000),
		"shared comparisons":   r("(1<(", 60) + "i" + r(")<9?1:0)", 60),
		"shared conditions":    r("(", 100) + "b" + r("?:b)", 100),
		"list of ranges":       "[" + r("1..1000000,", 4_000) + "1]",
		"text too long":        `"` + r("a", 70_000) + `"`,
		"comments":             r("/* */", 10_000) + "1",
		"open string":          `"` + r("a", 10_000),
		"regex of repetitions": `s matches "` + r("(a{500})", 500) + `"`,
		"regex too large":      `s matches "((a{500}){500}){500}"`,
		"null byte":            "\x00",
		"not UTF-8":            "s == \"\xff\"",
		"surrogates":           `"\ud800"`,
		"large number":         r("9", 5_000),
		"large float":          "1e999999",
		"large key":            "{(" + r("s+", 5_000) + "s): 1}",
	}
}

func TestNoTextBlowsTheCompiler(t *testing.T) {
	for name, text := range bombs() {
		t.Run(name, func(t *testing.T) {
			scope, b := record(t, sample)
			p, err := Compile(text, scope, Options{})
			if err != nil {
				checkErrors(t, text, err)
				return
			}
			if _, fault := p.Eval(NewEnv(), b, 0); fault != nil && fault.Kind == "" {
				t.Error(fault)
			}
		})
	}
}

func checkErrors(t testing.TB, text string, err error) {
	t.Helper()
	var all Errors
	if !errors.As(err, &all) || len(all) == 0 {
		t.Fatalf("the error %v is no list of faults", err)
	}
	for _, e := range all {
		if e.Msg == "" || e.Offset < 0 || e.Length < 0 || e.Offset+e.Length > len(text) {
			t.Fatalf("fault %+v is outside of the text of %d bytes", e, len(text))
		}
	}
}

func TestNoRecordBlowsTheEvaluation(t *testing.T) {
	long := strings.Repeat("a", 1<<18)
	list := "[" + strings.Repeat("1,", 50_000) + "1]"
	deep := strings.Repeat("[", 900) + strings.Repeat("]", 900)
	rec := fmt.Sprintf(`{"n": 1000000000, "k": 100000, "long": %q, "list": %s, "deep": %s, "evil": %q, "s": "ab"}`, long, list, deep, strings.Repeat("(a*)*", 100))
	for _, text := range []string{
		`1..n`,
		`filter(1..n, # > 5)`,
		`all(1..k, all(1..k, # > 0))`,
		`map(1..k, map(1..k, #))`,
		`repeat(s, n)`,
		`repeat(long, k)`,
		`pad_left(s, n)`,
		`replace(long, "a", long)`,
		`replace(long, "", long)`,
		`replace_all(long, "a", long)`,
		`replace_all(long, "(a)", repeat("$1", 1000))`,
		`reduce(1..100, #acc + #acc, s)`,
		`reduce(1..k, [#acc], 1)`,
		`reduce(1..k, concat(#acc, #acc), [1])`,
		`join(map(1..k, long))`,
		`map(1..k, this)`,
		`any(1..n, long == long + "")`,
		`any(1..k, long contains "b")`,
		`any(1..k, long matches "(a|b)*c")`,
		`any(1..k, long matches evil)`,
		`any(1..k, "x" in list)`,
		`any(1..k, len(list) < 0)`,
		`any(1..k, list[-1] == 2)`,
		`any(1..k, this.n < 0)`,
		`any(1..k, lower(long) == s)`,
		`any(1..k, long[5:] == s)`,
		`any(1..k, sha256(long) == s)`,
		`any(1..k, list != map(list, #))`,
		`any(1..k, is_ip(long))`,
		`any(1..k, url_host(long) == s)`,
		`uniq(1..k)`,
		`sortBy(list, -#) | sort() | reverse() | uniq() | toJSON() | split("")`,
		`map(1..k, toJSON(deep))`,
		`map(1..k, flatten([deep]))`,
		`split(long, "")`,
		`extract_all(long, "")`,
		`groupBy(1..k, long)`,
		`map(1..k, parse_json(to_json(list)))`,
		`bitand(n, len(splitAfter(long, "")))`,
		`median(list, list, 1..k)`,
	} {
		t.Run(text, func(t *testing.T) {
			scope, b := record(t, rec)
			p, err := Compile(text, scope, Options{Limits: Limits{Steps: 100_000, Bytes: 1 << 20}})
			if err != nil {
				t.Fatal(err)
			}
			_, fault := p.Eval(NewEnv(), b, 0)
			if fault != nil && fault.Kind != KindLimit {
				t.Errorf("it fails otherwise than by a limit: %s", fault.Reason)
			}
		})
	}
}

func TestALimitIsAnErrorThatSaysWhich(t *testing.T) {
	scope, b := record(t, `{"n": 100000000}`)
	p, err := Compile(`len(map(1..n, # * 2))`, scope, Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, fault := p.Eval(NewEnv(), b, 0)
	if fault == nil || fault.Kind != KindLimit || fault.Reason != "the expression makes more than 16777216 bytes" {
		t.Errorf("got %+v", fault)
	}
	if text := p.Text()[fault.Offset : fault.Offset+fault.Length]; text != "1..n" {
		t.Errorf("the position is that of %q", text)
	}
}
