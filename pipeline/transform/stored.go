package transform

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// storedRows turns whole records into bytes for state, and back. The form is part
// of checkpoints.
type storedRows struct {
	slots   []int  // of the values that are kept beside the record
	passing []bool // by slot: it says nothing of what the record holds; nil for none
	values  []connectors.Value
	origins map[string]map[int32]*connectors.Origin
}

func newStoredRows(slots []int) *storedRows {
	return &storedRows{slots: slots, values: make([]connectors.Value, len(slots)), origins: map[string]map[int32]*connectors.Origin{}}
}

// Flags of a stored record.
const (
	hasOrigin = 1 << iota
	hasKey
	hasValue
)

// append appends a record with its slots to dst.
func (s *storedRows) append(dst []byte, r *connectors.Record, slots []connectors.Value) []byte {
	flags := byte(0)
	if r.Origin != nil {
		flags |= hasOrigin
	}
	if r.Key != nil {
		flags |= hasKey
	}
	if r.Value != nil {
		flags |= hasValue
	}
	dst = append(dst, flags)
	dst = binary.AppendVarint(dst, r.Time)
	if r.Origin != nil {
		dst = appendBytes(dst, []byte(r.Origin.Topic))
		dst = binary.AppendVarint(dst, int64(r.Origin.Partition))
		dst = binary.AppendVarint(dst, r.Offset)
	}
	dst = appendBytes(dst, r.Key)
	dst = appendBytes(dst, r.Value)
	dst = binary.AppendUvarint(dst, uint64(len(r.Headers)))
	for _, h := range r.Headers {
		dst = appendBytes(dst, []byte(h.Key))
		if h.Value == nil {
			dst = append(dst, 0)
			continue
		}
		dst = appendBytes(append(dst, 1), h.Value)
	}
	for _, slot := range s.slots {
		dst = state.AppendValue(dst, slots[slot])
	}
	return dst
}

func appendBytes(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

// record reads a record; what was in the slots goes to s.values. All of it borrows
// from src.
func (s *storedRows) record(src []byte) (connectors.Record, error) {
	r := &state.Reader{Rest: src}
	rec := connectors.Record{Mark: connectors.NoMark}
	flags := r.Byte()
	rec.Time = r.Varint()
	if flags&hasOrigin != 0 {
		rec.Origin = s.origin(r.Bytes(), int32(r.Varint()))
		rec.Offset = r.Varint()
	}
	if key := r.Bytes(); flags&hasKey != 0 {
		rec.Key = key
	}
	if value := r.Bytes(); flags&hasValue != 0 {
		rec.Value = value
	}
	n := r.Uvarint()
	if n > uint64(len(r.Rest)) {
		return rec, state.ErrCorrupt
	}
	for range n {
		h := connectors.Header{Key: string(r.Bytes())}
		if r.Byte() == 1 {
			h.Value = r.Bytes()
		}
		rec.Headers = append(rec.Headers, h)
	}
	for i := range s.slots {
		if r.Bad {
			break
		}
		var err error
		if s.values[i], r.Rest, err = state.ReadValue(r.Rest); err != nil {
			return rec, err
		}
	}
	if r.Bad {
		return rec, state.ErrCorrupt
	}
	return rec, nil
}

// content gives what a stored record holds: its value, and what is kept beside it. Its
// time, key, headers and place are no part of it: they are those of the change that made
// the record known.
func (s *storedRows) content(src []byte) (value, beside []byte) {
	r := &state.Reader{Rest: src}
	flags := r.Byte()
	r.Varint()
	if flags&hasOrigin != 0 {
		r.Bytes()
		r.Varint()
		r.Varint()
	}
	r.Bytes()
	value = r.Bytes()
	for n := r.Uvarint(); n > 0 && !r.Bad; n-- {
		r.Bytes()
		if r.Byte() == 1 {
			r.Bytes()
		}
	}
	return value, r.Rest
}

// equal reports whether two stored records hold the same by value, however it is
// written. a and b are scratch.
func (s *storedRows) equal(x, y []byte, a, b *[]byte) (bool, error) {
	vx, besideX := s.content(x)
	vy, besideY := s.content(y)
	*a, *b = canonical((*a)[:0], vx), canonical((*b)[:0], vy)
	for i := range s.slots {
		p, restX, errX := state.ReadValue(besideX)
		q, restY, errY := state.ReadValue(besideY)
		if errX != nil || errY != nil {
			return false, state.ErrCorrupt
		}
		besideX, besideY = restX, restY
		if s.passing == nil || !s.passing[i] {
			*a, *b = state.AppendKey(*a, p), state.AppendKey(*b, q)
		}
	}
	return bytes.Equal(*a, *b), nil
}

// origin shares one Origin among the records of a place.
func (s *storedRows) origin(topic []byte, partition int32) *connectors.Origin {
	o := s.origins[string(topic)][partition]
	if o != nil {
		return o
	}
	o = &connectors.Origin{Topic: string(topic), Partition: partition}
	if s.origins[o.Topic] == nil {
		s.origins[o.Topic] = map[int32]*connectors.Origin{}
	}
	s.origins[o.Topic][partition] = o
	return o
}

// add adds a stored record to rows that are gathered and have room for it. It
// copies the record's bytes into their arena.
func (s *storedRows) add(rows *Rows, stored []byte, op connectors.Op) ([]connectors.Value, *connectors.Record, error) {
	rec, err := s.record(rows.Arena().Copy(stored))
	if err != nil {
		return nil, nil, err
	}
	rec.Op = op
	out := rows.add(rec)
	for i, slot := range s.slots {
		out[slot] = s.values[i]
	}
	return out, &rows.batch.Records[len(rows.batch.Records)-1], nil
}

// keptRows is how the records of an input are kept whole: with the fields beside them
// that steps above made, so that a decimal stays one.
type keptRows struct {
	view  *View    // of records that were kept
	slots []int    // of those fields, for storedRows
	names []string // their names
}

// keepRows makes what is kept of an input's records travel.
func (e *KeyedEnv) keepRows(input int) keptRows {
	e.CarryRow(input)
	kept := keptRows{view: e.Row}
	made := e.In[input].Made()
	for _, name := range slices.Sorted(maps.Keys(made)) { // the same order in every run
		ref := made[name]
		slot := e.Carry(input, expr.Field([]string{name}, ref))
		kept.view = kept.view.known(name, slot, ref.Type)
		kept.slots, kept.names = append(kept.slots, slot), append(kept.names, name)
	}
	return kept
}

// definition is what the form of stored records hangs on, as text.
func (k keptRows) definition() string {
	if len(k.names) == 0 {
		return " keeps records"
	}
	return " keeps records with " + strings.Join(k.names, ", ")
}

// comparePlaces orders two records by topic, partition and offset, where both have one.
func comparePlaces(a, b *connectors.Record) int {
	return cmp.Or(strings.Compare(a.Origin.Topic, b.Origin.Topic),
		cmp.Compare(a.Origin.Partition, b.Origin.Partition), cmp.Compare(a.Offset, b.Offset))
}
