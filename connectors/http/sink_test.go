package http

import (
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
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/connectortest"
)

// service is a service in memory that keeps what it takes.
type service struct {
	mu     sync.Mutex
	calls  []call
	answer func(n int, c call, w http.ResponseWriter) // nil for 200
}

type call struct {
	method, url, key, auth, body string
	header                       http.Header
}

func (s *service) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	body, _ := io.ReadAll(r.Body)
	c := call{method: r.Method, url: r.URL.String(), key: r.Header.Get("Idempotency-Key"), auth: r.Header.Get("Authorization"), body: string(body), header: r.Header}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, c)
	if s.answer != nil {
		s.answer(len(s.calls), c, w)
	}
	if w.Code == 0 { // the connection breaks
		return nil, errors.New("connection reset by peer")
	}
	return w.Result(), nil
}

func (s *service) bodies() (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		out = append(out, c.body)
	}
	return out
}

func fail(w http.ResponseWriter, status int) { w.WriteHeader(status) }

func template(text string) (t connectors.Template) {
	if err := t.UnmarshalConfig(text); err != nil {
		panic(err)
	}
	slot := 0
	for i := range t.Parts {
		if t.Parts[i].Expr.Set() {
			t.Parts[i].Expr.Slot = slot
			slot++
		}
	}
	return t
}

// sending makes a sink at a service, and its writer.
func sending(t *testing.T, s *service, change func(*SinkConfig)) connectors.Writer {
	t.Helper()
	c := newSinkConfig().(*SinkConfig)
	c.URL = template("https://api.example.org/events")
	if change != nil {
		change(c)
	}
	k, err := newSink(c)
	if err != nil {
		t.Fatal(err)
	}
	k.transport = s
	if err := k.Open(t.Context(), connectors.SinkEnv{Log: slog.New(slog.DiscardHandler), Pipeline: "p", Name: "s", Subtasks: 1}); err != nil {
		t.Fatal(err)
	}
	w, err := k.Writer(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	return w
}

// rows makes rows of one partition; slots are the values of expressions of each.
func rows(values []string, slots ...[]connectors.Value) *connectors.Rows {
	r := &connectors.Rows{Batch: new(connectors.Batch)}
	stride := 0
	if len(slots) > 0 {
		stride = len(slots[0])
	}
	r.Batch.Size(len(values), stride)
	origin := &connectors.Origin{Topic: "in", Partition: 1}
	for i, v := range values {
		r.Batch.Records[i] = connectors.Record{Origin: origin, Offset: int64(i)}
		var b []byte
		if v != "" {
			b = []byte(v)
		}
		r.Sel, r.Values = append(r.Sel, uint16(i)), append(r.Values, b)
		if stride > 0 {
			copy(r.Batch.Row(i), slots[i])
		}
	}
	return r
}

func numbers(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf(`{"n":%d}`, i))
	}
	return out
}

func refusedRows(err error) (out []int) {
	var r *connectors.RowsError
	if errors.As(err, &r) {
		for _, row := range r.Rows {
			out = append(out, row.Row)
		}
	}
	return out
}

func TestSinkKeepsTheContract(t *testing.T) {
	for _, body := range []string{bodyRecord, bodyArray, bodyLines} {
		t.Run(body, func(t *testing.T) {
			connectortest.TestSink(t, func(*testing.T) connectortest.Sink {
				s := &service{}
				f := &connectortest.Transport{RoundTripper: s}
				return connectortest.Sink{
					Network: f.Network(),
					Without: map[string]string{connectortest.WithoutPoison: "which answers refuse a record is tested for itself"},
					New: func() (connectors.Sink, error) {
						c := newSinkConfig().(*SinkConfig)
						c.URL, c.Body = template("https://api.example.org/events"), body
						k, err := newSink(c)
						if err == nil {
							k.transport = f
						}
						return k, err
					},
					Read: func(context.Context) (out []string, err error) {
						for _, b := range s.bodies() {
							var list []json.RawMessage
							if json.Unmarshal([]byte(b), &list) != nil {
								out = append(out, strings.Fields(b)...)
							}
							for _, v := range list {
								out = append(out, string(v))
							}
						}
						return out, nil
					},
				}
			})
		})
	}
}

func TestRequests(t *testing.T) {
	s, i, null := connectors.StringValue, connectors.IntValue, connectors.NullValue()
	tests := []struct {
		name   string
		change func(*SinkConfig)
		values []string
		slots  [][]connectors.Value
		want   []string
		refuse []int
	}{
		{"a record each", nil, []string{`{"a":1}`, "{ }"}, nil, []string{`POST https://api.example.org/events {"a":1}`, "POST https://api.example.org/events { }"}, nil},
		{"an array", func(c *SinkConfig) { c.Body, c.Batch.Records = bodyArray, 2 }, []string{"1", "2", "3"}, nil,
			[]string{"POST https://api.example.org/events [1,2]", "POST https://api.example.org/events [3]"}, nil},
		{"lines, whatever a value looks like", func(c *SinkConfig) { c.Body = bodyLines }, []string{"{\n\"a\": 1}", "2"}, nil,
			[]string{"POST https://api.example.org/events { \"a\": 1}\n2\n"}, nil},
		{"a value that is no JSON spoils nothing", func(c *SinkConfig) { c.Body = bodyArray }, []string{"1", "1],[2", "3"}, nil,
			[]string{"POST https://api.example.org/events [1,3]"}, []int{1}},
		{"addresses of rows, escaped", func(c *SinkConfig) {
			c.Method, c.URL = "PUT", template("https://h/u/{a}/x?q={b}")
		}, []string{"1", "2"}, [][]connectors.Value{{s("a/b"), s("x&y")}, {s(".."), i(7)}},
			[]string{"PUT https://h/u/%2E%2E/x?q=7 2", "PUT https://h/u/a%2Fb/x?q=x%26y 1"}, nil},
		{"no address of an empty part or null", func(c *SinkConfig) { c.URL = template("https://h/u/{a}") },
			[]string{"1", "2", "3"}, [][]connectors.Value{{s("")}, {null}, {s("x")}}, []string{"POST https://h/u/x 3"}, []int{0, 1}},
		{"one address a request", func(c *SinkConfig) { c.URL, c.Body = template("https://h/{a}"), bodyArray },
			[]string{"1", "2", "3"}, [][]connectors.Value{{s("x")}, {s("y")}, {s("x")}}, []string{"POST https://h/x [1,3]", "POST https://h/y [2]"}, nil},
		{"tombstones are refused", nil, []string{"1", ""}, nil, []string{"POST https://api.example.org/events 1"}, []int{1}},
		{"tombstones as null", func(c *SinkConfig) { c.Tombstones, c.Body = tombstoneNull, bodyArray }, []string{"1", ""}, nil,
			[]string{"POST https://api.example.org/events [1,null]"}, nil},
		{"tombstones that delete", func(c *SinkConfig) {
			c.Tombstones, c.URL, c.Concurrency = tombstoneDelete, template("https://h/{a}"), 8
		}, []string{"1", ""}, [][]connectors.Value{{s("x")}, {s("x")}}, []string{"POST https://h/x 1", "DELETE https://h/x "}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			srv := &service{}
			err := sending(t, srv, func(c *SinkConfig) {
				c.Concurrency = 1
				if tt.change != nil {
					tt.change(c)
				}
			}).Write(t.Context(), rows(tt.values, tt.slots...))
			if got := refusedRows(err); !slices.Equal(got, tt.refuse) {
				t.Errorf("refused %v of %v", got, err)
			}
			var got []string
			for _, c := range srv.calls {
				got = append(got, c.method+" "+c.url+" "+c.body)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("calls\n%q, wanted\n%q", got, tt.want)
			}
		})
	}
}

func TestHeadersOfRequests(t *testing.T) {
	srv := &service{}
	w := sending(t, srv, func(c *SinkConfig) {
		c.Headers, c.Username, c.Password, c.Compression = map[string]string{"X-A": "1"}, "u", "p", compressGzip
		c.RecordHeaders = connectors.Assignments{{Name: "X-T", Expr: connectors.Expr{Text: "t"}}}
	})
	if err := w.Write(t.Context(), rows([]string{"1", "2"}, []connectors.Value{connectors.StringValue("acme")}, []connectors.Value{connectors.StringValue("a\nX-Evil: 1")})); !slices.Equal(refusedRows(err), []int{1}) {
		t.Error(err)
	}
	if len(srv.calls) != 1 {
		t.Fatal(srv.calls)
	}
	c := srv.calls[0]
	z, err := gzip.NewReader(bytes.NewReader([]byte(c.body)))
	if err != nil {
		t.Fatal(err)
	}
	if body, _ := io.ReadAll(z); string(body) != "1" || c.auth != "Basic dTpw" || c.header.Get("X-A") != "1" || c.header.Get("X-T") != "acme" || c.header.Get("Content-Encoding") != "gzip" {
		t.Errorf("body %q, headers %v", body, c.header)
	}
}

func TestARequestIsSentAgainUntilItIsAnswered(t *testing.T) {
	tests := []struct {
		name   string
		answer func(w http.ResponseWriter)
	}{
		{"the service is down", func(w http.ResponseWriter) { w.(*httptest.ResponseRecorder).Code = 0 }},
		{"it is busy", func(w http.ResponseWriter) { fail(w, 503) }},
		{"it throttles", func(w http.ResponseWriter) { w.Header().Set("Retry-After", "20"); fail(w, 429) }},
		{"credentials ran out", func(w http.ResponseWriter) { fail(w, 401) }},
		{"and nobody may", func(w http.ResponseWriter) { fail(w, 403) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				srv := &service{}
				srv.answer = func(_ int, _ call, w http.ResponseWriter) {
					if time.Since(start) < time.Minute {
						tt.answer(w)
					}
				}
				if err := sending(t, srv, nil).Write(t.Context(), rows([]string{"1"})); err != nil {
					t.Fatal(err)
				}
				n := len(srv.calls)
				if took := time.Since(start); took < time.Minute || took > 2*time.Minute || n > 30 {
					t.Errorf("%d calls in %s", n, took)
				}
				for _, c := range srv.calls {
					if c.key == "" || c.key != srv.calls[0].key || c.body != "1" {
						t.Errorf("a retry is another request: %+v", c)
					}
				}
			})
		})
	}
}

func TestAStopEndsTheTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := &service{answer: func(_ int, _ call, w http.ResponseWriter) { fail(w, 500) }}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := sending(t, srv, nil).Write(ctx, rows([]string{"1"})); !errors.Is(err, context.DeadlineExceeded) || refusedRows(err) != nil {
			t.Errorf("error %v", err)
		}
	})
}

func TestTheRepetitionAfterARestartHasTheSameKey(t *testing.T) {
	keys := func() (out []string) {
		srv := &service{}
		if err := sending(t, srv, func(c *SinkConfig) { c.Concurrency = 1 }).Write(t.Context(), rows(numbers(3))); err != nil {
			t.Fatal(err)
		}
		for _, c := range srv.calls {
			out = append(out, c.key)
		}
		return out
	}
	first := keys()
	if again := keys(); !slices.Equal(first, again) || first[0] == first[1] {
		t.Errorf("keys %v, then %v", first, again)
	}
	// Records of nowhere: two that look alike are two results.
	srv := &service{}
	w := sending(t, srv, nil)
	for range 2 {
		r := rows([]string{"1"})
		r.Batch.Records[0].Origin = nil
		if err := w.Write(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if srv.calls[0].key == srv.calls[1].key {
		t.Error("two results have one key")
	}
}

func TestSeveralRowsOfOneRecordHaveTheirOwnKeys(t *testing.T) {
	srv := &service{}
	r := rows(numbers(2))
	r.Batch.Records[1].Offset = 0
	if err := sending(t, srv, nil).Write(t.Context(), r); err != nil || srv.calls[0].key == srv.calls[1].key {
		t.Errorf("error %v, calls %v", err, srv.calls)
	}
}

func TestRefusedRowsAreFoundInABatch(t *testing.T) {
	for _, status := range []int{400, 413, 422} {
		srv := &service{}
		srv.answer = func(_ int, c call, w http.ResponseWriter) {
			if strings.Contains(c.body, `{"n":7}`) || strings.Contains(c.body, `{"n":40}`) {
				fail(w, status)
				_, _ = io.WriteString(w, "bad\nrecord, by token-123")
			}
		}
		w := sending(t, srv, func(c *SinkConfig) { c.Body, c.Token = bodyArray, "token-123" })
		err := w.Write(t.Context(), rows(numbers(100)))
		if !slices.Equal(refusedRows(err), []int{7, 40}) || !strings.Contains(err.Error(), fmt.Sprintf("status %d: bad record, by ***", status)) {
			t.Errorf("error %v", err)
		}
		taken := 0
		for _, c := range srv.calls {
			if !strings.Contains(c.body, `{"n":7}`) && !strings.Contains(c.body, `{"n":40}`) {
				taken += strings.Count(c.body, "n")
			}
		}
		if taken != 98 {
			t.Errorf("%d rows were taken", taken)
		}
	}
}

func TestStatusesThatRefuse(t *testing.T) {
	srv := &service{answer: func(_ int, _ call, w http.ResponseWriter) { fail(w, 404) }}
	if err := sending(t, srv, func(c *SinkConfig) { c.Body = bodyArray }).Write(t.Context(), rows(numbers(8))); len(refusedRows(err)) != 8 || len(srv.calls) != 1 {
		t.Errorf("error %v, %d calls", err, len(srv.calls))
	}
	srv = &service{answer: func(_ int, _ call, w http.ResponseWriter) { fail(w, 500) }}
	if err := sending(t, srv, func(c *SinkConfig) { c.Refuse = []int{500} }).Write(t.Context(), rows(numbers(1))); len(refusedRows(err)) != 1 {
		t.Errorf("error %v", err)
	}
	srv = &service{answer: func(_ int, _ call, w http.ResponseWriter) {
		w.Header().Set("Location", "https://evil.example.org/")
		fail(w, 307)
	}}
	if err := sending(t, srv, nil).Write(t.Context(), rows(numbers(1))); !connectors.IsPermanent(err) || len(srv.calls) != 1 {
		t.Errorf("error %v, calls %v", err, srv.calls)
	}
}

func TestRowsOfAKeyStayInOrder(t *testing.T) {
	srv := &service{}
	r := rows(numbers(60))
	for i := range r.Batch.Records {
		r.Batch.Records[i].Key = []byte{byte('a' + i%3)}
	}
	if err := sending(t, srv, func(c *SinkConfig) { c.Concurrency = 8 }).Write(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	last := [3]int{-1, -1, -1}
	for _, b := range srv.bodies() {
		var v struct{ N int }
		if err := json.Unmarshal([]byte(b), &v); err != nil || v.N <= last[v.N%3] {
			t.Errorf("%s after %d", b, last[v.N%3])
		}
		last[v.N%3] = v.N
	}
}

func TestTokensOfClientCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		given, refused := 0, ""
		srv := &service{}
		srv.answer = func(_ int, c call, w http.ResponseWriter) {
			switch {
			case strings.Contains(c.url, "login") && given == 0 && refused == "":
				refused = "once"
				fail(w, 503)
			case strings.Contains(c.url, "login"):
				given++
				_, _ = fmt.Fprintf(w, `{"access_token":"t%d","expires_in":100}`, given)
			case c.auth != fmt.Sprintf("Bearer t%d", given) || c.auth == refused:
				fail(w, 401)
			}
		}
		w := sending(t, srv, func(c *SinkConfig) {
			c.Concurrency = 2
			c.OAuth2 = OAuth2{TokenURL: "https://login.example.org/token", ClientID: "id", ClientSecret: "s", Scopes: []string{"a", "b"}}
		})
		write := func(want int) {
			t.Helper()
			if err := w.Write(t.Context(), rows(numbers(2))); err != nil || given != want {
				t.Errorf("error %v, %d tokens given, wanted %d", err, given, want)
			}
		}
		write(1)
		write(1)
		time.Sleep(90 * time.Second) // it is renewed before its end
		write(2)
		refused = "Bearer t2" // and at once where the service takes it no more
		write(3)
		if c := srv.calls[1]; c.auth != "Basic aWQ6cw==" || c.body != "grant_type=client_credentials&scope=a+b" {
			t.Errorf("asked for a token by %+v", c)
		}
	})
}

func TestSinkConfigurationThatCannotWorkIsRefused(t *testing.T) {
	tests := []struct {
		name   string
		change func(*SinkConfig)
		want   string
	}{
		{"a host of the record", func(c *SinkConfig) { c.URL = template("https://{h}.example.org/") }, "scheme and host"},
		{"a host that goes on", func(c *SinkConfig) { c.URL = template("https://example.org{x}") }, "scheme and host"},
		{"nothing fixed", func(c *SinkConfig) { c.URL = template("{x}") }, "scheme and host"},
		{"credentials in it", func(c *SinkConfig) { c.URL = template("https://u:p@h/") }, "credentials"},
		{"a header with a line break", func(c *SinkConfig) { c.Headers = map[string]string{"a": "b\nc"} }, "cannot be sent"},
		{"headers of one record of many", func(c *SinkConfig) {
			c.Body, c.RecordHeaders = bodyArray, connectors.Assignments{{Name: "a"}}
		}, "record_headers"},
		{"many of another format", func(c *SinkConfig) { c.Body, c.Format.Name = bodyLines, "avro" }, "format"},
		{"two ways to be known", func(c *SinkConfig) { c.Username, c.Token = "a", "b" }, "more than one way"},
		{"half of a client", func(c *SinkConfig) { c.OAuth2 = OAuth2{TokenURL: "https://h/t", ClientID: "x"} }, "belong together"},
		{"no requests", func(c *SinkConfig) { c.Concurrency = 0 }, "concurrency"},
		{"credentials that refuse records", func(c *SinkConfig) { c.Refuse = []int{401} }, "refuse"},
		{"no time", func(c *SinkConfig) { c.Timeout = 0 }, "timeout"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newSinkConfig().(*SinkConfig)
			c.URL = template("https://example.org/users/{id}")
			tt.change(c)
			if _, err := newSink(c); !says(err, tt.want) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestSinkOverTLS(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	defer server.Close()
	c := newSinkConfig().(*SinkConfig)
	c.URL, c.TLS.InsecureSkipVerify = template(server.URL+"/x"), true
	k, err := newSink(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Open(t.Context(), connectors.SinkEnv{Subtasks: 1}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = k.Close() }()
	w, _ := k.Writer(0)
	if err := w.Write(t.Context(), rows(numbers(5))); err != nil {
		t.Error(err)
	}
}
