package expr

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-etl/sluice/connectors"
)

func TestMatchesInLongTextAreThoseOfTheLibrary(t *testing.T) {
	patterns := []string{"", "a", "a*", "x.*z|x", `\b`, `\bä`, "^a", "(?m)^.", "(?i)B(c)?", "(a)|(b)", "$", `\Aab|b`, "a??", "(?m)$", `\B`, "é|z?"}
	rapid.Check(t, func(t *rapid.T) {
		re, err := newPattern(rapid.SampledFrom(patterns).Draw(t, "pattern"))
		if err != nil {
			t.Fatal(err)
		}
		part := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "B", "c", "x", "z", " ", "\n", "ä", "é", "\xff"}), 1, 40).Draw(t, "text")
		text := strings.Repeat(strings.Join(part, ""), 1+regexShort/len(part))
		e := NewEnv()
		e.limits = DefaultLimits
		e.steps = 1 << 40
		var got [][]int
		if !e.matches(&site{}, re, text, func(m []int) bool { got = append(got, m); return true }) {
			t.Fatal(e.err)
		}
		want := re.FindAllStringSubmatchIndex(text, -1)
		if !slices.EqualFunc(got, want, slices.Equal) {
			t.Fatalf("%d matches of %q, the library finds %d", len(got), re, len(want))
		}
	})
}

func TestMatchesAreBoundedWhereEachGoesThroughTheRest(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for _, text := range []string{`replace_all(f, "x.*z|x", "")`, `extract_all(f, "x.*z|x")`, `f matches "(.{0,1000}y){0}.{0,1000}(.{0,900})z"`} {
		t.Run(text, func(t *testing.T) {
			p, err := Compile(text, oneField{}, Options{Limits: Limits{Steps: 200_000}})
			if err != nil {
				t.Fatal(err)
			}
			b := &connectors.Batch{}
			b.Size(1, 1)
			b.Slots[0] = connectors.StringValue(long)
			if _, fault := p.Eval(NewEnv(), b, 0); fault == nil || fault.Kind != KindLimit {
				t.Errorf("fault %+v, want one of kind %s", fault, KindLimit)
			}
		})
	}
}

// oneField has every field in slot 0.
type oneField struct{}

func (oneField) Field([]string) (Ref, error) { return Ref{Covered: 1}, nil }
func (oneField) This() (int, error)          { return WholeRaw, nil }
