package state

import (
	"errors"
	"fmt"
)

var errItems = errors.New("its items cannot be read")

// items takes the content of a block apart.
type items struct {
	r     Reader
	table []byte
	ns    int64
	named uint8 // bit 0: table is known, bit 1: ns
}

// next gives the next entry, and false behind the last one.
func (it *items) next() (key, value []byte, ok bool, err error) {
	for len(it.r.Rest) > 0 {
		switch n := it.r.Uvarint(); n {
		case 0:
			it.table = it.r.Bytes()
			it.named |= 1
		case 1:
			it.ns = it.r.Varint()
			it.named |= 2
		default:
			if it.named != 3 || n-2 > uint64(len(it.r.Rest)) {
				return nil, nil, false, errItems
			}
			key, it.r.Rest = it.r.Rest[:n-2:n-2], it.r.Rest[n-2:]
			value = it.r.Bytes()
			if it.r.Bad {
				return nil, nil, false, errItems
			}
			return key, value, true, nil
		}
		if it.r.Bad {
			return nil, nil, false, errItems
		}
	}
	if it.r.Bad {
		return nil, nil, false, errItems
	}
	return nil, nil, false, nil
}

// countEntries checks the content of a block and tells how many entries it has.
func countEntries(raw []byte) (n uint64, err error) {
	it := items{r: Reader{Rest: raw}}
	for {
		_, _, ok, err := it.next()
		if err != nil || !ok {
			return n, err
		}
		n++
	}
}

// show shows the entries of a block to visit.
func (r *neutralReader) show(b *readBlock, visit func(Entry) error) error {
	it := items{r: Reader{Rest: b.raw}}
	name := ""
	for {
		key, value, ok, err := it.next()
		if err != nil || !ok {
			return err
		}
		if string(it.table) != name {
			name = string(it.table)
		}
		k := MakeKey(key, r.groups)
		if k.Group != b.piece.First {
			err = fmt.Errorf("a key is of key group %d; is max_parallelism %d what it was written with", k.Group, r.groups)
		} else {
			err = visit(Entry{Table: name, NS: it.ns, Key: k, Value: value})
		}
		if err != nil {
			return fmt.Errorf("%s: key group %d: the block at %d: %w", b.piece.File.Path, b.piece.First, b.offset, err)
		}
	}
}
