package registry

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
)

const (
	money = `{"type":"record","name":"money","namespace":"shop","fields":[{"name":"n","type":"int"}]}`
	bid   = `{"type":"record","name":"bid","namespace":"shop","fields":[{"name":"p","type":"money"}]}`
)

// newClient is a client of a registry in memory.
func newClient(t *testing.T, change func(*Config), opts ...srfake.Option) (*Client, *srfake.Registry) {
	t.Helper()
	reg := srfake.New(opts...)
	t.Cleanup(reg.Close)
	cfg := Default()
	cfg.URL = []string{reg.URL()}
	if change != nil {
		change(&cfg)
	}
	c, err := New(&cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return c, reg
}

// answer makes a registry answer requests whose method and path contain what is given.
func answer(reg *srfake.Registry, request string, status int, body string) *atomic.Int64 {
	var n atomic.Int64
	reg.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.Method+" "+r.URL.Path, request) {
			return false
		}
		n.Add(1)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
		return true
	})
	return &n
}

func bidDraft() *Draft {
	return &Draft{Type: "AVRO", Text: bid, References: []*Draft{{Name: "shop.money", Type: "AVRO", Text: money}}}
}

func TestASchemaIsRegisteredBehindThoseThatItRefersTo(t *testing.T) {
	c, reg := newClient(t, nil)
	for range 2 { // the second time it is there
		s, err := c.Register(t.Context(), "bids-value", bidDraft(), false)
		if err != nil || s.ID == 0 || s.GUID == "" {
			t.Fatal(s, err)
		}
	}
	got, ok := reg.GetSchema("bids-value", 1)
	if !ok || len(got.References) != 1 || got.References[0] != (sr.SchemaReference{Name: "shop.money", Subject: "shop.money", Version: 1}) {
		t.Errorf("registered %+v", got)
	}
	if _, again := reg.GetSchema("shop.money", 2); again {
		t.Error("the reference is registered twice")
	}
	back, ok, err := c.Latest(t.Context(), "bids-value")
	if err != nil || !ok || len(back.References) != 1 || back.References[0] != (Reference{Name: "shop.money", Text: money}) {
		t.Errorf("read back: %+v, %v", back, err)
	}
}

func TestWhatTwoSchemasReferToIsRegisteredOnce(t *testing.T) {
	c, reg := newClient(t, func(c *Config) { c.References = "qualified" })
	base := &Draft{Name: "shop/base.proto", Type: "PROTOBUF", Text: `syntax = "proto3"; package shop; message B {}`}
	mid := &Draft{Name: "shop/mid.proto", Type: "PROTOBUF", Text: `syntax = "proto3"; package shop; import "shop/base.proto"; message M { B b = 1; }`, References: []*Draft{base}}
	top := &Draft{Type: "PROTOBUF", Text: `syntax = "proto3"; import "shop/mid.proto"; import "shop/base.proto"; message T { shop.M m = 1; shop.B b = 2; }`, References: []*Draft{mid, base}}
	var looked atomic.Int64
	reg.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost && !strings.HasSuffix(r.URL.Path, "/versions") {
			looked.Add(1)
		}
		return false
	})
	if _, err := c.Register(t.Context(), "t-value", top, false); err != nil {
		t.Fatal(err)
	}
	if n := looked.Load(); n != 6 { // before and after each registration
		t.Errorf("asked %d times for what is there", n)
	}
	got, _ := reg.GetSchema("t-value", 1)
	want := []sr.SchemaReference{{Name: "shop/mid.proto", Subject: "shop.mid", Version: 1}, {Name: "shop/base.proto", Subject: "shop.base", Version: 1}}
	if len(got.References) != 2 || got.References[0] != want[0] || got.References[1] != want[1] {
		t.Errorf("references %+v, want %+v", got.References, want)
	}
}

func TestNothingIsRegisteredWhereThatIsNotWanted(t *testing.T) {
	for name, tt := range map[string]struct{ auto, readOnly bool }{"auto_register is off": {false, false}, "only looked at": {true, true}} {
		c, reg := newClient(t, func(c *Config) { c.AutoRegister = tt.auto })
		_, err := c.Register(t.Context(), "bids-value", bidDraft(), tt.readOnly)
		if !connectors.IsPermanent(err) || !strings.Contains(err.Error(), "shop.money, which the schema of subject bids-value refers to") {
			t.Errorf("%s: %v", name, err)
		}
		if reg.SubjectExists("shop.money") || reg.SubjectExists("bids-value") {
			t.Errorf("%s: it is registered", name)
		}
	}
}

func TestWhatTheRegistryRefusesIsSaid(t *testing.T) {
	tests := []struct {
		name, request string
		status        int
		body          string
		want          []string
	}{
		{"an incompatible schema", "POST /subjects/bids-value/versions", 409, `{"error_code":409,"message":"field p: int became string"}`, []string{"subject bids-value", "cannot follow", "field p: int became string", "compatible one"}},
		{"an incompatible reference", "POST /subjects/shop.money/versions", 409, `{"error_code":409,"message":"no"}`, []string{"subject shop.money", "cannot follow", "shop.money, which the schema of subject bids-value refers to"}},
		{"an invalid schema", "POST /subjects/bids-value/versions", 422, `{"error_code":42201,"message":"Invalid schema: what"}`, []string{"subject bids-value", "Invalid schema: what", "for invalid"}},
		{"no login", "/subjects", 401, `{"error_code":401,"message":"Unauthorized"}`, []string{"Unauthorized", "check username and password, or token"}},
		{"no right", "POST /subjects/bids-value/versions", 403, `{"error_code":40301,"message":"denied"}`, []string{"denied", "check username and password, or token"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, reg := newClient(t, nil)
			n := answer(reg, tt.request, tt.status, tt.body)
			_, err := c.Register(t.Context(), "bids-value", bidDraft(), false)
			if !connectors.IsPermanent(err) {
				t.Fatalf("%v is tried again", err)
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%v, want %q in it", err, w)
				}
			}
			if n.Load() != 1 {
				t.Errorf("asked %d times", n.Load())
			}
		})
	}
}

func TestTheRegistrysReasonsAreBounded(t *testing.T) {
	c, reg := newClient(t, nil)
	answer(reg, "POST /subjects/bids-value/versions", 409, `{"error_code":409,"message":"`+strings.Repeat("x", 5000)+`"}`)
	_, err := c.Register(t.Context(), "bids-value", bidDraft(), false)
	if err == nil || len(err.Error()) > 2500 || !strings.Contains(err.Error(), "xx…") {
		t.Errorf("%d bytes", len(err.Error()))
	}
}

func TestAnOutageIsWaitedFor(t *testing.T) {
	for _, status := range []int{500, 503, 429, 408} {
		c, reg := newClient(t, nil)
		reg.SeedSchema("s", 1, 7, sr.Schema{Schema: money})
		var n atomic.Int64
		reg.Intercept(func(w http.ResponseWriter, _ *http.Request) bool {
			if n.Add(1) > 2 {
				return false
			}
			w.WriteHeader(status)
			return true
		})
		if s, err := c.Get(t.Context(), Mark{ID: 7}); err != nil || s.Text != money || n.Load() != 3 {
			t.Errorf("%d: %v, %v after %d requests", status, s, err, n.Load())
		}
	}
}

func TestNoAnswerIsNoFaultOfARecord(t *testing.T) {
	c, reg := newClient(t, nil)
	reg.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := c.Get(ctx, Mark{ID: 7}); err == nil || format.IsRefused(err) || connectors.IsPermanent(err) || !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestAnIDThatIsNotThereIsAskedForAgainAfterAWhile(t *testing.T) {
	var asked int
	synctest.Test(t, func(t *testing.T) {
		cfg := Default()
		cfg.Cache = 2
		known := map[string]bool{}
		c := inMemory(t, cfg, func(r *http.Request) (int, string) {
			asked++
			if known[r.URL.Path] {
				return 200, `{"schema":"\"int\""}`
			}
			return 404, `{"error_code":40403,"message":"Schema not found"}`
		})
		get := func(id, want int, ok bool) {
			t.Helper()
			asked = 0
			if _, err := c.Get(t.Context(), Mark{ID: id}); (err == nil) != ok || err != nil && !format.IsRefused(err) || asked != want {
				t.Errorf("id %d: %v after %d requests, want %v after %d", id, err, asked, ok, want)
			}
		}
		get(9, 4, false)
		get(9, 0, false) // still known to be missing
		known["/schemas/ids/9"] = true
		get(9, 0, false)
		<-time.After(missingFor)
		get(9, 1, true)
		get(9, 0, true)
		// No more than two are remembered, found or not.
		for id := range 6 {
			get(100+id, 4, false)
			known["/schemas/ids/"+Mark{ID: 200 + id}.String()] = true
			get(200+id, 1, true)
			if len(c.known) > cfg.Cache || len(c.none) > cfg.Cache {
				t.Fatalf("%d schemas and %d missing ones are remembered", len(c.known), len(c.none))
			}
		}
	})
}

// inMemory is a client whose requests do not leave the process.
func inMemory(t *testing.T, cfg Config, f transport) *Client {
	t.Helper()
	cfg.URL = []string{"http://registry.invalid"}
	c, err := New(&cfg, slog.New(slog.DiscardHandler))
	if err == nil {
		c.api, err = sr.NewClient(sr.URLs(cfg.URL...), sr.HTTPClient(&http.Client{Transport: f}))
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// transport answers requests in memory.
type transport func(*http.Request) (status int, body string)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) {
	status, body := f(r)
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(body)), Request: r, Header: http.Header{}}, nil
}

// Else each value would be taken for one of a schema that is missing, and refused.
func TestAnAddressWithoutARegistryIsNoMissingSchema(t *testing.T) {
	asked := 0
	c := inMemory(t, Default(), func(*http.Request) (int, string) {
		asked++
		return 404, "<html>\n<h1>Not Found</h1>\n</html>"
	})
	_, err := c.Get(t.Context(), Mark{ID: 1})
	if format.IsRefused(err) || !connectors.IsPermanent(err) || asked != 1 {
		t.Errorf("%v after %d requests", err, asked)
	}
	// A registry that has no GUIDs may answer so too.
	if _, err := c.Get(t.Context(), Mark{ByGUID: true}); !format.IsRefused(err) {
		t.Error(err)
	}
	if _, _, err := c.Latest(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "http://registry.invalid/subjects/a/versions/latest is no address of a registry: correct url") {
		t.Error(err)
	}
}

func TestReferencesInACircleEnd(t *testing.T) {
	refer := func(to string) string {
		return `{"subject":"x","version":1,"id":2,"schema":"\"int\"","references":[{"name":"` + to + `","subject":"` + to + `","version":1}]}`
	}
	c := inMemory(t, Default(), func(r *http.Request) (int, string) {
		switch r.URL.Path {
		case "/schemas/ids/1", "/subjects/b/versions/1":
			return 200, refer("a")
		case "/subjects/a/versions/1":
			return 200, refer("b")
		case "/schemas/ids/3":
			return 200, refer("gone")
		}
		return 404, `{"error_code":40401,"message":"Subject not found"}`
	})
	if s, err := c.Get(t.Context(), Mark{ID: 1}); err != nil || len(s.References) != 2 {
		t.Errorf("%d references, %v", len(s.References), err)
	}
	if _, err := c.Get(t.Context(), Mark{ID: 3}); !format.IsRefused(err) || !strings.Contains(err.Error(), "version 1 of subject gone") {
		t.Error(err)
	}
}

func TestEndlessReferencesAreRefused(t *testing.T) {
	n := 0
	c := inMemory(t, Default(), func(*http.Request) (int, string) {
		n++
		return 200, `{"schema":"\"int\"","references":[{"name":"r","subject":"r","version":` + Mark{ID: n}.String() + `}]}`
	})
	if _, err := c.Get(t.Context(), Mark{ID: 1}); !format.IsRefused(err) || !strings.Contains(err.Error(), "more than 200") || n > 202 {
		t.Errorf("%v after %d requests", err, n)
	}
	// As many side by side are too many as well.
	var wide []string
	for i := range 300 {
		wide = append(wide, `{"name":"r","subject":"r","version":`+Mark{ID: i + 1}.String()+`}`)
	}
	n = 0
	c = inMemory(t, Default(), func(r *http.Request) (int, string) {
		if n++; r.URL.Path == "/schemas/ids/1" {
			return 200, `{"schema":"\"int\"","references":[` + strings.Join(wide, ",") + `]}`
		}
		return 200, `{"schema":"\"int\""}`
	})
	if _, err := c.Get(t.Context(), Mark{ID: 1}); !format.IsRefused(err) || n > 202 {
		t.Errorf("%v after %d requests", err, n)
	}
}

func TestRequestsAreAsTheConfigurationSays(t *testing.T) {
	for name, tt := range map[string]struct {
		change               func(*Config)
		authorization, query string
	}{
		"nothing":   {func(*Config) {}, "", ""},
		"a user":    {func(c *Config) { c.Username, c.Password = "u", "p" }, "Basic dTpw", ""},
		"a token":   {func(c *Config) { c.Token = "t" }, "Bearer t", ""},
		"normalize": {func(c *Config) { c.Normalize = true }, "", "normalize=true"},
	} {
		c, reg := newClient(t, tt.change)
		var asked atomic.Int64
		reg.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
			asked.Add(1)
			if got := r.Header.Get("Authorization"); got != tt.authorization || r.URL.RawQuery != tt.query {
				t.Errorf("%s: %s %s with authorization %q", name, r.Method, r.URL, got)
			}
			return false
		})
		if _, err := c.Register(t.Context(), "s", &Draft{Type: "AVRO", Text: money}, false); err != nil || asked.Load() != 3 {
			t.Errorf("%s: %v after %d requests", name, err, asked.Load())
		}
	}
}

func TestARequestEndsAfterTheTimeout(t *testing.T) {
	c, reg := newClient(t, func(c *Config) { c.Timeout = connectors.TimeSpan(10 * time.Millisecond) })
	reg.SeedSchema("s", 1, 7, sr.Schema{Schema: money})
	var n atomic.Int64
	reg.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		if n.Add(1) > 1 {
			return false
		}
		_, _ = io.Copy(io.Discard, r.Body) // without it the server does not see that the client is gone
		<-r.Context().Done()
		return true
	})
	if _, err := c.Get(t.Context(), Mark{ID: 7}); err != nil {
		t.Error(err)
	}
}

func TestTheNewestAndAnyVersionOfASubject(t *testing.T) {
	c, reg := newClient(t, nil)
	reg.SeedSchema("s", 1, 1, sr.Schema{Schema: `"int"`})
	reg.SeedSchema("s", 2, 2, sr.Schema{Schema: `"long"`})
	if s, ok, err := c.Latest(t.Context(), "s"); err != nil || !ok || s.Text != `"long"` || s.ID != 2 {
		t.Errorf("newest: %+v, %v", s, err)
	}
	c.config.Subject = "s"
	if s, err := Read(c.config, 1); err != nil || s.Text != `"int"` {
		t.Errorf("version 1: %+v, %v", s, err)
	}
}

func TestMarksAreReadAsTheyAreWritten(t *testing.T) {
	const guid = "2d51477a-8eaa-8a8d-b0a6-a102a0e75476"
	for _, tt := range []struct {
		name, mark, guid string
		index            []int
		want             string // of the mark
	}{
		{"in front", "value", guid, nil, "7"},
		{"in front, of a message", "value", guid, []int{1, 2}, "7"},
		{"in a header", "header", guid, nil, guid},
		{"in a header, of a message", "header", guid, []int{3}, guid},
		{"in a header, without GUIDs", "header", "", []int{0}, "7"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := Default()
			cfg.Mark = tt.mark
			m, err := cfg.Marker(Schema{ID: 7, GUID: tt.guid}, tt.index)
			if err != nil {
				t.Fatal(err)
			}
			rec := &connectors.Record{Value: append(append([]byte{}, m.Prefix...), "value"...)}
			for _, h := range m.Headers {
				if h.Value != nil {
					rec.Headers = append(rec.Headers, h)
				}
			}
			if (tt.mark == "header") != (len(m.Prefix) == 0) || m.Headers[0].Key != Header {
				t.Errorf("prefix %x, headers %v", m.Prefix, m.Headers)
			}
			mark, index, payload, err := Split(rec)
			if err != nil || mark.String() != tt.want {
				t.Fatalf("read as %s, %v", mark, err)
			}
			if tt.index != nil {
				at := index
				if tt.mark == "value" {
					at = payload
				}
				got, rest, err := Index(at)
				if err != nil || len(got) != len(tt.index) || got[0] != tt.index[0] {
					t.Errorf("message %v, %v", got, err)
				}
				if tt.mark == "value" {
					payload = rest
				}
			}
			if string(payload) != "value" {
				t.Errorf("payload %q", payload)
			}
		})
	}
	cfg := Default()
	cfg.Mark = "header"
	if _, err := cfg.Marker(Schema{GUID: "no"}, nil); !connectors.IsPermanent(err) {
		t.Error(err)
	}
}

func TestWhatContradictsItselfIsRefused(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"":                           func(*Config) {},
		"registry.url":               func(c *Config) { c.URL = []string{"localhost:8081"} },
		"username and password":      func(c *Config) { c.URL = []string{"http://u:p@h"} },
		"both a token":               func(c *Config) { c.Username, c.Password, c.Token = "u", "p", "t" },
		"belong together":            func(c *Config) { c.Username = "u" },
		"registry.cache":             func(c *Config) { c.Cache = 0 },
		"registry.timeout":           func(c *Config) { c.Timeout = 0 },
		"registry.url: is missing":   func(c *Config) { c.URL, c.Mark = nil, "header" },
		"registry.url: is missing ":  func(c *Config) { c.URL, c.Subject = nil, "s" },
		"registry.url: is missing  ": func(c *Config) { c.URL, c.Token = nil, "t" },
	} {
		c := Default()
		c.URL = []string{"http://localhost:8081"}
		change(&c)
		err := c.Check()
		if want == "" && err == nil {
			continue
		}
		text := ""
		var f *connectors.FieldError
		if errors.As(err, &f) {
			text = f.Key + ": " + f.Msg + " (" + f.Help + ")"
		}
		if want = strings.TrimSpace(want); want == "" || !strings.Contains(text, want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
