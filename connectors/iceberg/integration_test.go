//go:build integration

package iceberg

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/connectortest"
	"github.com/sluice-etl/sluice/connectors/deferred/deferredtest"
	"github.com/sluice-etl/sluice/storage"
	"github.com/sluice-etl/sluice/storage/s3"
)

func variable(t testing.TB, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		t.Fatalf("%s is not set: run make integration", name)
	}
	return v
}

var tables atomic.Int64

// lakehouse is a new catalog in the Postgres of the tests, with its warehouse in their S3.
func lakehouse(t *testing.T) SinkConfig {
	t.Helper()
	c := localConfig(t)
	c.Catalog.URL = variable(t, "POSTGRES_URL")
	c.Catalog.Name = fmt.Sprintf("test-%d-%d", time.Now().UnixNano(), tables.Add(1))
	c.Catalog.Warehouse = "s3://" + variable(t, "S3_BUCKET") + "/" + c.Catalog.Name
	t.Cleanup(s3.CloseIdle)
	return c
}

// restTable is a new table of the REST catalog of the tests.
func restTable(t *testing.T) SinkConfig {
	t.Helper()
	c := localConfig(t)
	c.Catalog = Catalog{Type: catalogREST, URL: variable(t, "ICEBERG_REST_URL"), Name: "default", Scope: "catalog"}
	c.Table = fmt.Sprintf("suite%d.events_%d", time.Now().UnixNano(), tables.Add(1))
	return c
}

// through has a sink reach its catalog by another address.
func through(t *testing.T, c SinkConfig, address string) SinkConfig {
	t.Helper()
	u, err := url.Parse(c.Catalog.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = address
	c.Catalog.URL = u.String()
	return c
}

func host(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// suiteOver is the contract's target, of which the sink reaches the catalog by a proxy.
func suiteOver(t *testing.T, mode string, direct SinkConfig) connectortest.Sink {
	t.Helper()
	direct.Mode, direct.PartitionBy = mode, []string{"bucket(2, partition)"}
	if mode == modeUpsert {
		direct.Key = []string{"partition", "offset"}
	}
	proxy := connectortest.NewProxy(t, host(t, direct.Catalog.URL))
	c := through(t, direct, proxy.Addr)
	c.Timeout = connectors.TimeSpan(10 * time.Second)
	sink := connectortest.Sink{
		New:     func() (connectors.Sink, error) { return NewSink(c), nil },
		Read:    func(ctx context.Context) ([]string, error) { return readRows(ctx, direct) },
		Network: proxy.Network(),
		Timeout: 2 * time.Minute,
		Without: map[string]string{
			connectortest.WithoutThrottle: "neither a database nor the protocol of catalogs puts a client off",
			connectortest.WithoutPoison:   "rows are refused before they reach a file",
		},
	}
	if mode == modeUpsert {
		groups := c
		groups.Key = []string{"partition"}
		read := groups
		read.Catalog.URL = direct.Catalog.URL
		sink.Updating = &connectortest.Updating{
			Mode: connectors.AllChanges,
			New:  func() (connectors.Sink, error) { return NewSink(groups), nil },
			Read: func(ctx context.Context) ([]string, error) { return readRows(ctx, read) },
		}
	}
	return sink
}

func TestRealCatalogInPostgresAndFilesInS3(t *testing.T) {
	for _, mode := range []string{modeAppend, modeUpsert} {
		t.Run(mode, func(t *testing.T) {
			connectortest.TestSink(t, func(t *testing.T) connectortest.Sink { return suiteOver(t, mode, lakehouse(t)) })
		})
	}
}

func TestRealRESTCatalog(t *testing.T) {
	for _, mode := range []string{modeAppend, modeUpsert} {
		t.Run(mode, func(t *testing.T) {
			connectortest.TestSink(t, func(t *testing.T) connectortest.Sink { return suiteOver(t, mode, restTable(t)) })
		})
	}
}

// storeBehind has the sinks reach the S3 of the tests by a proxy.
func storeBehind(t *testing.T) *connectortest.Proxy {
	t.Helper()
	proxy := connectortest.NewProxy(t, host(t, variable(t, "S3_ENDPOINT")))
	root := "s3://" + variable(t, "S3_BUCKET") + "/"
	conf := s3.NewConfig()
	conf.Endpoint = "http://" + proxy.Addr
	store, err := s3.New(root, conf)
	if err != nil {
		t.Fatal(err)
	}
	rootsMu.Lock()
	defer rootsMu.Unlock()
	before := roots
	roots = map[string]storage.FS{root: store}
	t.Cleanup(func() {
		rootsMu.Lock()
		defer rootsMu.Unlock()
		roots = before
	})
	return proxy
}

// An object store that is away, or whose answers are lost, holds the sink up and no more.
func TestRealObjectStoreIsAway(t *testing.T) {
	proxy := storeBehind(t)
	connectortest.TestSink(t, func(t *testing.T) connectortest.Sink {
		c := lakehouse(t)
		sink := suiteOver(t, modeAppend, c)
		sink.New = func() (connectors.Sink, error) { return NewSink(c), nil }
		sink.Network = proxy.Network()
		return sink
	})
}

func TestRealChaos(t *testing.T) {
	connectortest.TestSinkChaos(t, 3, func(t *testing.T, _ uint64) connectortest.Chaos {
		return connectortest.Chaos{Sink: suiteOver(t, modeAppend, lakehouse(t))}
	})
}

// python runs table.py on the table of a sink.
func python(t *testing.T, c SinkConfig, args ...string) []byte {
	t.Helper()
	u, err := url.Parse(c.Catalog.URL)
	if err != nil {
		t.Fatal(err)
	}
	properties := map[string]string{"name": c.Catalog.Name, "table": c.Table, "type": "rest", "uri": c.Catalog.URL}
	if c.Catalog.Type == catalogSQL {
		u.Scheme, u.RawQuery = "postgresql+psycopg2", ""
		properties["type"], properties["uri"], properties["warehouse"] = "sql", u.String(), c.Catalog.Warehouse
	}
	text, err := json.Marshal(properties)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), variable(t, "PYTHON"), append([]string{filepath.Join("testdata", "table.py"), string(text)}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("table.py %s: %v\n%s", strings.Join(args, " "), err, errs.String())
	}
	return out.Bytes()
}

// seen is a table as pyiceberg reads it.
type seen struct {
	Schema, Spec []string
	Rows         []map[string]any
	Summaries    []map[string]string
	Properties   map[string]string
	Files        []struct {
		Partition    []string
		Rows         int
		Lower, Upper map[string]string
	}
	Left map[string]int // files by filter
}

func (s *seen) ids(t *testing.T, column string) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, r := range s.Rows {
		out[fmt.Sprint(r[column])]++
	}
	return out
}

func look(t *testing.T, c SinkConfig, filters ...string) *seen {
	t.Helper()
	out := new(seen)
	if err := json.Unmarshal(python(t, c, append([]string{"read"}, filters...)...), out); err != nil {
		t.Fatal(err)
	}
	return out
}

// start is a process that writes to a table.
func start(t *testing.T, c SinkConfig, generation uint64, restored ...connectors.Committable) *deferredtest.Run {
	t.Helper()
	return deferredtest.Start(t, NewSink(c), &connectortest.Files{}, generation, nil, restored...)
}

func event(offset int) string { return fmt.Sprintf(`{"partition":0,"offset":%d}`, offset) }

// once checks that a table holds each of n events once.
func once(t *testing.T, c SinkConfig, n int) {
	t.Helper()
	got := look(t, c).ids(t, "offset")
	for i := range n {
		if got[fmt.Sprint(i)] != 1 || len(got) != n {
			t.Fatalf("the table holds %v, want each of %d events once", got, n)
		}
	}
}

// What pyiceberg finds of a table: names with ids, partitions, which checkpoint a snapshot
// is of, and bounds by which files are left out.
func TestRealTableIsReadByAnotherProgram(t *testing.T) {
	for name, fresh := range map[string]func(*testing.T) SinkConfig{"sql": lakehouse, "rest": restTable} {
		t.Run(name, func(t *testing.T) {
			c := fresh(t)
			c.Columns = columnList(t, map[string]any{"id": "int"}, map[string]any{"note": "string?"}, map[string]any{"at": "timestamp"}, map[string]any{"price": "decimal(10, 2)"})
			c.PartitionBy = []string{"day(at)"}
			r := start(t, c, 1)
			r.Values(`{"id":1,"note":null,"at":"2026-01-01T10:00:00Z","price":12.34}`, `{"id":2,"note":"b","at":"2026-01-01T11:00:00Z","price":0.5}`)
			r.Checkpoint()
			r.Values(`{"id":10,"note":"c","at":"2026-01-02T00:00:00Z","price":-1}`)
			r.Checkpoint()

			files := map[string]int{"id > 0": 2, "id > 5": 1, "id < 5": 1, "at >= '2026-01-02T00:00:00+00:00'": 1, "note = 'zzz'": 0, "price < 0": 1}
			s := look(t, c, slices.Collect(maps.Keys(files))...)
			if want := []string{"1 id: long required", "2 note: string", "3 at: timestamptz required", "4 price: decimal(10, 2) required"}; !slices.Equal(s.Schema, want) {
				t.Errorf("the schema is %q, want %q", s.Schema, want)
			}
			if want := []string{"day of 3"}; !slices.Equal(s.Spec, want) {
				t.Errorf("partitions are %q, want %q", s.Spec, want)
			}
			slices.SortFunc(s.Rows, func(a, b map[string]any) int { return cmp.Compare(a["id"].(float64), b["id"].(float64)) })
			rows := fmt.Sprint(s.Rows)
			if want := "[map[at:2026-01-01 10:00:00+00:00 id:1 note:<nil> price:12.34] map[at:2026-01-01 11:00:00+00:00 id:2 note:b price:0.50] map[at:2026-01-02 00:00:00+00:00 id:10 note:c price:-1.00]]"; rows != want {
				t.Errorf("rows are\n%s, want\n%s", rows, want)
			}
			last := s.Summaries[len(s.Summaries)-1]
			for key, want := range map[string]string{
				"operation": "append", "added-records": "1", "total-records": "3",
				sumPipeline: "p", sumSink: "s", sumGeneration: "1", sumCheckpoint: "2",
			} {
				if last[key] != want {
					t.Errorf("the last snapshot's %s is %q, want %q", key, last[key], want)
				}
			}
			if !maps.Equal(s.Left, files) {
				t.Errorf("files by filter are %v, want %v", s.Left, files)
			}
			for _, f := range s.Files {
				if f.Rows == 2 && (f.Lower["id"] != "1" || f.Upper["id"] != "2" || f.Upper["price"] != "12.34" || !slices.Equal(f.Partition, []string{"20454"})) {
					t.Errorf("the first file is described as %+v", f)
				}
			}
		})
	}
}

// Answers of the statement that moves the catalog's pointer, and of the COMMIT behind it.
func TestRealCatalogLosesTheAnswerOfACommit(t *testing.T) {
	for name, words := range map[string]string{"UPDATE": "UPDATE \"iceberg_tables\"", "COMMIT": "commit"} {
		t.Run(name, func(t *testing.T) {
			direct := lakehouse(t)
			proxy := deferredtest.NewProxy(t, host(t, direct.Catalog.URL))
			r := start(t, through(t, direct, proxy.Addr), 1)
			r.Values(event(0))
			r.Checkpoint()
			r.Values(event(1))
			coms := r.Prepare()
			proxy.Lose(func(request []byte) bool { return bytes.Contains(request, []byte(words)) })
			if err := r.Try(t.Context(), coms, false); err == nil {
				t.Error("a commit without an answer is no failure")
			}
			if proxy.Lost() != 1 {
				t.Fatalf("%d answers were lost", proxy.Lost())
			}
			r.Commit(coms, false)
			once(t, direct, 2)
		})
	}
}

func TestRealForeignWriterCommitsBetween(t *testing.T) {
	for name, fresh := range map[string]func(*testing.T) SinkConfig{"sql": lakehouse, "rest": restTable} {
		t.Run(name, func(t *testing.T) {
			c := fresh(t)
			c.Timeout = connectors.TimeSpan(5 * time.Minute) // the other writer is slow
			r := start(t, c, 1)
			r.Values(event(0))
			r.Checkpoint()
			r.Values(event(1))
			coms := r.Prepare()
			tries := 0
			r.Sink.(*Sink).env.Failpoint = func(point string) {
				if point != "iceberg.commit.before" {
					return
				}
				if tries++; tries == 1 { // it has looked at the table
					python(t, c, "append", "["+event(2)+"]")
				}
			}
			r.Commit(coms, false)
			if tries != 2 {
				t.Errorf("it took %d tries", tries)
			}
			once(t, c, 3)
		})
	}
}

// The mark outlives the snapshot that it was made with, and the branch's head.
func TestRealCommitIsKnownWithoutItsSnapshot(t *testing.T) {
	t.Run("expired", func(t *testing.T) {
		c := lakehouse(t)
		r := start(t, c, 1)
		r.Values(event(0))
		coms := r.Prepare()
		r.Commit(coms, false)
		r.Stop()
		python(t, c, "append", "["+event(1)+"]")
		python(t, c, "expire")
		if n := len(look(t, c).Summaries); n != 1 {
			t.Fatalf("%d snapshots are left", n)
		}
		start(t, c, 2, coms...)
		once(t, c, 2)
	})
	t.Run("rolled back", func(t *testing.T) {
		c := lakehouse(t)
		r := start(t, c, 1)
		r.Values(event(0))
		r.Checkpoint()
		r.Values(event(1))
		coms := r.Prepare()
		r.Commit(coms, false)
		r.Stop()
		python(t, c, "rollback")
		next := start(t, c, 2, coms...)
		once(t, c, 1) // what was taken back stays so
		next.Values(event(1))
		next.Checkpoint()
		once(t, c, 2)
	})
}

func TestRealTableIsReplacedByAnotherOne(t *testing.T) {
	c := lakehouse(t)
	r := start(t, c, 1)
	r.Values(event(0))
	coms := r.Prepare()
	r.Stop()
	l, err := openLake(t.Context(), &c, false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.close() }()
	if err := l.(*iceLake).cat.DropTable(t.Context(), l.(*iceLake).ident); err != nil {
		t.Fatal(err)
	}
	start(t, c, 2) // makes it anew
	again := deferredtest.Open(t, NewSink(c), &connectortest.Files{}, 2, nil)
	if err := again.Try(t.Context(), coms, true); !errors.Is(err, connectors.ErrLost) {
		t.Fatalf("files of the table before it: %v", err)
	}
}

func postgres(t *testing.T, command string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join("..", "..", "deploy", "services", "postgres.sh"), command)
	cmd.Env = append(os.Environ(), "POSTGRES_PORT="+variable(t, "PGPORT"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("postgres.sh %s: %v\n%s", command, err, out)
	}
}

func TestRealCatalogIsKilled(t *testing.T) {
	c := lakehouse(t)
	r := start(t, c, 1)
	r.Values(event(0))
	r.Checkpoint()
	r.Values(event(1))
	coms := r.Prepare()
	killed := false
	r.Sink.(*Sink).env.Failpoint = func(point string) {
		if point == "iceberg.commit.before" && !killed {
			killed = true
			postgres(t, "kill")
		}
	}
	if err := r.Try(t.Context(), coms, false); err == nil || connectors.IsPermanent(err) {
		t.Errorf("a commit to a database that is gone: %v", err)
	}
	postgres(t, "restart")
	r.Commit(coms, false)
	once(t, c, 2)
}
