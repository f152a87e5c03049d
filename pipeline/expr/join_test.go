package expr_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
)

// joinScope knows all fields and remembers the paths that it was asked for.
type joinScope struct {
	types map[string]expr.Type
	paths []string
}

func (s *joinScope) Field(path []string) (expr.Ref, error) {
	name := strings.Join(path, ".")
	if !slices.Contains(s.paths, name) {
		s.paths = append(s.paths, name)
	}
	if name == "gone" || name == "left.gone" {
		return expr.Ref{}, errors.New("field \"gone\" is not there any more")
	}
	return expr.Ref{Slot: slices.Index(s.paths, name), Covered: len(path), Type: s.types[name]}, nil
}

func (s *joinScope) This() (int, error) { return expr.WholeRaw, nil }

func TestTheConditionOfAJoinIsTakenApart(t *testing.T) {
	for _, c := range []struct{ text, left, right, both string }{
		{`left.id == right.auction`, "id", "auction", ""},
		{`right.auction == left.id`, "id", "auction", ""},
		{`left.a == right.a && left.b.c == right["d e"]`, "a b.c", "a d e", ""},
		{`(left.a == right.a and lower(left.b) == right.b) && left.x > right.y`, "a b", "a b", "left.x right.y"},
		{`left.a == right.a && left.kind == "bid" && left.b == left.c`, "a", "a", "left.kind left.b left.c"},
		{`left.a == right.a && (left.b == right.b || right.c)`, "a", "a", "left.b right.b right.c"},
		{`left.a + 1 == right.a * 2 && left.a < right.a < left.z`, "a", "a", "left.a right.a left.z"},
		{`left.meta.key == right.meta.headers["h"]`, "", "", ""},
		{`left.a?.b == right.a && right.meta.offset > 1`, "a.b", "a", "right.meta.offset"},
		{`string(left) == right.a`, "", "a", ""},
	} {
		t.Run(c.text, func(t *testing.T) {
			l, r, both := &joinScope{}, &joinScope{}, &joinScope{}
			on, err := expr.CompileOn(c.text, l, r, both, expr.Options{Deterministic: true})
			if err != nil {
				t.Fatal(err)
			}
			if len(on.Left) == 0 || len(on.Left) != len(on.Right) {
				t.Fatalf("%d and %d keys", len(on.Left), len(on.Right))
			}
			for i := range on.Left { // each side's text is that side alone
				if side := on.Left[i].Text(); !strings.Contains(side, "left") || strings.Contains(side, "==") || !strings.Contains(on.Right[i].Text(), "right") {
					t.Errorf("the sides of an equality are %q and %q", side, on.Right[i].Text())
				}
			}
			got := []string{strings.Join(l.paths, " "), strings.Join(r.paths, " "), strings.Join(both.paths, " ")}
			if want := []string{c.left, c.right, c.both}; !slices.Equal(got, want) {
				t.Errorf("reads %q, want %q", got, want)
			}
			if (on.Rest != nil) != (c.both != "") {
				t.Errorf("rest is %v", on.Rest)
			}
		})
	}
}

func TestFaultsOfAConditionHaveTheirPlace(t *testing.T) {
	types := map[string]expr.Type{"n": expr.Number, "s": expr.Text}
	for _, c := range []struct{ text, want string }{
		{`left.a > right.a`, "0+16: there is no equality between the left and the right record; a join needs one such as `left.id == right.id`; further conditions follow after `&&`"},
		{`true && left.a == left.b`, "8+16: both sides of the equality are of the left record; a join needs one such as `left.id == right.id`; further conditions follow after `&&`"},
		{`right.a == right.b`, "0+18: both sides of the equality are of the right record; a join needs one such as `left.id == right.id`; further conditions follow after `&&`"},
		{`left.a == right.a || left.b == right.b`, "0+38: a condition with `||` gives no key to join by; an equality must hold for all pairs; put `||` behind one, as in `left.id == right.id && (… || …)`"},
		{`left.a - right.a == 0`, "0+21: a side of the equality is of both records; bring it into the form `expression of left == expression of right`"},
		{`id == right.id`, "0+2: `id` does not say of which record of the join it is; write `left.id` or `right.id`"},
		{`orders.id == right.id`, "0+6: `orders` does not say of which record of the join it is; the records are called left and right, whatever their inputs are called: write `left.id` or `right.id`, and for a field orders `left.orders.id` or `right.orders.id`"},
		{`lft.id == right.id`, "0+3: `lft` does not say of which record of the join it is; did you mean `left`?"},
		{`left.id == right.id && this.x`, "23+4: `this` does not say of which record of the join; write `left` or `right`"},
		{`left.id == right.id && meta.offset > 1`, "23+4: `meta` does not say of which record of the join; write `left.meta` or `right.meta`"},
		{`left.gone == right.id`, "0+9: field \"gone\" is not there any more"},
		{`left.n == right.s`, "0+17: number and string never match"},
		{`left.n == null`, "0+14: both sides of the equality are of the left record; a join needs one such as `left.id == right.id`; further conditions follow after `&&`"},
		{`left.a == right.a && right.b + "x"`, "21+13: a condition must be a bool, and right.b + \"x\" is string; compare it, as in `(right.b + \"x\") != \"\"`"},
		{`now() == right.a && left.a == right.a`, "0+5: now() is not allowed here"},
		{`left.a == right.a &&`, "19+1: the expression ends too early"},
		{`left.meta.nothing == right.a`, "0+17: meta has no `nothing`"},
		{`(let left = 1; left) == right.a`, "5+14: `left` is a record of the join, and no name for a variable"},
	} {
		t.Run(c.text, func(t *testing.T) {
			_, err := expr.CompileOn(c.text, &joinScope{types: types}, &joinScope{types: types}, &joinScope{}, expr.Options{Deterministic: true, Name: "on"})
			var all expr.Errors
			if !errors.As(err, &all) {
				t.Fatalf("error %v", err)
			}
			if got := fmt.Sprintf("%d+%d: %v", all[0].Offset, all[0].Length, all[0]); !strings.HasPrefix(got, c.want) {
				t.Errorf("\n got %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestBoundsOfAJoinAreMillisecondsOfTheLeftRecord(t *testing.T) {
	for _, c := range []struct {
		text string
		at   connectors.Value
		want int64
	}{
		{`left.at`, connectors.IntValue(5), 5},
		{`left.at`, connectors.StringValue("1970-01-01T00:00:01Z"), 1000},
		{`left.at - 1000`, connectors.IntValue(1500), 500},
		{`timestamp(left.at) + duration("1h")`, connectors.IntValue(0), 3600000},
		{`left.meta.timestamp`, connectors.NullValue(), 77},
	} {
		s := &joinScope{}
		p, err := expr.CompileTime(c.text, expr.LeftSide, s, expr.Options{Want: expr.Of(connectors.Int)})
		if err != nil {
			t.Fatalf("%s: %v", c.text, err)
		}
		b := &connectors.Batch{}
		b.Size(1, 1)
		b.Records[0].Time, b.Slots[0] = 77, c.at
		v, fault := p.Eval(expr.NewEnv(), b, 0)
		if fault != nil || v.Kind() != connectors.Int || v.Int() != c.want {
			t.Errorf("%s is %v (%v), want %d", c.text, v.Int(), fault, c.want)
		}
	}
	for text, want := range map[string]string{
		`right.at`: "only the left record is known here",
		`at`:       "`at` does not say of which record of the join it is; write `left.at`",
	} {
		if _, err := expr.CompileTime(text, expr.LeftSide, &joinScope{}, expr.Options{}); err == nil || err.Error() != want {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestResultsOfAJoinReadBothRecords(t *testing.T) {
	both := &joinScope{}
	p, err := expr.CompileBoth(`left.a + right.b.c + len(left.meta.topic)`, both, expr.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(both.paths, " "); got != "left.a right.b.c left.meta.topic" {
		t.Errorf("reads %s", got)
	}
	if _, ok := p.Slot(); ok {
		t.Error("is a slot")
	}
	if p, err = expr.CompileBoth(`right`, both, expr.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, ok := p.Slot(); !ok {
		t.Error("a whole record is no slot")
	}
}

func FuzzCompileOn(f *testing.F) {
	for _, text := range []string{`left.a == right.b && left.c > 1`, `left["a b"] == lower(right.meta.key)`, `let x = left.a; x == right.a`, `left == right`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		on, err := expr.CompileOn(text, &joinScope{}, &joinScope{}, &joinScope{}, expr.Options{Deterministic: true})
		if err == nil && (len(on.Left) == 0 || len(on.Left) != len(on.Right)) {
			t.Fatalf("%q gives %d and %d keys", text, len(on.Left), len(on.Right))
		}
	})
}
