package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-etl/sluice/connectors"
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

// mark is the row of this pipeline and sink in sluice_commits.
type mark struct {
	origin string
	id     connectors.CheckpointID
	fence  uint64 // the oldest generation that may commit
}

func (t *target) origin() string {
	if t.env.Origin == nil {
		return ""
	}
	return t.env.Origin()
}

func (t *target) generation() uint64 {
	if t.env.Generation == nil {
		return 0
	}
	return t.env.Generation()
}

// read reads the mark; lock keeps it until the end of the transaction.
func (t *target) read(ctx context.Context, tx pgx.Tx, lock string) (m mark, ok bool, err error) {
	err = tx.QueryRow(ctx, "SELECT origin, generation, number, fence FROM "+t.state.commits+" WHERE pipeline = $1 AND sink = $2"+lock, t.env.Pipeline, t.env.Name).
		Scan(&m.origin, &m.id.Generation, &m.id.Number, &m.fence)
	if errors.Is(err, pgx.ErrNoRows) {
		return m, false, nil
	}
	return m, err == nil, err
}

// lock reads the mark for a change of it, making it where it is not there.
func (t *target) lock(ctx context.Context, tx pgx.Tx) (mark, error) {
	if _, err := tx.Exec(ctx, "INSERT INTO "+t.state.commits+" (pipeline, sink, origin, generation, number, fence) VALUES ($1, $2, $3, 0, 0, 0) ON CONFLICT DO NOTHING",
		t.env.Pipeline, t.env.Name, t.origin()); err != nil {
		return mark{}, err
	}
	m, ok, err := t.read(ctx, tx, " FOR UPDATE")
	if err == nil && !ok {
		err = errors.New("the row of the pipeline in sluice_commits is gone again")
	}
	return m, err
}

// write sets the mark.
func (t *target) write(ctx context.Context, tx pgx.Tx, m mark) error {
	_, err := tx.Exec(ctx, "UPDATE "+t.state.commits+" SET origin = $3, generation = $4, number = $5, fence = $6, committed_at = now() WHERE pipeline = $1 AND sink = $2",
		t.env.Pipeline, t.env.Name, m.origin, int64(m.id.Generation), int64(m.id.Number), int64(m.fence))
	return err
}

// Witness is the last commit.
func (t *target) Witness(ctx context.Context) (id connectors.CheckpointID, ok bool, err error) {
	var m mark
	err = t.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		var there bool
		if err := tx.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", t.state.commits).Scan(&there); err != nil || !there {
			return err
		}
		m, ok, err = t.read(ctx, tx, "")
		return err
	})
	if err != nil || !ok || m.id.Number == 0 {
		return connectors.CheckpointID{}, false, err
	}
	if m.origin != t.origin() {
		return connectors.CheckpointID{}, false, &connectors.ForeignWitnessError{
			Mark: fmt.Sprintf("%s/%d/%d", m.origin, m.id.Generation, m.id.Number),
			Text: fmt.Sprintf("checkpoint %d of generation %d of a pipeline called %s, in %s, is of another checkpoint storage", m.id.Number, m.id.Generation, t.env.Pipeline, t.state.commits),
		}
	}
	return m.id, true, nil
}

// Revoke lets no older process commit any more.
func (t *target) Revoke(ctx context.Context) error {
	return t.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		m, err := t.lock(ctx, tx)
		if err != nil {
			return err
		}
		if m.origin != t.origin() { // which the user knows of
			m = mark{origin: t.origin()}
		}
		if m.fence > t.generation() {
			return connectors.ErrFenced
		}
		m.fence = t.generation()
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

type rejectedHeader struct {
	Key   string `json:"key"`
	Value []byte `json:"value"` // null, or base64
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
	var list []rejectedHeader
	if len(headers) > 0 {
		if err := json.Unmarshal(headers, &list); err != nil {
			return r, err
		}
	}
	for _, h := range list {
		r.Record.Headers = append(r.Record.Headers, connectors.Header(h))
	}
	return r, nil
}

// settle notes that refused rows up to a mark are handed over.
func (t *target) settle(ctx context.Context, tx pgx.Tx, through int64) error {
	if through == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, "UPDATE "+t.state.rejected+" SET settled_at = $4 WHERE pipeline = $1 AND sink = $2 AND id <= $3 AND settled_at IS NULL",
		t.env.Pipeline, t.env.Name, through, time.Now())
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
	var headers *string
	if rec.Origin != nil {
		topic, partition, offset = &rec.Origin.Topic, &rec.Origin.Partition, &rec.Offset
	}
	if rec.Time != 0 {
		at = &rec.Time
	}
	if len(rec.Headers) > 0 {
		list := make([]rejectedHeader, 0, len(rec.Headers))
		for _, h := range rec.Headers {
			list = append(list, rejectedHeader(h))
		}
		text, err := json.Marshal(list)
		if err != nil {
			return err
		}
		headers = new(string(text))
	}
	_, err = tx.Exec(ctx, "INSERT INTO "+t.state.rejected+` (pipeline, sink, generation, number, topic, partition, "offset", key, value, headers, time, row, kind, reason)`+
		" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
		t.env.Pipeline, t.env.Name, int64(id.Generation), int64(id.Number), topic, partition, offset, rec.Key, rec.Value, headers, at, string(row), kind, reason)
	return err
}
