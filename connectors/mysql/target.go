package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/deferred"
	"github.com/sluice-etl/sluice/connectors/deferred/table"
)

// target is a table of MySQL that kept rows are applied to.
type target struct {
	config   SinkConfig
	env      connectors.SinkEnv
	db       *sql.DB
	database string // of the table
	name     string // of the table in it
	table    string // both, quoted
	commits  string // of the tables of the sink's own, quoted
	rejected string
	columns  []sinkColumn // that are written, in the order of the kept rows
	key      []string
	packet   int // bytes that one statement has at most
	started  bool
}

var _ deferred.Target = (*target)(nil)

func newTarget(c SinkConfig) (*target, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &target{config: c, key: c.Key}, nil
}

// quote makes an identifier of a name.
func quote(names ...string) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = "`" + strings.ReplaceAll(n, "`", "``") + "`"
	}
	return strings.Join(out, ".")
}

// Guarantee is exactly_once: rows and witness are one transaction.
func (t *target) Guarantee() connectors.Guarantee { return connectors.ExactlyOnce }

// Open connects, makes what is to be made and compares the table with the rows.
func (t *target) Open(ctx context.Context, env connectors.SinkEnv) error {
	t.env = env
	if t.env.Log == nil {
		t.env.Log = slog.New(slog.DiscardHandler)
	}
	cfg, err := t.config.parse()
	if err != nil {
		return connectors.Permanent(fmt.Errorf("url: %w", err))
	}
	cfg.Logger = &driver.NopLogger{}
	t.place(cfg.DBName)
	connector, err := driver.NewConnector(cfg)
	if err != nil {
		return connectors.Permanent(err)
	}
	t.db = sql.OpenDB(connector)
	t.db.SetMaxOpenConns(3)                                                     // a commit, a question for refused rows, and a look from outside
	t.db.SetConnMaxIdleTime(min(time.Duration(t.config.Timeout), patience) / 2) // before the server ends it
	var flush int
	if err := t.db.QueryRowContext(ctx, "SELECT @@max_allowed_packet, @@innodb_flush_log_at_trx_commit").Scan(&t.packet, &flush); err != nil {
		return classify(err)
	}
	if flush != 1 {
		t.env.Log.Warn("the server can lose commits in a crash, after which rows are missing: set innodb_flush_log_at_trx_commit to 1", "innodb_flush_log_at_trx_commit", flush)
	}
	if !env.ReadOnly {
		if err := t.make(ctx); err != nil {
			return err
		}
	}
	return t.describe(ctx)
}

// place settles the names of the tables.
func (t *target) place(database string) {
	t.database, t.name = database, t.config.Table
	if db, name, ok := strings.Cut(t.config.Table, "."); ok {
		t.database, t.name = db, name
	}
	t.table = quote(t.database, t.name)
	if t.config.Schema != "" {
		database = t.config.Schema
	}
	t.commits, t.rejected = quote(database, "sluice_commits"), quote(database, "sluice_rejected")
}

// make creates the tables that are to be there. There is no transaction around it, so
// each statement can be repeated.
func (t *target) make(ctx context.Context) error {
	statements := t.createState()
	if t.config.Create.On {
		text, err := t.createTable()
		if err != nil {
			return err
		}
		statements[t.table] = text
	}
	for name, text := range statements {
		if there, err := t.exists(ctx, name); err != nil || there {
			if err != nil {
				return err
			}
			continue
		}
		if _, err := t.db.ExecContext(ctx, text); err != nil {
			return fmt.Errorf("create table %s: %w", name, classify(err))
		}
	}
	return nil
}

// exists reports whether a table, whose name is quoted, is there.
func (t *target) exists(ctx context.Context, name string) (bool, error) {
	rows, err := t.db.QueryContext(ctx, "SELECT 1 FROM "+name+" LIMIT 0") //nolint:gosec // the name is quoted
	if err == nil {
		err = rows.Err()
		_ = rows.Close()
	}
	var e *driver.MySQLError
	if errors.As(err, &e) && e.Number == 1146 {
		return false, nil
	}
	return err == nil, classify(err)
}

// transact runs f in a transaction, which is committed if f returns nil.
func (t *target) transact(ctx context.Context, f func(ctx context.Context, tx *sql.Tx) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(t.config.Timeout), errTimeout)
	defer cancel()
	err := t.once(ctx, f)
	t.env.Failpoint("mysql.commit.after")
	if err != nil && errors.Is(context.Cause(ctx), errTimeout) {
		return fmt.Errorf("%w: %w", errTimeout, err)
	}
	return classify(err)
}

func (t *target) once(ctx context.Context, f func(ctx context.Context, tx *sql.Tx) error) error {
	tx, err := t.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // without effect once it is committed
	if err := f(ctx, tx); err != nil {
		return err
	}
	t.env.Failpoint("mysql.commit.before")
	return tx.Commit()
}

var errTimeout = errors.New("mysql did not answer within timeout")

// Start lets only this process and newer ones commit; Revoke has done so already.
func (t *target) Start(context.Context) error {
	t.started = true
	return nil
}

// Close ends all sessions.
func (t *target) Close() error {
	if t.db != nil {
		return t.db.Close()
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
	return &rowEncoder{mapper: m, columns: t.columns, deletes: t.config.Mode != table.Insert, most: t.packet - packetMargin}, nil
}

// classify says of an error whether it can pass. What the server says of data is left out.
func classify(err error) error {
	var e *driver.MySQLError
	if err == nil || !errors.As(err, &e) {
		return err
	}
	said := fmt.Errorf("mysql: %w", err)
	switch e.Number {
	// Refused credentials, databases, tables and columns that are not there, rights.
	case 1044, 1045, 1049, 1054, 1064, 1142, 1143, 1146, 1227, 1698, 1251, 3118:
		return connectors.Permanent(said)
	}
	return said
}

// rejects reports whether an error is about a single row, which others can do without.
func rejects(err error) (*driver.MySQLError, bool) {
	var e *driver.MySQLError
	if !errors.As(err, &e) {
		return nil, false
	}
	switch e.Number {
	case 1048, 1062, 1118, 1216, 1217, 1264, 1265, 1292, 1364, 1366, 1367, 1406, 1411, 1451, 1452, 1526, 1586, 1644, 1690, 3140, 3819, 4025:
		return e, true
	}
	state := string(e.SQLState[:2])
	return e, state == "22" || state == "23" || state == "45"
}

// why says in words why the server refuses a row, without what is in it.
func why(e *driver.MySQLError) (kind, reason string) {
	switch e.Number {
	case 1062, 1586:
		return "unique", "another row has the same values in a unique index (1062)"
	case 1216, 1217, 1451, 1452:
		return "foreign_key", fmt.Sprintf("there is no row that a foreign key names, or one still names this (%d)", e.Number)
	case 3819, 4025:
		return "check", fmt.Sprintf("it does not meet a condition of the table (%d)", e.Number)
	case 1048, 1364:
		return "null", fmt.Sprintf("a value is missing (%d)", e.Number)
	case 1644:
		return "trigger", "a trigger of the table refuses it (1644)"
	}
	if state := string(e.SQLState[:2]); state == "45" {
		return "trigger", fmt.Sprintf("a trigger of the table refuses it (%d)", e.Number)
	}
	return "type", fmt.Sprintf("a value is not what its column takes (%d)", e.Number)
}
