//go:build integration

package postgres

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/connectortest"
	"github.com/sluice-etl/sluice/connectors/deferred/deferredtest"
)

func TestRealServerCommitsThatOthersHoldUp(t *testing.T) {
	schema := ownSchema(t)
	run(t, in(schema, `CREATE TABLE @.rows (id int)`))
	c := sinkConfig(t, schema, func(c *SinkConfig) { c.Timeout = connectors.TimeSpan(time.Second) })
	r := deferredtest.Start(t, mustSink(t, c), &connectortest.Files{}, 1, nil)
	r.Values(`{"id": 1}`)
	coms := r.Prepare()
	conn, err := list(t.Context(), c.URL, "SELECT 'x'")
	if err != nil || len(conn) != 1 {
		t.Fatal(err)
	}
	release := lockTable(t, in(schema, "LOCK TABLE @.rows"))
	if err := r.Try(t.Context(), coms, false); err == nil || connectors.IsPermanent(err) {
		t.Errorf("a commit that waits for a lock: %v", err)
	}
	release()
	r.Commit(coms, false)
	wantRows(t, query(t, schema, `SELECT id FROM @.rows`), `{"id":1}`)
}

// lockTable locks in a session of its own until the function that it returns is called.
func lockTable(t *testing.T, sql string) (release func()) {
	t.Helper()
	locked, done := make(chan error, 1), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		ctx := context.WithoutCancel(t.Context())
		err := inTransaction(ctx, realURL(t), sql, func() {
			locked <- nil
			<-done
		})
		if err != nil {
			locked <- err
		}
	})
	if err := <-locked; err != nil {
		t.Fatal(err)
	}
	return func() {
		close(done)
		wg.Wait()
	}
}

// A process that is cut off in the middle of a commit leaves locks behind, for as long as
// the server believes that it is there.
func TestRealServerLetsGoOfAProcessThatIsCutOff(t *testing.T) {
	schema := ownSchema(t)
	run(t, in(schema, `CREATE TABLE @.rows (id int)`))
	direct := sinkConfig(t, schema, func(c *SinkConfig) { c.Timeout = connectors.TimeSpan(2 * time.Second) })
	c, proxy := through(t, direct)
	var armed atomic.Bool
	old := deferredtest.Start(t, mustSink(t, c), &connectortest.Files{}, 1, func(e *connectors.SinkEnv) {
		e.Failpoint = func(name string) {
			if name == "postgres.commit.before" && armed.Load() {
				proxy.Break()
			}
		}
	})
	old.Values(`{"id": 1}`)
	coms := old.Prepare()
	armed.Store(true)
	if err := old.Try(t.Context(), coms, false); err == nil || connectors.IsPermanent(err) {
		t.Fatalf("the process that is cut off: %v", err)
	}
	next := deferredtest.Open(t, mustSink(t, direct), old.Files, 2, nil)
	next.Resume(coms...) // waits for the locks
	next.Values(`{"id": 2}`)
	next.Checkpoint()
	wantRows(t, query(t, schema, `SELECT id FROM @.rows ORDER BY id`), `{"id":1}`, `{"id":2}`)
}

func TestRealServerTransactionsHaveTheirOwnSettings(t *testing.T) {
	schema := ownSchema(t)
	run(t, in(schema, `CREATE TABLE @.rows (id int)`))
	c := sinkConfig(t, schema, nil)
	c.URL += "&synchronous_commit=off&tcp_keepalives_idle=900&timezone=Asia/Tokyo"
	target, err := newTarget(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = target.Close() })
	env := deferredtest.Env(&connectortest.Files{}, 1)
	env.Failpoint = func(string) {}
	if err := target.Open(t.Context(), env); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"idle_in_transaction_session_timeout": "1min", "tcp_keepalives_idle": "30", "tcp_keepalives_interval": "10", "tcp_keepalives_count": "3", "statement_timeout": "10min",
		"synchronous_commit": "on", "timezone": "UTC", "client_encoding": "UTF8",
	} {
		var got string
		err := target.transact(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
			return tx.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&got)
		})
		if err != nil || got != want {
			t.Errorf("%s is %s, %v; want %s", name, got, err, want)
		}
	}
}
