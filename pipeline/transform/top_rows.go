package transform

import (
	"encoding/binary"
	"slices"

	"github.com/sluice-etl/sluice/pipeline/state"
)

// topRows keeps all rows of each group in order, of which some can be taken back. A
// group with few rows is one value. With more it is cut into chunks, so that a change
// reads and writes one chunk and the list of them, however many rows there are.
//
// The value of a group in the namespace 0 begins with a byte: flatRows, and the rows
// follow; or chunkedRows, and for each chunk follow its namespace as uvarint, and a row
// that none in it comes before and none in the chunks before it comes behind. The
// chunks are in the other namespaces. The form is part of checkpoints.
type topRows struct {
	*topEntries
	table  state.Table
	chunks []rowChunk
	index  []byte   // what chunks borrow from
	from   []byte   // what list borrows from
	list   [][]byte // entries of a chunk
	read   []ranked
	at     ranked // the entry that is compared
	buf    []byte
	a, b   []byte // scratch: what is compared by value
}

// rowChunk is one chunk of a group.
type rowChunk struct {
	ns    int64
	bound []byte // nil for the first, which has no row before it
}

// Forms of a group.
const (
	flatRows = iota
	chunkedRows
)

// maxChunk is how many rows a chunk has at most. More make a change dearer, fewer the
// list of chunks longer.
const maxChunk = 256

// open reads the list of a group's chunks. A group of one value is one chunk.
func (t *topRows) open(k state.Key) error {
	v, ok := t.table.Get(0, k)
	t.index, t.chunks = append(t.index[:0], v...), t.chunks[:0]
	if !ok || t.index[0] == flatRows {
		t.chunks = append(t.chunks, rowChunk{})
		return nil
	}
	for c := (state.Reader{Rest: t.index[1:]}); len(c.Rest) > 0; {
		chunk := rowChunk{ns: int64(c.Uvarint()), bound: c.Bytes()}
		if c.Bad || chunk.ns <= 0 {
			return t.corrupt()
		}
		t.chunks = append(t.chunks, chunk)
	}
	if len(t.chunks) == 0 {
		return t.corrupt()
	}
	return nil
}

// rows are the entries of a chunk, borrowed from the table.
func (t *topRows) rows(k state.Key, i int) []byte {
	switch ns := t.chunks[i].ns; {
	case ns != 0:
		v, _ := t.table.Get(ns, k)
		return v
	case len(t.index) > 0:
		return t.index[1:]
	}
	return nil
}

// load reads the rows of a chunk into list.
func (t *topRows) load(k state.Key, i int) error {
	t.from, t.list = append(t.from[:0], t.rows(k, i)...), t.list[:0]
	for c := (state.Reader{Rest: t.from}); len(c.Rest) > 0; {
		t.list = append(t.list, c.Bytes())
		if c.Bad {
			return t.corrupt()
		}
	}
	return nil
}

// best reads those rows of a group that stay. They are borrowed until the next call.
func (t *topRows) best(k state.Key) ([]ranked, error) {
	if err := t.open(k); err != nil {
		return nil, err
	}
	t.from, t.read = t.from[:0], t.read[:0]
	for i := range t.chunks {
		at := len(t.from)
		t.from = append(t.from, t.rows(k, i)...) // what read borrows from the memory before stays valid
		for c := (state.Reader{Rest: t.from[at:]}); len(c.Rest) > 0; {
			var err error
			if t.read, err = t.next(t.read, &c); err != nil {
				return nil, err
			}
			n := len(t.read)
			if n > t.n && (!t.keep || t.compareOrder(&t.read[t.n-1], &t.read[n-1]) != 0) {
				return t.read[:n-1], nil
			}
		}
	}
	return t.read, nil
}

// find is the last chunk that a row can be in.
func (t *topRows) find(e *ranked) (int, error) {
	var failed error
	i, _ := slices.BinarySearchFunc(t.chunks[1:], e, func(c rowChunk, e *ranked) int {
		if err := t.parse(&t.at, c.bound); err != nil {
			failed = err
			return 1
		}
		if t.compare(&t.at, e) <= 0 {
			return -1
		}
		return 1
	})
	return i, failed
}

// add puts a row into its group. Of rows that are equal the newest stands first.
func (t *topRows) add(k state.Key, e *ranked) error {
	if err := t.open(k); err != nil {
		return err
	}
	i, err := t.find(e)
	if err != nil {
		return err
	}
	if err := t.load(k, i); err != nil {
		return err
	}
	at, _, err := t.place(e)
	if err != nil {
		return err
	}
	if len(t.list) < maxChunk {
		t.save(k, i, t.list[:at], e, t.list[at:])
		return nil
	}
	half := maxChunk / 2
	first, second := t.list[:half], t.list[half:]
	t.split(i, second[0])
	if at <= half {
		t.save(k, i, first[:at], e, first[at:])
		t.save(k, i+1, second, nil, nil)
	} else {
		t.save(k, i, first, nil, nil)
		t.save(k, i+1, second[:at-half], e, second[at-half:])
	}
	t.writeIndex(k)
	return nil
}

// place finds a row in list.
func (t *topRows) place(e *ranked) (at int, found bool, err error) {
	at, found = slices.BinarySearchFunc(t.list, e, func(x []byte, e *ranked) int {
		if failed := t.parse(&t.at, x); failed != nil {
			err = failed
			return 1
		}
		return t.compare(&t.at, e)
	})
	return at, found, err
}

// split makes a chunk behind another one.
func (t *topRows) split(i int, bound []byte) {
	if t.chunks[i].ns == 0 {
		t.chunks[i].ns = 1
	}
	ns := int64(len(t.chunks)) + 1
	for slices.ContainsFunc(t.chunks, func(c rowChunk) bool { return c.ns == ns }) {
		ns-- // there are as many numbers below as chunks, of which one has this one
	}
	t.chunks = slices.Insert(t.chunks, i+1, rowChunk{ns, bound})
}

// save writes the rows of a chunk: some, one more where there is one, and others.
func (t *topRows) save(k state.Key, i int, rows [][]byte, e *ranked, others [][]byte) {
	ns := t.chunks[i].ns
	t.buf = t.buf[:0]
	if ns == 0 {
		t.buf = append(t.buf, flatRows)
	}
	for _, row := range rows {
		t.buf = appendBytes(t.buf, row)
	}
	if e != nil {
		t.buf = appendBytes(t.buf, e.bytes)
	}
	for _, row := range others {
		t.buf = appendBytes(t.buf, row)
	}
	t.table.Put(ns, k, t.buf)
}

func (t *topRows) writeIndex(k state.Key) {
	t.buf = append(t.buf[:0], chunkedRows)
	for _, c := range t.chunks {
		t.buf = appendBytes(binary.AppendUvarint(t.buf, uint64(c.ns)), c.bound)
	}
	t.table.Put(0, k, t.buf)
}

// remove takes a row out of its group, and reports whether it was there: one that holds
// the same to the byte, or, of those that are sorted alike, one that holds the same
// written otherwise.
func (t *topRows) remove(k state.Key, e *ranked) (bool, error) {
	if err := t.open(k); err != nil {
		return false, err
	}
	last, err := t.find(e)
	if err != nil {
		return false, err
	}
	for i := last; i >= 0; i-- {
		if err := t.load(k, i); err != nil {
			return false, err
		}
		at, found, err := t.place(e)
		if err != nil {
			return false, err
		}
		if found {
			return true, t.cut(k, i, at)
		}
		if at > 0 {
			break // the chunks before have what comes before e only
		}
	}
	return t.removeEqual(k, e, last)
}

// removeEqual is remove for a row that is written otherwise. It looks at all that are
// sorted alike.
func (t *topRows) removeEqual(k state.Key, e *ranked, last int) (bool, error) {
	for ; last+1 < len(t.chunks); last++ {
		if c, err := t.sorted(t.chunks[last+1].bound, e); err != nil {
			return false, err
		} else if c > 0 {
			break
		}
	}
	for i := last; i >= 0; i-- {
		if err := t.load(k, i); err != nil {
			return false, err
		}
		for at := len(t.list) - 1; at >= 0; at-- {
			c, err := t.sorted(t.list[at], e)
			switch {
			case err != nil:
				return false, err
			case c < 0:
				return false, nil
			case c > 0:
				continue
			}
			same, err := t.stored.equal(t.at.row, e.row, &t.a, &t.b)
			switch {
			case err != nil:
				return false, t.corrupt()
			case same:
				return true, t.cut(k, i, at)
			}
		}
	}
	return false, nil
}

// sorted compares an entry, which it reads into t.at, with e by order alone.
func (t *topRows) sorted(entry []byte, e *ranked) (int, error) {
	if err := t.parse(&t.at, entry); err != nil {
		return 0, err
	}
	return t.compareOrder(&t.at, e), nil
}

// cut takes a row out of a chunk, whose rows are in list. A group whose last chunk but
// one goes is one value again.
func (t *topRows) cut(k state.Key, i, at int) error {
	chunk := t.chunks[i]
	if len(t.list) > 1 {
		t.save(k, i, t.list[:at], nil, t.list[at+1:])
		return nil
	}
	t.table.Delete(chunk.ns, k)
	if chunk.ns == 0 {
		return nil
	}
	if t.chunks = slices.Delete(t.chunks, i, i+1); len(t.chunks) > 1 {
		t.chunks[0].bound = nil
		t.writeIndex(k)
		return nil
	}
	if err := t.load(k, 0); err != nil {
		return err
	}
	t.table.Delete(t.chunks[0].ns, k)
	t.chunks[0].ns = 0
	t.save(k, 0, t.list, nil, nil)
	return nil
}
