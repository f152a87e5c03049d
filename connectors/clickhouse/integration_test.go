//go:build integration

package clickhouse

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/connectortest"
	"github.com/sluice-etl/sluice/connectors/deferred"
)

func realEnv(t testing.TB, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		t.Fatalf("%s is not set: run make integration", name)
	}
	return v
}

// service runs a command of the script that the server was started with.
func service(t *testing.T, command string) {
	t.Helper()
	if out, err := exec.Command("../../deploy/services/clickhouse.sh", command).CombinedOutput(); err != nil {
		t.Fatalf("clickhouse.sh %s: %v\n%s", command, err, out)
	}
}

var databases atomic.Int64

// world is a database of a test's own, whose name needs quotes.
type world struct {
	t    *testing.T
	name string
	url  string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, name: fmt.Sprintf("sink `test` \\ %d", databases.Add(1)), url: realEnv(t, "CLICKHOUSE_URL")}
	w.run("DROP DATABASE IF EXISTS @")
	w.run("CREATE DATABASE @")
	t.Cleanup(func() { w.run("DROP DATABASE IF EXISTS @") })
	return w
}

// ask calls the server by other means than the sink's.
func (w *world) ask(ctx context.Context, text string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+"/?async_insert=0", strings.NewReader(strings.ReplaceAll(text, "@", quote(w.name))))
	if err != nil {
		return "", err
	}
	req.Close = true
	req.SetBasicAuth(realEnv(w.t, "CLICKHOUSE_USER"), realEnv(w.t, "CLICKHOUSE_PASSWORD"))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	out, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", resp.StatusCode, out)
	}
	return string(out), err
}

func (w *world) run(text string) {
	w.t.Helper()
	if _, err := w.ask(context.WithoutCancel(w.t.Context()), text); err != nil {
		w.t.Fatalf("%s: %v", text, err)
	}
}

func (w *world) list(ctx context.Context, text string) ([]string, error) {
	out, err := w.ask(ctx, text)
	if err != nil || out == "" {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(out, "\n"), "\n"), nil
}

func (w *world) want(text string, want ...string) {
	w.t.Helper()
	got, err := w.list(w.t.Context(), text)
	if err != nil {
		w.t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		w.t.Errorf("rows\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func (w *world) config(change func(*SinkConfig)) SinkConfig {
	c := newSinkConfig().(*SinkConfig)
	c.URL, c.Username, c.Password = w.url, realEnv(w.t, "CLICKHOUSE_USER"), realEnv(w.t, "CLICKHOUSE_PASSWORD")
	c.Database, c.Table = w.name, "rows"
	if change != nil {
		change(c)
	}
	return *c
}

func mustSink(t *testing.T, c SinkConfig) *deferred.Sink {
	t.Helper()
	target, err := newTarget(c)
	if err != nil {
		t.Fatal(err)
	}
	return deferred.NewSink(target, deferred.Options{Kind: sinkKind})
}

const remembers = " SETTINGS non_replicated_deduplication_window = 100"

// suite is the target of the contract's tests, behind a proxy that fails.
func suite(t *testing.T, change func(*SinkConfig)) connectortest.Sink {
	w := newWorld(t)
	w.run("CREATE TABLE @.rows (partition Int32, offset Int64) ENGINE = MergeTree PARTITION BY partition ORDER BY offset" + remembers)
	c := w.config(change)
	u, err := url.Parse(c.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := connectortest.NewProxy(t, u.Host)
	u.Host = proxy.Addr
	c.URL = u.String()
	return connectortest.Sink{
		New: func() (connectors.Sink, error) { return strict{mustSink(t, c)}, nil },
		Read: func(ctx context.Context) ([]string, error) {
			return w.list(ctx, "SELECT concat('{\"partition\":', toString(partition), ',\"offset\":', toString(offset), '}') FROM @.rows FORMAT TSVRaw")
		},
		Network: proxy.Network(),
		Poison: func(partition, offset int) string {
			return fmt.Sprintf(`{"partition":%d,"offset":"%d"}`, partition, offset)
		},
		Without: map[string]string{connectortest.WithoutThrottle: "the engine puts no request off"},
	}
}

func TestRealEngineKeepsTheContract(t *testing.T) {
	connectortest.TestSink(t, func(t *testing.T) connectortest.Sink { return suite(t, nil) })
}

func TestRealEngineChaos(t *testing.T) {
	connectortest.TestSinkChaos(t, 3, func(t *testing.T, _ uint64) connectortest.Chaos {
		return connectortest.Chaos{Sink: suite(t, nil)}
	})
}
