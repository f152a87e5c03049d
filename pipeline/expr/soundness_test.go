package expr

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-etl/sluice/connectors"
)

// wild draws expressions without regard to types.
func wild(t *rapid.T, depth int) string {
	if depth <= 0 {
		return rapid.SampledFrom([]string{"a", "b", "c", "a.x", "b[0]", "1", "2.5", `"t"`, "null", "true", "[1, null]", "{k: 1}", `decimal("1.5")`, `duration("1m")`, "timestamp(0)", "#", "meta.key", "9223372036854775807", "-1", `""`}).Draw(t, "leaf")
	}
	sub := func() string { return wild(t, depth-1-rapid.IntRange(0, 1).Draw(t, "less")) }
	switch rapid.IntRange(0, 7).Draw(t, "form") {
	case 0, 1:
		op := rapid.SampledFrom([]string{"+", "-", "*", "/", "%", "**", "==", "!=", "<", ">=", "&&", "||", "??", "in", "contains", "matches", ".."}).Draw(t, "op")
		return "(" + sub() + " " + op + " " + sub() + ")"
	case 2:
		return rapid.SampledFrom([]string{"-", "!", "+"}).Draw(t, "sign") + "(" + sub() + ")"
	case 3:
		return "(" + sub() + " ? " + sub() + " : " + sub() + ")"
	case 4:
		return sub() + rapid.SampledFrom([]string{"[0]", "[1:]", ".k", "?.k", `["k"]`, "[-1]"}).Draw(t, "member")
	case 5:
		return rapid.SampledFrom([]string{"filter", "map", "all", "any", "sum", "count", "find", "sortBy", "groupBy", "reduce", "findIndex"}).Draw(t, "loop") + "(" + sub() + ", " + sub() + ")"
	case 6:
		return "let v = " + sub() + "; [v, " + sub() + "]"
	}
	f := rapid.SampledFrom(Functions()).Draw(t, "function")
	n := strings.Count(f.Signature, ",") + 1
	args := make([]string, rapid.IntRange(0, n).Draw(t, "n"))
	for i := range args {
		args[i] = sub()
	}
	return f.Name + "(" + strings.Join(args, ", ") + ")"
}

func anyValue(t *rapid.T) connectors.Value {
	texts := []string{"", "t", "12", "2024-01-01T00:00:00Z", "Ünïcode", "UTC", "(", "\x00\xff"}
	lists := []string{`[]`, `[1,2.5,"x",null,[1],{"k":1}]`, `["t","u"]`, `[3,1,2]`}
	maps := []string{`{}`, `{"k":1,"x":null,"k":2}`, `{"x":{"k":[1]}}`}
	switch rapid.IntRange(0, 10).Draw(t, "kind") {
	case 0:
		return connectors.Value{}
	case 1:
		return connectors.NullValue()
	case 2:
		return connectors.BoolValue(rapid.Bool().Draw(t, "bool"))
	case 3:
		return connectors.IntValue(rapid.SampledFrom([]int64{0, 1, -1, 7, 1 << 62, -1 << 63, 1<<63 - 1}).Draw(t, "int"))
	case 4:
		return connectors.FloatValue(rapid.Float64().Draw(t, "float"))
	case 5:
		return connectors.DecimalValue(rapid.SampledFrom([]string{"1.10", "-0.00", "1e400", "1e-999999999", "123456789012345678901234567890.5"}).Draw(t, "decimal"))
	case 6:
		return connectors.StringValue(rapid.SampledFrom(texts).Draw(t, "text"))
	case 7:
		return connectors.BytesValue([]byte{0xff, 0})
	case 8:
		return connectors.DurationValue(-1 << 63)
	case 9:
		return connectors.ListValue([]byte(rapid.SampledFrom(lists).Draw(t, "list")))
	}
	return connectors.MapValue([]byte(rapid.SampledFrom(maps).Draw(t, "map")))
}

func TestTypesFoundAtLoadHoldForEveryRecord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := []connectors.Value{anyValue(t), anyValue(t), anyValue(t)}
		scope := typed{}
		for i, name := range []string{"a", "b", "c"} {
			ref := Ref{Slot: i}
			if rapid.Bool().Draw(t, "declared") {
				ref.Type = Of(values[i].Kind())
			}
			scope[name] = ref
		}
		text := wild(t, rapid.IntRange(0, 4).Draw(t, "depth"))
		p, err := Compile(text, scope, Options{Limits: Limits{Steps: 10_000, Bytes: 1 << 18}})
		if err != nil {
			return
		}
		b := rows(values)
		e := NewEnv()
		v, fault := p.Eval(e, b, 0)
		if fault != nil {
			if fault.Kind == "" || fault.Offset < 0 || fault.Offset+fault.Length > len(text) {
				t.Fatalf("%s: %+v", text, fault)
			}
			return
		}
		if k := v.Kind(); !v.IsNull() && !p.Type().Has(k) || v.IsNull() && !p.Type().MayBeNull() {
			t.Fatalf("%s is %s, not of the type %s", text, k, p.Type())
		}
		again, _ := p.Eval(e, b, 0)
		if again.Kind() != v.Kind() {
			t.Fatalf("%s is %s, then %s", text, v.Kind(), again.Kind())
		}
	})
}
