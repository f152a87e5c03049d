package elasticsearch

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
)

// cluster is the bulk interface of a cluster, in memory.
type cluster struct {
	mu       sync.Mutex
	docs     map[string]map[string]string // by index and id
	versions map[string]int64             // external ones, by index and id
	calls    int
	hosts    []string
	header   http.Header
	limit    int // bytes of a body, 0 for any
	slow     int // bytes of a body that are executed in time, 0 for any
	// meet is asked before a request is executed and may answer it; lose says that an
	// executed request gets no answer.
	meet func(call int, host string) int
	lose func(call int) bool
	// busy says that the cluster has no room for an action.
	busy func(call int, index, id string) bool
}

func newCluster() *cluster {
	return &cluster{docs: map[string]map[string]string{}, versions: map[string]int64{}}
}

func (c *cluster) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := httptest.NewRecorder()
	if r.Method == http.MethodGet {
		_, _ = io.WriteString(w, `{"version":{"number":"2.19.6"}}`)
		return w.Result(), nil
	}
	c.calls++
	c.hosts, c.header = append(c.hosts, r.URL.Host), r.Header
	if c.meet != nil {
		switch status := c.meet(c.calls, r.URL.Host); {
		case status < 0:
			return nil, errors.New("connection refused")
		case status > 0:
			w.WriteHeader(status)
			return w.Result(), nil
		}
	}
	body, _ := io.ReadAll(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		body, _ = io.ReadAll(z)
	}
	if c.slow > 0 && len(body) > c.slow {
		return nil, os.ErrDeadlineExceeded
	}
	if c.limit > 0 && len(body) > c.limit {
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		return w.Result(), nil
	}
	c.execute(w, body)
	if c.lose != nil && c.lose(c.calls) {
		return nil, errors.New("connection reset by peer")
	}
	return w.Result(), nil
}

func (c *cluster) execute(w http.ResponseWriter, body []byte) {
	lines := bufio.NewScanner(bytes.NewReader(body))
	lines.Buffer(nil, 64<<20)
	var out []map[string]any
	for lines.Scan() {
		var head map[string]struct {
			Index   string `json:"_index"`
			ID      string `json:"_id"`
			Version *int64 `json:"version"`
		}
		if err := json.Unmarshal(lines.Bytes(), &head); err != nil || len(head) != 1 {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		for op, at := range head {
			var doc string
			if op != opDelete {
				lines.Scan()
				doc = lines.Text()
			}
			status, kind := c.one(op, at.Index, at.ID, doc, at.Version)
			answer := map[string]any{"status": status}
			if kind != "" {
				answer["error"] = map[string]any{"type": kind, "reason": "it is so. Preview of field's value: 'secret'", "caused_by": map[string]string{"reason": "for input"}}
			}
			out = append(out, map[string]any{op: answer})
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"items": out})
}

func (c *cluster) one(op, index, id, doc string, version *int64) (int, string) {
	if c.busy != nil && c.busy(c.calls, index, id) {
		return 429, "rejected_execution_exception"
	}
	if id == "" {
		id = fmt.Sprint("auto", len(c.docs[index]))
	}
	if c.docs[index] == nil {
		c.docs[index] = map[string]string{}
	}
	old, there := c.docs[index][id]
	switch {
	case op == opDelete:
		delete(c.docs[index], id)
		if !there {
			return 404, ""
		}
		return 200, ""
	case op == opCreate && there, version != nil && *version < c.versions[index+id]:
		return 409, "version_conflict_engine_exception"
	case !json.Valid([]byte(doc)):
		return 400, "parse_exception"
	case bytes.Contains([]byte(doc), []byte(`"bad"`)):
		return 400, "mapper_parsing_exception"
	}
	if op == opUpdate {
		var u struct {
			Doc json.RawMessage `json:"doc"`
		}
		_ = json.Unmarshal([]byte(doc), &u)
		fields := map[string]any{}
		_ = json.Unmarshal([]byte(old), &fields)
		_ = json.Unmarshal(u.Doc, &fields)
		merged, _ := json.Marshal(fields)
		doc = string(merged)
	}
	c.docs[index][id] = doc
	if version != nil {
		c.versions[index+id] = *version
	}
	return 201, ""
}

func template(text string) (t connectors.Template) {
	if err := t.UnmarshalConfig(text); err != nil {
		panic(err)
	}
	for i := range t.Parts {
		t.Parts[i].Expr.Slot = 1
	}
	return t
}

func testConfig(change func(*Config)) *Config {
	c := newConfig().(*Config)
	c.Addresses, c.Index = []string{"http://a:9200"}, template("events")
	if change != nil {
		change(c)
	}
	return c
}

func opened(t *testing.T, to *cluster, change func(*Config)) connectors.Writer {
	t.Helper()
	s, err := newSink(testConfig(change))
	if err != nil {
		t.Fatal(err)
	}
	if to != nil {
		s.client.transport = to
	}
	if err := s.Open(t.Context(), connectors.SinkEnv{Log: slog.New(slog.DiscardHandler), Subtasks: 1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	w, err := s.Writer(0)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// row is a value, its id in slot 0 and one more value in slot 1.
type row struct {
	value    string
	id, more connectors.Value
}

func rows(list ...row) *connectors.Rows {
	r := &connectors.Rows{Batch: new(connectors.Batch)}
	r.Batch.Size(len(list), 2)
	origin := &connectors.Origin{Topic: "in", Partition: 1}
	for i, x := range list {
		r.Batch.Records[i] = connectors.Record{Origin: origin, Offset: int64(i)}
		var b []byte
		if x.value != "" {
			b = []byte(x.value)
		}
		r.Sel, r.Values = append(r.Sel, uint16(i)), append(r.Values, b)
		copy(r.Batch.Row(i), []connectors.Value{x.id, x.more})
	}
	return r
}

func byID(c *Config) { c.ID = connectors.Expr{Text: "id", Slot: 0} }

func refusedRows(err error) (out []int) {
	var r *connectors.RowsError
	if errors.As(err, &r) {
		for _, row := range r.Rows {
			out = append(out, row.Row)
		}
	}
	return out
}

func (c *cluster) values(context.Context) (out []string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, index := range c.docs {
		for _, doc := range index {
			out = append(out, doc)
		}
	}
	return out, nil
}
