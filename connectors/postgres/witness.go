package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/deferred/table"
)

// stateTables are the tables that the sink keeps beside the user's, quoted.
type stateTables struct{ commits, rejected string }

func newStateTables(schema string) stateTables {
	in := func(name string) string {
		if schema == "" {
			return pgx.Identifier{name}.Sanitize()
		}
		return pgx.Identifier{schema, name}.Sanitize()
	}
	return stateTables{commits: in("sluice_commits"), rejected: in("sluice_rejected")}
}

// create are the statements that make them, by name.
func (s stateTables) create() map[string]string {
	return map[string]string{
		s.commits: "CREATE TABLE IF NOT EXISTS " + s.commits + ` (
  pipeline text NOT NULL,
  sink text NOT NULL,
  origin text NOT NULL,
  generation bigint NOT NULL,
  number bigint NOT NULL,
  fence bigint NOT NULL,
  committed_at timestamptz,
  PRIMARY KEY (pipeline, sink)
)`,
		s.rejected: "CREATE TABLE IF NOT EXISTS " + s.rejected + ` (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  pipeline text NOT NULL,
  sink text NOT NULL,
  generation bigint NOT NULL,
  number bigint NOT NULL,
  topic text,
  partition integer,
  "offset" bigint,
  key bytea,
  value bytea,
  headers json,
  time bigint,
  row text,
  kind text NOT NULL,
  reason text NOT NULL,
  rejected_at timestamptz NOT NULL DEFAULT now(),
  settled_at timestamptz
)`,
	}
}

func (t *target) owner() table.Owner { return table.OwnerOf(&t.env, t.state.commits) }

// read reads the mark; lock keeps it until the end of the transaction.
func (t *target) read(ctx context.Context, tx pgx.Tx, lock string) (m table.Mark, ok bool, err error) {
	err = tx.QueryRow(ctx, "SELECT origin, generation, number, fence FROM "+t.state.commits+" WHERE pipeline = $1 AND sink = $2"+lock, t.env.Pipeline, t.env.Name).
		Scan(&m.Origin, &m.ID.Generation, &m.ID.Number, &m.Fence)
	if errors.Is(err, pgx.ErrNoRows) {
		return m, false, nil
	}
	return m, err == nil, err
}

// lock reads the mark for a change of it, making it where it is not there.
func (t *target) lock(ctx context.Context, tx pgx.Tx) (table.Mark, error) {
	if _, err := tx.Exec(ctx, "INSERT INTO "+t.state.commits+" (pipeline, sink, origin, generation, number, fence) VALUES ($1, $2, $3, 0, 0, 0) ON CONFLICT DO NOTHING",
		t.env.Pipeline, t.env.Name, t.owner().Origin); err != nil {
		return table.Mark{}, err
	}
	m, ok, err := t.read(ctx, tx, " FOR UPDATE")
	if err == nil && !ok {
		err = errors.New("the row of the pipeline in sluice_commits is gone again")
	}
	return m, err
}

// write sets the mark.
func (t *target) write(ctx context.Context, tx pgx.Tx, m table.Mark) error {
	_, err := tx.Exec(ctx, "UPDATE "+t.state.commits+" SET origin = $3, generation = $4, number = $5, fence = $6, committed_at = now() WHERE pipeline = $1 AND sink = $2",
		t.env.Pipeline, t.env.Name, m.Origin, int64(m.ID.Generation), int64(m.ID.Number), int64(m.Fence))
	return err
}

// Witness is the last commit.
func (t *target) Witness(ctx context.Context) (id connectors.CheckpointID, ok bool, err error) {
	var m table.Mark
	err = t.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		var there bool
		if err := tx.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", t.state.commits).Scan(&there); err != nil || !there {
			return err
		}
		m, ok, err = t.read(ctx, tx, "")
		return err
	})
	if err != nil || !ok {
		return connectors.CheckpointID{}, false, err
	}
	return m.Witness(t.owner())
}

// Revoke lets no older process commit any more.
func (t *target) Revoke(ctx context.Context) error {
	return t.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		m, err := t.lock(ctx, tx)
		if err != nil {
			return err
		}
		if m, err = m.Revoke(t.owner()); err != nil {
			return err
		}
		t.env.Failpoint("postgres.revoke.before")
		return t.write(ctx, tx, m)
	})
}

// Rejected gives rows that commits have refused.
func (t *target) Rejected(ctx context.Context, after int64, limit int) (out []connectors.Rejected, last int64, err error) {
	err = t.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		out, last = nil, 0
		rows, err := tx.Query(ctx, `SELECT id, topic, partition, "offset", key, value, headers, time, kind, reason FROM `+t.state.rejected+
			" WHERE pipeline = $1 AND sink = $2 AND id > $3 AND settled_at IS NULL ORDER BY id LIMIT $4", t.env.Pipeline, t.env.Name, after, limit)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			r, err := readRejected(rows, &last)
			if err != nil {
				return err
			}
			out = append(out, r)
		}
		rows.Close()
		if err := rows.Err(); err != nil || t.env.OnError != connectors.RowFail {
			return err
		}
		return t.settle(ctx, tx, last)
	})
	return out, last, err
}

func readRejected(rows pgx.Rows, id *int64) (r connectors.Rejected, err error) {
	var topic *string
	var partition *int32
	var offset, at *int64
	var headers []byte
	if err := rows.Scan(id, &topic, &partition, &offset, &r.Record.Key, &r.Record.Value, &headers, &at, &r.Kind, &r.Reason); err != nil {
		return r, err
	}
	r.Record.Mark = connectors.NoMark
	if topic != nil && partition != nil && offset != nil {
		r.Record.Origin, r.Record.Offset = &connectors.Origin{Topic: *topic, Partition: *partition}, *offset
	}
	if at != nil {
		r.Record.Time = *at
	}
	r.Record.Headers, err = table.DecodeHeaders(headers)
	return r, err
}

// settle takes away the refused rows up to a mark, which are handed over. Where they end
// the run they are only marked: nobody else has them.
func (t *target) settle(ctx context.Context, tx pgx.Tx, through int64) error {
	if through == 0 {
		return nil
	}
	do := "DELETE FROM " + t.state.rejected
	if t.env.OnError == connectors.RowFail {
		do = "UPDATE " + t.state.rejected + " SET settled_at = now()"
	}
	_, err := tx.Exec(ctx, do+" WHERE pipeline = $1 AND sink = $2 AND id <= $3 AND settled_at IS NULL", t.env.Pipeline, t.env.Name, through)
	return err
}

// reject keeps a row that is refused.
func (t *target) reject(ctx context.Context, tx pgx.Tx, id connectors.CheckpointID, rec *connectors.Record, row []byte, err error) error {
	e, ok := rejects(err)
	if !ok {
		return err
	}
	kind, reason := why(e)
	var topic *string
	var partition *int32
	var offset, at *int64
	if rec.Origin != nil {
		topic, partition, offset = &rec.Origin.Topic, &rec.Origin.Partition, &rec.Offset
	}
	if rec.Time != 0 {
		at = &rec.Time
	}
	headers, err := table.EncodeHeaders(rec.Headers)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "INSERT INTO "+t.state.rejected+` (pipeline, sink, generation, number, topic, partition, "offset", key, value, headers, time, row, kind, reason)`+
		" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
		t.env.Pipeline, t.env.Name, int64(id.Generation), int64(id.Number), topic, partition, offset, rec.Key, rec.Value, headers, at, string(row), kind, reason)
	return err
}
