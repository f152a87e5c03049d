package expr

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// typed is a scope that knows types and nested paths.
type typed map[string]Ref

func (s typed) Field(path []string) (Ref, error) {
	for n := len(path); n > 0; n-- {
		if ref, ok := s[strings.Join(path[:n], ".")]; ok {
			ref.Covered = n
			return ref, nil
		}
	}
	return Ref{}, &Error{Msg: "there is no `" + path[0] + "`", Help: "ask"}
}

func (s typed) This() (int, error) { return 0, errors.New("no whole value here") }

func rows(values ...[]connectors.Value) *connectors.Batch {
	b := &connectors.Batch{}
	b.Size(len(values), len(values[0]))
	for i, v := range values {
		copy(b.Row(i), v)
	}
	return b
}

func mustCompile(t testing.TB, text string, s Scope, o Options) *Program {
	t.Helper()
	p, err := Compile(text, s, o)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return p
}

func TestFilterKeepsRowsAndReportsTheOthers(t *testing.T) {
	b := rows(
		[]connectors.Value{connectors.IntValue(5)}, []connectors.Value{connectors.IntValue(50)},
		[]connectors.Value{{}}, []connectors.Value{connectors.StringValue("x")}, []connectors.Value{connectors.FloatValue(10.5)},
	)
	p := mustCompile(t, `price > 10`, typed{"price": {Slot: 0}}, Options{Want: Bool, Name: "filter"})
	var faults []string
	kept := p.Filter(NewEnv(), b, []uint16{0, 1, 2, 3, 4}, func(row uint16, err *EvalError) {
		faults = append(faults, string('0'+rune(row))+" "+err.Kind+" "+p.Text()[err.Offset:err.Offset+err.Length])
	})
	if !slices.Equal(kept, []uint16{1, 4}) || !slices.Equal(faults, []string{"2 null price", "3 type price > 10"}) {
		t.Errorf("kept %v, faults %q", kept, faults)
	}
}

func TestANullConditionSuggestsFalse(t *testing.T) {
	b := rows([]connectors.Value{{}})
	p := mustCompile(t, `ok`, typed{"ok": {Slot: 0}}, Options{Want: Bool})
	p.Filter(NewEnv(), b, []uint16{0}, func(_ uint16, err *EvalError) {
		if err.Reason != "there is no field ok in the record, so it is null and cannot be used as a condition; write `ok ?? false` to give it a value" {
			t.Error(err.Reason)
		}
	})
}

func TestFillWritesTheSlotOfRowsThatHaveAValue(t *testing.T) {
	b := rows([]connectors.Value{connectors.IntValue(2), {}}, []connectors.Value{connectors.StringValue("x"), {}}, []connectors.Value{connectors.FloatValue(0.5), {}})
	p := mustCompile(t, `a * 2`, typed{"a": {Slot: 0}}, Options{})
	failed := 0
	ok := p.Fill(NewEnv(), b, []uint16{0, 1, 2}, 1, func(uint16, *EvalError) { failed++ })
	if !slices.Equal(ok, []uint16{0, 2}) || failed != 1 || b.Row(0)[1].Int() != 4 || b.Row(2)[1].Float() != 1 || b.Row(1)[1].Kind() != connectors.Absent {
		t.Errorf("ok %v, failed %d, slots %v", ok, failed, b.Slots)
	}
}

func TestAnotherTypeThanWantedIsAnError(t *testing.T) {
	scope := typed{"a": {Slot: 0}}
	if _, err := Compile(`a + "x"`, scope, Options{Want: Number, Name: "amount"}); err == nil || err.Error() != "`amount` must be number, and this is string" {
		t.Error(err)
	}
	p := mustCompile(t, `a`, scope, Options{Want: Text})
	_, fault := p.Eval(NewEnv(), rows([]connectors.Value{connectors.IntValue(1)}), 0)
	if fault == nil || fault.Reason != "a is an int, but must be string" {
		t.Error(fault)
	}
	_, fault = p.Eval(NewEnv(), rows([]connectors.Value{{}}), 0)
	if fault == nil || fault.Kind != KindNull {
		t.Error(fault)
	}
	if _, fault = mustCompile(t, `a`, scope, Options{Want: Text.Nullable()}).Eval(NewEnv(), rows([]connectors.Value{{}}), 0); fault != nil {
		t.Error(fault)
	}
}

func TestAPathIsNullWhereverItsSlotEnds(t *testing.T) {
	for text, want := range map[string]string{`{"b": {"c": 7}}`: "7", `{"b": 5}`: "null", `{}`: "null", `{"b": {"c": null}}`: "null", `{"b": {"c": 1, "c": 2}}`: "2"} {
		b := rows([]connectors.Value{connectors.MapValue([]byte(text))})
		p := mustCompile(t, `a.b.c`, typed{"a": {Slot: 0}}, Options{})
		v, fault := p.Eval(NewEnv(), b, 0)
		if fault != nil || (want == "null") != v.IsNull() || !v.IsNull() && v.Int() != int64(want[0]-'0') {
			t.Errorf("%s: %v %v", text, v, fault)
		}
	}
	p := mustCompile(t, `a.b.c + a.b["d"] + x["y"].z`, typed{"a.b": {Slot: 0}, "x": {Slot: 0}}, Options{})
	if got := p.Fields(); len(got) != 3 || strings.Join(got[1], "/") != "a/b/d" || strings.Join(got[2], "/") != "x/y/z" {
		t.Errorf("%v", got)
	}
}

func TestDeclaredTypesAreChecked(t *testing.T) {
	scope := typed{"i": {Slot: 0, Type: Of(connectors.Int)}, "s": {Slot: 0, Type: Text}, "m": {Slot: 0, Type: Of(connectors.Map)}, "maybe": {Slot: 0, Type: Of(connectors.Int).Nullable()}}
	for text, want := range map[string]string{
		`i + s`:                    "`+` does not take int and string; string(x) makes text of a value, int(x) and float(x) a number of text",
		`i && true`:                "a condition must be a bool, and i is int; compare it, as in `i != 0`",
		`i.x`:                      "i is int and has no field `x`",
		`lower(i)`:                 "lower() takes string for `text`, and i is int; it is lower(text string) string",
		`s > 1`:                    "`>` does not compare string with int",
		`nope`:                     "there is no `nope`; ask",
		`this`:                     "no whole value here",
		`i == s`:                   "int and string are never equal",
		`maybe == s`:               "int or null and string are never equal but for null",
		`filter(m, true)`:          "filter() goes through a list, and m is map",
		`s[1.5]`:                   "a member is chosen by a string or an int, and 1.5 is float",
		`nope + i * s + lowerr(i)`: "there is no `nope`; ask\n`*` does not take int and string\nno function is called `lowerr`; did you mean `lower`?",
	} {
		_, err := Compile(text, scope, Options{})
		if err == nil || err.Error() != want {
			t.Errorf("%s\n got %v\nwant %s", text, err, want)
		}
	}
	for text, want := range map[string]string{
		`i + 1`: "int", `i / 2`: "float", `s + "x"`: "string", `maybe ?? 1.5`: "int or float", `i > 1 ? s : null`: "string or null", `m.x`: "any",
		`i > 1`: "bool", `maybe`: "int or null", `abs(i)`: "int", `[i]`: "list", `{a: i}`: "map", `timestamp(i) - timestamp(s)`: "duration",
	} {
		if got := mustCompile(t, text, scope, Options{}).Type().String(); got != want {
			t.Errorf("%s is %s, not %s", text, got, want)
		}
	}
}

func TestAValueThatBreaksItsDeclaredTypeIsAnError(t *testing.T) {
	p := mustCompile(t, `lower(s)`, typed{"s": {Slot: 0, Type: Text}}, Options{})
	if _, fault := p.Eval(NewEnv(), rows([]connectors.Value{connectors.IntValue(99)}), 0); fault == nil || fault.Kind != KindType {
		t.Errorf("%v", fault)
	}
}

func TestADefaultStandsInForAFieldThatItsSchemaPromises(t *testing.T) {
	p := mustCompile(t, `(i ?? 5) + 1`, typed{"i": {Slot: 0, Type: Of(connectors.Int)}}, Options{})
	if v, fault := p.Eval(NewEnv(), rows([]connectors.Value{{}}), 0); fault != nil || v.Int() != 6 || p.Type() != Of(connectors.Int) {
		t.Errorf("%v %v", v, fault)
	}
}

func TestPositionsAreInBytes(t *testing.T) {
	_, err := Compile(`"äöü" + s == "ß" && nope`, typed{"s": {}}, Options{})
	var all Errors
	if !errors.As(err, &all) || len(all) != 1 {
		t.Fatal(err)
	}
	text := `"äöü" + s == "ß" && nope`
	if got := text[all[0].Offset : all[0].Offset+all[0].Length]; got != "nope" {
		t.Errorf("it points to %q", got)
	}
	_, err = Compile(`"ä" + `, typed{}, Options{})
	if !errors.As(err, &all) || all[0].Offset+all[0].Length > len(`"ä" + `) {
		t.Errorf("%+v", all)
	}
}

func TestAPanicFailsOneRow(t *testing.T) {
	p := mustCompile(t, `a`, typed{"a": {Slot: 0}}, Options{})
	run := p.run
	p.run = func(e *Env) connectors.Value {
		v := run(e)
		if v.Int() == 2 {
			panic("a value of the record")
		}
		return v
	}
	p.cond = func(e *Env) truth { return truthOf(p.run(e).Int() > 0) }
	b := rows([]connectors.Value{connectors.IntValue(1), {}}, []connectors.Value{connectors.IntValue(2), {}}, []connectors.Value{connectors.IntValue(3), {}})
	var faults []*EvalError
	fail := func(row uint16, err *EvalError) {
		if row != 1 || err.Kind != KindCrash || strings.Contains(err.Reason, "value of") {
			t.Errorf("row %d: %+v", row, err)
		}
		faults = append(faults, err)
	}
	e := NewEnv()
	if ok := p.Fill(e, b, []uint16{0, 1, 2}, 1, fail); !slices.Equal(ok, []uint16{0, 2}) {
		t.Errorf("filled %v", ok)
	}
	if kept := p.Filter(e, b, []uint16{0, 1, 2}, fail); !slices.Equal(kept, []uint16{0, 2}) {
		t.Errorf("kept %v", kept)
	}
	if _, fault := p.Eval(e, b, 1); fault == nil || len(faults) != 2 {
		t.Errorf("%v, %d faults", fault, len(faults))
	}
}

func TestKeysRefuseWhatChanges(t *testing.T) {
	for _, text := range []string{"now()", "uuid()", "unix_ms(now()) + 1"} {
		if _, err := Compile(text, typed{}, Options{Deterministic: true}); err == nil || !strings.Contains(err.Error(), "is not allowed here") {
			t.Errorf("%s: %v", text, err)
		}
	}
	mustCompile(t, `date_trunc("day", 5)`, typed{}, Options{Deterministic: true})
}

func TestNowIsTheClockOfTheEnv(t *testing.T) {
	e := NewEnv()
	e.Now = func() time.Time { return time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC) }
	v, fault := mustCompile(t, `now("Asia/Tokyo")`, typed{}, Options{}).Eval(e, rows([]connectors.Value{{}}), 0)
	if fault != nil || v.Time().Format(time.RFC3339) != "2030-01-02T12:04:05+09:00" {
		t.Errorf("%v %v", v.Time(), fault)
	}
}

func TestWhatAProgramSaysOfItself(t *testing.T) {
	scope := typed{"a": {Slot: 3}}
	if v, ok := mustCompile(t, `1 + 2 * 3`, scope, Options{}).Constant(); !ok || v.Int() != 7 {
		t.Errorf("%v %v", v, ok)
	}
	if _, ok := mustCompile(t, `uuid()`, scope, Options{}).Constant(); ok {
		t.Error("uuid() is taken for a constant")
	}
	if slot, ok := mustCompile(t, `a`, scope, Options{}).Slot(); !ok || slot != 3 {
		t.Errorf("%v %v", slot, ok)
	}
	if !mustCompile(t, `filter(a, # > 1) | len()`, scope, Options{}).Native() || mustCompile(t, `bitand(a, 1)`, scope, Options{}).Native() {
		t.Error("Native is wrong")
	}
}

func TestOneProgramServesManySubtasks(t *testing.T) {
	scope := typed{"s": {Slot: 0}, "xs": {Slot: 1}}
	p := mustCompile(t, `{a: lower(s), b: filter(xs, # in [1, 2]), c: s matches "x+", d: bitand(len(xs), 3), e: format_time(len(xs), "%Y", "Europe/Berlin")}`, scope, Options{})
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			e, b := NewEnv(), rows([]connectors.Value{connectors.StringValue("XX"), connectors.ListValue([]byte("[1,5]"))})
			for range 200 {
				v, fault := p.Eval(e, b, 0)
				if fault != nil || v.Text() != `{"a":"xx","b":[1],"c":false,"d":2,"e":"1970"}` {
					t.Errorf("%s %v", v.Text(), fault)
					return
				}
			}
		})
	}
	group.Wait()
}

func TestErrorsShowNoValues(t *testing.T) {
	const secret = "4111-1111-1111-1111"
	rec := `{"card": "` + secret + `", "list": ["` + secret + `"], "n": 41111111, "m": {"` + secret + `": 1}}`
	for _, text := range []string{
		`card + 1`, `int(card)`, `decimal(card)`, `duration(card)`, `unix_ms(card)`, `parse_json(card)`, `card ? 1 : 2`, `list[5]`, `sum(list)`, `n contains "x"`,
		`parse_time(card, "%Y")`, `bitand(card, n)`, `splitAfter(n, card)`, `sort([n, card])`, `max(card, n)`, `timestamp(n, card)`, `"a" matches ("(" + card)`,
		`ip_in_cidr("1.1.1.1", card)`, `repeat(card, -n)`, `fromPairs(list)`, `date_trunc(card, n)`, `join([n, card])`, `fromBase64(card)`, `m[list]`, `pad_left(card, 99, card)`, `mean(list)`,
	} {
		got := eval(t, text, rec)
		if !strings.HasPrefix(got, "error: ") || strings.Contains(got, "4111") {
			t.Errorf("%s: %s", text, got)
		}
	}
}
