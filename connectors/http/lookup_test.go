package http

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-etl/sluice/connectors"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// asking opens a lookup at a server.
func asking(t *testing.T, s *httptest.Server, columns []string, change func(*LookupConfig)) *Lookup {
	t.Helper()
	c := newLookupConfig().(*LookupConfig)
	c.URL = s.URL + "/users/{id}"
	if change != nil {
		change(c)
	}
	l, err := NewLookup(*c, columns)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Open(t.Context(), connectors.LookupEnv{Log: slog.New(slog.DiscardHandler), Columns: columns, Concurrency: 4}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func find(ctx context.Context, l *Lookup, values ...connectors.Value) (connectors.Answer, error) {
	answers := make([]connectors.Answer, 1)
	err := l.Find(ctx, []connectors.LookupKey{{Values: values}}, answers)
	return answers[0], err
}

func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

func TestLookupMakesTheCall(t *testing.T) {
	i, s := connectors.IntValue, connectors.StringValue
	tests := []struct {
		name    string
		url     string
		columns []string
		key     []connectors.Value
		change  func(*LookupConfig)
		want    string
	}{
		{"an int in the path", "/users/{id}", []string{"id"}, []connectors.Value{i(5)}, nil, "GET /users/5 "},
		{"a text is escaped", "/users/{id}", []string{"id"}, []connectors.Value{s("a/b c?d#é%2F")}, nil, "GET /users/a%2Fb%20c%3Fd%23%C3%A9%252F "},
		{"a step up is none", "/users/{id}/x", []string{"id"}, []connectors.Value{s("..")}, nil, "GET /users/%2E%2E/x "},
		{"in the query", "/u?a={a}&b={b}", []string{"a", "b"}, []connectors.Value{s("x&y=z"), connectors.BoolValue(true)}, nil, "GET /u?a=x%26y%3Dz&b=true "},
		{"in the body", "/u", []string{"a", "b"}, []connectors.Value{s(`"q"`), i(1)}, func(c *LookupConfig) {
			c.Method, c.Body = "POST", `{"a": {a}, "l": [{b}]}`
		}, `POST /u {"a": "\"q\"", "l": [1]}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got string
			server := serve(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				got = r.Method + " " + r.RequestURI + " " + string(body)
				_, _ = fmt.Fprint(w, `{"ok": 1.10}`)
			})
			l := asking(t, server, tt.columns, func(c *LookupConfig) {
				c.URL = server.URL + tt.url
				if tt.change != nil {
					tt.change(c)
				}
			})
			a, err := find(t.Context(), l, tt.key...)
			if err != nil || a.Err != nil || string(a.Row) != `{"ok": 1.10}` {
				t.Errorf("answer %s, %v, %v", a.Row, a.Err, err)
			}
			if got != tt.want {
				t.Errorf("call %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestLookupSendsHeaders(t *testing.T) {
	var got http.Header
	server := serve(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header })
	l := asking(t, server, []string{"id"}, func(c *LookupConfig) {
		c.Headers, c.Username, c.Password = map[string]string{"x-token": "t", "accept": "text/json"}, "u", "p"
	})
	if _, err := find(t.Context(), l, connectors.IntValue(1)); err != nil {
		t.Fatal(err)
	}
	if got.Get("X-Token") != "t" || got.Get("Accept") != "text/json" || got.Get("Authorization") != "Basic dTpw" {
		t.Errorf("headers %v", got)
	}
}

func TestLookupReadsTheAnswer(t *testing.T) {
	tests := []struct {
		name   string
		status int
		body   string
		field  string
		row    string
		bad    string // of the key
		failed string // of the call
	}{
		{"an object", 200, ` {"a": 1} `, "", `{"a": 1}`, "", ""},
		{"a part of it", 200, `{"data":{"user":{"a":1}}}`, "data.user", `{"a":1}`, "", ""},
		{"no such part", 200, `{"data":{}}`, "data.user", "", "", ""},
		{"null for a part", 200, `{"data":null}`, "data.user", "", "", ""},
		{"a part that is no object", 200, `{"data":[1]}`, "data.user", "", "field data of the answer is no object but of type list", ""},
		{"not found", 404, `{"error":"no"}`, "", "", "", ""},
		{"gone", 410, "", "", "", "", ""},
		{"no content", 204, "", "", "", "", ""},
		{"an empty answer", 200, "", "", "", "", ""},
		{"null", 200, "null", "", "", "", ""},
		{"a list", 200, `[{"a":1}]`, "", "", "no object but of type list", ""},
		{"no JSON", 200, `<html>secret`, "", "", "no JSON", ""},
		{"a bad request", 400, `secret`, "", "", "status 400", ""},
		{"forbidden for this key", 403, ``, "", "", "status 403", ""},
		{"too large", 200, `{"a":"` + strings.Repeat("x", 2000) + `"}`, "", "", "max_response", ""},
		{"no access", 401, "", "", "", "", "credentials"},
		{"the server fails", 500, "", "", "", "", "status 500"},
		{"the server is full", 503, "", "", "", "", "status 503 (try again in 7s)"},
		{"too many calls", 429, "", "", "", "", "status 429 (try again in 7s)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				if tt.status == 429 || tt.status == 503 {
					w.Header().Set("Retry-After", "7")
				}
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			})
			l := asking(t, server, []string{"id"}, func(c *LookupConfig) { c.Field, c.MaxResponse = tt.field, 1000 })
			a, err := find(t.Context(), l, connectors.StringValue("secret-key"))
			if string(a.Row) != tt.row || !says(a.Err, tt.bad) || !says(err, tt.failed) {
				t.Errorf("row %s, of the key %v, of the call %v", a.Row, a.Err, err)
			}
			for _, e := range []error{a.Err, err} {
				if e != nil && strings.Contains(e.Error(), "secret") {
					t.Errorf("error %q shows record data", e)
				}
			}
			if got := connectors.IsPermanent(err); got != (tt.status == 401) {
				t.Errorf("permanent: %v", got)
			}
		})
	}
}

func says(err error, what string) bool {
	if what == "" {
		return err == nil
	}
	return err != nil && strings.Contains(err.Error(), what)
}

func TestLookupFollowsRedirectsWithinAHostOnly(t *testing.T) {
	other := serve(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("another host is called with %v", r.Header) })
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/users/1":
			http.Redirect(w, r, "/v2/users/1", http.StatusMovedPermanently)
		case "/users/2":
			http.Redirect(w, r, other.URL+"/users/2", http.StatusFound)
		case "/users/3":
			http.Redirect(w, r, "/users/3", http.StatusFound)
		default:
			_, _ = io.WriteString(w, `{"a":1}`)
		}
	})
	l := asking(t, server, []string{"id"}, func(c *LookupConfig) { c.Headers = map[string]string{"Token": "t"} })
	if a, err := find(t.Context(), l, connectors.IntValue(1)); err != nil || string(a.Row) != `{"a":1}` {
		t.Errorf("answer %s, %v, %v", a.Row, a.Err, err)
	}
	for _, id := range []int64{2, 3} {
		if a, err := find(t.Context(), l, connectors.IntValue(id)); err != nil || !says(a.Err, "redirects within a host") {
			t.Errorf("answer %s, %v, %v", a.Row, a.Err, err)
		}
	}
}

func TestLookupAsksNothingForAnEmptyPartOfAPath(t *testing.T) {
	server := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("called") })
	l := asking(t, server, []string{"id"}, nil)
	if a, err := find(t.Context(), l, connectors.StringValue("")); err != nil || a.Err != nil || a.Row != nil {
		t.Errorf("answer %s, %v, %v", a.Row, a.Err, err)
	}
}

func TestLookupFaultsOfConnections(t *testing.T) {
	t.Run("nobody listens", func(t *testing.T) {
		server := httptest.NewServer(http.NotFoundHandler())
		server.Close()
		_, err := find(t.Context(), asking(t, server, []string{"id"}, nil), connectors.StringValue("secret-key"))
		if !says(err, "refused") || connectors.IsPermanent(err) || says(err, "secret") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("the server hangs", func(t *testing.T) {
		release := make(chan struct{})
		server := serve(t, func(http.ResponseWriter, *http.Request) { <-release })
		defer close(release)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, err := find(ctx, asking(t, server, []string{"id"}, nil), connectors.StringValue("secret-key"))
		if !errors.Is(err, context.DeadlineExceeded) || says(err, "secret") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("the connection breaks within the answer", func(t *testing.T) {
		server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"a":`)
		})
		a, err := find(t.Context(), asking(t, server, []string{"id"}, nil), connectors.IntValue(1))
		if err == nil || connectors.IsPermanent(err) || a.Row != nil {
			t.Errorf("answer %s, error %v", a.Row, err)
		}
	})
	t.Run("connections are kept", func(t *testing.T) {
		seen := map[string]bool{}
		server := serve(t, func(w http.ResponseWriter, r *http.Request) {
			seen[r.RemoteAddr] = true
			_, _ = io.WriteString(w, `{}`)
		})
		l := asking(t, server, []string{"id"}, nil)
		for i := range 5 {
			if _, err := find(t.Context(), l, connectors.IntValue(int64(i))); err != nil {
				t.Fatal(err)
			}
		}
		if len(seen) != 1 {
			t.Errorf("%d connections", len(seen))
		}
	})
	t.Run("a certificate of its own authority", func(t *testing.T) {
		server := httptest.NewTLSServer(http.NotFoundHandler())
		server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		defer server.Close()
		if _, err := find(t.Context(), asking(t, server, []string{"id"}, nil), connectors.IntValue(1)); !says(err, "certificate") {
			t.Errorf("error %v", err)
		}
		l := asking(t, server, []string{"id"}, func(c *LookupConfig) { c.TLS.InsecureSkipVerify = true })
		if _, err := find(t.Context(), l, connectors.IntValue(1)); err != nil {
			t.Error(err)
		}
	})
}

func TestLookupConfigurationThatCannotWorkIsRefused(t *testing.T) {
	tests := []struct {
		name    string
		columns []string
		change  func(*LookupConfig)
		want    string
	}{
		{"no address", nil, func(c *LookupConfig) { c.URL = "host/users" }, "http://"},
		{"a host of the record", []string{"id"}, func(c *LookupConfig) { c.URL = "https://{id}.example.org/x" }, "host cannot come from a record"},
		{"credentials in it", []string{"id"}, func(c *LookupConfig) { c.URL = "https://u:p@example.org/{id}" }, "credentials"},
		{"a fragment", []string{"id"}, func(c *LookupConfig) { c.URL = "https://example.org/{id}#x" }, "fragment"},
		{"a name that on has not", []string{"code"}, nil, "{id} is no column of on"},
		{"a name nearly right", []string{"idd"}, nil, "did you mean {idd}"},
		{"a column not used", []string{"id", "x"}, nil, "does not use it"},
		{"a body of a GET", []string{"id"}, func(c *LookupConfig) { c.Body = "x" }, "method: POST"},
		{"a header with a line break", []string{"id"}, func(c *LookupConfig) { c.Headers = map[string]string{"a": "b\nc"} }, "cannot be sent"},
		{"half a certificate", []string{"id"}, func(c *LookupConfig) { c.TLS.Cert = "x" }, "belong together"},
		{"no answer", []string{"id"}, func(c *LookupConfig) { c.MaxResponse = 0 }, "max_response"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newLookupConfig().(*LookupConfig)
			c.URL = "https://example.org/users/{id}"
			if tt.change != nil {
				tt.change(c)
			}
			if _, err := NewLookup(*c, tt.columns); !says(err, tt.want) {
				t.Errorf("error %v", err)
			}
		})
	}
}
