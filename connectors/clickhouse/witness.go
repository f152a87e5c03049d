package clickhouse

import (
	"context"
	"fmt"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/deferred/table"
)

// createCommits is the statement that makes the table of marks. It keeps a row of each
// generation that has committed, and one of the generation that fences older ones.
func (t *target) createCommits() string {
	return "CREATE TABLE IF NOT EXISTS " + t.commits + ` (
  pipeline String,
  sink String,
  origin String,
  generation UInt64 COMMENT 'of the checkpoints; 0 in the row of the fence',
  number UInt64 COMMENT 'checkpoint that is in as a whole',
  next UInt64 COMMENT 'checkpoint that is under way',
  blocks UInt64 COMMENT 'how many of its blocks are in',
  fence UInt64 COMMENT 'oldest generation that may commit',
  at DateTime64(6) DEFAULT now64(6)
) ENGINE = ReplacingMergeTree ORDER BY (pipeline, sink, origin, generation)`
}

// mark is what the table says of the sink.
type mark struct {
	table.Mark

	under  connectors.CheckpointID // checkpoint that is under way, or was
	blocks int                     // how many of its blocks are in
}

func (t *target) owner() table.Owner { return table.OwnerOf(&t.env, t.commits) }

// read reads the mark. Rows of one generation that are not merged yet are told apart by
// how far they are.
func (t *target) read(ctx context.Context) (m mark, err error) {
	rows, err := ask[struct{ Origin, Fence, Done, Under string }](ctx, t.client,
		"SELECT origin AS Origin, toString(max(fence)) AS Fence, toString(maxIf((generation, number), number > 0)) AS Done, toString(max((generation, next, blocks))) AS Under FROM "+t.commits+
			" WHERE pipeline = "+literal(t.env.Pipeline)+" AND sink = "+literal(t.env.Name)+" GROUP BY origin ORDER BY max(at) DESC LIMIT 1")
	if err != nil || len(rows) == 0 {
		m.Origin = t.owner().Origin
		return m, err
	}
	r := &rows[0]
	m.Origin = r.Origin
	_, err = fmt.Sscanf(r.Fence+r.Done+r.Under, "%d(%d,%d)(%d,%d,%d)", &m.Fence, &m.ID.Generation, &m.ID.Number, &m.under.Generation, &m.under.Number, &m.blocks)
	if err != nil {
		return m, connectors.Permanent(fmt.Errorf("read %s: it is not what this sink has written", t.commits))
	}
	return m, nil
}

// write adds a row: id is in as a whole, and of the checkpoint next of its generation so
// many blocks; or, with generation 0, the fence.
func (t *target) write(ctx context.Context, id connectors.CheckpointID, next uint64, blocks int, fence uint64) error {
	t.failpoint("mark.before")
	defer t.failpoint("mark.after")
	return t.client.run(ctx, fmt.Sprintf("INSERT INTO %s (pipeline, sink, origin, generation, number, next, blocks, fence) VALUES (%s, %s, %s, %d, %d, %d, %d, %d)",
		t.commits, literal(t.env.Pipeline), literal(t.env.Name), literal(t.owner().Origin), id.Generation, id.Number, next, blocks, fence))
}

// Witness is the last checkpoint that is in as a whole.
func (t *target) Witness(ctx context.Context) (id connectors.CheckpointID, ok bool, err error) {
	there, err := t.exists(ctx, t.commits)
	if err != nil || !there {
		return id, false, err
	}
	m, err := t.read(ctx)
	if err != nil {
		return id, false, err
	}
	return m.Witness(t.owner())
}

// Revoke lets no older process begin a commit any more.
func (t *target) Revoke(ctx context.Context) error {
	m, err := t.read(ctx)
	if err != nil {
		return err
	}
	own := t.owner()
	known := m.Origin == own.Origin && m.Fence == own.Generation
	next, err := m.Revoke(own)
	if err != nil || known {
		return err
	}
	return t.write(ctx, connectors.CheckpointID{}, 0, 0, next.Fence)
}
