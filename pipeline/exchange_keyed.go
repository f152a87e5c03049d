package pipeline

import (
	"context"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/state"
	"github.com/sluice-etl/sluice/pipeline/transform"
)

// keyedExchange deals rows out by key: each to the task that owns the key group.
// Only what the keyed step asked for travels.
type keyedExchange struct {
	outlet
	lanes  map[*edge]*keyedLane
	exprs  *expr.Env
	groups int
	owners []int32 // receiver by key group
	key    []byte  // being encoded
}

// keyedLane is how the rows of one edge are keyed and handed on.
type keyedLane struct {
	*lane
	keying     *keying
	whole      receiver // puts the whole value into its slot; nil where no key reads it
	dropped    func(n int)
	evalFailed []evalFailure
	noteEval   func(row uint16, e *expr.EvalError)
}

func newKeyedLane(e *edge, l *lane, dropped func(n int)) *keyedLane {
	k := &keyedLane{lane: l, keying: e.keying, dropped: dropped}
	k.noteEval = func(row uint16, e *expr.EvalError) { k.evalFailed = append(k.evalFailed, evalFailure{row, e}) }
	return k
}

// ownersOf lists the receiver of each key group.
func ownersOf(subtasks, groups int) []int32 {
	owners := make([]int32, groups)
	for g := range owners {
		owners[g] = int32(state.SubtaskOf(g, subtasks, groups))
	}
	return owners
}

func (x *keyedExchange) send(ctx context.Context, e *edge, b *connectors.Batch, sel []uint16) error {
	l := x.lanes[e]
	sel, err := x.evaluate(ctx, l, b, sel)
	if err != nil {
		return err
	}
	carriesValues := l.keying.rows || l.keying.letters
	if carriesValues {
		if sel, err = l.values(ctx, b, sel); err != nil {
			return err
		}
	}
	for i, row := range sel {
		from := b.Row(int(row))
		x.key = x.key[:0]
		for _, slot := range l.keying.keys {
			x.key = state.AppendKey(x.key, from[slot])
		}
		key := state.MakeKey(x.key, x.groups)
		p := &x.ports[x.owners[key.Group]]
		out, slots := x.open(p)
		if carriesValues {
			p.bytes += l.copyRow(out, slots, b, row, i, l.keying.letters)
			if !l.keying.rows {
				out.Records[len(out.Records)-1].Value = madeValue
			}
		} else {
			r := &b.Records[row]
			out.Records = append(out.Records, connectors.Record{
				Value: madeValue, Origin: r.Origin, Offset: r.Offset, Time: r.Time, Mark: r.Mark, Op: r.Op,
			})
		}
		made := out.Arena.Made()
		slots[transform.KeySlot] = connectors.BytesValue(out.Arena.Copy(x.key))
		slots[transform.HashSlot] = connectors.IntValue(int64(key.Hash))
		for _, m := range l.keying.slots {
			slots[m.to] = keep(&out.Arena, from[m.from])
		}
		p.bytes += out.Arena.Made() - made
		if err := x.full(ctx, p, l.index); err != nil {
			return err
		}
	}
	return x.flush(ctx, l.index)
}

// madeValue stands for the value of a record that does not travel: the record is no
// tombstone.
var madeValue = []byte("{}")

// evaluate fills the slots of what travels. Rows for which an expression fails go to
// the keyed step's on_error; a row that takes back another is left out silently,
// since that one was refused too.
func (x *keyedExchange) evaluate(ctx context.Context, l *keyedLane, b *connectors.Batch, sel []uint16) ([]uint16, error) {
	if !l.keying.tombstones {
		sel = l.leaveOutTombstones(b, sel)
	}
	if l.whole != nil {
		if err := l.whole(ctx, b, sel); err != nil {
			return nil, err
		}
	}
	for i := range l.keying.exprs {
		k := &l.keying.exprs[i]
		sel = k.prog.Fill(x.exprs, b, sel, k.slot, l.noteEval)
		if len(l.evalFailed) == 0 {
			continue
		}
		for _, f := range l.evalFailed {
			if b.Records[f.row].Op.Retracts() {
				continue
			}
			e := recordError(b, f.row, l.keying.step, f.err.Kind, f.err.Reason)
			e.Expr = k.prog.Text()
			if err := l.fail(ctx, b, f.row, e); err != nil {
				return nil, err
			}
		}
		clear(l.evalFailed)
		l.evalFailed = l.evalFailed[:0]
	}
	return sel, nil
}

// leaveOutTombstones leaves the rows without a value out: they are no rows of a
// result.
func (l *keyedLane) leaveOutTombstones(b *connectors.Batch, sel []uint16) []uint16 {
	n := 0
	for _, row := range sel {
		if r := &b.Records[row]; r.Tombstone() && r.Op == connectors.Insert {
			continue
		}
		sel[n] = row
		n++
	}
	if n < len(sel) {
		l.dropped(len(sel) - n)
	}
	return sel[:n]
}
