package transform

import (
	"bytes"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// takeBack removes the kept row that is equal to x, of several the newest, and gives
// what was kept of it.
func (p *plainJoin) takeBack(side int, k state.Key, x joinRow) (plainRow, error) {
	rows := p.tables[side]
	p.found = p.encode(p.found[:0], side, x)
	for _, exact := range [2]bool{true, false} {
		for i := len(rows.live) - 1; i >= 0; i-- {
			ns := rows.live[i]
			value, _ := rows.table.Get(ns, k)
			from, e, err := p.find(side, value, exact)
			if err != nil {
				return plainRow{}, err
			}
			if e == nil {
				continue
			}
			row := p.entry(side, e)
			row.at = max(row.at, x.rec.Time)
			// What was given out is taken back as it was, also where x is written otherwise.
			p.found = append(p.found[:0], row.kept...)
			row.kept = p.found
			p.cut(rows, ns, k, from, len(e))
			return row, nil
		}
	}
	return plainRow{}, nil
}

// cut removes a part of a value.
func (p *plainJoin) cut(rows *joinRows, ns int64, k state.Key, from, size int) {
	value, ok := rows.change(ns, k)
	if !ok {
		return
	}
	if len(value) == size {
		rows.table.Delete(ns, k)
		return
	}
	copy(value[from:], value[from+size:])
	rows.table.Upsert(ns, k, len(value)-size)
}

// find looks for the last row that is equal to the one in p.found: to the byte, or by
// value.
func (p *plainJoin) find(side int, value []byte, exact bool) (from int, found joinEntry, err error) {
	at := 0
	for len(value) > 0 {
		e, tail, err := nextEntry(value)
		if err != nil {
			return 0, nil, err
		}
		same, err := p.same(side, e.record().kept, exact)
		if err != nil {
			return 0, nil, err
		}
		if same {
			from, found = at, e
		}
		value = tail
		at += len(e)
	}
	return from, found, nil
}

// same reports whether a kept record holds the same as x, whose encoding is in p.found.
// What belongs to the record beside its value, such as its offset, is that of the change
// that made a row known, and says nothing of the row.
func (p *plainJoin) same(side int, kept []byte, exact bool) (bool, error) {
	s := &p.joinStep.sides[side]
	switch {
	case s.whole && exact:
		a, besideA := p.stored.content(kept)
		b, besideB := p.stored.content(p.found)
		return bytes.Equal(a, b) && bytes.Equal(besideA, besideB), nil
	case s.whole:
		return p.stored.equal(kept, p.found, &p.a, &p.b)
	case exact:
		return bytes.Equal(kept, p.found), nil
	}
	p.a, p.b = p.a[:0], p.b[:0]
	found := p.found
	for i := range s.slots {
		v, rest, err := state.ReadValue(kept)
		if err != nil {
			return false, state.ErrCorrupt
		}
		w, others, err := state.ReadValue(found)
		if err != nil {
			return false, state.ErrCorrupt
		}
		kept, found = rest, others
		if !s.passing[i] {
			p.a, p.b = state.AppendKey(p.a, v), state.AppendKey(p.b, w)
		}
	}
	return bytes.Equal(p.a, p.b), nil
}

// canonical appends what is the same for all texts of a value.
func canonical(dst, json []byte) []byte {
	var arena connectors.Arena
	v, err := format.ParseValue(json, &arena)
	if err != nil {
		return append(dst, json...)
	}
	return state.AppendKey(dst, v)
}
