package accumulate

import (
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// extremeSet is min and max over an updating stream. Its state is the set of all
// values with their counts, as appendShort writes them; the extreme is found at once,
// and adding and taking back cost the logarithm of the number of different values.
type extremeSet struct {
	name string
	set  set
	typ  expr.Type
}

func (f *extremeSet) Size() int       { return -1 }
func (f *extremeSet) Retracts() bool  { return true }
func (f *extremeSet) Type() expr.Type { return f.typ }

func (f *extremeSet) Add(b []byte, in *Input) ([]byte, error) { return f.change(b, in, 1) }

func (f *extremeSet) Retract(b []byte, in *Input) ([]byte, error) { return f.change(b, in, -1) }

func (f *extremeSet) change(b []byte, in *Input, by int64) ([]byte, error) {
	v := in.Args[0]
	if v.IsNull() {
		return b, nil
	}
	if err := orderable(f.name, v); err != nil {
		return b, err
	}
	var buf [64]byte
	b, err := f.set.change(b, appendShort(buf[:0], v), by)
	return b, full(f.name, err)
}

func (f *extremeSet) Merge(b, other []byte) ([]byte, error) {
	b, err := f.set.merge(b, other)
	return b, full(f.name, err)
}

func (f *extremeSet) Result(b []byte, _ *connectors.Arena) (connectors.Value, error) {
	if len(b) > 0 && b[0] == formTable {
		return f.top(b)
	}
	var best connectors.Value
	mixed := false
	err := f.set.each(b, func(e entry, n int64) error {
		v, err := readShort(e.key)
		if err != nil || n <= 0 {
			return err
		}
		if best.Kind() == connectors.Absent {
			best = v
			return nil
		}
		c, ok := expr.Compare(v, best)
		mixed = mixed || !ok
		if c == f.set.want || c == 0 && preference(v, best) > 0 {
			best = v
		}
		return nil
	})
	switch {
	case err != nil:
		return connectors.Value{}, err
	case mixed:
		return connectors.Value{}, unordered(f.name)
	case best.Kind() == connectors.Absent:
		return connectors.NullValue(), nil
	}
	return best, nil
}

// top is the result of a table.
func (f *extremeSet) top(b []byte) (connectors.Value, error) {
	t, err := f.set.open(b)
	if err != nil {
		return connectors.Value{}, err
	}
	kinds := 0
	for i := range classes {
		kinds += truth(get32(b, setHead+4*i) > 0)
	}
	switch {
	case kinds > 1:
		return connectors.Value{}, unordered(f.name)
	case t.live == 0:
		return connectors.NullValue(), nil
	case t.heap == 0:
		return connectors.Value{}, state.ErrCorrupt
	}
	return f.set.heapValue(&t, 0)
}
