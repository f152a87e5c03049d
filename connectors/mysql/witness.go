package mysql

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/deferred/table"
)

// createState are the statements that make the tables which the sink keeps beside the
// user's, by name.
func (t *target) createState() map[string]string {
	const options = " ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
	return map[string]string{
		t.commits: "CREATE TABLE IF NOT EXISTS " + t.commits + ` (
  pipeline varchar(190) NOT NULL,
  sink varchar(190) NOT NULL,
  origin varchar(190) NOT NULL,
  generation bigint unsigned NOT NULL,
  number bigint unsigned NOT NULL,
  fence bigint unsigned NOT NULL,
  committed_at datetime(6),
  PRIMARY KEY (pipeline, sink)
)` + options,
		t.rejected: "CREATE TABLE IF NOT EXISTS " + t.rejected + ` (
  id bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
  pipeline varchar(190) NOT NULL,
  sink varchar(190) NOT NULL,
  generation bigint unsigned NOT NULL,
  number bigint unsigned NOT NULL,
  topic text,
  ` + "`partition`" + ` int,
  ` + "`offset`" + ` bigint,
  ` + "`key`" + ` longblob,
  value longblob,
  headers longtext,
  time bigint,
  ` + "`row`" + ` longtext,
  kind varchar(100) NOT NULL,
  reason text NOT NULL,
  rejected_at datetime(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
  settled_at datetime(6),
  KEY (pipeline, sink, settled_at, id)
)` + options,
	}
}

func (t *target) owner() table.Owner { return table.OwnerOf(&t.env, t.commits) }

// querier is a transaction, or the database outside of one.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// read reads the mark; lock keeps it until the end of the transaction.
func (t *target) read(ctx context.Context, q querier, lock string) (m table.Mark, ok bool, err error) {
	err = q.QueryRowContext(ctx, "SELECT origin, generation, number, fence FROM "+t.commits+" WHERE pipeline = ? AND sink = ?"+lock, t.env.Pipeline, t.env.Name).
		Scan(&m.Origin, &m.ID.Generation, &m.ID.Number, &m.Fence)
	if errors.Is(err, sql.ErrNoRows) {
		return m, false, nil
	}
	return m, err == nil, err
}

// lock reads the mark for a change of it, making it where it is not there.
func (t *target) lock(ctx context.Context, tx *sql.Tx) (table.Mark, error) {
	m, ok, err := t.read(ctx, tx, " FOR UPDATE")
	if err != nil || ok {
		return m, err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO "+t.commits+" (pipeline, sink, origin, generation, number, fence) VALUES (?, ?, ?, 0, 0, 0) ON DUPLICATE KEY UPDATE fence = fence", //nolint:gosec // the name is quoted
		t.env.Pipeline, t.env.Name, t.owner().Origin); err != nil {
		return table.Mark{}, err
	}
	m, ok, err = t.read(ctx, tx, " FOR UPDATE")
	if err == nil && !ok {
		err = errors.New("the row of the pipeline in sluice_commits is gone again")
	}
	return m, err
}

// write sets the mark.
func (t *target) write(ctx context.Context, tx *sql.Tx, m table.Mark) error {
	_, err := tx.ExecContext(ctx, "UPDATE "+t.commits+" SET origin = ?, generation = ?, number = ?, fence = ?, committed_at = NOW(6) WHERE pipeline = ? AND sink = ?", //nolint:gosec // the name is quoted
		m.Origin, m.ID.Generation, m.ID.Number, m.Fence, t.env.Pipeline, t.env.Name)
	return err
}

// Witness is the last commit.
func (t *target) Witness(ctx context.Context) (id connectors.CheckpointID, ok bool, err error) {
	there, err := t.exists(ctx, t.commits)
	if err != nil || !there {
		return id, false, err
	}
	m, ok, err := t.read(ctx, t.db, "")
	if err != nil || !ok {
		return id, false, classify(err)
	}
	return m.Witness(t.owner())
}

// Revoke lets no older process commit any more.
func (t *target) Revoke(ctx context.Context) error {
	return t.transact(ctx, func(ctx context.Context, tx *sql.Tx) error {
		m, err := t.lock(ctx, tx)
		if err != nil {
			return err
		}
		if m, err = m.Revoke(t.owner()); err != nil {
			return err
		}
		t.env.Failpoint("mysql.revoke.before")
		return t.write(ctx, tx, m)
	})
}

// Rejected gives rows that commits have refused.
func (t *target) Rejected(ctx context.Context, after int64, limit int) (out []connectors.Rejected, last int64, err error) {
	err = t.transact(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if out, last, err = t.readRejected(ctx, tx, after, limit); err != nil || t.env.OnError != connectors.RowFail {
			return err
		}
		return t.settle(ctx, tx, last)
	})
	return out, last, err
}

func (t *target) readRejected(ctx context.Context, tx *sql.Tx, after int64, limit int) (out []connectors.Rejected, last int64, err error) {
	rows, err := tx.QueryContext(ctx, "SELECT id, topic, `partition`, `offset`, `key`, value, headers, time, kind, reason FROM "+t.rejected+ //nolint:gosec // the name is quoted
		" WHERE pipeline = ? AND sink = ? AND id > ? AND settled_at IS NULL ORDER BY id LIMIT ?", t.env.Pipeline, t.env.Name, after, limit)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		r := connectors.Rejected{Record: connectors.Record{Mark: connectors.NoMark}}
		var topic sql.NullString
		var partition sql.NullInt32
		var offset, at sql.NullInt64
		var headers []byte
		if err := rows.Scan(&last, &topic, &partition, &offset, &r.Record.Key, &r.Record.Value, &headers, &at, &r.Kind, &r.Reason); err != nil {
			return nil, 0, err
		}
		if topic.Valid {
			r.Record.Origin, r.Record.Offset = &connectors.Origin{Topic: topic.String, Partition: partition.Int32}, offset.Int64
		}
		r.Record.Time = at.Int64
		if r.Record.Headers, err = table.DecodeHeaders(headers); err != nil {
			return nil, 0, err
		}
		out = append(out, r)
	}
	return out, last, rows.Err()
}

// settle takes away the refused rows up to a mark, which are handed over. Where they end
// the run they are only marked: nobody else has them.
func (t *target) settle(ctx context.Context, tx *sql.Tx, through int64) error {
	if through == 0 {
		return nil
	}
	do := "DELETE FROM " + t.rejected
	if t.env.OnError == connectors.RowFail {
		do = "UPDATE " + t.rejected + " SET settled_at = NOW(6)"
	}
	_, err := tx.ExecContext(ctx, do+" WHERE pipeline = ? AND sink = ? AND id <= ? AND settled_at IS NULL", t.env.Pipeline, t.env.Name, through)
	return err
}

// reject keeps a row that is refused.
func (t *target) reject(ctx context.Context, tx *sql.Tx, id connectors.CheckpointID, rec *connectors.Record, row []byte, err error) error {
	e, ok := rejects(err)
	if !ok {
		return err
	}
	kind, reason := why(e)
	var topic *string
	var partition *int32
	var offset *int64
	if rec.Origin != nil {
		topic, partition, offset = &rec.Origin.Topic, &rec.Origin.Partition, &rec.Offset
	}
	headers, err := table.EncodeHeaders(rec.Headers)
	if err != nil {
		return err
	}
	// A statement of its own sends long values apart, so that no row is too large to be
	// kept among the refused ones for the server's max_allowed_packet.
	insert, err := tx.PrepareContext(ctx, "INSERT INTO "+t.rejected+" (pipeline, sink, generation, number, topic, `partition`, `offset`, `key`, value, headers, time, `row`, kind, reason)"+ //nolint:gosec // the name is quoted
		" VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
	if err != nil {
		return err
	}
	defer func() { _ = insert.Close() }()
	_, err = insert.ExecContext(ctx,
		t.env.Pipeline, t.env.Name, id.Generation, id.Number, topic, partition, offset, rec.Key, rec.Value, headers, rec.Time, shownRow(row), kind, reason)
	return err
}

// maxShownRow is how much of a refused row is kept as text, for a person to read.
const maxShownRow = 64 << 10

// shownRow is the beginning of a refused row.
func shownRow(row []byte) string {
	return strings.ToValidUTF8(string(row[:min(len(row), maxShownRow)]), "")
}
