//go:build integration

package postgres

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/connectortest"
	"github.com/sluice-etl/sluice/connectors/deferred/deferredtest"
)

func TestRealServerMergesTheLastRowOfEachKey(t *testing.T) {
	for _, mode := range []string{"upsert", "changelog"} {
		t.Run(mode, func(t *testing.T) {
			schema := ownSchema(t)
			run(t, in(schema, `CREATE TABLE @.rows (a int, "B b" text, n int, made int DEFAULT 7, PRIMARY KEY (a, "B b")); INSERT INTO @.rows VALUES (9, 'old', 1, 1), (8, 'old', 1, 1)`))
			r := deferredtest.Start(t, mustSink(t, sinkConfig(t, schema, func(c *SinkConfig) { c.Mode = mode })), &connectortest.Files{}, 1, nil)
			rows := []deferredtest.Row{
				{Value: `{"a": 1, "B b": "x", "n": 1}`}, {Value: `{"a": 1, "B b": "x", "n": 2}`}, {Value: `{"a": 1, "B b": "y", "n": 3, "made": null}`},
				{Key: `{"a": 9, "B b": "old"}`},
				{Value: `{"a": 2, "B b": "x", "n": 4}`}, {Value: `{"a": 2, "B b": "x", "n": 4}`, Op: connectors.UpdateBefore}, {Value: `{"a": 3, "B b": "x", "n": 4}`, Op: connectors.UpdateAfter},
				{Value: `{"a": 4, "B b": "x"}`}, {Value: `{"a": 4, "B b": "x"}`, Op: connectors.Delete}, {Value: `{"a": 4, "B b": "x", "n": 5, "made": 1}`},
			}
			if mode == "changelog" {
				rows = append(rows, deferredtest.Row{Value: `{"a": 8, "B b": "old", "op": "d"}`}, deferredtest.Row{Value: `{"a": 5, "B b": "x", "n": 6, "op": "update_after"}`})
			} else {
				rows = append(rows, deferredtest.Row{Key: `{"a": 8, "B b": "old"}`}, deferredtest.Row{Value: `{"a": 5, "B b": "x", "n": 6}`})
			}
			if refused := r.Write(rows...); refused != nil {
				t.Fatalf("refused %+v", refused)
			}
			if refused := r.Write(deferredtest.Row{Key: "text"}, deferredtest.Row{Value: `{"a": 1}`}); len(refused) != 2 {
				t.Errorf("refused %+v", refused)
			}
			r.Checkpoint()
			want := []string{
				`{"a":1,"B b":"x","n":2,"made":7}`, `{"a":1,"B b":"y","n":3,"made":null}`, `{"a":3,"B b":"x","n":4,"made":7}`, `{"a":4,"B b":"x","n":5,"made":1}`, `{"a":5,"B b":"x","n":6,"made":7}`,
			}
			wantRows(t, query(t, schema, `SELECT * FROM @.rows ORDER BY a, "B b"`), want...)
			// A later checkpoint leaves columns alone that a row lacks and the table fills.
			r.Values(`{"a": 4, "B b": "x", "n": 50}`)
			r.Checkpoint()
			want[3] = `{"a":4,"B b":"x","n":50,"made":1}`
			wantRows(t, query(t, schema, `SELECT * FROM @.rows ORDER BY a, "B b"`), want...)
		})
	}
}

func TestRealServerWritesTheRowBeforeARefusedOneOfTheSameKey(t *testing.T) {
	schema := ownSchema(t)
	run(t, in(schema, `CREATE TABLE @.rows (id int PRIMARY KEY, n int CHECK (n > 0))`))
	r := deferredtest.Start(t, mustSink(t, sinkConfig(t, schema, func(c *SinkConfig) { c.Mode = "upsert" })), &connectortest.Files{}, 1, nil)
	r.Values(`{"id": 1, "n": 1}`, `{"id": 1, "n": 2}`, `{"id": 1, "n": -1}`, `{"id": 1, "n": -2}`, `{"id": 2, "n": -1}`, `{"id": 3, "n": 3}`)
	r.Checkpoint()
	wantRows(t, query(t, schema, `SELECT * FROM @.rows ORDER BY id`), `{"id":1,"n":2}`, `{"id":3,"n":3}`)
	if rows := r.Tick(); len(rows) != 3 {
		t.Errorf("rejected %+v", rows)
	}
}

// A value of a unique index beside the key's can move between the rows of a checkpoint.
func TestRealServerMovesUniqueValues(t *testing.T) {
	schema := ownSchema(t)
	run(t, in(schema, `CREATE TABLE @.rows (id int PRIMARY KEY, mail text UNIQUE); INSERT INTO @.rows SELECT i, 'm' || i FROM generate_series(1, 40) i`))
	r := deferredtest.Start(t, mustSink(t, sinkConfig(t, schema, func(c *SinkConfig) { c.Mode = "upsert" })), &connectortest.Files{}, 1, nil)
	r.Write(
		// Its last row comes behind the one that takes its value.
		deferredtest.Row{Value: `{"id": 1, "mail": "x"}`}, deferredtest.Row{Value: `{"id": 2, "mail": "m1"}`}, deferredtest.Row{Value: `{"id": 1, "mail": "new"}`},
		// A row that goes, behind the one that takes its value.
		deferredtest.Row{Value: `{"id": 7, "mail": "m8"}`}, deferredtest.Row{Key: `{"id": 8}`},
		// One that nobody makes room for.
		deferredtest.Row{Value: `{"id": 50, "mail": "m9"}`},
	)
	// A long chain, from its wrong end.
	want := []string{`{"id":1,"mail":"new"}`, `{"id":2,"mail":"m1"}`, `{"id":7,"mail":"m8"}`, `{"id":9,"mail":"m9"}`}
	for id := 20; id < 40; id++ {
		r.Write(deferredtest.Row{Value: fmt.Sprintf(`{"id": %d, "mail": "m%d"}`, id, id+1)})
		want = append(want, fmt.Sprintf(`{"id":%d,"mail":"m%d"}`, id, id+1))
	}
	r.Write(deferredtest.Row{Value: `{"id": 40, "mail": "free"}`})
	want = append(want, `{"id":40,"mail":"free"}`)
	r.Checkpoint()
	wantRows(t, query(t, schema, `SELECT id, mail FROM @.rows WHERE id < 3 OR id IN (7, 8, 9) OR id >= 20 ORDER BY id`), want...)
	if rows := r.Tick(); len(rows) != 1 || rows[0].Kind != "unique" || !strings.Contains(string(rows[0].Record.Value), `"id": 50`) {
		t.Errorf("rejected %+v", rows)
	}
}

// Rows to delete have no values but the key's, whatever the types of the others ask for.
func TestRealServerDeletesBesideColumnsOfDomains(t *testing.T) {
	schema := ownSchema(t)
	run(t, in(schema, `CREATE DOMAIN @.code AS varchar(3) NOT NULL CHECK (VALUE <> 'bad'); CREATE DOMAIN @.sum AS numeric(4, 1) NOT NULL; CREATE DOMAIN @.id AS @.sum;
CREATE TABLE @.rows (id @.id PRIMARY KEY, code @.code, sums @.sum[]); INSERT INTO @.rows VALUES (1.5, 'a', '{1}'), (2, 'b', '{2}')`))
	r := deferredtest.Start(t, mustSink(t, sinkConfig(t, schema, func(c *SinkConfig) { c.Mode = "changelog" })), &connectortest.Files{}, 1, nil)
	r.Values(`{"id": 1.5, "op": "delete"}`, `{"id": 3, "code": "c", "sums": [3.5], "op": "insert"}`, `{"id": 4, "code": "bad", "op": "insert"}`)
	r.Checkpoint()
	wantRows(t, query(t, schema, `SELECT * FROM @.rows ORDER BY id`), `{"id":2.0,"code":"b","sums":[2.0]}`, `{"id":3.0,"code":"c","sums":[3.5]}`)
	if rows := r.Tick(); len(rows) != 1 || rows[0].Kind != "check" {
		t.Errorf("rejected %+v", rows)
	}
}
