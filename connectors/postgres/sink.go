package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/deferred"
	"github.com/sluice-etl/sluice/connectors/deferred/table"
)

const sinkKind = "postgres"

// target is a table of PostgreSQL that kept rows are applied to.
type target struct {
	config  SinkConfig
	env     connectors.SinkEnv
	pool    *pgxpool.Pool
	table   string // quoted
	state   stateTables
	columns []sinkColumn // that are written, in the order of the kept rows
	key     []string
	started bool
	shape   uint64 // of the rows of the last commit
}

var _ deferred.Target = (*target)(nil)

func newTarget(c SinkConfig) (*target, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &target{config: c, table: pgx.Identifier(strings.Split(c.Table, ".")).Sanitize(), state: newStateTables(c.Schema), key: c.Key}, nil
}

// Guarantee is exactly_once: rows and witness are one transaction.
func (t *target) Guarantee() connectors.Guarantee { return connectors.ExactlyOnce }

// Open connects, makes what is to be made and compares the table with the rows.
func (t *target) Open(ctx context.Context, env connectors.SinkEnv) error {
	t.env = env
	if t.env.Log == nil {
		t.env.Log = slog.New(slog.DiscardHandler)
	}
	cfg, err := pgxpool.ParseConfig(t.config.URL)
	if err != nil {
		return connectors.Permanent(errors.New("url is no address of PostgreSQL"))
	}
	cfg.MaxConns = 3 // a commit, a question for refused rows, and a look from outside
	cfg.ConnConfig.ConnectTimeout = connectTimeout
	// Nothing is prepared under a name, and settings are those of one transaction, so that
	// poolers may lie between.
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	if params := cfg.ConnConfig.RuntimeParams; params["application_name"] == "" {
		params["application_name"] = "sluice"
	}
	if t.pool, err = pgxpool.NewWithConfig(context.WithoutCancel(ctx), cfg); err != nil {
		return classify(err)
	}
	return t.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if !env.ReadOnly {
			if err := t.make(ctx, tx); err != nil {
				return err
			}
		}
		return t.describe(ctx, tx)
	})
}

// make creates the tables that are to be there.
func (t *target) make(ctx context.Context, tx pgx.Tx) error {
	statements := t.state.create()
	if t.config.Create.On {
		text, err := t.createTable()
		if err != nil {
			return err
		}
		statements[t.table] = text
	}
	for name, text := range statements {
		var there bool
		if err := tx.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", name).Scan(&there); err != nil {
			return classify(err)
		}
		if there {
			continue
		}
		// Two processes that do this at once would meet in the catalog.
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtext('sluice create tables'))"); err != nil {
			return classify(err)
		}
		if _, err := tx.Exec(ctx, text); err != nil {
			return fmt.Errorf("create table %s: %w", name, classify(err))
		}
	}
	return nil
}

// patience is how long the server waits for a process in the middle of a transaction. One
// that is cut off has locks, for which its successor would wait as long as the server
// believes in the connection: for hours, by the defaults of most systems.
const patience = time.Minute

// settings are those of each transaction: the session's may belong to a pooler.
func (t *target) settings() string {
	timeout := time.Duration(t.config.Timeout)
	return fmt.Sprintf("SET LOCAL client_encoding = 'UTF8'; SET LOCAL datestyle = 'ISO, YMD'; SET LOCAL timezone = 'UTC'; SET LOCAL statement_timeout = %d; "+
		// The first is for a server that waits for a statement, the others for one that waits for rows.
		"SET LOCAL idle_in_transaction_session_timeout = %d; SET LOCAL tcp_keepalives_idle = 30; SET LOCAL tcp_keepalives_interval = 10; SET LOCAL tcp_keepalives_count = 3; "+
		// A commit that a crash of the server could take back would be no proof.
		"SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'",
		timeout.Milliseconds(), min(timeout, patience).Milliseconds())
}

// transact runs f in a transaction, which is committed if f returns nil.
func (t *target) transact(ctx context.Context, f func(ctx context.Context, tx pgx.Tx) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(t.config.Timeout), errTimeout)
	defer cancel()
	err := pgx.BeginTxFunc(ctx, t.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if err := t.simple(ctx, tx, t.settings()); err != nil {
			return err
		}
		if err := f(ctx, tx); err != nil {
			return err
		}
		t.env.Failpoint("postgres.commit.before")
		return nil
	})
	t.env.Failpoint("postgres.commit.after")
	if err != nil && errors.Is(context.Cause(ctx), errTimeout) {
		return fmt.Errorf("%w: %w", errTimeout, err)
	}
	return classify(err)
}

var errTimeout = errors.New("postgres did not answer within timeout")

// simple runs statements without parameters, several at once.
func (t *target) simple(ctx context.Context, tx pgx.Tx, text string) error {
	_, err := tx.Conn().PgConn().Exec(ctx, text).ReadAll()
	return err
}

// Start lets only this process and newer ones commit; Revoke has done so already.
func (t *target) Start(context.Context) error {
	t.started = true
	return nil
}

// Close ends all sessions.
func (t *target) Close() error {
	if t.pool != nil {
		t.pool.Close()
	}
	return nil
}

// NewRowEncoder makes the encoder of one subtask.
func (t *target) NewRowEncoder() (deferred.RowEncoder, error) {
	cols := make([]table.Column, 0, len(t.columns))
	for _, c := range t.columns {
		cols = append(cols, table.Column{Column: connectors.Column{Name: c.name, Type: c.reads}, Default: c.hasDefault})
	}
	m, err := table.NewMapper(cols, table.Options{
		Mode: t.config.Mode, Key: t.key, Op: t.config.Op, Values: t.config.Columns, RefuseUnknown: t.config.Unknown != unknownIgnore,
	})
	if err != nil {
		return nil, connectors.Permanent(err)
	}
	return &rowEncoder{mapper: m, columns: t.columns, deletes: t.config.Mode != table.Insert}, nil
}

// uniqueViolation is the code of an error about a row that meets another one.
const uniqueViolation = "23505"

// rejects reports whether an error is about a single row, which others can do without.
func rejects(err error) (*pgconn.PgError, bool) {
	var e *pgconn.PgError
	if !errors.As(err, &e) || len(e.Code) != 5 {
		return nil, false
	}
	switch {
	case e.Code[:2] == "22", e.Code[:2] == "23", e.Code[:2] == "44", e.Code == "P0001", e.Code == "54000":
		return e, true
	}
	return nil, false
}

// why says in words why the server refuses a row, without what is in it.
func why(e *pgconn.PgError) (kind, reason string) {
	named := func(what, name string) string {
		if name == "" {
			return ""
		}
		return what + name
	}
	switch {
	case e.Code == uniqueViolation:
		return "unique", "another row has the same values" + named(" of ", e.ConstraintName) + " (23505)"
	case e.Code == "23503":
		return "foreign_key", "there is no row that the foreign key" + named(" ", e.ConstraintName) + " names, or one still names this (23503)"
	case e.Code == "23514":
		return "check", "it does not meet the condition" + named(" ", e.ConstraintName) + " (23514)"
	case e.Code == "23502":
		return "null", "a value is missing" + named(" in column ", e.ColumnName) + " (23502)"
	case e.Code[:2] == "23":
		return "constraint", "it violates the constraint" + named(" ", e.ConstraintName) + " (" + e.Code + ")"
	case e.Code == "P0001":
		return "trigger", "a trigger of the table refuses it (P0001)"
	case e.Code[:2] == "22":
		return "type", "a value is not what its column takes (" + e.Code + ")"
	}
	return "refused", "postgres refuses it (" + e.Code + ")"
}
