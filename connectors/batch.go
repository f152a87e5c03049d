package connectors

import "unsafe"

// MaxBatch is the largest number of records in a batch.
const MaxBatch = 1024

// Batch is up to MaxBatch records that travel together, with the slots that
// the plan fills for them.
//
// Ownership: a batch has one owner at a time. A source's Reader owns it until
// Poll returns it, then the engine does, which calls Recycle exactly once when
// every step and sink is done with it. What a step or sink wants to keep beyond
// its call it copies: records, slots and arena are reused, and the bytes of
// records may be the Kafka client's own fetch buffers.
type Batch struct {
	Records []Record
	// Slots holds Stride values for each record, row after row: the fields that
	// expressions read and the values that steps made. Each slot is written once
	// in a batch's life, so that branches can share the batch.
	Slots  []Value
	Stride int
	// Arena is where decoders and expressions put bytes that no source buffer
	// holds: unescaped text, concatenations, encoded values.
	Arena Arena
	// Scan is scratch space of the decoder for the encoder: where it found what.
	Scan []uint32

	// Originals holds, by record, the value as the source gave it, where Records hold
	// later ones since steps before a hand-over between tasks changed them; nil where
	// Records hold it, or nothing asks for it.
	Originals [][]byte

	// Refused are the records that the source can make no row of, in their order, of the
	// kind NoRow: their values are the bytes that it found, for on_error. Only of sources
	// that make JSON of another format themselves.
	Refused []RowError

	// Split is the index, within its reader, of the split that the records come
	// from; Next is the position to go on from after the last of them. Next may
	// move without records.
	Split int
	Next  int64

	lease Lease
	home  *BatchPool
}

// Lease is what a batch holds of its source: Release is called once, when the
// batch is done with, and gives the source's buffers back.
type Lease interface{ Release() }

// NoRow is the kind of a record that only its source could have made a row of, by what
// stands around it, such as the header of a file. Its dead letter is not brought in again.
const NoRow = "no_row"

// Hold makes the batch keep l until it is recycled.
func (b *Batch) Hold(l Lease) { b.lease = l }

// Size sets up n records with stride slots each, all of them absent.
func (b *Batch) Size(n, stride int) {
	if cap(b.Records) < n {
		b.Records = make([]Record, n)
	}
	b.Records = b.Records[:n]
	b.SetStride(stride)
}

// SetStride sets up stride absent slots for each record.
func (b *Batch) SetStride(stride int) {
	need := len(b.Records) * stride
	if cap(b.Slots) < need {
		b.Slots = make([]Value, need)
	}
	b.Slots = b.Slots[:need]
	clear(b.Slots)
	b.Stride = stride
}

// Row is the slots of record i.
func (b *Batch) Row(i int) []Value {
	at := i * b.Stride
	return b.Slots[at : at+b.Stride : at+b.Stride]
}

// Original is the value of record i as the source gave it.
func (b *Batch) Original(i int) []byte {
	if b.Originals != nil {
		return b.Originals[i]
	}
	return b.Records[i].Value
}

// Recycle gives the batch back: to its source's buffers and to its pool. Nothing
// that was read from it may be used afterwards.
func (b *Batch) Recycle() {
	if l := b.lease; l != nil {
		b.lease = nil
		l.Release()
	}
	if b.home != nil {
		b.home.put(b)
	}
}

// BatchPool is a free list of batches. It is owned by one goroutine at a time
// for Get; Recycle may be called by another.
type BatchPool struct{ free chan *Batch }

// NewBatchPool makes a pool that keeps at most n idle batches.
func NewBatchPool(n int) *BatchPool { return &BatchPool{free: make(chan *Batch, n)} }

// Get returns an empty batch.
func (p *BatchPool) Get() *Batch {
	select {
	case b := <-p.free:
		return b
	default:
		return &Batch{home: p}
	}
}

func (p *BatchPool) put(b *Batch) {
	clear(b.Records)
	b.Records = b.Records[:0]
	b.Slots = b.Slots[:0] // SetStride clears what is used again
	b.Scan = b.Scan[:0]
	clear(b.Originals)
	b.Originals = nil
	b.Refused = b.Refused[:0]
	b.Arena.Reset()
	b.Split, b.Next = 0, 0
	select {
	case p.free <- b:
	default:
	}
}

// Arena hands out memory that lives as long as its batch. The zero Arena is
// ready.
type Arena struct {
	buf  []byte
	made int // bytes kept since Reset
}

const (
	arenaChunk = 64 << 10
	arenaKeep  = 4 << 20
)

// Grow makes room for n more bytes and returns the free space: a slice of
// length 0 to append to, never nil. What was appended is kept by Keep. Only one piece may
// be open at a time.
func (a *Arena) Grow(n int) []byte {
	if a.buf == nil || cap(a.buf)-len(a.buf) < n {
		// Values still point into the old chunk, which the garbage collector keeps
		// for them.
		a.buf = make([]byte, 0, max(arenaChunk, n, min(2*cap(a.buf), arenaKeep)))
	}
	return a.buf[len(a.buf):len(a.buf):cap(a.buf)]
}

// Keep makes piece, which was appended to what Grow returned, part of the
// arena and returns it with its capacity cut to its length. A piece that
// outgrew the room is the caller's own memory, and is returned as it is.
func (a *Arena) Keep(piece []byte) []byte {
	free := a.buf[len(a.buf):cap(a.buf)]
	if len(piece) > 0 && len(free) >= len(piece) && &free[0] == &piece[0] {
		a.buf = a.buf[:len(a.buf)+len(piece)]
	}
	a.made += len(piece)
	return piece[:len(piece):len(piece)]
}

// Made is how many bytes were kept since Reset, whatever has become of them.
func (a *Arena) Made() int { return a.made }

// ArenaMark is a state of an arena to go back to.
type ArenaMark struct {
	chunk *byte
	size  int
}

// Mark notes the arena's state.
func (a *Arena) Mark() ArenaMark {
	return ArenaMark{unsafe.SliceData(a.buf), len(a.buf)}
}

// Rewind frees what was kept since the mark. Nothing may refer to it any more.
func (a *Arena) Rewind(m ArenaMark) {
	if unsafe.SliceData(a.buf) != m.chunk {
		m.size = 0 // the chunk is newer than the mark
	}
	a.buf = a.buf[:m.size]
}

// Copy puts a copy of b into the arena.
func (a *Arena) Copy(b []byte) []byte { return a.Keep(append(a.Grow(len(b)), b...)) }

// Reset frees everything at once.
func (a *Arena) Reset() {
	if cap(a.buf) > arenaKeep {
		a.buf = nil
	}
	a.buf, a.made = a.buf[:0], 0
}
