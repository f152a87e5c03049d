package transform

import (
	"context"
	"fmt"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// KeyBy keys the records of an input by a configuration's keys, and returns the
// programs, or nil where there was a fault. at is the key of the configuration
// that they are under.
func (e *KeyedEnv) KeyBy(input int, keys connectors.Keys, at string) []*expr.Program {
	programs := make([]*expr.Program, 0, len(keys))
	for _, k := range keys {
		if p := e.Compile(input, k.Expr, expr.Options{Deterministic: true, Name: k.Name}, at, k.Name); p != nil {
			programs = append(programs, p)
			if e.In[input].Updates() != nil && p.Varies() {
				e.Report([]string{at, k.Name}, varies(p))
			}
		}
	}
	if len(programs) < len(keys) {
		return nil
	}
	e.Key(input, programs...)
	return programs
}

// varies says why a value cannot be used of an updating stream.
func varies(p *expr.Program) error {
	return &expr.Error{
		Length: len(p.Text()),
		Msg:    fmt.Sprintf("`%s` is not the same for a row of an updating stream and for the change that takes it back", p.Text()),
		Help:   "use fields, or meta.key",
	}
}

// keyFields are the names by which rows grouped by keys are told apart where the
// rows themselves have the fields; nil where one of the keys is computed.
func keyFields(keys connectors.Keys) []string {
	var names []string
	for _, k := range keys {
		if k.Expr.Text != k.Name {
			return nil
		}
		names = append(names, k.Name)
	}
	return names
}

// keyType is what is known of a key's value behind the exchange, where it is the
// canonical one of all that are equal to it.
func keyType(p *expr.Program) expr.Type {
	t := p.Type()
	if t.Has(connectors.Float) || t.Has(connectors.Decimal) {
		t |= expr.Number
	}
	return t
}

// setKeys puts the values of a key into the slots of a row made anew.
func setKeys(row []connectors.Value, slots []int, k state.Key) error {
	rest := k.Bytes
	for _, slot := range slots {
		v, tail, err := state.ReadKey(rest)
		if err != nil {
			return err
		}
		row[slot], rest = v, tail
	}
	return nil
}

// dropKeyedTombstones leaves out the rows without a value: they are no rows of a
// result.
func dropKeyedTombstones(run *KeyedRun, b *connectors.Batch, sel []uint16) []uint16 {
	n := len(sel)
	sel = dropTombstones(b, sel)
	if n -= len(sel); n > 0 {
		run.Dropped(n)
	}
	return sel
}

// failRow hands a row to on_error, for a reason that no expression gave.
func failRow(ctx context.Context, run *KeyedRun, b *connectors.Batch, row uint16, step, text, kind, reason string) error {
	return run.Fail(ctx, b, row, failure(step, text, b, row, &expr.EvalError{Reason: reason, Kind: kind}))
}

// ownKey is k with its bytes copied into buf, for use across calls of the store.
func ownKey(k state.Key, buf *[]byte) state.Key {
	*buf = append((*buf)[:0], k.Bytes...)
	k.Bytes = *buf
	return k
}
