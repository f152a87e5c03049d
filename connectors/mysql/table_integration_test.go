//go:build integration

package mysql

import (
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/columns"
	"github.com/sluice-etl/sluice/connectors/connectortest"
	"github.com/sluice-etl/sluice/connectors/deferred/deferredtest"
	"github.com/sluice-etl/sluice/connectors/deferred/table"
)

func TestRealServerTableChecks(t *testing.T) {
	w := newWorld(t)
	w.run("CREATE TABLE @.rows (id int NOT NULL, n int NOT NULL, g int AS (1) STORED) ENGINE = InnoDB; CREATE TABLE @.two (id int PRIMARY KEY, mail varchar(9) UNIQUE) ENGINE = InnoDB;" +
		"CREATE TABLE @.old (id int) ENGINE = MyISAM")
	tests := []struct {
		name   string
		change func(*SinkConfig)
		want   []string
	}{
		{"no table", func(c *SinkConfig) { c.Table = w.name + ".none" }, []string{"there is no table"}},
		{"no transactions", func(c *SinkConfig) { c.Table = w.name + ".old" }, []string{"only InnoDB"}},
		{"expressions", func(c *SinkConfig) {
			c.Columns = connectors.Assignments{{Name: "id"}, {Name: "y"}, {Name: "g"}}
		}, []string{"no column y", "makes the values of column g", "column n must have"}},
		{"no key", func(c *SinkConfig) { c.Mode = "upsert" }, []string{"no primary key"}},
		{"two unique indexes", func(c *SinkConfig) { c.Mode, c.Table = "upsert", w.name+".two" }, []string{"unique index mail beside the key"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := mustSink(t, w.config(tt.change))
			t.Cleanup(func() { _ = s.Close() })
			err := s.Open(t.Context(), deferredtest.Env(nil, 1))
			for _, want := range tt.want {
				if err == nil || !connectors.IsPermanent(err) || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v\nwant %s", err, want)
				}
			}
		})
	}
}

func TestRealServerMakesTheTable(t *testing.T) {
	w := newWorld(t)
	var cols columns.List
	if err := cols.UnmarshalConfig([]any{
		map[string]any{"id": "string"}, map[string]any{"price": "decimal(10, 2)?"}, map[string]any{"tags": []any{"string"}}, map[string]any{"at": "timestamp?"}, map[string]any{"took": "duration?"},
	}); err != nil {
		t.Fatal(err)
	}
	c := w.config(func(c *SinkConfig) {
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
	w.want("SHOW TABLES IN @")
	r := deferredtest.Start(t, mustSink(t, c), &connectortest.Files{}, 1, nil)
	r.Stop()
	r = deferredtest.Start(t, mustSink(t, c), &connectortest.Files{}, 2, nil)
	if refused := r.Values(`{"id": "a", "price": 1.5, "tags": ["a"], "at": "2026-01-01T00:00:00Z", "took": 5}`); refused != nil {
		t.Fatalf("refused %+v", refused)
	}
	r.Checkpoint()
	w.want("SELECT * FROM @.rows", `a|1.50|["a"]|2026-01-01 00:00:00.000000|5`)
}

func TestRealServerKeepsATableOfKeysAlone(t *testing.T) {
	w := newWorld(t)
	w.run("CREATE TABLE @.rows (id int PRIMARY KEY) ENGINE = InnoDB; INSERT INTO @.rows VALUES (1), (3)")
	r := deferredtest.Start(t, mustSink(t, w.config(func(c *SinkConfig) { c.Mode = table.Upsert })), &connectortest.Files{}, 1, nil)
	r.Write(deferredtest.Row{Value: `{"id": 1}`}, deferredtest.Row{Value: `{"id": 2}`}, deferredtest.Row{Value: `{"id": 2}`}, deferredtest.Row{Key: "3"})
	r.Checkpoint()
	w.want("SELECT id FROM @.rows ORDER BY id", "1", "2")
}
