package clickhouse

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/deferred"
)

// How large a block is at most. The server makes one block of an insert only where it has
// no more rows than max_insert_block_size, and remembers blocks, not inserts; both bounds
// stay far below what it cuts at. What a token stands for hangs on them: whoever changes
// one changes tokenForm too.
const (
	blockRows  = 500_000
	blockBytes = 16 << 20
	tokenForm  = "sluice1"
)

// apply is one commit under way.
type apply struct {
	*target

	id     connectors.CheckpointID
	done   connectors.CheckpointID // checkpoint of its generation that was in before
	skip   int                     // blocks that are in
	sent   int                     // blocks that came so far
	groups []*group                // rows of the block in the making, by shape
	rows   int
	bytes  int
}

// group is rows that have the same columns.
type group struct {
	key  string // schema and shape, as kept
	cols []sinkColumn
	body []byte // names and types of the columns, then the rows
}

// Apply sends the blocks of a checkpoint that are not known to be in, and then the mark.
func (t *target) Apply(ctx context.Context, c deferred.Commit) (refused int, err error) {
	m, err := t.read(ctx)
	if err != nil {
		return 0, err
	}
	next, done, err := m.Commit(t.owner(), c.ID, t.started)
	if err != nil || done {
		return 0, err
	}
	a := &apply{target: t, id: c.ID}
	if m.Origin == next.Origin {
		if m.ID.Generation == c.ID.Generation {
			a.done = m.ID
		}
		if m.under == c.ID {
			a.skip = m.blocks
		}
	}
	c.Rows.Rewind()
	if err := a.all(ctx, c.Rows); err != nil {
		return 0, err
	}
	return 0, t.write(ctx, next.ID, 0, 0, 0)
}

// all sends all rows. Rows of different shapes are collected side by side, as the columns
// of an insert are the same for all of its rows; a block ends where it is full.
func (a *apply) all(ctx context.Context, rows *deferred.Rows) error {
	for {
		b, err := rows.Next(ctx)
		if errors.Is(err, io.EOF) {
			return a.flush(ctx)
		}
		if err != nil {
			return err
		}
		for _, row := range b.Rows {
			if a.rows == blockRows || a.rows > 0 && a.bytes+len(row) > a.most {
				if err := a.flush(ctx); err != nil {
					return err
				}
			}
			if err := a.add(row); err != nil {
				return err
			}
		}
	}
}

func (a *apply) add(row []byte) error {
	n := keyLength(row)
	if n == 0 {
		return connectors.Permanent(errors.New("a kept row is damaged"))
	}
	i := slices.IndexFunc(a.groups, func(g *group) bool { return g.key == string(row[:n]) })
	if i < 0 {
		g, err := a.newGroup(string(row[:n]))
		if err != nil {
			return err
		}
		i, a.groups = len(a.groups), append(a.groups, g)
	}
	a.groups[i].body = append(a.groups[i].body, row[n:]...)
	a.rows++
	a.bytes += len(row)
	return nil
}

func (a *apply) newGroup(key string) (*group, error) {
	cols, err := a.columnsOf(key)
	if err != nil {
		return nil, err
	}
	body := binary.AppendUvarint(nil, uint64(len(cols)))
	for i := range cols {
		body = appendText(body, cols[i].name)
	}
	for i := range cols {
		body = appendText(body, cols[i].text)
	}
	return &group{key: key, cols: cols, body: body}, nil
}

// flush sends what was collected, a block for each shape.
func (a *apply) flush(ctx context.Context) error {
	for _, g := range a.groups {
		if a.sent >= a.skip {
			if err := a.send(ctx, g); err != nil {
				return err
			}
		}
		a.sent++
	}
	a.groups, a.rows, a.bytes = a.groups[:0], 0, 0
	return nil
}

// send sends one block. Before any but the first the mark tells that the others are in, so
// that the server's memory has to reach no further back than one block.
func (a *apply) send(ctx context.Context, g *group) error {
	if a.sent > a.skip {
		if err := a.write(ctx, connectors.CheckpointID{Generation: a.id.Generation, Number: a.done.Number}, a.id.Number, a.sent, 0); err != nil {
			return err
		}
	}
	a.failpoint("block.before")
	defer a.failpoint("block.after")
	return a.client.insert(ctx, a.settings(g.cols), "INSERT INTO "+a.table+" ("+names(g.cols)+") FORMAT RowBinaryWithNamesAndTypes", g.body)
}

// settings are those of the insert of one block.
func (a *apply) settings(cols []sinkColumn) url.Values {
	own := a.owner()
	out := url.Values{
		"insert_deduplicate":         {"1"},
		"insert_deduplication_token": {strings.Join([]string{tokenForm, own.Origin, own.Pipeline, a.env.Name, strconv.FormatUint(a.id.Generation, 10), strconv.FormatUint(a.id.Number, 10), strconv.Itoa(a.sent)}, "/")},
		// Views that read the table get a block that the table has already, for where the
		// server ended between the two, and drop it by their own memory.
		"deduplicate_blocks_in_dependent_materialized_views": {"1"},
		// One block stays one, and is remembered once for each partition.
		"max_insert_block_size":                    {strconv.Itoa(2 * blockRows)},
		"max_partitions_per_insert_block":          {strconv.Itoa(a.window)},
		"throw_on_max_partitions_per_insert_block": {"1"},
	}
	if a.chooses {
		out.Set("deduplicate_insert", "enable")
	}
	if slices.ContainsFunc(cols, func(c sinkColumn) bool { return c.codec.document }) {
		out.Set("input_format_binary_read_json_as_string", "1")
	}
	return out
}

// columnsOf are the columns that rows with a key have. Columns that were added to the table
// after the rows were kept are left to their defaults.
func (t *target) columnsOf(key string) ([]sinkColumn, error) {
	schema, shape := takeKey(key)
	for n := len(t.columns); n > 0; n-- {
		if cols := t.columns[:n]; schemaOf(cols) == schema {
			return withShape(cols, shape, t.config.Columns == nil), nil
		}
	}
	return nil, connectors.Permanent(fmt.Errorf("the columns of table %s, or those that are written, have changed since rows of a checkpoint were kept which is not committed yet: change them back until it is, and then again", t.table))
}

// withShape leaves out the columns that rows of a shape leave to the table.
func withShape(cols []sinkColumn, shape uint64, byName bool) []sinkColumn {
	out := make([]sinkColumn, 0, len(cols))
	bit := 0
	for _, c := range cols {
		if c.hasDefault && byName && bit < 64 {
			bit++
			if shape&(1<<(bit-1)) != 0 {
				continue
			}
		}
		out = append(out, c)
	}
	return out
}

// names lists columns as identifiers.
func names(cols []sinkColumn) string {
	out := make([]string, len(cols))
	for i := range cols {
		out[i] = quote(cols[i].name)
	}
	return strings.Join(out, ", ")
}
