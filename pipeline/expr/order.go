package expr

import (
	"cmp"
	"math"
	"sync"

	"github.com/sluice-etl/sluice/connectors"
)

// comparers is what Compare needs to compare decimals.
var comparers = sync.Pool{New: func() any { return &Env{limits: Limits{}.orDefault(), steps: math.MaxInt} }}

var nowhere = &site{}

// Compare orders two values as the operators < and == do: it is negative where a
// is less than b, and 0 where they are equal. ok is false where the language has no
// order for them: values of different kinds that are not both numbers, null, bools,
// lists, maps, and numbers too long to be read. NaN, which has no order there, is
// greater than every other number here, so that this is a total order of numbers.
func Compare(a, b connectors.Value) (c int, ok bool) {
	ka, kb := a.Kind(), b.Kind()
	switch {
	case ka == connectors.Int && kb == connectors.Int:
		return cmp.Compare(a.Int(), b.Int()), true
	case ka == connectors.Float && kb == connectors.Float && a.Float() == a.Float() && b.Float() == b.Float():
		return cmp.Compare(a.Float(), b.Float()), true
	case ka == connectors.String && kb == connectors.String || ka == connectors.Bytes && kb == connectors.Bytes:
		return cmp.Compare(a.Text(), b.Text()), true
	}
	if na, nb := isNaN(a), isNaN(b); (na || nb) && Number.Has(ka) && Number.Has(kb) {
		return boolInt(na) - boolInt(nb), true
	}
	e := comparers.Get().(*Env)
	r := e.order(nowhere, a, b)
	e.err = nil
	comparers.Put(e)
	switch r {
	case less:
		return -1, true
	case equal:
		return 0, true
	case greater:
		return 1, true
	default:
	}
	return 0, false
}

func isNaN(v connectors.Value) bool { return v.Kind() == connectors.Float && v.Float() != v.Float() }

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
