package accumulate

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
)

// Form is all that the form of a function's states hangs on. It stands in checkpoints,
// so that states can be read without the pipeline file.
type Form struct {
	Name string `json:"name"`
	// Args are the types of the arguments: the names of kinds, with | between them.
	Args []string `json:"args,omitempty"`
	// Share is the option of quantile.
	Share    *float64 `json:"share,omitempty"`
	Updating bool     `json:"updating,omitempty"`
}

// FormOf is the form of the function that New makes of a call.
func FormOf(call *expr.AggregateCall, o Options) Form {
	f := Form{Name: call.Name, Updating: o.Updating}
	for i, p := range call.Args {
		if v, constant := p.Constant(); constant && i > 0 {
			if q, ok := number(v); ok {
				f.Share = &q
			}
			break
		}
		f.Args = append(f.Args, typeText(p.Type()))
	}
	return f
}

func typeText(t expr.Type) string {
	var kinds []string
	for k := connectors.Null; k <= connectors.Map; k++ {
		if t.Has(k) {
			kinds = append(kinds, k.String())
		}
	}
	return strings.Join(kinds, "|")
}

func typeOf(text string) (t expr.Type, err error) {
next:
	for name := range strings.SplitSeq(text, "|") {
		for k := connectors.Null; k <= connectors.Map; k++ {
			if k.String() == name {
				t |= expr.Of(k)
				continue next
			}
		}
		return 0, fmt.Errorf("there is no kind of value %q", name)
	}
	return t, nil
}

// Function makes the function again, to read its states.
func (f Form) Function() (Function, error) {
	scope := formScope{}
	var args []string
	for i, text := range f.Args {
		t, err := typeOf(text)
		if err != nil {
			return nil, err
		}
		scope[fmt.Sprintf("a%d", i)] = expr.Ref{Slot: i, Covered: 1, Type: t}
		args = append(args, fmt.Sprintf("a%d", i))
	}
	if f.Share != nil {
		args = append(args, strconv.FormatFloat(*f.Share, 'f', -1, 64))
	}
	if makers[f.Name] == nil {
		return nil, fmt.Errorf("this program has no aggregate function %q", f.Name)
	}
	var fn Function
	_, err := expr.CompileAggregation(f.Name+"("+strings.Join(args, ", ")+")", scope, scope, func(_ int, call *expr.AggregateCall) (r expr.Ref, err error) {
		fn, err = New(call, Options{Updating: f.Updating})
		return expr.Ref{Slot: len(f.Args), Covered: 1}, err
	}, expr.Options{})
	if err == nil && fn == nil {
		err = errors.New("it is no call of an aggregate function")
	}
	return fn, err
}

// formScope has the arguments of a function as its fields.
type formScope map[string]expr.Ref

// Field implements expr.Scope.
func (s formScope) Field(path []string) (expr.Ref, error) {
	if ref, ok := s[path[0]]; ok {
		return ref, nil
	}
	return expr.Ref{}, fmt.Errorf("there is no argument %s", path[0])
}

// This implements expr.Scope.
func (formScope) This() (int, error) { return 0, errors.New("there is no record") }
