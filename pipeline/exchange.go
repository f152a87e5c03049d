package pipeline

import (
	"context"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
)

// exchange is how records and barriers get from a task to the receiving tasks of
// one other chain. In one process it is the inboxes of this file; between
// processes it can be a topic, with the same meaning: what is sent before a
// barrier arrives before it.
type exchange interface {
	// send hands the rows of one edge over. What it needs of them it copies.
	send(ctx context.Context, e *edge, b *connectors.Batch, sel []uint16) error
	// barrier follows all rows sent so far, to every receiver.
	barrier(ctx context.Context, b *barrier) error
}

// localExchange copies rows into batches for each receiver's inbox.
type localExchange struct {
	edges   map[*edge]*lane
	stride  int
	maxRows int
	ports   []port
	pool    *connectors.BatchPool
	letters bool // dead letters are wanted, with the values that sources gave
}

// lane is how the rows of one edge are handed on.
type lane struct {
	index   int // of the edge, among those of the receiving chain
	carries []carry
	encode  format.Encoder
	choose  chooser // nil for a single receiver
	fail    failFunc
	rows    connectors.Rows
	failed  []encodeFailure
	note    func(i int, err error)
}

// chooser picks the receiver of a row.
type chooser func(b *connectors.Batch, row uint16) (receiver int, refused *connectors.RecordError)

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

func newLane(e *edge, index int, choose chooser, fail failFunc) (*lane, error) {
	enc, err := format.NewEncoder(connectors.FormatConfig{}, e.from.Layout(), format.EncoderOptions{})
	if err != nil {
		return nil, err
	}
	l := &lane{index: index, carries: e.carries, encode: enc, choose: choose, fail: fail}
	l.rows.Layout = e.from.Layout()
	l.note = func(i int, err error) { l.failed = append(l.failed, encodeFailure{i, err}) }
	return l, nil
}

func (x *localExchange) send(ctx context.Context, e *edge, b *connectors.Batch, sel []uint16) error {
	l := x.edges[e]
	l.rows.Batch, l.rows.Sel, l.failed = b, sel, l.failed[:0]
	l.encode.Encode(&l.rows, l.note)
	failed := l.failed
	for i, row := range sel {
		to := 0
		var refused *connectors.RecordError
		if len(failed) > 0 && failed[0].at == i {
			refused = recordError(b, row, "", "encode", failed[0].err.Error())
			failed = failed[1:]
		} else if l.choose != nil {
			to, refused = l.choose(b, row)
		}
		if refused != nil {
			if err := l.fail(ctx, b, row, refused); err != nil {
				return err
			}
			continue
		}
		if err := x.add(ctx, l, &x.ports[to], b, row, l.rows.Values[i]); err != nil {
			return err
		}
	}
	return x.flush(ctx, l)
}

// add copies one row into the batch of a receiver.
func (x *localExchange) add(ctx context.Context, l *lane, p *port, b *connectors.Batch, row uint16, value []byte) error {
	if p.batch == nil {
		p.batch = x.pool.Get()
		p.batch.Stride = x.stride
	}
	out := p.batch
	src := &b.Records[row]
	rec := connectors.Record{Origin: src.Origin, Offset: src.Offset, Time: src.Time}
	rec.Value = copied(&out.Arena, value)
	rec.Key = copied(&out.Arena, src.Key)
	if len(src.Headers) > 0 {
		rec.Headers = make([]connectors.Header, len(src.Headers))
		for i, h := range src.Headers {
			rec.Headers[i] = connectors.Header{Key: strings.Clone(h.Key), Value: copied(&out.Arena, h.Value)}
			p.bytes += len(h.Key) + len(h.Value)
		}
	}
	out.Records = append(out.Records, rec)
	if x.letters {
		out.Originals = append(out.Originals, copied(&out.Arena, b.Original(int(row))))
	}
	at := len(out.Slots)
	for range x.stride {
		out.Slots = append(out.Slots, connectors.Value{})
	}
	from := b.Row(int(row))
	for _, c := range l.carries {
		out.Slots[at+c.hold] = keep(&out.Arena, from[c.from])
	}
	p.bytes += len(value) + len(src.Key) + 128
	if len(out.Records) >= x.maxRows {
		return x.flushPort(ctx, l, p)
	}
	return nil
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

// flush sends what is pending; nothing waits for a batch to fill.
func (x *localExchange) flush(ctx context.Context, l *lane) error {
	for i := range x.ports {
		if err := x.flushPort(ctx, l, &x.ports[i]); err != nil {
			return err
		}
	}
	return nil
}

func (x *localExchange) flushPort(ctx context.Context, l *lane, p *port) error {
	if p.batch == nil {
		return nil
	}
	it := item{batch: p.batch, edge: l.index, bytes: p.bytes}
	p.batch, p.bytes = nil, 0
	return p.inbox.put(ctx, p.sender, it)
}

func (x *localExchange) barrier(ctx context.Context, b *barrier) error {
	for i := range x.ports {
		if err := x.ports[i].inbox.put(ctx, x.ports[i].sender, item{barrier: b}); err != nil {
			return err
		}
	}
	return nil
}
