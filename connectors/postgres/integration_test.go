//go:build integration

package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-etl/sluice/connectors"
)

func realURL(t *testing.T) string {
	t.Helper()
	url := os.Getenv("POSTGRES_URL")
	if url == "" {
		t.Fatal("POSTGRES_URL is not set: run make integration")
	}
	return url
}

// run executes SQL beside the lookup.
func run(t *testing.T, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), realURL(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

// service runs a command of the script that the server was started with.
func service(t *testing.T, command string) {
	t.Helper()
	if out, err := exec.Command("../../deploy/services/postgres.sh", command).CombinedOutput(); err != nil {
		t.Fatalf("postgres.sh %s: %v\n%s", command, err, out)
	}
}

const schema = `
DROP SCHEMA IF EXISTS lookup_test CASCADE;
CREATE SCHEMA lookup_test;
CREATE TYPE lookup_test.mood AS ENUM ('sad', 'ok');
CREATE TABLE lookup_test."Users" (
  id int PRIMARY KEY, name text, code char(4), price numeric(20,4), made timestamptz, day date, seen timestamp, uid uuid, tags text[],
  doc jsonb, raw bytea, big bigint, ratio float8, flag bool, mood lookup_test.mood);
CREATE INDEX ON lookup_test."Users" (name);
INSERT INTO lookup_test."Users" VALUES
 (1, 'a', 'DE', 1.1000, '2026-01-01 10:00:00.5+02', '2026-01-02', '2026-01-03 04:05:06', '6ba7b810-9dad-11d1-80b4-00c04fd430c8', '{x,"y z"}',
  '{"k": [1, 2.50]}', '\x0001ff', 9007199254740993, 0.1, true, 'ok'),
 (2, 'b', 'FR', null, null, null, null, null, null, null, null, null, null, null, null),
 (3, 'b', 'FR', null, null, null, null, null, null, null, null, null, null, null, null);`

// open opens a lookup at the real server.
func open(t *testing.T, on []string, change func(*LookupConfig)) (*Lookup, error) {
	t.Helper()
	c := newLookupConfig().(*LookupConfig)
	c.URL, c.Table = realURL(t), "lookup_test.Users"
	change(c)
	l, err := NewLookup(*c, on)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, l.Open(t.Context(), connectors.LookupEnv{Log: slog.New(slog.DiscardHandler), Columns: on, Concurrency: 2, Timeout: 5 * time.Second})
}

func find(ctx context.Context, l *Lookup, keys ...[]connectors.Value) (rows []string, err error) {
	asked, answers := make([]connectors.LookupKey, len(keys)), make([]connectors.Answer, len(keys))
	for i, k := range keys {
		asked[i].Values = k
	}
	err = l.Find(ctx, asked, answers)
	for _, a := range answers {
		if a.Err != nil {
			rows = append(rows, "failed: "+a.Err.Error())
		} else {
			rows = append(rows, string(a.Row))
		}
	}
	return rows, err
}

func key(values ...connectors.Value) []connectors.Value { return values }

func TestRealServerFindsRows(t *testing.T) {
	run(t, schema)
	i, s := connectors.IntValue, connectors.StringValue
	several := "failed: there are several rows"
	tests := []struct {
		name   string
		on     []string
		change func(*LookupConfig)
		keys   [][]connectors.Value
		want   []string
	}{
		{"all columns and their types", []string{"id"}, func(*LookupConfig) {}, [][]connectors.Value{key(i(1)), key(i(99)), key(i(1 << 40)), key(s("1"))}, []string{
			`{"id":1,"name":"a","code":"DE  ","price":1.1000,"made":"2026-01-01T08:00:00.5+00:00","day":"2026-01-02","seen":"2026-01-03T04:05:06","uid":"6ba7b810-9dad-11d1-80b4-00c04fd430c8",` +
				`"tags":["x","y z"],"doc":{"k": [1, 2.50]},"raw":"AAH/","big":9007199254740993,"ratio":0.1,"flag":true,"mood":"ok"}`, "", "", ""}},
		{"some columns, by a text", []string{"name"}, func(c *LookupConfig) { c.Columns = []string{"id"} },
			[][]connectors.Value{key(s("a")), key(s("b")), key(i(1))}, []string{`{"id":1}`, several, ""}},
		{"several keys", []string{"name", "id"}, func(c *LookupConfig) { c.Columns = []string{"flag"} },
			[][]connectors.Value{key(s("b"), i(3)), key(s("b"), i(1)), key(s("a"), i(1))}, []string{`{"flag":null}`, "", `{"flag":true}`}},
		{"a padded text", []string{"code"}, func(c *LookupConfig) { c.Columns = []string{"id"} }, [][]connectors.Value{key(s("DE"))}, []string{`{"id":1}`}},
		{"an exact number", []string{"price"}, func(c *LookupConfig) { c.Columns = []string{"id"} },
			[][]connectors.Value{key(connectors.FloatValue(1.1)), key(connectors.DecimalValue("1.1")), key(i(1))}, []string{`{"id":1}`, `{"id":1}`, ""}},
		{"a value that the type cannot read fails alone", []string{"mood"}, func(c *LookupConfig) { c.Columns = []string{"id"} },
			[][]connectors.Value{key(s("secret")), key(s("ok")), key(s("sad"))}, []string{"failed: postgres cannot use the key (22P02)", `{"id":1}`, ""}},
		{"a time", []string{"made"}, func(c *LookupConfig) { c.Columns = []string{"id"} },
			[][]connectors.Value{key(s("2026-01-01T08:00:00.5Z")), key(connectors.TimestampValue(time.Date(2026, 1, 1, 8, 0, 0, 5e8, time.UTC)))}, []string{`{"id":1}`, `{"id":1}`}},
		{"a query", []string{"n"}, func(c *LookupConfig) {
			c.Table, c.Query = "", `SELECT id, price * 2 AS double, raw FROM lookup_test."Users" WHERE name = $1 ORDER BY id DESC LIMIT 1; `
		}, [][]connectors.Value{key(s("a")), key(s("zz")), key(s("b"))}, []string{`{"id":1,"double":2.2000,"raw":"AAH/"}`, "", `{"id":3,"double":null,"raw":null}`}},
		{"a query with several rows and bad values", []string{"n", "m"}, func(c *LookupConfig) {
			c.Table, c.Query = "", `SELECT id FROM lookup_test."Users" WHERE name = $1 AND 10 / $2::int > 0 -- note`
		}, [][]connectors.Value{key(s("b"), i(1)), key(s("a"), i(0)), key(s("a"), i(1))}, []string{several, "failed: postgres cannot use the key (22012)", `{"id":1}`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, err := open(t, tt.on, tt.change)
			if err != nil {
				t.Fatal(err)
			}
			rows, err := find(t.Context(), l, tt.keys...)
			if err != nil {
				t.Fatal(err)
			}
			for i := range tt.want {
				if rows[i] != tt.want[i] && (!strings.HasPrefix(tt.want[i], "failed") || !strings.HasPrefix(rows[i], tt.want[i])) {
					t.Errorf("key %d: %s\nwant %s", i, rows[i], tt.want[i])
				}
				if strings.Contains(rows[i], "secret") {
					t.Errorf("key %d: %s shows record data", i, rows[i])
				}
			}
		})
	}
}

func TestRealServerRefusals(t *testing.T) {
	run(t, schema)
	tests := []struct {
		name   string
		on     []string
		change func(*LookupConfig)
		want   string
	}{
		{"no such table", []string{"id"}, func(c *LookupConfig) { c.Table = "lookup_test.users" }, "does not exist"},
		{"no such column", []string{"idd"}, func(*LookupConfig) {}, "idd does not exist"},
		{"a wrong password", []string{"id"}, func(c *LookupConfig) { c.URL = strings.Replace(c.URL, ":etl-secret@", ":wrong-one@", 1) }, "authentication failed"},
		{"no such database", []string{"id"}, func(c *LookupConfig) { c.URL = strings.Replace(c.URL, "/etl?", "/other?", 1) }, "does not exist"},
		{"a statement that writes", []string{"id"}, func(c *LookupConfig) {
			c.Table, c.Query = "", `DELETE FROM lookup_test."Users" WHERE id = $1 RETURNING id`
		}, "syntax error"},
		{"parameters that do not fit", []string{"id"}, func(c *LookupConfig) { c.Table, c.Query = "", `SELECT $1::int AS a, $2::int AS b` }, "2 parameters, and on 1 columns"},
		{"two columns of a name", []string{"id"}, func(c *LookupConfig) { c.Table, c.Query = "", `SELECT 1 AS a, 2 AS a WHERE $1 = 1` }, "two columns are called a"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := open(t, tt.on, tt.change)
			if err == nil || !connectors.IsPermanent(err) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v", err)
			}
			if err != nil && (strings.Contains(err.Error(), "etl-secret") || strings.Contains(err.Error(), "wrong-one")) {
				t.Errorf("error %v shows a password", err)
			}
		})
	}
}

func TestRealServerWritesNothing(t *testing.T) {
	run(t, schema+`CREATE FUNCTION lookup_test.change(x int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN DELETE FROM lookup_test."Users"; RETURN x; END $$;`)
	l, err := open(t, []string{"id"}, func(c *LookupConfig) { c.Table, c.Query = "", "SELECT lookup_test.change($1) AS x" })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := find(t.Context(), l, key(connectors.IntValue(1))); !connectors.IsPermanent(err) || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("error %v", err)
	}
}

func TestRealServerChangesOfTheTable(t *testing.T) {
	run(t, schema)
	l, err := open(t, []string{"id"}, func(c *LookupConfig) { c.Columns = []string{"name"} })
	if err != nil {
		t.Fatal(err)
	}
	ask := func() []string {
		rows, err := find(t.Context(), l, key(connectors.IntValue(1)))
		for try := 0; err != nil && try < 3 && !connectors.IsPermanent(err); try++ {
			rows, err = find(t.Context(), l, key(connectors.IntValue(1)))
		}
		if err != nil {
			t.Fatal(err)
		}
		return rows
	}
	ask()
	run(t, `ALTER TABLE lookup_test."Users" ALTER COLUMN name TYPE varchar(10), ADD COLUMN more int; UPDATE lookup_test."Users" SET name = 'new' WHERE id = 1`)
	if rows := ask(); rows[0] != `{"name":"new"}` {
		t.Errorf("rows %v", rows)
	}
}

// hanging opens another lookup with little time.
func hanging(t *testing.T, like *Lookup) error {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	l, err := NewLookup(like.config, like.columns)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Open(ctx, connectors.LookupEnv{Log: slog.New(slog.DiscardHandler), Concurrency: 1})
}

func TestRealServerGoesAndComesBack(t *testing.T) {
	run(t, schema+`INSERT INTO lookup_test."Users" (id, name) SELECT i, 'n' || i FROM generate_series(1000, 1599) i`)
	l, err := open(t, []string{"id"}, func(c *LookupConfig) { c.Columns = []string{"name"} })
	if err != nil {
		t.Fatal(err)
	}
	var keys [][]connectors.Value
	var want []string
	for i := 1000; i < 1600; i++ {
		keys, want = append(keys, key(connectors.IntValue(int64(i)))), append(want, fmt.Sprintf(`{"name":"n%d"}`, i))
	}
	ask := func(wait time.Duration) ([]string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		defer cancel()
		return find(ctx, l, keys...)
	}
	// A retry is allowed: the first call after a fault may meet a connection that is dead.
	right := func() {
		t.Helper()
		rows, err := ask(10 * time.Second)
		for try := 0; err != nil && try < 4 && !connectors.IsPermanent(err); try++ {
			rows, err = ask(10 * time.Second)
		}
		if err != nil || !slices.Equal(rows, want) {
			t.Errorf("error %v, rows %.200v", err, rows)
		}
	}
	right()

	service(t, "kill")
	t.Cleanup(func() { service(t, "start") })
	if _, err := ask(2 * time.Second); err == nil || connectors.IsPermanent(err) {
		t.Errorf("without a server: error %v", err)
	}
	service(t, "restart")
	right()

	// Sessions go on; new ones are not answered.
	service(t, "pause")
	err = hanging(t, l)
	service(t, "resume")
	if err == nil || connectors.IsPermanent(err) {
		t.Errorf("with a server that hangs: error %v", err)
	}
	right()

	slow, err := open(t, []string{"n"}, func(c *LookupConfig) { c.Table, c.Query = "", "SELECT pg_sleep($1::int)::text AS a" })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := find(ctx, slow, key(connectors.IntValue(20))); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a slow answer: error %v", err)
	}
	if rows, err := find(t.Context(), slow, key(connectors.IntValue(0))); err != nil || rows[0] != `{"a":""}` {
		t.Errorf("rows %v, error %v", rows, err)
	}
}
