package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-etl/sluice/connectors/deferred"
	"github.com/sluice-etl/sluice/connectors/deferred/table"
)

// The temporary tables of a commit: all rows, and the last one of each key.
const (
	loadedTable = "pg_temp.sluice_rows"
	lastTable   = "pg_temp.sluice_last"
)

// mergeAtOnce is how many rows are tried together where some are refused.
const mergeAtOnce = 256

// The columns of the temporary tables beside the table's own, which are called c0, c1
// and so on.
const stateColumns = "sluice_seq, sluice_op, sluice_shape"

func temporary(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = "c" + strconv.Itoa(i)
	}
	return out
}

// merge loads the rows into a temporary table and applies the last one of each key:
// deletes, then what is written, so that a value which moves from one row to another is
// free.
func (a *apply) merge(ctx context.Context) error {
	if err := a.load(ctx); err != nil {
		return err
	}
	keys := a.keyColumns()
	text := "CREATE TEMPORARY TABLE sluice_last ON COMMIT DROP AS SELECT DISTINCT ON (" + keys + ") * FROM " + loadedTable +
		" ORDER BY " + keys + ", sluice_seq DESC; ANALYZE " + lastTable
	if err := a.simple(ctx, a.tx, text); err != nil {
		return err
	}
	shapes, err := a.shapes(ctx)
	if err != nil {
		return err
	}
	rejected := map[int64]error{}
	refused, err := a.try(ctx, func() error { return a.mergeRange(ctx, shapes, 0, a.commit.Rows.Len()) })
	if err != nil {
		return err
	}
	if refused != nil {
		if err := a.mergeEach(ctx, shapes, rejected); err != nil {
			return err
		}
	}
	return a.refuseAll(ctx, rejected)
}

// keyColumns are the key's columns in the temporary tables.
func (t *target) keyColumns() string {
	var out []string
	for _, k := range t.key {
		out = append(out, "c"+strconv.Itoa(slices.IndexFunc(t.columns, func(c sinkColumn) bool { return c.name == k })))
	}
	return join(out)
}

// load copies all rows into a temporary table, in which no constraint holds but those of
// the types; those of domains neither, as a row to delete has no values but its key's.
func (a *apply) load(ctx context.Context) error {
	var cols []string
	for i, c := range a.columns {
		cols = append(cols, pgx.Identifier{c.name}.Sanitize()+"::"+c.typ.full+" AS c"+strconv.Itoa(i))
	}
	text := "CREATE TEMPORARY TABLE sluice_rows ON COMMIT DROP AS SELECT 0::bigint AS sluice_seq, ''::text AS sluice_op, 0::bigint AS sluice_shape, " +
		join(cols) + " FROM " + a.table + " LIMIT 0"
	if err := a.simple(ctx, a.tx, text); err != nil {
		return err
	}
	into := "COPY " + loadedTable + " (" + stateColumns + ", " + join(temporary(len(a.columns))) + ") FROM STDIN"
	line := func(k *kept, seq int64, dst []byte) []byte {
		dst = append(strconv.AppendInt(dst, seq, 10), '\t', byte(k.op), '\t')
		dst = append(strconv.AppendInt(dst, int64(k.shape), 10), '\t')
		return append(dst, k.line...)
	}
	a.env.Failpoint("postgres.copy.before")
	refused, err := a.try(ctx, func() error {
		return (&copyReader{ctx: ctx, rows: a.commit.Rows, line: line}).copy(ctx, a.tx, into)
	})
	a.env.Failpoint("postgres.copy.after")
	if refused == nil || err != nil {
		return err
	}
	a.commit.Rows.Rewind()
	return a.eachBlock(ctx, func(b *deferred.Block, before int64) error {
		return a.bisect(ctx, 0, len(b.Rows), func(lo, hi int) error {
			var lines []byte
			for i := lo; i < hi; i++ {
				k, err := takeApart(b.Rows[i])
				if err != nil {
					return err
				}
				lines = line(&k, before+int64(i), lines)
			}
			return a.send(ctx, into, lines)
		}, func(i int, why error) error { return a.refuse(ctx, b, i, why) })
	})
}

// shapes are those of the rows that are written.
func (a *apply) shapes(ctx context.Context) ([]uint64, error) {
	rows, err := a.tx.Query(ctx, "SELECT DISTINCT sluice_shape FROM "+lastTable+" WHERE sluice_op = $1", string(table.Write))
	if err != nil {
		return nil, err
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	out := make([]uint64, len(list))
	for i := range list {
		out[i] = uint64(list[i])
	}
	return out, err
}

// mergeRange applies the last rows whose places are from lo up to hi, without it.
func (a *apply) mergeRange(ctx context.Context, shapes []uint64, lo, hi int64) error {
	var equal []string
	for _, k := range a.key {
		c := slices.IndexFunc(a.columns, func(c sinkColumn) bool { return c.name == k })
		equal = append(equal, fmt.Sprintf("t.%s = l.c%d", pgx.Identifier{k}.Sanitize(), c))
	}
	within := fmt.Sprintf("sluice_seq >= %d AND sluice_seq < %d", lo, hi)
	texts := []string{fmt.Sprintf("DELETE FROM %s AS t USING %s AS l WHERE l.sluice_op = '%c' AND %s AND %s", a.table, lastTable, table.Delete, within, strings.Join(equal, " AND "))}
	for _, shape := range shapes {
		texts = append(texts, a.upsertText(shape)+fmt.Sprintf(" WHERE sluice_op = '%c' AND sluice_shape = %d AND %s ORDER BY sluice_seq ", table.Write, int64(shape), within)+a.conflictText(shape))
	}
	a.env.Failpoint("postgres.merge.before")
	defer a.env.Failpoint("postgres.merge.after")
	return a.simple(ctx, a.tx, strings.Join(texts, "; "))
}

func (t *target) upsertText(shape uint64) string {
	var names, from []string
	for i := range t.columns {
		if t.has(shape, i) {
			names, from = append(names, pgx.Identifier{t.columns[i].name}.Sanitize()), append(from, "c"+strconv.Itoa(i))
		}
	}
	return "INSERT INTO " + t.table + " (" + join(names) + ") SELECT " + join(from) + " FROM " + lastTable
}

func (t *target) conflictText(shape uint64) string {
	var set []string
	for i := range t.columns {
		name := t.columns[i].name
		if t.has(shape, i) && !slices.Contains(t.key, name) {
			q := pgx.Identifier{name}.Sanitize()
			set = append(set, q+" = EXCLUDED."+q)
		}
	}
	text := "ON CONFLICT (" + join(quoted(t.key)) + ") DO "
	if len(set) == 0 {
		return text + "NOTHING"
	}
	return text + "UPDATE SET " + join(set)
}

// mergeEach finds the rows that the table refuses. In the place of each comes the one
// before it of the same key, as if rows had been written one by one.
func (a *apply) mergeEach(ctx context.Context, shapes []uint64, rejected map[int64]error) error {
	// Without an index each range would read the whole table.
	if err := a.simple(ctx, a.tx, "CREATE INDEX ON "+lastTable+" (sluice_seq)"); err != nil {
		return err
	}
	var again []int64
	var err error
	// Small ranges: what is tried in vain is left in the table as dead rows.
	n := int(a.commit.Rows.Len())
	for lo := 0; lo < n && err == nil; lo += mergeAtOnce {
		err = a.bisect(ctx, lo, min(lo+mergeAtOnce, n), func(lo, hi int) error { return a.mergeRange(ctx, shapes, int64(lo), int64(hi)) },
			func(i int, why error) error {
				rejected[int64(i)] = why
				again = append(again, int64(i))
				return nil
			})
	}
	if err == nil {
		again, err = a.mergeFreed(ctx, shapes, again, rejected)
	}
	for err == nil && len(again) > 0 {
		seq := again[0]
		again = again[1:]
		var before int64
		if before, err = a.stepBack(ctx, seq); err != nil || before < 0 {
			continue
		}
		if shapes, err = a.shapes(ctx); err != nil {
			break
		}
		var refused error
		if refused, err = a.try(ctx, func() error { return a.mergeRange(ctx, shapes, before, before+1) }); refused != nil {
			rejected[before] = refused
			again = append(again, before)
		}
	}
	return err
}

// freeingPasses bounds how often rows are tried again whose place another row has.
const freeingPasses = 8

// mergeFreed tries rows again that met another one in a unique index beside the key's: it
// can have moved away by now, as only the last row of each key is written. It gives those
// that are refused still.
func (a *apply) mergeFreed(ctx context.Context, shapes []uint64, seqs []int64, rejected map[int64]error) (left []int64, err error) {
	for range freeingPasses {
		left = nil
		slices.Reverse(seqs) // a row frees the place of the one before it or behind it
		for _, seq := range seqs {
			if e, _ := rejects(rejected[seq]); e.Code != uniqueViolation {
				left = append(left, seq)
				continue
			}
			refused, err := a.try(ctx, func() error { return a.mergeRange(ctx, shapes, seq, seq+1) })
			if err != nil {
				return nil, err
			}
			if refused == nil {
				delete(rejected, seq)
				continue
			}
			rejected[seq] = refused
			left = append(left, seq)
		}
		if len(left) == len(seqs) {
			break
		}
		seqs = left
	}
	return left, nil
}

// stepBack puts the row before the one at seq, of the same key, in its place; -1 where
// there is none.
func (a *apply) stepBack(ctx context.Context, seq int64) (before int64, err error) {
	var same []string
	for _, k := range strings.Split(a.keyColumns(), ", ") {
		same = append(same, "r."+k+" = l."+k)
	}
	err = a.tx.QueryRow(ctx, "SELECT r.sluice_seq FROM "+loadedTable+" AS r, "+lastTable+" AS l WHERE l.sluice_seq = $1 AND r.sluice_seq < $1 AND "+
		strings.Join(same, " AND ")+" ORDER BY r.sluice_seq DESC LIMIT 1", seq).Scan(&before)
	if errors.Is(err, pgx.ErrNoRows) {
		return -1, nil
	}
	if err != nil {
		return -1, err
	}
	_, err = a.tx.Exec(ctx, "INSERT INTO "+lastTable+" SELECT * FROM "+loadedTable+" WHERE sluice_seq = $1", before)
	return before, err
}

// refuseAll keeps the rows at these places among the refused ones.
func (a *apply) refuseAll(ctx context.Context, rejected map[int64]error) error {
	if len(rejected) == 0 {
		return nil
	}
	a.commit.Rows.Rewind()
	return a.eachBlock(ctx, func(b *deferred.Block, before int64) error {
		for i := range b.Rows {
			if why := rejected[before+int64(i)]; why != nil {
				if err := a.refuse(ctx, b, i, why); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
