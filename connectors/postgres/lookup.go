package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sluice-etl/sluice/connectors"
)

func init() {
	connectors.RegisterLookup(connectors.LookupSpec{
		Name:        "postgres",
		Example:     "postgres: {url: \"postgres://localhost/shop\", table: users}\n",
		Doc:         "Finds rows in a PostgreSQL table, or by a query, many keys in one call. Sessions are read-only.",
		NewConfig:   newLookupConfig,
		Concurrency: 4,
		New: func(config any, columns []string) (connectors.Lookup, error) {
			c, ok := config.(*LookupConfig)
			if !ok {
				return nil, fmt.Errorf("postgres lookup: configuration is a %T", config)
			}
			return NewLookup(*c, columns)
		},
	})
}

// Lookup finds rows in PostgreSQL.
type Lookup struct {
	config    LookupConfig
	columns   []string
	pool      *pgxpool.Pool
	statement *statement
}

var _ connectors.Lookup = (*Lookup)(nil)

// NewLookup makes a lookup of a configuration that Validate accepts.
func NewLookup(c LookupConfig, columns []string) (*Lookup, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &Lookup{config: c, columns: columns}, nil
}

const connectTimeout = 5 * time.Second

// Open connects and asks the server what the table or the query is like.
func (l *Lookup) Open(ctx context.Context, env connectors.LookupEnv) error {
	cfg, err := pgxpool.ParseConfig(l.config.URL)
	if err != nil {
		return connectors.Permanent(errors.New("url is no address of PostgreSQL"))
	}
	cfg.MaxConns = int32(min(env.Concurrency, 1<<16))
	cfg.ConnConfig.ConnectTimeout = connectTimeout
	params := cfg.ConnConfig.RuntimeParams
	params["default_transaction_read_only"] = "on"
	params["timezone"] = "UTC"
	params["datestyle"] = "ISO"
	if params["application_name"] == "" {
		params["application_name"] = "sluice"
	}
	if env.Timeout > 0 { // the server gives up as well, so that what nobody waits for ends
		params["statement_timeout"] = strconv.FormatInt(max(env.Timeout.Milliseconds(), 1), 10)
	}
	if l.pool, err = pgxpool.NewWithConfig(context.WithoutCancel(ctx), cfg); err != nil {
		return classify(err)
	}
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return classify(err)
	}
	defer conn.Release()
	if l.config.Table != "" {
		l.statement, err = l.config.table(ctx, conn.Conn(), l.columns)
	} else {
		l.statement, err = l.config.query(ctx, conn.Conn(), l.columns)
	}
	return err
}

// MaxKeys is as configured.
func (l *Lookup) MaxKeys() int { return l.config.MaxKeys }

// Close ends all sessions.
func (l *Lookup) Close() error {
	if l.pool != nil {
		l.pool.Close()
	}
	return nil
}

// wanted is a key that a call asks for.
type wanted struct {
	index  int // among the answers
	values []string
}

// Find asks for all keys in one round trip. Where one of them cannot be read as what
// the column is, they are asked for one by one, so that only its records fail.
func (l *Lookup) Find(ctx context.Context, keys []connectors.LookupKey, answers []connectors.Answer) error {
	ask := make([]wanted, 0, len(keys))
	for i := range keys {
		values, ok, err := l.values(keys[i].Values)
		switch {
		case err != nil:
			answers[i].Err = err
		case ok:
			ask = append(ask, wanted{i, values})
		}
	}
	if len(ask) == 0 {
		return nil
	}
	err := l.find(ctx, ask, answers)
	if err == nil || !isData(err) {
		return err
	}
	for i := range ask {
		one := ask[i : i+1]
		answers[one[0].index] = connectors.Answer{}
		err := l.find(ctx, one, answers)
		if err != nil && !isData(err) {
			return err
		}
		if err != nil {
			answers[one[0].index] = connectors.Answer{Err: dataError(err)}
		}
	}
	return nil
}

// values are those of a key as texts; ok is false where no row can have them.
func (l *Lookup) values(key []connectors.Value) (out []string, ok bool, err error) {
	out = make([]string, len(key))
	for i, v := range key {
		if out[i], ok, err = l.statement.keys[i].value(v); !ok || err != nil {
			return nil, false, err
		}
	}
	return out, true, nil
}

func (l *Lookup) find(ctx context.Context, ask []wanted, answers []connectors.Answer) error {
	if l.statement.batched {
		return l.findAll(ctx, ask, answers)
	}
	return l.findEach(ctx, ask, answers)
}

// findAll asks for all keys with one statement.
func (l *Lookup) findAll(ctx context.Context, ask []wanted, answers []connectors.Answer) error {
	args := make([]any, len(l.columns))
	for c := range args {
		array := make([]string, len(ask))
		for i := range ask {
			array[i] = ask[i].values[c]
		}
		args[c] = array
	}
	rows, err := l.pool.Query(ctx, l.statement.text, args...)
	if err != nil {
		return classify(err)
	}
	defer rows.Close()
	for rows.Next() {
		var at int
		var row []byte
		if err := rows.Scan(&at, &row); err != nil {
			return classify(err)
		}
		add(&answers[ask[at-1].index], row)
	}
	return classify(rows.Err())
}

// findEach runs the query for each key, all in one round trip.
func (l *Lookup) findEach(ctx context.Context, ask []wanted, answers []connectors.Answer) error {
	batch := &pgx.Batch{}
	for i := range ask {
		args := make([]any, len(ask[i].values))
		for c, v := range ask[i].values {
			args[c] = v
		}
		batch.Queue(l.statement.text, args...).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				var row []byte
				if err := rows.Scan(&row); err != nil {
					return err
				}
				add(&answers[ask[i].index], row)
			}
			return rows.Err()
		})
	}
	return classify(l.pool.SendBatch(ctx, batch).Close())
}

// errSeveral is the answer for a key that has several rows: which of them came first
// would change from call to call.
var errSeveral = errors.New("there are several rows for the key: name further columns in on, or write a query that gives one")

func add(a *connectors.Answer, row []byte) {
	if a.Row != nil || a.Err != nil {
		*a = connectors.Answer{Err: errSeveral}
		return
	}
	a.Row = row
}

// classify says of an error whether it can pass. What the server says in details is
// left out, since it holds values.
func classify(err error) error {
	var e *pgconn.PgError
	if err == nil || !errors.As(err, &e) {
		return err
	}
	said := fmt.Errorf("postgres: %w", err)
	switch {
	case e.Code == codeReadOnly, len(e.Code) == 5 && strings.Contains(permanentClasses, e.Code[:2]) && e.Code != codePreparedTwice:
		return connectors.Permanent(said)
	}
	return said
}

const (
	// permanentClasses are those of refused credentials, databases and schemas that are
	// not there, and statements that the database does not take.
	permanentClasses  = "28 3D 3F 42"
	codeReadOnly      = "25006"
	codePreparedTwice = "42P05" // said by a pooler that mixes sessions up
)

// isData reports whether an error is about a value of the key: data that a type or a
// domain does not take.
func isData(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && len(e.Code) == 5 && (e.Code[:2] == "22" || e.Code[:2] == "23")
}

// dataError is such an error without the value.
func dataError(err error) error {
	var e *pgconn.PgError
	errors.As(err, &e)
	return fmt.Errorf("postgres cannot use the key (%s)", e.Code)
}
