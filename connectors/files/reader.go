package files

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/sluice-etl/sluice/connectors"
)

const (
	// blockSize is how much is read at once. Records borrow from their block.
	blockSize = 512 << 10
	// minBlocks is what a reader needs: one whose lines are not all handed out, and
	// one to read into.
	minBlocks = 2
	maxBlocks = 64
)

// block is a buffer that batches borrow from. It is free again when the last of
// them is recycled.
type block struct {
	buf  []byte
	refs atomic.Int32
	free chan *block
}

// Release is called by batches, and by the reader when it is through.
func (b *block) Release() {
	if b.refs.Add(-1) == 0 {
		if cap(b.buf) > blockSize { // grown by one long line
			b.buf = nil
		}
		b.free <- b
	}
}

type cursor struct {
	split  connectors.Split
	origin connectors.Origin
	time   int64 // of the records: when the file was changed last, ms
}

// reader reads its splits one after the other.
type reader struct {
	source  *Source
	batches *connectors.BatchPool
	splits  []cursor
	at      int // the split being read

	// life is the context of the open file, which outlives the call that opened it.
	life context.Context //nolint:containedctx // see above
	end  context.CancelFunc
	in   *input // nil between files
	eof  bool   // all of the split is in the block

	free   chan *block
	block  *block
	lo, hi int   // what is not handed out of the block
	pos    int64 // position of lo in the split
	told   int64 // the last batch's Next
}

func newReader(s *Source, env connectors.ReaderEnv) *reader {
	n := min(max(env.Budget/blockSize, minBlocks), maxBlocks)
	r := &reader{source: s, batches: env.Batches, free: make(chan *block, n)}
	r.life, r.end = context.WithCancel(context.Background())
	for range n {
		r.free <- &block{free: r.free}
	}
	return r
}

// Add takes over further splits.
func (r *reader) Add(splits []connectors.Split) error {
	for _, s := range splits {
		c := cursor{split: s, origin: connectors.Origin{Topic: s.ID}}
		var d detail
		if err := json.Unmarshal(s.Detail, &d); err != nil {
			return connectors.Permanent(fmt.Errorf("read file %s: its description in the checkpoint cannot be read: %w", s.ID, err))
		}
		c.time = d.Modified.UnixMilli()
		r.splits = append(r.splits, c)
	}
	return nil
}

// Position is the split at another position: all else of it is fixed.
func (r *reader) Position(split int, next int64) connectors.Split {
	s := r.splits[split].split
	s.Offset = next
	return s
}

// Close closes the file that is open.
func (r *reader) Close() error {
	if r.in != nil {
		r.in.close()
		r.in = nil
	}
	r.end()
	return nil
}

// Poll returns the next lines of the file in turn.
func (r *reader) Poll(ctx context.Context) (*connectors.Batch, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if r.at == len(r.splits) {
			return nil, io.EOF
		}
		if r.in == nil {
			if err := r.open(); err != nil {
				return nil, err
			}
		}
		b, err := r.lines()
		if b != nil || err != nil {
			return b, err
		}
		if !r.eof {
			if err := r.fill(ctx); err != nil {
				return nil, err
			}
			continue
		}
		if b, err = r.finish(ctx); b != nil || err != nil {
			return b, err
		}
	}
}

func (r *reader) open() error {
	split := r.splits[r.at].split
	in, err := r.source.openInput(r.life, split)
	if err != nil {
		return err
	}
	r.in, r.eof, r.pos, r.told = in, false, split.Offset, split.Offset
	return nil
}

// finish ends a split: nothing of it is left in the block. Where its last lines
// were empty, a batch without records brings the position to the end.
func (r *reader) finish(ctx context.Context) (*connectors.Batch, error) {
	if err := r.in.check(ctx); err != nil {
		return nil, err
	}
	var b *connectors.Batch
	if r.told != r.pos {
		b = r.batches.Get()
		b.Split, b.Next = r.at, r.pos
	}
	r.in.close()
	r.in = nil
	r.at++
	return b, nil
}

// lines hands out the whole lines of the block, at most a batch of them; nil
// where there is none.
func (r *reader) lines() (*connectors.Batch, error) {
	var b *connectors.Batch
	c := &r.splits[r.at]
	for r.lo < r.hi && (b == nil || len(b.Records) < connectors.MaxBatch) {
		line, n, ok := r.line()
		if !ok {
			break
		}
		if len(line) > int(r.source.config.MaxLine) {
			if b == nil {
				return nil, r.tooLong()
			}
			break // hand out what comes before it
		}
		if len(line) > 0 {
			if b == nil {
				b = r.batches.Get()
				b.Split = r.at
				r.block.refs.Add(1)
				b.Hold(r.block)
			}
			b.Records = append(b.Records, connectors.Record{Value: line, Origin: &c.origin, Offset: r.pos, Time: c.time})
		}
		r.lo += n
		r.pos += int64(n)
	}
	if b != nil {
		b.Next = r.pos
		r.told = r.pos
	}
	return b, nil
}

var bom = []byte("\xef\xbb\xbf")

// line is the next line without its end and how many bytes it takes with it. A
// last line needs no end.
func (r *reader) line() (line []byte, n int, ok bool) {
	rest := r.block.buf[r.lo:r.hi]
	at := bytes.IndexByte(rest, '\n')
	switch {
	case at >= 0:
		line, n = rest[:at:at], at+1
	case r.eof:
		line, n = rest[:len(rest):len(rest)], len(rest)
	default:
		return nil, 0, false
	}
	if k := len(line); k > 0 && line[k-1] == '\r' {
		line = line[: k-1 : k-1]
	}
	if r.pos == 0 {
		line = bytes.TrimPrefix(line, bom)
	}
	return line, n, true
}

func (r *reader) tooLong() error {
	return connectors.Permanent(fmt.Errorf("read file %s: the line at byte %d is longer than max_line, which is %s: raise it, or mend the file",
		r.splits[r.at].split.ID, r.pos, r.source.config.MaxLine))
}

// fill reads on into another block, which takes over the line that the present
// one does not hold the end of. It waits for a block when all are with batches.
func (r *reader) fill(ctx context.Context) error {
	tail := r.hi - r.lo
	limit := int(r.source.config.MaxLine) + len("\r\n") + len(bom)
	if tail >= limit {
		return r.tooLong()
	}
	var next *block
	select {
	case next = <-r.free:
	case <-ctx.Done():
		return ctx.Err()
	}
	if need := min(max(blockSize, 2*tail), max(limit, blockSize)); cap(next.buf) < need {
		next.buf = make([]byte, need)
	}
	next.buf = next.buf[:cap(next.buf)]
	if tail > 0 {
		copy(next.buf, r.block.buf[r.lo:r.hi])
	}
	if r.block != nil {
		r.block.Release()
	}
	next.refs.Store(1)
	r.block, r.lo, r.hi = next, 0, tail
	n, err := r.in.read(next.buf[tail:], r.pos+int64(tail))
	r.hi += n
	if errors.Is(err, io.EOF) {
		r.eof = true
		return nil
	}
	return err
}
