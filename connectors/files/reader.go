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
	paused bool
	done   bool // read to its end

	in     *input // nil where it is not open
	eof    bool   // all of the split is in the block
	block  *block
	lo, hi int   // what is not handed out of the block
	pos    int64 // position of lo in the split
	told   int64 // the last batch's Next
}

// reader reads its splits one after the other, but for those that are paused.
type reader struct {
	source  *Source
	batches *connectors.BatchPool
	splits  []cursor
	left    int // splits that are not read to their end
	first   int // all before it are
	opened  int // files that are open

	// life is the context of open files, which outlives the call that opened them.
	life context.Context //nolint:containedctx // see above
	end  context.CancelFunc

	free chan *block
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
		c.pos, c.told = s.Offset, s.Offset
		r.splits = append(r.splits, c)
		r.left++
	}
	return nil
}

// Position is the split at another position. All else of it is fixed, but that the
// end of a compressed file is known once it is read.
func (r *reader) Position(split int, next int64) connectors.Split {
	c := &r.splits[split]
	s := c.split
	s.Offset = next
	if c.done && s.Until < 0 {
		s.Until = c.pos
	}
	return s
}

// CaughtUp implements connectors.Progress: a file is read to the end that it had
// when the job began.
func (r *reader) CaughtUp(split int) bool { return r.splits[split].done }

// Pause implements connectors.Pauser.
func (r *reader) Pause(paused []int) {
	for i := range r.splits {
		r.splits[i].paused = false
	}
	for _, i := range paused {
		r.splits[i].paused = true
	}
}

// Close closes the files that are open.
func (r *reader) Close() error {
	for i := range r.splits {
		if c := &r.splits[i]; c.in != nil {
			c.in.close()
			c.in = nil
		}
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
		if r.left == 0 {
			return nil, io.EOF
		}
		at := r.turn()
		if at < 0 { // all are paused
			<-ctx.Done()
			return nil, ctx.Err()
		}
		if b, err := r.read(ctx, at); b != nil || err != nil {
			return b, err
		}
	}
}

// turn is the first split that gives records, -1 where none does.
func (r *reader) turn() int {
	for r.splits[r.first].done {
		r.first++
	}
	for at := r.first; at < len(r.splits); at++ {
		if c := &r.splits[at]; !c.done && !c.paused {
			return at
		}
	}
	return -1
}

// read goes one step on in a split; nil where that brings no batch.
func (r *reader) read(ctx context.Context, at int) (*connectors.Batch, error) {
	c := &r.splits[at]
	if c.in == nil {
		if err := r.open(c); err != nil {
			return nil, err
		}
	}
	if c.in.rows != nil {
		b, err := r.records(ctx, at)
		if b != nil || err != nil || !c.eof {
			return b, err
		}
		return r.finish(ctx, at)
	}
	b, err := r.lines(at)
	switch {
	case b != nil || err != nil:
		return b, err
	case !c.eof:
		return nil, r.fill(ctx, c)
	}
	return r.finish(ctx, at)
}

// open opens a split's file at its position. Files that were left for a pause stay
// open as long as there are blocks for all, and one to read into: going on in a
// compressed file from its beginning is dear.
func (r *reader) open(c *cursor) error {
	if r.opened >= cap(r.free)-1 {
		r.closeOne()
	}
	from := c.split
	from.Offset = c.told
	in, err := r.source.openInput(r.life, from)
	if err != nil {
		return err
	}
	c.in, c.eof, c.pos = in, false, c.told
	r.opened++
	return nil
}

// closeOne closes a file that was left, one that is not compressed if there is any.
func (r *reader) closeOne() {
	var last *cursor
	for i := range r.splits {
		if c := &r.splits[i]; c.in != nil && (last == nil || last.in.zipped()) {
			last = c
		}
	}
	if last != nil {
		r.shut(last)
	}
}

// shut closes a split's file and gives its block back.
func (r *reader) shut(c *cursor) {
	c.in.close()
	c.in = nil
	if c.block != nil {
		c.block.Release()
		c.block = nil
	}
	c.lo, c.hi = 0, 0
	r.opened--
}

// finish ends a split: nothing of it is left in the block. Where its last lines
// were empty, a batch without records brings the position to the end.
func (r *reader) finish(ctx context.Context, at int) (*connectors.Batch, error) {
	c := &r.splits[at]
	if err := c.in.check(ctx); err != nil {
		return nil, err
	}
	var b *connectors.Batch
	if c.told != c.pos {
		b = r.batches.Get()
		b.Split, b.Next = at, c.pos
	}
	r.shut(c)
	c.done = true
	r.left--
	return b, nil
}

// lines hands out the whole lines of the block, at most a batch of them; nil
// where there is none.
func (r *reader) lines(at int) (*connectors.Batch, error) {
	var b *connectors.Batch
	c := &r.splits[at]
	for c.lo < c.hi && (b == nil || len(b.Records) < connectors.MaxBatch) {
		line, n, ok := c.line()
		if !ok {
			break
		}
		if len(line) > int(r.source.config.MaxLine) {
			if b == nil {
				return nil, r.tooLong(c)
			}
			break // hand out what comes before it
		}
		if len(line) > 0 {
			if b == nil {
				b = r.batches.Get()
				b.Split = at
				c.block.refs.Add(1)
				b.Hold(c.block)
			}
			b.Records = append(b.Records, connectors.Record{Value: line, Origin: &c.origin, Offset: c.pos, Time: c.time})
		}
		c.lo += n
		c.pos += int64(n)
	}
	if b != nil {
		b.Next = c.pos
		c.told = c.pos
	}
	return b, nil
}

var bom = []byte("\xef\xbb\xbf")

// line is the next line without its end and how many bytes it takes with it. A
// last line needs no end.
func (c *cursor) line() (line []byte, n int, ok bool) {
	rest := c.block.buf[c.lo:c.hi]
	at := bytes.IndexByte(rest, '\n')
	switch {
	case at >= 0:
		line, n = rest[:at:at], at+1
	case c.eof:
		line, n = rest[:len(rest):len(rest)], len(rest)
	default:
		return nil, 0, false
	}
	if k := len(line); k > 0 && line[k-1] == '\r' {
		line = line[: k-1 : k-1]
	}
	if c.pos == 0 {
		line = bytes.TrimPrefix(line, bom)
	}
	return line, n, true
}

func (r *reader) tooLong(c *cursor) error {
	return connectors.Permanent(fmt.Errorf("read file %s: the line at byte %d is longer than max_line, which is %s: raise it, or mend the file",
		c.split.ID, c.pos, r.source.config.MaxLine))
}

// fill reads on into another block, which takes over the line that the present
// one does not hold the end of. It waits for a block when all are with batches.
func (r *reader) fill(ctx context.Context, c *cursor) error {
	tail := c.hi - c.lo
	limit := int(r.source.config.MaxLine) + len("\r\n") + len(bom)
	if tail >= limit {
		return r.tooLong(c)
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
		copy(next.buf, c.block.buf[c.lo:c.hi])
	}
	if c.block != nil {
		c.block.Release()
	}
	next.refs.Store(1)
	c.block, c.lo, c.hi = next, 0, tail
	n, err := c.in.read(next.buf[tail:], c.pos+int64(tail))
	c.hi += n
	if errors.Is(err, io.EOF) {
		c.eof = true
		return nil
	}
	return err
}
