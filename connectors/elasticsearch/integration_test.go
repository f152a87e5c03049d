//go:build integration

package elasticsearch

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/connectortest"
)

func realURL(t *testing.T) string {
	t.Helper()
	u := os.Getenv("OPENSEARCH_URL")
	if u == "" {
		t.Fatal("OPENSEARCH_URL is not set: run make integration")
	}
	return u
}

// ask calls the node by other means than the sink's.
func ask(t *testing.T, method, path, body string) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, realURL(t)+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	out, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 && resp.StatusCode != http.StatusNotFound {
		t.Fatalf("%s %s: status %d, %v: %s", method, path, resp.StatusCode, err, out)
	}
	return out
}

func documents(t *testing.T, index string) map[string]string {
	t.Helper()
	ask(t, http.MethodPost, "/"+index+"/_refresh", "")
	var answer struct {
		Hits struct {
			Hits []struct {
				ID     string          `json:"_id"`
				Source json.RawMessage `json:"_source"`
			} `json:"hits"`
		} `json:"hits"`
	}
	if err := json.Unmarshal(ask(t, http.MethodGet, "/"+index+"/_search?size=10000", ""), &answer); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, h := range answer.Hits.Hits {
		out[h.ID] = string(h.Source)
	}
	return out
}

var indexes atomic.Int64

func newIndex(t *testing.T) string {
	name := fmt.Sprintf("sink-test-%d-%d", os.Getpid(), indexes.Add(1))
	t.Cleanup(func() { ask(t, http.MethodDelete, "/"+name, "") })
	return name
}

func realWriter(t *testing.T, index string, change func(*Config)) connectors.Writer {
	return opened(t, nil, func(c *Config) {
		c.Addresses, c.Index = []string{realURL(t)}, template(index)
		if change != nil {
			change(c)
		}
	})
}

// TestRealServerKeepsTheContract has a transport before the server that is away, answers 429
// and loses replies.
func TestRealServerKeepsTheContract(t *testing.T) {
	connectortest.TestSink(t, func(t *testing.T) connectortest.Sink {
		index := newIndex(t)
		ask(t, http.MethodPut, "/"+index, `{"settings":{"number_of_shards":2,"number_of_replicas":0},"mappings":{"properties":{"bad":{"type":"integer"}}}}`)
		direct := &http.Transport{}
		t.Cleanup(direct.CloseIdleConnections)
		way := &connectortest.Transport{RoundTripper: direct}
		dial := func(change func(*Config)) func() (connectors.Sink, error) {
			return func() (connectors.Sink, error) {
				s, err := newSink(testConfig(func(c *Config) { c.Addresses, c.Index = []string{realURL(t)}, template(index); change(c) }))
				if err == nil {
					s.client.transport = way
				}
				return s, err
			}
		}
		sink := connectortest.Sink{
			New:     dial(func(*Config) {}),
			Timeout: 2 * time.Minute,
			Network: way.Network(),
			Poison:  func(int, int) string { return `{"bad":"words"}` },
			Read: func(context.Context) (out []string, _ error) {
				for _, v := range documents(t, index) {
					out = append(out, v)
				}
				return out, nil
			},
		}
		sink.Updating = &connectortest.Updating{Mode: connectors.Upserts, New: dial(byGroup), Read: sink.Read}
		return sink
	})
}

func TestRealServerTakesWhatRecordsDo(t *testing.T) {
	index := newIndex(t)
	ask(t, http.MethodPut, "/"+index, `{"mappings":{"properties":{"n":{"type":"integer"}}}}`)
	a, b := connectors.StringValue("a"), connectors.StringValue("b")
	i := connectors.IntValue
	w := realWriter(t, index, func(c *Config) { byID(c); c.Version = connectors.Expr{Text: "v", Slot: 1} })
	err := w.Write(t.Context(), rows(
		row{`{"n":1}`, a, i(5)}, row{`{"n":2}`, a, i(6)}, row{`{"n":3}`, a, i(4)}, row{`{"n":"words"}`, b, i(1)}, row{`{"n":9}`, connectors.StringValue("c"), i(1)},
		row{"", connectors.StringValue("c"), i(2)}, row{"", connectors.StringValue("d"), i(1)}))
	if !slices.Equal(refusedRows(err), []int{3}) || !strings.Contains(err.Error(), "mapper_parsing_exception") || strings.Contains(err.Error(), "words'") {
		t.Errorf("error %v", err)
	}
	if got := documents(t, index); len(got) != 1 || got["a"] != `{"n":2}` {
		t.Errorf("documents %v", got)
	}
	w = realWriter(t, index, func(c *Config) { byID(c); c.Operation = opUpdate })
	if err := w.Write(t.Context(), rows(row{`{"m":"x"}`, a, a}, row{`{"m":"y"}`, a, a})); err != nil {
		t.Error(err)
	}
	w = realWriter(t, index, func(c *Config) { byID(c); c.Operation, c.Compression = opCreate, compressGzip })
	if err := w.Write(t.Context(), rows(row{`{"n":7}`, a, a}, row{`{"n":8}`, b, b})); err != nil {
		t.Error(err)
	}
	if got := documents(t, index); len(got) != 2 || got["a"] != `{"n":2,"m":"y"}` || got["b"] != `{"n":8}` {
		t.Errorf("documents %v", got)
	}
}

func TestRealServerThatIsKilledMeanwhile(t *testing.T) {
	index := newIndex(t)
	service := func(command string) {
		if out, err := exec.Command("../../deploy/services/opensearch.sh", command).CombinedOutput(); err != nil {
			t.Errorf("opensearch.sh %s: %v\n%s", command, err, out)
		}
	}
	w := realWriter(t, index, func(c *Config) { byID(c); c.Timeout = connectors.TimeSpan(5 * time.Second) })
	if err := w.Write(t.Context(), rows(many(100)...)); err != nil {
		t.Fatal(err)
	}
	service("kill")
	done := make(chan error, 1)
	go func() { done <- w.Write(t.Context(), rows(many(200)...)) }()
	service("restart")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	got := documents(t, index)
	for i := range 10 {
		if got[fmt.Sprint(i)] != fmt.Sprintf(`{"n":%d}`, 190+i) {
			t.Errorf("document %d is %s", i, got[fmt.Sprint(i)])
		}
	}
}

func TestRealServerBlocksAnIndexForAWhile(t *testing.T) {
	index := newIndex(t)
	ask(t, http.MethodPut, "/"+index, `{"settings":{"index.blocks.write":true}}`)
	w := realWriter(t, index, nil)
	done := make(chan error, 1)
	go func() { done <- w.Write(t.Context(), rows(many(5)...)) }()
	select {
	case err := <-done:
		t.Fatalf("the write ended: %v", err)
	case <-time.After(500 * time.Millisecond):
	}
	ask(t, http.MethodPut, "/"+index+"/_settings", `{"index.blocks.write":false}`)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := documents(t, index); len(got) != 5 {
		t.Errorf("documents %v", got)
	}
}
