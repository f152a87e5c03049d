package iceberg

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"go.uber.org/goleak"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/connectortest"
	"github.com/sluice-etl/sluice/connectors/deferred/deferredtest"
	_ "github.com/sluice-etl/sluice/storage/local" // the scheme file
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func columnList(t testing.TB, text ...any) []connectors.Column {
	t.Helper()
	c := newSinkConfig().(*SinkConfig)
	if err := c.Columns.UnmarshalConfig(text); err != nil {
		t.Fatal(err)
	}
	return c.Columns
}

// localConfig is a sink on a catalog in a file and a table in a folder.
func localConfig(t testing.TB) SinkConfig {
	t.Helper()
	dir := t.TempDir()
	c := *newSinkConfig().(*SinkConfig)
	c.Catalog = Catalog{Type: catalogSQL, URL: "sqlite://" + filepath.Join(dir, "catalog.db"), Name: "test", Warehouse: "file://" + dir + "/lake"}
	c.Table, c.Create = "suite.events", true
	c.Columns = columnList(t, map[string]any{"partition": "int32"}, map[string]any{"offset": "int"})
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	return c
}

// readRows reads the table by the library's scan, as JSON lines.
func readRows(ctx context.Context, c SinkConfig) ([]string, error) {
	l, err := openLake(ctx, &c, false)
	if err != nil {
		return nil, err
	}
	defer func() { _ = l.close() }()
	t, err := l.(*iceLake).cat.LoadTable(ctx, l.(*iceLake).ident)
	if err != nil {
		if _, none := l.load(ctx); none == errNoTable { //nolint:errorlint // it is returned as it is
			return nil, nil
		}
		return nil, err
	}
	tbl, err := t.Scan().ToArrowTable(ctx)
	if err != nil {
		return nil, err
	}
	defer tbl.Release()
	var out []string
	r := array.NewTableReader(tbl, 0)
	defer r.Release()
	for r.Next() {
		rec := r.RecordBatch()
		for i := range int(rec.NumRows()) {
			out = append(out, fmt.Sprintf(`{"partition":%s,"offset":%s}`, rec.Column(0).ValueStr(i), rec.Column(1).ValueStr(i)))
		}
	}
	return out, nil
}

func contract(t *testing.T, mode string) connectortest.Sink {
	c := localConfig(t)
	c.PartitionBy, c.Mode = []string{"bucket(2, partition)"}, mode
	sink := connectortest.Sink{
		New:     func() (connectors.Sink, error) { return NewSink(c), nil },
		Read:    func(ctx context.Context) ([]string, error) { return readRows(ctx, c) },
		Timeout: time.Minute,
	}
	if mode == modeUpsert {
		groups := c
		c.Key, groups.Key = []string{"partition", "offset"}, []string{"partition"}
		sink.Updating = &connectortest.Updating{
			Mode: connectors.AllChanges,
			New:  func() (connectors.Sink, error) { return NewSink(groups), nil },
			Read: func(ctx context.Context) ([]string, error) { return readRows(ctx, groups) },
		}
	}
	return sink
}

func TestSink(t *testing.T) {
	for _, mode := range []string{modeAppend, modeUpsert} {
		t.Run(mode, func(t *testing.T) {
			connectortest.TestSink(t, func(t *testing.T) connectortest.Sink { return contract(t, mode) })
		})
	}
}

func TestSinkChaos(t *testing.T) {
	for _, mode := range []string{modeAppend, modeUpsert} {
		t.Run(mode, func(t *testing.T) {
			connectortest.TestSinkChaos(t, 2, func(t *testing.T, _ uint64) connectortest.Chaos {
				return connectortest.Chaos{Sink: contract(t, mode)}
			})
		})
	}
}

func TestAStartKeepsOlderProcessesOut(t *testing.T) {
	c := localConfig(t)
	older := deferredtest.Start(t, NewSink(c), &connectortest.Files{}, 1, nil)
	older.Values(`{"partition":0,"offset":0}`)
	older.Checkpoint()
	older.Values(`{"partition":0,"offset":1}`)
	late := older.Prepare()
	var points []string
	deferredtest.Start(t, NewSink(c), &connectortest.Files{}, 2, func(env *connectors.SinkEnv) {
		env.Failpoint = func(point string) { points = append(points, point) }
	})
	if want := []string{"iceberg.fence.before", "iceberg.fence.after"}; !slices.Equal(points, want) {
		t.Errorf("the start passed %q, want %q", points, want)
	}
	if err := older.Try(t.Context(), late, false); !errors.Is(err, connectors.ErrFenced) {
		t.Errorf("a late commit of the older process: %v", err)
	}
}

// The property that says what is committed is of the pipeline that wrote it last. One that
// is of another storage, and has the same name, does not make a commit come twice.
func TestAnotherPipelineOfTheNameHidesNoCommit(t *testing.T) {
	c := localConfig(t)
	one := deferredtest.Start(t, NewSink(c), &connectortest.Files{}, 1, nil)
	one.Values(`{"partition":0,"offset":0}`)
	coms := one.Prepare()
	if err := one.Try(t.Context(), coms, false); err != nil {
		t.Fatal(err)
	}
	other := deferredtest.Start(t, NewSink(c), &connectortest.Files{}, 1, func(env *connectors.SinkEnv) {
		env.Origin = func() string { return "another storage" }
	})
	other.Values(`{"partition":1,"offset":0}`)
	other.Checkpoint()
	if err := one.Try(t.Context(), coms, false); err != nil {
		t.Fatal(err)
	}
	rows, err := readRows(t.Context(), c)
	if err != nil || len(rows) != 2 {
		t.Errorf("the table has %q (%v)", rows, err)
	}
}
