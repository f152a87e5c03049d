package transform

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// topEntries reads and compares the rows that a top keeps.
type topEntries struct {
	*top
	stored *storedRows
}

// ranked is one row of a list.
type ranked struct {
	bytes []byte // of the entry in state: what it is sorted by, and the record
	order []connectors.Value
	row   []byte // the record
	rank  int64
}

// encode appends a row as an entry: the length of what it is sorted by, that, and the
// record.
func (t *topEntries) encode(dst []byte, b *connectors.Batch, row uint16) []byte {
	at := b.Row(int(row))
	start := len(dst)
	for _, slot := range t.order {
		dst = state.AppendValue(dst, at[slot])
	}
	var head [binary.MaxVarintLen64]byte
	n := binary.PutUvarint(head[:], uint64(len(dst)-start))
	dst = append(dst, head[:n]...)
	copy(dst[start+n:], dst[start:len(dst)-n])
	copy(dst[start:], head[:n])
	rec := b.Records[row]
	if t.all {
		rec.Origin, rec.Offset = nil, 0 // that of the change which made the row known
	}
	return t.stored.append(dst, &rec, at)
}

// decode appends the entries of a list, which they borrow from, to dst.
func (t *topEntries) decode(dst []ranked, list []byte) ([]ranked, error) {
	for c := (state.Reader{Rest: list}); len(c.Rest) > 0; {
		var err error
		if dst, err = t.next(dst, &c); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

// next appends one entry of a list to dst.
func (t *topEntries) next(dst []ranked, c *state.Reader) ([]ranked, error) {
	entry := c.Bytes()
	if c.Bad {
		return nil, t.corrupt()
	}
	if len(dst) < cap(dst) {
		dst = dst[:len(dst)+1]
	} else {
		dst = append(dst, ranked{})
	}
	return dst, t.parse(&dst[len(dst)-1], entry)
}

func (t *topEntries) parse(e *ranked, entry []byte) error {
	c := state.Reader{Rest: entry}
	order := c.Bytes()
	e.bytes, e.row, e.order, e.rank = entry, c.Rest, e.order[:0], 0
	for range t.order {
		v, rest, err := state.ReadValue(order)
		if err != nil || c.Bad {
			return t.corrupt()
		}
		e.order, order = append(e.order, v), rest
	}
	return nil
}

// appendEntries appends a list to dst.
func appendEntries(dst []byte, list []ranked) []byte {
	for i := range list {
		dst = appendBytes(dst, list[i].bytes)
	}
	return dst
}

func (t *topEntries) corrupt() error {
	return connectors.Permanent(fmt.Errorf("step %s: %w", t.name, state.ErrCorrupt))
}

// compare orders entries so that it never hangs on the order of arrival: by what the
// file says, then by event time and where the records come from. Rows that can be taken
// back are told apart by what they hold, whatever made it known.
func (t *topEntries) compare(a, b *ranked) int {
	if c := t.compareOrder(a, b); c != 0 {
		return c
	}
	if t.all {
		x, besideX := t.stored.content(a.row)
		y, besideY := t.stored.content(b.row)
		return cmp.Or(bytes.Compare(x, y), bytes.Compare(besideX, besideY))
	}
	x, errX := t.stored.record(a.row)
	y, errY := t.stored.record(b.row)
	if errX != nil || errY != nil {
		return bytes.Compare(a.row, b.row)
	}
	if c := cmp.Compare(x.Time, y.Time); c != 0 {
		return c
	}
	if x.Origin != nil && y.Origin != nil {
		return cmp.Or(comparePlaces(&x, &y), bytes.Compare(a.row, b.row))
	}
	return bytes.Compare(a.row, b.row)
}

func (t *topEntries) compareOrder(a, b *ranked) int {
	for i := range t.order {
		c := compareValues(a.order[i], b.order[i])
		if t.desc[i] {
			c = -c
		}
		if c != 0 {
			return c
		}
	}
	return 0
}

// compareValues orders all values that have an order: those of different kinds by
// kind.
func compareValues(a, b connectors.Value) int {
	if c, ok := expr.Compare(a, b); ok {
		return c
	}
	if a.Kind() != b.Kind() {
		return cmp.Compare(a.Kind(), b.Kind())
	}
	if a.Kind() == connectors.Bool && a.Bool() != b.Bool() {
		if a.Bool() {
			return 1
		}
		return -1
	}
	return 0
}

// number sets the ranks of a list.
func (t *topEntries) number(list []ranked) {
	for i := range list {
		list[i].rank = int64(i + 1)
		if t.keep && i > 0 && t.compareOrder(&list[i-1], &list[i]) == 0 {
			list[i].rank = list[i-1].rank
		}
	}
}
