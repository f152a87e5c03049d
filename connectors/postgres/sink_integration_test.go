//go:build integration

package postgres

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/connectortest"
	"github.com/sluice-etl/sluice/connectors/deferred"
)

var schemas atomic.Int64

// ownSchema makes an empty schema, whose name needs quotes.
func ownSchema(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf(`Sink "test" %d`, schemas.Add(1))
	q := pgx.Identifier{name}.Sanitize()
	run(t, "DROP SCHEMA IF EXISTS "+q+" CASCADE; CREATE SCHEMA "+q)
	return name
}

// in replaces @ by the schema.
func in(schema, sql string) string {
	return strings.ReplaceAll(sql, "@", pgx.Identifier{schema}.Sanitize())
}

func sinkConfig(t *testing.T, schema string, change func(*SinkConfig)) SinkConfig {
	t.Helper()
	c := newSinkConfig().(*SinkConfig)
	c.URL, c.Table, c.Schema = realURL(t), schema+".rows", schema
	if change != nil {
		change(c)
	}
	return *c
}

func newTestSink(c SinkConfig) (*deferred.Sink, error) {
	target, err := newTarget(c)
	if err != nil {
		return nil, err
	}
	return deferred.NewSink(target, deferred.Options{Kind: sinkKind}), nil
}

// list runs a query whose rows are one text each.
func list(ctx context.Context, url, sql string) ([]string, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	rows, err := conn.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

const suiteRows = `SELECT '{"partition":' || partition || ',"offset":' || "offset" || '}' FROM @.rows`

// suite is the target of the contract's tests.
func suite(t *testing.T, mode string) connectortest.Sink {
	schema := ownSchema(t)
	c := sinkConfig(t, schema, func(c *SinkConfig) { c.Mode = mode })
	run(t, in(schema, `CREATE TABLE @.rows (partition int, "offset" bigint)`))
	if mode != "insert" {
		run(t, in(schema, `ALTER TABLE @.rows ADD PRIMARY KEY (partition, "offset")`))
	}
	return connectortest.Sink{
		New:  func() (connectors.Sink, error) { return newTestSink(c) },
		Read: func(ctx context.Context) ([]string, error) { return list(ctx, c.URL, in(schema, suiteRows)) },
	}
}

func TestRealServerContract(t *testing.T) {
	for _, mode := range []string{"insert", "upsert", "changelog"} {
		t.Run(mode, func(t *testing.T) {
			connectortest.TestSink(t, func(t *testing.T) connectortest.Sink { return suite(t, mode) })
		})
	}
}

func TestRealServerChaos(t *testing.T) {
	connectortest.TestSinkChaos(t, 5, func(t *testing.T, _ uint64) connectortest.Chaos {
		return connectortest.Chaos{Sink: suite(t, "insert")}
	})
}

// inTransaction runs f in a transaction behind a statement.
func inTransaction(ctx context.Context, url, sql string, f func()) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
		f()
		return nil
	})
}
