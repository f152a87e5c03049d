package state

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"runtime"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-etl/sluice/connectors"
)

// WriteNeutral writes the entries of the key groups first..last in the neutral form
// and returns one piece for each group that has any. entries gives all entries of a
// group to emit; those of one table and namespace should follow each other, which
// makes the files smaller. It is called once for each group, where there is much to
// write from several goroutines at once, each of which writes one file and closes it. After
// an error nothing is returned, and files are left that nothing refers to at most.
func WriteNeutral(ctx context.Context, files connectors.CheckpointFiles, form Form, first, last int,
	entries func(group int, emit func(Entry) error) error) ([]Piece, error) {
	compression, err := compressionOf(form.Compression)
	if err != nil {
		return nil, err
	}
	w := &neutralWriter{outer: ctx, files: files, compression: compression, next: first, last: last, entries: entries, free: maxWriters}
	var running *errgroup.Group
	running, w.ctx = errgroup.WithContext(ctx)
	w.start = func() { running.Go(w.work) }
	w.more()
	if err := running.Wait(); err != nil {
		return nil, fmt.Errorf("write state: %w", err)
	}
	slices.SortFunc(w.pieces, func(a, b Piece) int { return a.First - b.First })
	return w.pieces, nil
}

const (
	// maxWriters is how many files are written at a time: more than there are processors
	// too, for a store lets one of them wait while others compress.
	maxWriters = 4
	// worthAnother is how many bytes a writer has written before it asks for help, so
	// that small states are one file.
	worthAnother = 8 << 20
)

// neutralWriter deals out key groups to writers.
type neutralWriter struct {
	outer       context.Context //nolint:containedctx // lives within one call, as files do
	ctx         context.Context //nolint:containedctx // ends with the first writer that fails
	files       connectors.CheckpointFiles
	compression byte
	entries     func(group int, emit func(Entry) error) error
	start       func()

	mu     sync.Mutex
	next   int // the next key group to write
	last   int
	free   int // writers that may still start
	pieces []Piece
}

// more starts another writer where there is something left for it.
func (w *neutralWriter) more() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.free > 0 && w.next <= w.last {
		w.free--
		w.start()
	}
}

func (w *neutralWriter) claim() (group int, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.next > w.last {
		return 0, false
	}
	w.next++
	return w.next - 1, true
}

// work writes key groups until there are none left, into a file of its own.
func (w *neutralWriter) work() (err error) {
	f := &formFile{w: w}
	defer func() {
		if err != nil && f.out != nil {
			f.out.Abort()
		}
	}()
	if w.compression == storedZstd {
		enc, err := newEncoder()
		if err != nil {
			return fmt.Errorf("make a compressor: %w", err)
		}
		f.enc = enc
		defer func() { f.enc = nil }()
	}
	asked := false
	for {
		group, ok := w.claim()
		if !ok {
			return f.close()
		}
		if err := f.section(group); err != nil {
			return fmt.Errorf("key group %d: %w", group, err)
		}
		if !asked && f.offset >= worthAnother {
			asked = true
			w.more()
		}
	}
}

// formFile is a file being written by one goroutine.
type formFile struct {
	w      *neutralWriter
	out    connectors.StateWriter // nil before the first block
	enc    *zstd.Encoder
	offset int64
	pieces []Piece

	// The section being written, and in raw the block.
	group uint32
	seq   uint32
	count uint64
	raw   []byte
	table string
	ns    int64
	block []byte // scratch
}

// section writes a key group; nothing where it has no entries.
func (f *formFile) section(group int) error {
	start := f.offset
	f.group, f.seq, f.count, f.raw = uint32(group), 0, 0, f.raw[:0]
	if err := f.w.entries(group, f.add); err != nil {
		return err
	}
	if f.count == 0 {
		return nil
	}
	if err := f.flush(blockEntries); err != nil {
		return err
	}
	f.raw = binary.AppendUvarint(f.raw[:0], f.count)
	if err := f.flush(blockEnd); err != nil {
		return err
	}
	f.pieces = append(f.pieces, Piece{First: group, Last: group, Offset: start, Length: f.offset - start})
	return nil
}

// add appends an entry to the block.
func (f *formFile) add(e Entry) error {
	if len(f.raw) > 0 && len(f.raw)+len(e.Key.Bytes)+len(e.Value) > blockTarget {
		if err := f.flush(blockEntries); err != nil {
			return err
		}
	}
	fresh := len(f.raw) == 0
	if fresh || e.Table != f.table {
		f.table = e.Table
		f.raw = binary.AppendUvarint(append(f.raw, 0), uint64(len(e.Table)))
		f.raw = append(f.raw, e.Table...)
	}
	if fresh || e.NS != f.ns {
		f.ns = e.NS
		f.raw = binary.AppendVarint(append(f.raw, 1), e.NS)
	}
	f.raw = binary.AppendUvarint(f.raw, uint64(len(e.Key.Bytes))+2)
	f.raw = append(f.raw, e.Key.Bytes...)
	f.raw = binary.AppendUvarint(f.raw, uint64(len(e.Value)))
	f.raw = append(f.raw, e.Value...)
	f.count++
	if len(f.raw) >= blockTarget {
		return f.flush(blockEntries)
	}
	return nil
}

// flush writes the block, where there is anything in it.
func (f *formFile) flush(kind byte) error {
	if len(f.raw) == 0 {
		return nil
	}
	if len(f.raw) > math.MaxUint32-blockTarget {
		return errors.New("an entry of 4 GiB is more than a checkpoint takes")
	}
	if err := f.w.ctx.Err(); err != nil {
		return context.Cause(f.w.ctx)
	}
	if f.out == nil {
		if err := f.create(); err != nil {
			return err
		}
	}
	h := blockHeader{kind: kind, group: f.group, seq: f.seq, size: uint32(len(f.raw))}
	var none [blockHead]byte
	f.block = append(f.block[:0], none[:]...)
	if f.enc != nil && kind == blockEntries {
		h.compression = storedZstd
		f.block = f.enc.EncodeAll(f.raw, f.block)
	} else {
		f.block = append(f.block, f.raw...)
	}
	h.stored = uint32(len(f.block) - blockHead)
	h.crcs = crc32.Checksum(f.block[blockHead:], castagnoli)
	h.append(f.block[:0])
	if _, err := f.out.Write(f.block); err != nil {
		return err
	}
	f.offset += int64(len(f.block))
	f.seq++
	f.raw = keepSmall(f.raw)
	f.block = keepSmall(f.block)
	// Records that wait for a processor come first: writing takes what they leave.
	runtime.Gosched()
	return nil
}

// keepSmall empties a buffer, and lets go of it where a large entry has made it large.
func keepSmall(b []byte) []byte {
	if cap(b) > 4*blockTarget {
		return nil
	}
	return b[:0]
}

func (f *formFile) create() error {
	out, err := f.w.files.Create(f.w.outer)
	if err != nil {
		return err
	}
	f.out = out
	return nil
}

// close makes the file durable, where there is one, and tells the pieces where they are.
func (f *formFile) close() error {
	if f.out == nil {
		return nil
	}
	file, err := f.out.Close()
	if err != nil {
		return err
	}
	for i := range f.pieces {
		f.pieces[i].File = file
	}
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	f.w.pieces = append(f.w.pieces, f.pieces...)
	return nil
}
