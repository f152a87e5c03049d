package expr

import (
	"testing"

	"github.com/sluice-etl/sluice/connectors"
)

func TestAConditionKeepsWhatItExcludesFromBeingEvaluated(t *testing.T) {
	scope := typed{"a": {Slot: 0}, "b": {Slot: 1}}
	p := When(mustCompile(t, `b != 0`, scope, Options{Want: Bool}), mustCompile(t, `a / b`, scope, Options{Want: Number}))
	b := rows(
		[]connectors.Value{connectors.IntValue(6), connectors.IntValue(3)},
		[]connectors.Value{connectors.IntValue(6), connectors.IntValue(0)},
		[]connectors.Value{connectors.StringValue("x"), connectors.IntValue(1)},
	)
	e := NewEnv()
	if v, fault := p.Eval(e, b, 0); fault != nil || v.Float() != 2 {
		t.Errorf("%v %v", v.Float(), fault)
	}
	if v, fault := p.Eval(e, b, 1); fault != nil || v.Kind() != connectors.Null {
		t.Errorf("what is excluded is %s, %v", v.Kind(), fault)
	}
	if _, fault := p.Eval(e, b, 2); fault == nil || fault.Kind != KindType {
		t.Errorf("what is included and no number gives %v", fault)
	}
	if _, bare := p.Slot(); bare || !p.Type().MayBeNull() || len(p.Fields()) != 2 {
		t.Errorf("it says of itself %v %s %v", bare, p.Type(), p.Fields())
	}
}
