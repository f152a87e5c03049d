//go:build integration

package postgres

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/columns"
	"github.com/sluice-etl/sluice/connectors/connectortest"
	"github.com/sluice-etl/sluice/connectors/deferred"
	"github.com/sluice-etl/sluice/connectors/deferred/deferredtest"
	"github.com/sluice-etl/sluice/connectors/deferred/table"
)

func mustSink(t *testing.T, c SinkConfig) *deferred.Sink {
	t.Helper()
	s, err := newTestSink(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// query gives the rows of a query as JSON.
func query(t *testing.T, schema, sql string) []string {
	t.Helper()
	out, err := list(t.Context(), realURL(t), "SELECT row_to_json(q)::text FROM ("+in(schema, sql)+") AS q")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func wantRows(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("rows\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

const typesTable = `CREATE TYPE @.mood AS ENUM ('sad', 'very "ok"');
CREATE DOMAIN @.code AS varchar(3) NOT NULL CHECK (VALUE <> 'bad');
CREATE TABLE @.rows (
  "Id" int8, small int2, mid int4, exact numeric(38,10), free numeric, single float4, double float8, flag bool, note text, short varchar(3), code @.code,
  raw bytea, at timestamptz, local timestamp, day date, clock time, span interval, uid uuid, doc jsonb, plain json, mood @.mood, tags text[], nums int[], grid int[], docs jsonb[], ip inet)`

func TestRealServerTypes(t *testing.T) {
	schema := ownSchema(t)
	run(t, in(schema, typesTable))
	r := deferredtest.Start(t, mustSink(t, sinkConfig(t, schema, nil)), &connectortest.Files{}, 1, nil)
	refused := r.Values(
		`{"Id": 9223372036854775807, "small": -32768, "mid": 2147483647, "exact": 1234567890123456789012345678.0123456789, "free": 1.10, "single": 1.5, "double": 0.1, "flag": true,
		  "note": "tab\there \\N \r\n ü 🙂 'q' \"d\"", "short": "äöü", "code": "ok", "raw": "AAH/", "at": "2026-01-01T10:00:00.123456789+02:00", "local": "2026-01-02T03:04:05", "day": "2026-02-28",
		  "clock": "23:59:59.5", "span": "1h30m", "uid": "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "doc": {"n": 12345678901234567890.10, "s": "a\\u0000"}, "plain": [1.10, {"a": null}], "mood": "very \"ok\"",
		  "tags": ["x", "y \"z\"\\", null, "", "NULL", "{}"], "nums": [1, -2], "grid": [[1, 2], [3, 4]], "docs": [{"a": [1]}, "t"], "ip": "10.0.0.1"}`,
		`{"Id": -9223372036854775808, "exact": "NaN", "free": 1e3, "single": "NaN", "double": "-Infinity", "note": "", "code": "x", "raw": "", "tags": [], "at": 0, "doc": "text"}`,
		`{"Id": null, "code": "y", "exact": -0.0000000001}`,
		// Each of these alone is refused.
		`{"Id": 9223372036854775808, "code": "r"}`, `{"small": 32768, "code": "r"}`, `{"mid": 1.5, "code": "r"}`, `{"exact": 0.00000000001, "code": "r"}`, `{"flag": "true", "code": "r"}`,
		`{"note": 5, "code": "r"}`, `{"note": "\u0000", "code": "r"}`, `{"short": "äöüß", "code": "r"}`, `{"Id": 1}`, `{"code": null}`, `{"raw": "?", "code": "r"}`,
		`{"at": "2026-01-01T10:00:00", "code": "r"}`, `{"uid": "6ba7b810", "code": "r"}`, `{"doc": "\u0000", "code": "r"}`, `{"mood": "glad", "code": "r"}`, `{"tags": "x", "code": "r"}`,
		`{"nums": [1.5], "code": "r"}`, `{"code": "r", "typo": 1}`, `[1]`, `{"code": `, "")
	if len(refused) != 21 {
		t.Errorf("%d rows are refused: %+v", len(refused), refused)
	}
	for i, e := range refused {
		if e.Row != i+3 || e.Kind == "" || strings.Contains(e.Reason, "glad") || strings.Contains(e.Reason, "6ba7") {
			t.Errorf("refused %+v", e)
		}
	}
	r.Checkpoint()
	wantRows(t, query(t, schema, `SELECT "Id", small, mid, exact::text, free::text, single::text, double::text, flag, note, short, code, encode(raw, 'hex') AS raw FROM @.rows ORDER BY "Id" DESC NULLS LAST`),
		`{"Id":9223372036854775807,"small":-32768,"mid":2147483647,"exact":"1234567890123456789012345678.0123456789","free":"1.10","single":"1.5","double":"0.1","flag":true,`+
			`"note":"tab\there \\N \r\n ü 🙂 'q' \"d\"","short":"äöü","code":"ok","raw":"0001ff"}`,
		`{"Id":-9223372036854775808,"small":null,"mid":null,"exact":"NaN","free":"1000","single":"NaN","double":"-Infinity","flag":null,"note":"","short":null,"code":"x","raw":""}`,
		`{"Id":null,"small":null,"mid":null,"exact":"-0.0000000001","free":null,"single":null,"double":null,"flag":null,"note":null,"short":null,"code":"y","raw":null}`)
	wantRows(t, query(t, schema, `SELECT (at AT TIME ZONE 'UTC')::text AS at, local::text, day::text, clock::text, span::text, uid, doc::text, plain::text, mood::text, tags, nums, grid, docs::text, ip FROM @.rows WHERE code = 'ok'`),
		`{"at":"2026-01-01 08:00:00.123456","local":"2026-01-02 03:04:05","day":"2026-02-28","clock":"23:59:59.5","span":"01:30:00","uid":"6ba7b810-9dad-11d1-80b4-00c04fd430c8",`+
			`"doc":"{\"n\": 12345678901234567890.10, \"s\": \"a\\\\u0000\"}","plain":"[1.10, {\"a\": null}]","mood":"very \"ok\"","tags":["x","y \"z\"\\",null,"","NULL","{}"],"nums":[1,-2],"grid":[[1,2],[3,4]],`+
			`"docs":"{\"{\\\"a\\\": [1]}\",\"\\\"t\\\"\"}","ip":"10.0.0.1"}`)
}

func TestRealServerFillsColumnsThatRowsLack(t *testing.T) {
	schema := ownSchema(t)
	run(t, in(schema, `CREATE TABLE @.rows (id bigserial PRIMARY KEY, n int, made text NOT NULL DEFAULT 'here', twice int GENERATED ALWAYS AS (n * 2) STORED)`))
	r := deferredtest.Start(t, mustSink(t, sinkConfig(t, schema, nil)), &connectortest.Files{}, 1, nil)
	for range 2 {
		if refused := r.Values(`{"n": 1}`, `{"n": 2, "made": "there"}`, `{"id": 100, "n": 3}`, `{"n": 4}`, `{"made": null}`); len(refused) != 1 || refused[0].Row != 4 {
			t.Fatalf("refused %+v", refused)
		}
		r.Checkpoint()
		run(t, in(schema, `UPDATE @.rows SET id = id + 1000, n = n + 100`))
	}
	wantRows(t, query(t, schema, `SELECT n, made, twice FROM @.rows ORDER BY n`),
		`{"n":101,"made":"here","twice":202}`, `{"n":102,"made":"there","twice":204}`, `{"n":103,"made":"here","twice":206}`, `{"n":104,"made":"here","twice":208}`,
		`{"n":201,"made":"here","twice":402}`, `{"n":202,"made":"there","twice":404}`, `{"n":203,"made":"here","twice":406}`, `{"n":204,"made":"here","twice":408}`)
}

func TestRealServerRefusesRowsAtTheCommit(t *testing.T) {
	for _, mode := range []string{"insert", "upsert"} {
		t.Run(mode, func(t *testing.T) {
			schema := ownSchema(t)
			run(t, in(schema, `CREATE TABLE @.kinds (kind text PRIMARY KEY); INSERT INTO @.kinds VALUES ('a');
CREATE TABLE @.rows (id int PRIMARY KEY, mail text UNIQUE DEFERRABLE INITIALLY DEFERRED, kind text REFERENCES @.kinds, n int CHECK (n > 0), ip inet);
INSERT INTO @.rows VALUES (1000, 'taken', 'a', 1);
CREATE FUNCTION @.no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.n = 13 THEN RAISE EXCEPTION 'secret %', NEW.n; END IF; RETURN NEW; END $$;
CREATE TRIGGER no BEFORE INSERT ON @.rows FOR EACH ROW EXECUTE FUNCTION @.no()`))
			files := &connectortest.Files{}
			c := sinkConfig(t, schema, func(c *SinkConfig) { c.Mode = mode })
			r := deferredtest.Start(t, mustSink(t, c), files, 1, nil)
			var values []string
			for i := range 3000 {
				values = append(values, fmt.Sprintf(`{"id": %d, "kind": "a", "n": 1}`, i+2000))
			}
			bad := map[int]string{
				0: `{"id": 1, "mail": "taken"}`, 700: `{"id": 2, "kind": "secret"}`, 701: `{"id": 3, "n": -1}`, 1500: `{"id": 4, "ip": "secret"}`, 2999: `{"id": 5, "n": 13}`,
			}
			for i, v := range bad {
				values[i] = v
			}
			for len(values) > 0 {
				n := min(1000, len(values))
				if refused := r.Values(values[:n]...); refused != nil {
					t.Fatalf("refused at once: %+v", refused)
				}
				values = values[n:]
			}
			r.Checkpoint()
			wantRows(t, query(t, schema, `SELECT count(*), count(*) FILTER (WHERE id < 1000) AS bad FROM @.rows`), `{"count":2996,"bad":0}`)
			rows := r.AllRefused()
			kinds := map[string]bool{}
			for _, rej := range rows {
				kinds[rej.Kind] = true
				if strings.Contains(rej.Reason, "secret") || rej.Record.Origin == nil || !bytes.Contains(rej.Record.Value, []byte(`"id": `)) || len(rej.Record.Headers) != 2 ||
					!bytes.Equal(rej.Record.Headers[0].Value, []byte("\xff\x00")) || rej.Record.Headers[1].Value != nil || rej.Record.Time != 1700000000000 {
					t.Errorf("rejected %+v", rej)
				}
			}
			if len(rows) != 5 || !kinds["unique"] || !kinds["foreign_key"] || !kinds["check"] || !kinds["type"] || !kinds["trigger"] {
				t.Errorf("rejected %+v", rows)
			}
			wantRows(t, query(t, schema, `SELECT count(*), count(settled_at) AS settled FROM @.sluice_rejected`), `{"count":5,"settled":0}`)
			if more := r.Tick(); more != nil {
				t.Errorf("%d rows are handed over twice", len(more))
			}
			second := r.Prepare()
			r.Stop()

			// A crash before the second checkpoint was complete: they come again. After it: they do not.
			r = deferredtest.Start(t, mustSink(t, c), files, 2, nil)
			if rows := r.AllRefused(); len(rows) != 5 {
				t.Errorf("%d rows are handed over again", len(rows))
			}
			r.Stop()
			r = deferredtest.Start(t, mustSink(t, c), files, 3, nil, second...)
			if rows := r.Tick(); rows != nil {
				t.Errorf("%d rows are handed over again", len(rows))
			}
			wantRows(t, query(t, schema, `SELECT count(*), count(settled_at) AS settled FROM @.sluice_rejected`), `{"count":0,"settled":0}`)
		})
	}
}

func TestRealServerOnErrorFail(t *testing.T) {
	schema := ownSchema(t)
	run(t, in(schema, `CREATE TABLE @.rows (id int PRIMARY KEY)`))
	files := &connectortest.Files{}
	fail := func(e *connectors.SinkEnv) { e.OnError = connectors.RowFail }
	c := sinkConfig(t, schema, nil)
	r := deferredtest.Start(t, mustSink(t, c), files, 1, fail)
	r.Values(`{"id": 1}`, `{"id": 1}`, `{"id": 2}`)
	coms := r.Prepare()
	err := r.Try(t.Context(), coms, false)
	if !connectors.IsPermanent(err) || !strings.Contains(err.Error(), "in/0@1") {
		t.Fatalf("error %v", err)
	}
	r.Stop()
	r = deferredtest.Start(t, mustSink(t, c), files, 2, fail, coms...)
	if rows := r.Tick(); rows != nil {
		t.Errorf("rejected %+v", rows)
	}
	wantRows(t, query(t, schema, `SELECT * FROM @.rows ORDER BY id`), `{"id":1}`, `{"id":2}`)
	wantRows(t, query(t, schema, `SELECT row FROM @.sluice_rejected`), `{"row":"1"}`)
}

// through gives a configuration whose connections lead through a proxy.
func through(t *testing.T, c SinkConfig) (SinkConfig, *deferredtest.Proxy) {
	t.Helper()
	u, err := url.Parse(c.URL)
	if err != nil {
		t.Fatal(err)
	}
	p := deferredtest.NewProxy(t, u.Host)
	u.Host = p.Addr
	c.URL = u.String()
	return c, p
}

func TestRealServerAnswersThatGetLost(t *testing.T) {
	for name, match := range map[string]func([]byte) bool{
		"of the commit":    func(b []byte) bool { return bytes.HasSuffix(b, []byte("commit\x00")) },
		"of the copy":      func(b []byte) bool { return bytes.Contains(b, []byte("COPY ")) },
		"of the beginning": func(b []byte) bool { return bytes.Contains(b, []byte("SET LOCAL")) },
		"of the witness":   func(b []byte) bool { return bytes.Contains(b, []byte("UPDATE ")) },
	} {
		t.Run(name, func(t *testing.T) {
			schema := ownSchema(t)
			run(t, in(schema, `CREATE TABLE @.rows (id int CHECK (id <> 3))`))
			c, proxy := through(t, sinkConfig(t, schema, nil))
			r := deferredtest.Start(t, mustSink(t, c), &connectortest.Files{}, 1, nil)
			for i := range 6 {
				r.Values(fmt.Sprintf(`{"id": %d}`, i))
				coms := r.Prepare()
				proxy.Lose(match)
				r.Commit(coms, false)
				if proxy.Lost() != i+1 {
					t.Fatalf("%d answers got lost", proxy.Lost())
				}
			}
			wantRows(t, query(t, schema, `SELECT id FROM @.rows ORDER BY id`), `{"id":0}`, `{"id":1}`, `{"id":2}`, `{"id":4}`, `{"id":5}`)
			if rows := r.Tick(); len(rows) != 1 {
				t.Errorf("rejected %+v", rows)
			}
		})
	}
}

func TestRealServerGoesAwayInTheMiddle(t *testing.T) {
	schema := ownSchema(t)
	run(t, in(schema, `CREATE TABLE @.rows (id int)`))
	c := sinkConfig(t, schema, nil)
	r := deferredtest.Start(t, mustSink(t, c), &connectortest.Files{}, 1, nil)
	r.Values(`{"id": 1}`)
	r.Checkpoint()
	r.Values(`{"id": 2}`)
	coms := r.Prepare()
	service(t, "kill")
	t.Cleanup(func() { service(t, "start") })
	if err := r.Try(t.Context(), coms, false); err == nil || connectors.IsPermanent(err) {
		t.Fatalf("without a server: error %v", err)
	}
	if refused := r.Values(`{"id": 3}`); refused != nil { // the stream goes on
		t.Errorf("refused %+v", refused)
	}
	var wg sync.WaitGroup
	wg.Go(func() { r.Commit(coms, false) })
	service(t, "restart")
	wg.Wait()
	r.Checkpoint()
	wantRows(t, query(t, schema, `SELECT id FROM @.rows ORDER BY id`), `{"id":1}`, `{"id":2}`, `{"id":3}`)
}

func TestRealServerHoldsOneProcessBack(t *testing.T) {
	schema := ownSchema(t)
	run(t, in(schema, `CREATE TABLE @.rows (id int)`))
	files, c := &connectortest.Files{}, sinkConfig(t, schema, nil)
	old := deferredtest.Start(t, mustSink(t, c), files, 1, nil)
	old.Values(`{"id": 1}`)
	old.Checkpoint()
	old.Values(`{"id": 2}`)
	orphan := old.Prepare()
	young := deferredtest.Start(t, mustSink(t, c), files, 2, nil)
	young.Values(`{"id": 20}`)
	coms := young.Prepare()
	// Both at once; whoever is first, the old one gets nothing in.
	var wg sync.WaitGroup
	var err error
	wg.Go(func() { err = old.Try(t.Context(), orphan, false) })
	young.Commit(coms, false)
	wg.Wait()
	if !errors.Is(err, connectors.ErrFenced) {
		t.Errorf("the old process: %v", err)
	}
	wantRows(t, query(t, schema, `SELECT id FROM @.rows ORDER BY id`), `{"id":1}`, `{"id":20}`)
	if w, ok, err := young.Sink.Committer().Witness(t.Context()); err != nil || !ok || w != coms[0].Checkpoint {
		t.Errorf("witness %v, %v, %v", w, ok, err)
	}

	// One with another storage of checkpoints is told so, and can take over.
	other := deferredtest.Open(t, mustSink(t, c), files, 1, func(e *connectors.SinkEnv) { e.Origin = func() string { return "other" } })
	var foreign *connectors.ForeignWitnessError
	if _, _, err := other.Sink.Committer().Witness(t.Context()); !errors.As(err, &foreign) {
		t.Fatalf("witness of another storage: %v", err)
	}
	other.Resume()
	other.Values(`{"id": 30}`)
	other.Checkpoint()
	young.Values(`{"id": 21}`)
	if err := young.Try(t.Context(), young.Prepare(), false); !errors.Is(err, connectors.ErrFenced) {
		t.Errorf("the process that was taken over: %v", err)
	}
	wantRows(t, query(t, schema, `SELECT id FROM @.rows ORDER BY id`), `{"id":1}`, `{"id":20}`, `{"id":30}`)
}

func TestRealServerTableChecks(t *testing.T) {
	schema := ownSchema(t)
	run(t, in(schema, `CREATE TABLE @.rows (id int NOT NULL, n int NOT NULL, g int GENERATED ALWAYS AS (1) STORED, b bool); CREATE UNIQUE INDEX ON @.rows (id) WHERE n > 0`))
	known := func(e *connectors.SinkEnv) {
		e.Columns = []connectors.Column{{Name: "id", Type: connectors.Type{Base: connectors.Integer}}, {Name: "b", Type: connectors.Type{Base: connectors.Text}}, {Name: "x"}}
	}
	tests := []struct {
		name   string
		change func(*SinkConfig)
		env    func(*connectors.SinkEnv)
		want   []string
	}{
		{"no table", func(c *SinkConfig) { c.Table = schema + ".none" }, nil, []string{"there is no table"}},
		{"fields", nil, known, []string{"no column x", "column b is boolean, and the field is string", "column n must have a value"}},
		{"expressions", func(c *SinkConfig) {
			c.Columns = connectors.Assignments{{Name: "id"}, {Name: "y"}, {Name: "g"}}
		}, nil, []string{"no column y", "makes the values of column g", "column n must have"}},
		{"no key", func(c *SinkConfig) { c.Mode = "upsert" }, nil, []string{"no primary key"}},
		{"a key without an index", func(c *SinkConfig) { c.Mode, c.Key = "upsert", []string{"id"} }, nil, []string{"no unique index on exactly the key (id)"}},
		{"no types to make a table of", func(c *SinkConfig) { c.Table, c.Create.On = schema+".new", true }, nil, []string{"the types of the rows are not known"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := mustSink(t, sinkConfig(t, schema, tt.change))
			env := deferredtest.Env(&connectortest.Files{}, 1)
			if tt.env != nil {
				tt.env(&env)
			}
			t.Cleanup(func() { _ = s.Close() })
			err := s.Open(t.Context(), env)
			for _, want := range tt.want {
				if err == nil || !connectors.IsPermanent(err) || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v\nwant %s", err, want)
				}
			}
		})
	}
}

func TestRealServerMakesTheTable(t *testing.T) {
	schema := ownSchema(t)
	var cols columns.List
	if err := cols.UnmarshalConfig([]any{
		map[string]any{"id": "int"}, map[string]any{"price": "decimal(10, 2)?"}, map[string]any{"tags": []any{"string"}}, map[string]any{"at": "timestamp?"}, map[string]any{"big": "uint64?"},
	}); err != nil {
		t.Fatal(err)
	}
	c := sinkConfig(t, schema, func(c *SinkConfig) {
		c.Mode, c.Key, c.Create = "upsert", []string{"id"}, table.Create{On: true, Columns: cols}
	})
	look := mustSink(t, c)
	env := deferredtest.Env(nil, 1)
	env.ReadOnly = true
	if err := look.Open(t.Context(), env); err != nil {
		t.Errorf("looked at: %v", err)
	}
	if _, ok, err := look.Committer().Witness(t.Context()); ok || err != nil {
		t.Errorf("witness %v, %v", ok, err)
	}
	_ = look.Close()
	wantRows(t, query(t, schema, `SELECT relname FROM pg_class WHERE relnamespace = '@'::regnamespace`))
	for range 2 {
		r := deferredtest.Start(t, mustSink(t, c), &connectortest.Files{}, 1, nil)
		r.Stop()
	}
	r := deferredtest.Start(t, mustSink(t, c), &connectortest.Files{}, 2, nil)
	r.Values(`{"id": 1, "price": 1.5, "tags": ["a"], "at": "2026-01-01T00:00:00Z", "big": 18446744073709551615}`)
	r.Checkpoint()
	wantRows(t, query(t, schema, `SELECT id, price, tags, at AT TIME ZONE 'UTC' AS at, big FROM @.rows`), `{"id":1,"price":1.50,"tags":["a"],"at":"2026-01-01T00:00:00","big":18446744073709551615}`)
}

func TestRealServerCrashesAtEachStep(t *testing.T) {
	for _, mode := range []string{"insert", "upsert"} {
		t.Run(mode, func(t *testing.T) {
			schema := ownSchema(t)
			deferredtest.Crashes(t, func(t *testing.T) deferredtest.Target {
				run(t, in(schema, "DROP SCHEMA @ CASCADE; CREATE SCHEMA @; CREATE TABLE @.rows (id int PRIMARY KEY CHECK (id % 10 <> 2))"))
				return deferredtest.Target{
					New: func() connectors.TwoPhaseSink {
						return mustSink(t, sinkConfig(t, schema, func(c *SinkConfig) { c.Mode = mode }))
					},
					Read: func() []string {
						ids, err := list(t.Context(), realURL(t), in(schema, "SELECT r.id::text FROM @.rows AS r ORDER BY r.id"))
						if err != nil {
							t.Fatal(err)
						}
						return ids
					},
				}
			})
		})
	}
}
