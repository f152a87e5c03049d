package state

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"runtime"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-etl/sluice/connectors"
)

// ReadNeutral reads the pieces of neutral form that overlap the key groups
// first..last, of groups in all, and shows each entry of these groups to visit.
// Files are read once each, some at the same time, and visit is called from the
// calling goroutine only. A piece of another form is an error. So is anything that
// WriteNeutral did not write: it names the file and what is wrong, and visit has been
// shown some of the entries then.
func ReadNeutral(ctx context.Context, files connectors.CheckpointFiles, pieces []Piece, first, last, groups int,
	visit func(Entry) error) error {
	byFile, err := chosen(pieces, first, last)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &neutralReader{files: files, groups: groups, blocks: make(chan *readBlock), spare: make(chan *readBlock, maxWriters)}
	done := make(chan error, 1)
	go func() {
		defer close(r.blocks)
		done <- r.all(ctx, byFile)
	}()
	var failed error
	for b := range r.blocks {
		if failed == nil {
			if failed = r.show(b, visit); failed != nil {
				cancel(failed)
			}
		}
		r.recycle(b)
	}
	if err := <-done; failed == nil {
		failed = err
	}
	if failed != nil {
		return fmt.Errorf("read state: %w", failed)
	}
	return nil
}

// all reads all files, some at the same time.
func (r *neutralReader) all(ctx context.Context, byFile [][]Piece) error {
	readers, ctx := errgroup.WithContext(ctx)
	readers.SetLimit(max(2, runtime.GOMAXPROCS(0)))
	for _, pieces := range byFile {
		readers.Go(func() error { return r.file(ctx, pieces) })
	}
	return readers.Wait()
}

// chosen is the pieces that overlap the key groups, by file and in the order of
// their offsets.
func chosen(pieces []Piece, first, last int) ([][]Piece, error) {
	var byFile [][]Piece
	sorted := slices.SortedFunc(slices.Values(pieces), func(a, b Piece) int {
		return cmp.Or(strings.Compare(a.File.Path, b.File.Path), cmp.Compare(a.Offset, b.Offset))
	})
	for _, p := range sorted {
		if p.Last < first || p.First > last {
			continue
		}
		if p.Format != "" {
			return nil, fmt.Errorf("read state: %s is in the form %q of its backend; take a savepoint with that backend, which any other reads", p.File.Path, p.Format)
		}
		if p.First != p.Last || p.Offset < 0 || p.Length < blockHead || p.Offset > p.File.Size-p.Length {
			return nil, fmt.Errorf("read state: %s of %d bytes has no piece of key groups %d to %d at offset %d of %d bytes; the checkpoint is corrupt",
				p.File.Path, p.File.Size, p.First, p.Last, p.Offset, p.Length)
		}
		if n := len(byFile); n > 0 && byFile[n-1][0].File.Path == p.File.Path {
			byFile[n-1] = append(byFile[n-1], p)
		} else {
			byFile = append(byFile, []Piece{p})
		}
	}
	return byFile, nil
}

// readBlock is a block that was read and verified.
type readBlock struct {
	piece  Piece
	offset int64
	raw    []byte
}

type neutralReader struct {
	files  connectors.CheckpointFiles
	groups int
	blocks chan *readBlock
	spare  chan *readBlock
}

func (r *neutralReader) take() *readBlock {
	select {
	case b := <-r.spare:
		return b
	default:
		return &readBlock{}
	}
}

func (r *neutralReader) recycle(b *readBlock) {
	b.raw = keepSmall(b.raw)
	select {
	case r.spare <- b:
	default:
	}
}

// file reads pieces of one file.
func (r *neutralReader) file(ctx context.Context, pieces []Piece) (err error) {
	f := pieces[0].File
	in, err := r.files.Open(ctx, f)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	if err != nil {
		return fmt.Errorf("make a decompressor: %w", err)
	}
	defer dec.Close()
	s := &sectionReader{r: r, in: bufio.NewReaderSize(in, blockTarget), dec: dec}
	for _, p := range pieces {
		if p.Offset < s.offset {
			return fmt.Errorf("%s: key group %d begins at %d, within the one before; the checkpoint is corrupt", f.Path, p.First, p.Offset)
		}
		if _, err := io.CopyN(io.Discard, s.in, p.Offset-s.offset); err != nil {
			return fmt.Errorf("%s: pass over %d bytes: %w", f.Path, p.Offset-s.offset, unexpected(err))
		}
		s.offset = p.Offset
		if err := s.section(ctx, p); err != nil {
			return fmt.Errorf("%s: key group %d: the block at %d: %w", f.Path, p.First, s.offset, err)
		}
	}
	return nil
}

// unexpected names an end of input what it is.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// sectionReader reads the sections of a file.
type sectionReader struct {
	r      *neutralReader
	in     *bufio.Reader
	dec    *zstd.Decoder
	offset int64 // of the block
	stored []byte
}

// section reads a section and hands out its blocks.
func (s *sectionReader) section(ctx context.Context, p Piece) error {
	end := p.Offset + p.Length
	count := uint64(0)
	for seq := uint32(0); ; seq++ {
		var head [blockHead]byte
		if end-s.offset < blockHead {
			return errors.New("the section ends without its last block")
		}
		if _, err := io.ReadFull(s.in, head[:]); err != nil {
			return fmt.Errorf("read it: %w", unexpected(err))
		}
		h, err := readBlockHeader(head[:])
		if err != nil {
			return err
		}
		if int(h.group) != p.First || h.seq != seq {
			return fmt.Errorf("it is block %d of key group %d, where block %d of %d is due", h.seq, h.group, seq, p.First)
		}
		if int64(h.stored) > end-s.offset-blockHead {
			return fmt.Errorf("its %d bytes go beyond the section", h.stored)
		}
		b := s.r.take()
		b.piece, b.offset = p, s.offset
		if err := s.content(h, b); err != nil {
			return err
		}
		next := s.offset + blockHead + int64(h.stored)
		if h.kind == blockEnd {
			return s.finish(b, count, end-next, next)
		}
		n, err := countEntries(b.raw)
		if err != nil {
			return err
		}
		count += n
		select {
		case s.r.blocks <- b:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		s.offset = next
	}
}

// finish compares the last block with what came before.
func (s *sectionReader) finish(b *readBlock, count uint64, left, next int64) error {
	want, n := binary.Uvarint(b.raw)
	switch {
	case n <= 0 || n != len(b.raw):
		return errors.New("the number of entries cannot be read")
	case want != count:
		return fmt.Errorf("the section has %d entries and should have %d", count, want)
	case left != 0:
		return fmt.Errorf("%d bytes follow the last block", left)
	}
	s.offset = next
	return nil
}

// content reads, verifies and decompresses the content of a block.
func (s *sectionReader) content(h blockHeader, b *readBlock) error {
	into := &s.stored
	if h.compression == storedPlain {
		into = &b.raw
	}
	var err error
	if *into, err = readInto(*into, s.in, int(h.stored)); err != nil {
		return fmt.Errorf("read it: %w", unexpected(err))
	}
	if sum := crc32.Checksum(*into, castagnoli); sum != h.crcs {
		return fmt.Errorf("its checksum is %08x, not %08x", sum, h.crcs)
	}
	if h.compression == storedZstd {
		// The decompressor would take as much memory as the frame claims.
		var frame zstd.Header
		if err := frame.Decode(s.stored); err != nil {
			return fmt.Errorf("decompress it: %w", err)
		}
		if frame.HasFCS && frame.FrameContentSize != uint64(h.size) {
			return fmt.Errorf("it holds %d bytes, not %d", frame.FrameContentSize, h.size)
		}
		b.raw, err = s.dec.DecodeAll(s.stored, b.raw[:0])
		s.stored = keepSmall(s.stored)
		if err != nil {
			return fmt.Errorf("decompress it: %w", err)
		}
	}
	if len(b.raw) != int(h.size) {
		return fmt.Errorf("it holds %d bytes, not %d", len(b.raw), h.size)
	}
	return nil
}

// readInto reads n bytes, and takes memory only for what is there.
func readInto(buf []byte, in io.Reader, n int) ([]byte, error) {
	buf = buf[:0]
	for len(buf) < n {
		step := min(n-len(buf), max(4*blockTarget, len(buf)))
		buf = slices.Grow(buf, step)
		got, err := io.ReadFull(in, buf[len(buf):len(buf)+step])
		buf = buf[:len(buf)+got]
		if err != nil {
			return buf, err
		}
	}
	return buf, nil
}
