package format

import (
	"errors"
	"math"
	"sync/atomic"

	"github.com/sluice-etl/sluice/connectors"
)

// node is an object that is looked into, or a value that is wanted, or both.
type node struct {
	slots []int // that want the value itself
	exact bool  // and numbers as their text
	kids  []*node
	keys  keyTable // its ids are indexes into kids
	below []int    // slots of everything under it
	// others want the name of the first member that is none of kids.
	others []int
}

type jsonDecoder struct {
	scanner
	maxSize  int
	root     node
	spans    bool
	stamp    uint32
	scan     []uint32
	spanning bool // the record at hand leaves a block
	arena    *connectors.Arena
}

// How Batch.Scan is laid out: scanMark, the stamp of the decoder whose key
// entries it names, then for each record of the batch where its block begins, 0
// if it has none. A block is a header and for each field spanWords words.
const (
	scanMark   = 0x4A534F4E
	scanHeader = 2
	spanWords  = 4

	blockLength = 0 // of the value
	blockFields = 1 // how many there are
	blockOrder  = 2 // with the number of fields the order of them: two records with the same one, not 0, have the same names
	blockHeader = 3

	spanKey   = 0 // position of the name's first quote
	spanValue = 1
	spanEnd   = 2 // behind the value
	spanEntry = 3 // the decoder's entry of the name + 1, 0 for none
)

// The largest record that leaves a block, and how many words Batch.Scan may have
// before no further one does. Without one the encoder finds the fields anew.
const (
	maxSpanBytes = 1 << 18
	maxScanWords = 1 << 18
)

// stamps tells decoders apart.
var stamps atomic.Uint32

const (
	noStamp  = 0              // the entries of several decoders
	ownStamp = math.MaxUint32 // the entries of the encoder itself
)

func newJSONDecoder(c *jsonConfig, fields []Field, spans bool) (*jsonDecoder, error) {
	d := &jsonDecoder{
		scanner: newScanner(c.MaxDepth),
		maxSize: int(c.MaxSize),
		spans:   spans,
		stamp:   stamps.Add(1),
	}
	for _, f := range fields {
		if f.Slot < 0 {
			return nil, errors.New("a field to decode needs a slot")
		}
		d.root.want(f)
	}
	d.full = c.Strict
	d.root.prepare()
	return d, nil
}

// want adds a wanted value to the tree.
func (n *node) want(f Field) {
	if len(f.Path) == 0 && f.Others {
		n.below, n.others = append(n.below, f.Slot), append(n.others, f.Slot)
		return
	}
	if len(f.Path) == 0 {
		n.slots = append(n.slots, f.Slot)
		n.exact = n.exact || f.Exact
		return
	}
	n.below = append(n.below, f.Slot)
	i := intern(&n.keys.names, f.Path[0])
	if i == len(n.kids) {
		n.kids = append(n.kids, &node{})
	}
	f.Path = f.Path[1:]
	n.kids[i].want(f)
}

func (n *node) prepare() {
	n.keys = newKeyTable(n.keys.names)
	for _, kid := range n.kids {
		kid.prepare()
	}
}

func (d *jsonDecoder) Decode(b *connectors.Batch, sel []uint16, fail func(row uint16, err *SyntaxError)) []uint16 {
	ok := sel[:0]
	d.arena, d.scan = &b.Arena, b.Scan
	if d.spans {
		d.beginScan(len(b.Records))
	}
	for _, r := range sel {
		value := b.Records[r].Value
		if value != nil && !d.record(value, b.Row(int(r)), int(r)) {
			fail(r, d.err())
			continue
		}
		ok = append(ok, r)
	}
	b.Scan = d.scan
	d.arena, d.scan = nil, nil
	return ok
}

// beginScan lays out Batch.Scan for n records, or joins what another decoder
// left there, whose entries then mean nothing any more.
func (d *jsonDecoder) beginScan(n int) {
	if len(d.scan) >= scanHeader+n && d.scan[0] == scanMark {
		if d.scan[1] != d.stamp {
			d.scan[1] = noStamp
		}
		return
	}
	d.scan = append(d.scan[:0], scanMark, d.stamp)
	for range n {
		d.scan = append(d.scan, 0)
	}
}

func (d *jsonDecoder) record(b []byte, row []connectors.Value, r int) bool {
	if len(b) > d.maxSize {
		d.fail(d.maxSize, wantSmall)
		return false
	}
	start := d.begin(b)
	if start < 0 {
		return false
	}
	i := start
	if len(d.root.slots) > 0 {
		v, end := d.value(b, start, 0, d.arena)
		if end < 0 {
			return false
		}
		fill(row, d.root.slots, v)
		i = end
	}
	switch {
	case b[start] != '{':
		if i == start {
			i = d.skip(b, i, 0)
		}
	case d.spans && len(b) <= maxSpanBytes && len(d.scan) < maxScanWords:
		i = d.recordSpans(b, start, row, r)
	default:
		i = d.object(b, start, &d.root, row, 1)
	}
	return i >= 0 && d.end(b, i) >= 0
}

// recordSpans reads the object at i and leaves its block in scan.
func (d *jsonDecoder) recordSpans(b []byte, i int, row []connectors.Value, r int) int {
	block := len(d.scan)
	misses := d.root.keys.misses
	d.scan = append(d.scan, uint32(len(b)), 0, 0)
	d.spanning = true
	i = d.object(b, i, &d.root, row, 1)
	d.spanning = false
	if i < 0 || d.end(b, i) < 0 {
		d.scan = d.scan[:block]
		return -1
	}
	d.scan[block+blockFields] = uint32((len(d.scan) - block - blockHeader) / spanWords)
	if d.root.keys.misses == misses {
		d.scan[block+blockOrder] = d.root.keys.order()
	}
	d.scan[scanHeader+r] = uint32(block)
	return i
}

// object reads the object at i, depth being the number of open containers with
// it, and the wanted values below it.
func (d *jsonDecoder) object(b []byte, i int, n *node, row []connectors.Value, depth int) int {
	if depth > d.limit {
		return d.fail(i, wantShallow)
	}
	spans := d.spanning && depth == 1
	i = space(b, i+1)
	if uint(i) < uint(len(b)) && b[i] == '}' {
		return i + 1
	}
	last := int32(firstKey)
	for {
		key := i
		var id int32
		if last, id, i = n.keys.next(&d.scanner, b, i, last); i < 0 {
			return i
		}
		value := i
		if id < 0 && n.others != nil {
			d.other(b, key, n, row)
		}
		if id >= 0 {
			i = d.field(b, i, n.kids[id], row, depth)
		} else if uint(i) < uint(len(b)) && b[i] == '"' && !d.full {
			// Most of a record is text that nobody reads: the shortest way for it.
			if i = stringEnd(b, i+1) + 1; i == 0 {
				return d.fail(len(b), wantQuote)
			}
		} else {
			i = d.skip(b, i, depth)
		}
		if i < 0 {
			return i
		}
		if spans {
			d.scan = append(d.scan, uint32(key), uint32(value), uint32(i), uint32(last+1))
		}
		i = space(b, i)
		if uint(i) >= uint(len(b)) {
			return d.fail(len(b), wantMore)
		}
		if b[i] != ',' {
			if b[i] == '}' {
				return i + 1
			}
			return d.fail(i, wantComma)
		}
		i = space(b, i+1)
	}
}

// other notes the name at i, which stands for none of n's kids, unless another one was
// noted before.
func (d *jsonDecoder) other(b []byte, i int, n *node, row []connectors.Value) {
	if row[n.others[0]].Kind() != connectors.Absent {
		return
	}
	end, escapes := d.checkString(b, i+1) // finds no fault: the name was read before
	fill(row, n.others, text(b[i+1:end], escapes, d.arena))
}

// field reads the value at i of a field that is wanted or looked into. It forgets
// what an earlier field of the same name held.
func (d *jsonDecoder) field(b []byte, i int, n *node, row []connectors.Value, depth int) int {
	if len(n.slots) > 0 {
		v, end := d.wanted(b, i, n, depth)
		if end < 0 {
			return end
		}
		fill(row, n.slots, v)
		if len(n.kids) == 0 {
			return end
		}
	}
	fill(row, n.below, connectors.Value{})
	if uint(i) < uint(len(b)) && b[i] == '{' {
		return d.object(b, i, n, row, depth+1)
	}
	return d.skip(b, i, depth)
}

// wanted reads the value at i that n's slots want.
func (d *jsonDecoder) wanted(b []byte, i int, n *node, depth int) (v connectors.Value, end int) {
	if n.exact && uint(i) < uint(len(b)) && (b[i] == '-' || b[i]-'0' <= 9) {
		if end = d.checkNumber(b, i); end < 0 {
			return v, end
		}
		return connectors.TextValue(connectors.Decimal, b[i:end]), end
	}
	return d.value(b, i, depth, d.arena)
}

func fill(row []connectors.Value, slots []int, v connectors.Value) {
	for _, slot := range slots {
		row[slot] = v
	}
}
