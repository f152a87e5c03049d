package pipeline

import (
	"context"
	"slices"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
)

// exchange is how records, barriers and event time get from a task to the
// receiving tasks of one other chain. In one process it is the inboxes; between
// processes it can be a topic, with the same meaning: what is sent first arrives
// first.
type exchange interface {
	// send hands the rows of one edge over. What it needs of them it copies. It may
	// write to sel.
	send(ctx context.Context, e *edge, b *connectors.Batch, sel []uint16) error
	// barrier follows all rows sent so far, to every receiver.
	barrier(ctx context.Context, b *barrier) error
	// mark tells every receiver how far event time has come, behind all rows sent so far.
	mark(m mark)
}

// outlet is the sending side of a chain's inboxes, with the batches that are being
// filled for them.
type outlet struct {
	stride  int
	maxRows int
	ports   []port
	pool    *connectors.BatchPool
}

// port is one receiver, and the batch being filled for it.
type port struct {
	inbox  *inbox
	sender int
	batch  *connectors.Batch
	bytes  int
}

// failFunc hands a row over to on_error. An error it returns stops the pipeline.
type failFunc func(ctx context.Context, b *connectors.Batch, row uint16, e *connectors.RecordError) error

type encodeFailure struct {
	at  int // position in sel
	err error
}

// recordBytes is about what a record takes up beside its bytes and slots.
const recordBytes = 128

// open gives the batch to fill for a receiver, with a row of absent slots for one
// more record, which the caller appends.
func (o *outlet) open(p *port) (*connectors.Batch, []connectors.Value) {
	if p.batch == nil {
		p.batch = o.pool.Get()
		p.batch.Stride = o.stride
	}
	out := p.batch
	at := len(out.Slots)
	if cap(out.Slots) < at+o.stride {
		out.Slots = slices.Grow(out.Slots, o.stride)
	}
	out.Slots = out.Slots[:at+o.stride]
	row := out.Slots[at : at+o.stride : at+o.stride]
	clear(row)
	p.bytes += recordBytes + 24*o.stride
	return out, row
}

// full sends a receiver's batch if no more records go into it. The two rows of an
// update stay in one batch.
func (o *outlet) full(ctx context.Context, p *port, edge int) error {
	n := len(p.batch.Records)
	if n < min(o.maxRows, connectors.MaxBatch-1) || n < connectors.MaxBatch && p.batch.Records[n-1].Op == connectors.UpdateBefore {
		return nil
	}
	return o.flushPort(ctx, p, edge)
}

// flush sends what is pending; nothing waits for a batch to fill.
func (o *outlet) flush(ctx context.Context, edge int) error {
	for i := range o.ports {
		if o.ports[i].batch == nil {
			continue
		}
		if err := o.flushPort(ctx, &o.ports[i], edge); err != nil {
			return err
		}
	}
	return nil
}

func (o *outlet) flushPort(ctx context.Context, p *port, edge int) error {
	it := item{batch: p.batch, edge: edge, bytes: p.bytes}
	p.batch, p.bytes = nil, 0
	return p.inbox.put(ctx, p.sender, it)
}

func (o *outlet) barrier(ctx context.Context, b *barrier) error {
	for i := range o.ports {
		if err := o.ports[i].inbox.put(ctx, o.ports[i].sender, item{barrier: b}); err != nil {
			return err
		}
	}
	return nil
}

func (o *outlet) mark(m mark) {
	for i := range o.ports {
		o.ports[i].inbox.mark(o.ports[i].sender, m)
	}
}

// localExchange copies whole records into batches for the receiving task of the
// same subtask.
type localExchange struct {
	outlet
	edges   map[*edge]*lane
	letters bool // dead letters are wanted, with the values that sources gave
}

// lane is how the rows of one edge are handed on.
type lane struct {
	index   int // of the edge, among those of the receiving chain
	carries []carry
	encode  format.Encoder
	fail    failFunc
	rows    connectors.Rows
	failed  []encodeFailure
	note    func(i int, err error)
}

func newLane(e *edge, index int, fail failFunc) (*lane, error) {
	enc, err := format.NewEncoder(connectors.FormatConfig{}, e.from.Layout(), format.EncoderOptions{})
	if err != nil {
		return nil, err
	}
	l := &lane{index: index, carries: e.carries, encode: enc, fail: fail}
	l.rows.Layout = e.from.Layout()
	l.note = func(i int, err error) { l.failed = append(l.failed, encodeFailure{i, err}) }
	return l, nil
}

// values encodes the rows and leaves out those that have no encoded form.
// Values[i] is then that of the i-th row of what is returned.
func (l *lane) values(ctx context.Context, b *connectors.Batch, sel []uint16) ([]uint16, error) {
	l.rows.Batch, l.rows.Sel, l.failed = b, sel, l.failed[:0]
	l.encode.Encode(&l.rows, l.note)
	if len(l.failed) == 0 {
		return sel, nil
	}
	n, failed := 0, l.failed
	for i, row := range sel {
		if len(failed) > 0 && failed[0].at == i {
			if err := l.fail(ctx, b, row, recordError(b, row, "", "encode", failed[0].err.Error())); err != nil {
				return nil, err
			}
			failed = failed[1:]
			continue
		}
		sel[n], l.rows.Values[n] = row, l.rows.Values[i]
		n++
	}
	return sel[:n], nil
}

func (x *localExchange) send(ctx context.Context, e *edge, b *connectors.Batch, sel []uint16) error {
	l, p := x.edges[e], &x.ports[0]
	sel, err := l.values(ctx, b, sel)
	if err != nil {
		return err
	}
	for i, row := range sel {
		out, slots := x.open(p)
		p.bytes += l.copyRow(out, slots, b, row, i, x.letters)
		if err := x.full(ctx, p, l.index); err != nil {
			return err
		}
	}
	return x.flush(ctx, l.index)
}

// copyRow appends a copy of row, whose encoded value is Values[i], and returns how
// many bytes of it were copied.
func (l *lane) copyRow(out *connectors.Batch, slots []connectors.Value, b *connectors.Batch, row uint16, i int, letters bool) int {
	value, src := l.rows.Values[i], &b.Records[row]
	rec := connectors.Record{Origin: src.Origin, Offset: src.Offset, Time: src.Time, Mark: src.Mark, Op: src.Op}
	rec.Value = copied(&out.Arena, value)
	rec.Key = copied(&out.Arena, src.Key)
	bytes := len(value) + len(src.Key)
	rec.Headers, bytes = copyHeaders(&out.Arena, src.Headers, bytes)
	out.Records = append(out.Records, rec)
	if letters {
		original := original(b, row, value)
		out.Originals = append(out.Originals, copied(&out.Arena, original))
		bytes += len(original)
	}
	from := b.Row(int(row))
	for _, c := range l.carries {
		slots[c.hold] = keep(&out.Arena, from[c.from])
	}
	return bytes
}

// original is what a dead letter of the row holds: the value that its source gave,
// or the encoded one of a row that a step made.
func original(b *connectors.Batch, row uint16, encoded []byte) []byte {
	if b.Originals == nil && b.Records[row].Origin == nil {
		return encoded
	}
	return b.Original(int(row))
}

// copyHeaders copies headers and adds their size to bytes.
func copyHeaders(a *connectors.Arena, headers []connectors.Header, bytes int) ([]connectors.Header, int) {
	if len(headers) == 0 {
		return nil, bytes
	}
	out := make([]connectors.Header, len(headers))
	for i, h := range headers {
		out[i] = connectors.Header{Key: strings.Clone(h.Key), Value: copied(a, h.Value)}
		bytes += len(h.Key) + len(h.Value)
	}
	return out, bytes
}

// copied is a copy of b in an arena; null and empty stay what they are.
func copied(a *connectors.Arena, b []byte) []byte {
	switch {
	case b == nil:
		return nil
	case len(b) == 0:
		return []byte{}
	}
	return a.Copy(b)
}

// keep copies what a value borrows into an arena.
func keep(a *connectors.Arena, v connectors.Value) connectors.Value {
	switch v.Kind() {
	case connectors.String, connectors.Bytes, connectors.Decimal, connectors.List, connectors.Map:
		return connectors.TextValue(v.Kind(), a.Copy(v.Raw()))
	}
	return v
}
