package mysql

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/deferred"
	"github.com/sluice-etl/sluice/connectors/deferred/table"
)

// apply is one commit under way.
type apply struct {
	*target
	tx      *sql.Tx
	commit  deferred.Commit
	refused int
	text    strings.Builder
}

// Apply applies a checkpoint in one transaction.
func (t *target) Apply(ctx context.Context, c deferred.Commit) (refused int, err error) {
	err = t.transact(ctx, func(ctx context.Context, tx *sql.Tx) error {
		a := &apply{target: t, tx: tx, commit: c}
		m, done, err := a.begin(ctx)
		if err != nil || done {
			return err
		}
		t.env.Failpoint("mysql.rows.before")
		if err := a.rows(ctx); err != nil {
			return err
		}
		t.env.Failpoint("mysql.rows.after")
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
	tuple []byte
}

func takeApart(row []byte) (kept, error) {
	if len(row) > 1 {
		if shape, n := binary.Uvarint(row[1:]); n > 0 && bytes.HasSuffix(row[1+n:], []byte{')'}) {
			return kept{op: table.Op(row[0]), shape: shape, tuple: row[1+n:]}, nil
		}
	}
	return kept{}, connectors.Permanent(errors.New("a kept row is damaged"))
}

// rows runs the statements of all rows, in their order.
func (a *apply) rows(ctx context.Context) error {
	for {
		b, err := a.commit.Rows.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := a.block(ctx, b); err != nil {
			return err
		}
	}
}

// block runs a statement for each run of rows that are alike.
func (a *apply) block(ctx context.Context, b *deferred.Block) error {
	rows := make([]kept, len(b.Rows))
	for i, r := range b.Rows {
		var err error
		if rows[i], err = takeApart(r); err != nil {
			return err
		}
	}
	for from := 0; from < len(rows); {
		to, size := from+1, len(rows[from].tuple)
		for to < len(rows) && rows[to].op == rows[from].op && rows[to].shape == rows[from].shape && size+len(rows[to].tuple) < a.packet-packetMargin {
			size += len(rows[to].tuple) + 1
			to++
		}
		if err := a.bisect(ctx, b, rows, from, to); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// bisect runs the statement for rows that are alike, and, where it is refused, for each
// half. A statement that fails leaves nothing behind.
func (a *apply) bisect(ctx context.Context, b *deferred.Block, rows []kept, from, to int) error {
	_, err := a.tx.ExecContext(ctx, a.statement(rows[from:to]))
	if err == nil {
		return nil
	}
	if _, ok := rejects(err); !ok {
		return err
	}
	if to-from == 1 {
		rec := b.Record(from)
		a.refused++
		return a.reject(ctx, a.tx, a.commit.ID, &rec, rows[from].tuple, err)
	}
	mid := from + (to-from)/2
	if err := a.bisect(ctx, b, rows, from, mid); err != nil {
		return err
	}
	return a.bisect(ctx, b, rows, mid, to)
}

// statement is what writes or deletes rows that are alike.
func (a *apply) statement(rows []kept) string {
	a.text.Reset()
	if rows[0].op == table.Delete {
		a.text.WriteString("DELETE FROM " + a.table + " WHERE (" + names(a.ordered()) + ") IN (")
	} else {
		var all []string
		for i := range a.columns {
			all = append(all, a.columns[i].name)
		}
		a.text.WriteString("INSERT INTO " + a.table + " (" + names(all) + ") VALUES ")
	}
	for i := range rows {
		if i > 0 {
			a.text.WriteByte(',')
		}
		a.text.Write(rows[i].tuple)
	}
	switch {
	case rows[0].op == table.Delete:
		a.text.WriteByte(')')
	case a.config.Mode != table.Insert:
		a.text.WriteString(" ON DUPLICATE KEY UPDATE " + a.updates(rows[0].shape))
	}
	return a.text.String()
}

// ordered are the columns of the key in the order of the table's.
func (a *apply) ordered() (out []string) {
	for i := range a.columns {
		if slices.Contains(a.key, a.columns[i].name) {
			out = append(out, a.columns[i].name)
		}
	}
	return out
}

// updates is what a row sets in the one of its key.
func (a *apply) updates(shape uint64) string {
	var set []string
	bit := 0
	for i := range a.columns {
		c := &a.columns[i]
		has := true
		if c.hasDefault && len(a.config.Columns) == 0 {
			has = shape&(1<<bit) == 0
			bit++
		}
		if q := quote(c.name); has && !slices.Contains(a.key, c.name) {
			set = append(set, q+" = VALUES("+q+")")
		}
	}
	if len(set) == 0 {
		k := quote(a.key[0])
		return k + " = " + k
	}
	return strings.Join(set, ", ")
}
