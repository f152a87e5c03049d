package postgres

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/deferred"
	"github.com/sluice-etl/sluice/connectors/deferred/table"
)

// apply is one commit under way.
type apply struct {
	*target
	tx      pgx.Tx
	commit  deferred.Commit
	refused int
}

// Apply applies a checkpoint in one transaction.
func (t *target) Apply(ctx context.Context, c deferred.Commit) (refused int, err error) {
	err = t.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		a := &apply{target: t, tx: tx, commit: c}
		m, done, err := a.begin(ctx)
		if err != nil || done {
			return err
		}
		// What is deferred would be found at the end, where no row can be told from others.
		if err := t.simple(ctx, tx, "SET CONSTRAINTS ALL IMMEDIATE"); err != nil {
			return err
		}
		if c.Rows.Len() > 0 {
			if t.config.Mode == table.Insert {
				err = a.insert(ctx)
			} else {
				err = a.merge(ctx)
			}
			if err != nil {
				return err
			}
		}
		if err := t.settle(ctx, tx, c.Settled); err != nil {
			return err
		}
		refused = a.refused
		return t.write(ctx, tx, m)
	})
	return refused, err
}

// begin locks the mark and decides what it means for the commit.
func (a *apply) begin(ctx context.Context) (next table.Mark, done bool, err error) {
	m, err := a.lock(ctx, a.tx)
	if err != nil {
		return m, false, err
	}
	return m.Commit(a.owner(), a.commit.ID, a.started)
}

// kept is a kept row, taken apart.
type kept struct {
	op    table.Op
	shape uint64
	line  []byte
}

func takeApart(row []byte) (kept, error) {
	if len(row) > 1 {
		if shape, n := binary.Uvarint(row[1:]); n > 0 && bytes.HasSuffix(row[1+n:], []byte{'\n'}) {
			return kept{op: table.Op(row[0]), shape: shape, line: row[1+n:]}, nil
		}
	}
	return kept{}, connectors.Permanent(errors.New("a kept row is damaged"))
}

// has reports whether rows of a shape have a column, as table.Mapper counts them.
func (t *target) has(shape uint64, column int) bool {
	if len(t.config.Columns) > 0 {
		return true
	}
	bit := 0
	for i := range t.columns {
		if !t.columns[i].hasDefault {
			continue
		}
		if i == column {
			return shape&(1<<bit) == 0
		}
		bit++
	}
	return true
}

// names are the columns of rows of a shape.
func (t *target) names(shape uint64) []string {
	var out []string
	for i := range t.columns {
		if t.has(shape, i) {
			out = append(out, t.columns[i].name)
		}
	}
	return out
}

// try runs f so that what it did can be taken back alone, where rows are refused.
func (a *apply) try(ctx context.Context, f func() error) (refused, err error) {
	if err := a.simple(ctx, a.tx, "SAVEPOINT sluice"); err != nil {
		return nil, err
	}
	err = f()
	if err == nil {
		return nil, a.simple(ctx, a.tx, "RELEASE SAVEPOINT sluice")
	}
	if _, ok := rejects(err); !ok {
		return nil, err
	}
	return err, a.simple(ctx, a.tx, "ROLLBACK TO SAVEPOINT sluice; RELEASE SAVEPOINT sluice")
}

// insert copies all rows at once, or, where some are refused, piece by piece.
func (a *apply) insert(ctx context.Context) error {
	a.env.Failpoint("postgres.copy.before")
	refused, err := a.try(ctx, func() error { return a.copyAll(ctx) })
	a.env.Failpoint("postgres.copy.after")
	if refused == nil || err != nil {
		return err
	}
	a.commit.Rows.Rewind()
	return a.eachBlock(ctx, func(b *deferred.Block, _ int64) error {
		return a.bisect(ctx, 0, len(b.Rows),
			func(lo, hi int) error { return a.copySome(ctx, b.Rows[lo:hi]) },
			func(i int, why error) error { return a.refuse(ctx, b, i, why) })
	})
}

// bisect runs do for all of lo to hi, and hands those that it fails for alone to refuse.
func (a *apply) bisect(ctx context.Context, lo, hi int, do func(lo, hi int) error, refuse func(i int, why error) error) error {
	if lo >= hi {
		return nil
	}
	refused, err := a.try(ctx, func() error { return do(lo, hi) })
	switch {
	case err != nil || refused == nil:
		return err
	case hi-lo == 1:
		return refuse(lo, refused)
	}
	mid := lo + (hi-lo)/2
	if err := a.bisect(ctx, lo, mid, do, refuse); err != nil {
		return err
	}
	return a.bisect(ctx, mid, hi, do, refuse)
}

// refuse keeps row i of a block among the refused ones.
func (a *apply) refuse(ctx context.Context, b *deferred.Block, i int, why error) error {
	rec := b.Record(i)
	k, err := takeApart(b.Rows[i])
	if err != nil {
		return err
	}
	a.refused++
	return a.reject(ctx, a.tx, a.commit.ID, &rec, k.line[:len(k.line)-1], why)
}

// eachBlock calls f for each block, with the number of rows before it.
func (a *apply) eachBlock(ctx context.Context, f func(b *deferred.Block, before int64) error) error {
	before := int64(0)
	for {
		b, err := a.commit.Rows.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := f(b, before); err != nil {
			return err
		}
		before += int64(len(b.Rows))
	}
}

func (t *target) copyText(shape uint64) string {
	names := quoted(t.names(shape))
	return "COPY " + t.table + " (" + join(names) + ") FROM STDIN"
}

// copyAll copies the rows of one shape after the other: the table has values of its own
// for the columns that a shape lacks. Nearly always there is one.
func (a *apply) copyAll(ctx context.Context) error {
	shapes := []uint64{a.shape} // most likely the one of before
	for n := 0; n < len(shapes); n++ {
		shape := shapes[n]
		if n > 0 {
			a.commit.Rows.Rewind()
		}
		r := &copyReader{ctx: ctx, rows: a.commit.Rows, line: func(k *kept, _ int64, dst []byte) []byte {
			if k.shape != shape {
				if !slices.Contains(shapes, k.shape) {
					shapes = append(shapes, k.shape)
				}
				return dst
			}
			return appendShaped(dst, k.line, a.target, shape)
		}}
		if err := r.copy(ctx, a.tx, a.copyText(shape)); err != nil {
			return err
		}
	}
	a.shape = shapes[len(shapes)-1]
	return nil
}

// appendShaped appends a line without the columns that the shape lacks.
func appendShaped(dst, line []byte, t *target, shape uint64) []byte {
	if shape == 0 {
		return append(dst, line...)
	}
	at, first := 0, true
	for c := 0; at < len(line); c++ {
		end := at
		for line[end] != '\t' && line[end] != '\n' {
			end++
		}
		if t.has(shape, c) {
			if !first {
				dst = append(dst, '\t')
			}
			first = false
			dst = append(dst, line[at:end]...)
		}
		at = end + 1
	}
	return append(dst, '\n')
}

// copySome copies a few rows, which may be of several shapes.
func (a *apply) copySome(ctx context.Context, rows [][]byte) error {
	for len(rows) > 0 {
		first, err := takeApart(rows[0])
		if err != nil {
			return err
		}
		var buf []byte
		n := 0
		for ; n < len(rows); n++ {
			k, err := takeApart(rows[n])
			if err != nil {
				return err
			}
			if k.shape != first.shape {
				break
			}
			buf = appendShaped(buf, k.line, a.target, k.shape)
		}
		if err := a.send(ctx, a.copyText(first.shape), buf); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}
