package web

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
	"github.com/sluice-etl/sluice/pipeline"
)

// fakeDaemon is a daemon of which a server asks only what it needs itself.
type fakeDaemon struct {
	api.Service
	ready func(context.Context) (bool, map[string]api.Health)
}

func (f *fakeDaemon) Ready(ctx context.Context) (bool, map[string]api.Health) {
	if f.ready == nil {
		return true, nil
	}
	return f.ready(ctx)
}

func (f *fakeDaemon) Pipelines(context.Context) []api.Pipeline {
	return []api.Pipeline{{Name: "orders", Status: &pipeline.Status{Storage: "s3://bucket/etl"}}}
}

// parts are handlers that say what they are, and who asks.
func parts(o *Options) {
	part := func(name string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c := CallerOf(r.Context())
			answer(w, http.StatusOK, map[string]string{"part": name, "name": c.Name, "role": string(c.Role)})
		})
	}
	o.API, o.Metrics, o.Dashboard = part("api"), part("metrics"), part("dashboard")
}

// start serves with settings; what is nil in o gets a stand-in.
func start(t *testing.T, o Options) *Server {
	t.Helper()
	if o.Settings.MaxConnections == 0 {
		o.Settings.MaxConnections = 64
	}
	if o.Settings.Listen == nil {
		o.Settings.Listen = []string{"127.0.0.1:0"}
	}
	if o.Service == nil {
		o.Service = &fakeDaemon{}
	}
	if o.API == nil {
		parts(&o)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s, err := Serve(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// got is an answer.
type got struct {
	status int
	header http.Header
	body   string
}

func (g *got) problem(t *testing.T) Problem {
	t.Helper()
	var p Problem
	if err := json.Unmarshal([]byte(g.body), &p); err != nil {
		t.Fatalf("%v: %s", err, g.body)
	}
	return p
}

// browse sends a request; headers are pairs.
func browse(t *testing.T, method, url string, headers ...string) *got {
	t.Helper()
	c := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return browseWith(t, c, method, url, headers...)
}

func browseWith(t *testing.T, c *http.Client, method, url string, headers ...string) *got {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return &got{resp.StatusCode, resp.Header, string(body)}
}

const (
	readToken    = "read-0123456789abcdefghij"
	operateToken = "operate-0123456789abcdefghij"
	adminToken   = "admin-0123456789abcdefghij"
)

func tokens() []Token {
	return []Token{{Name: "viewer", Role: Read, Secret: readToken}, {Name: "pager", Role: Operate, Secret: operateToken}, {Name: "owner", Role: Admin, Secret: adminToken}}
}

// concrete makes a path of a pattern.
func concrete(pattern string) (method, path string) {
	method, path, _ = strings.Cut(pattern, " ")
	return method, strings.NewReplacer("{name}", "orders", "{number}", "7").Replace(path)
}

func TestEachOperationIsRefusedWithoutItsRole(t *testing.T) {
	s := start(t, Options{Settings: Settings{Tokens: tokens(), Pprof: true}})
	base := s.Addresses()[0]
	need := maps.Clone(roles)
	need["GET /metrics"], need["GET /openapi.json"], need["GET /readyz?verbose"] = Read, Read, Read
	need["GET /debug/pprof/"], need["GET /debug/pprof/cmdline"], need["POST /debug/pprof/symbol"] = Admin, Admin, Admin
	need["GET /api/v1/unknown"], need["GET /api/v2/pipelines"] = Read, Read
	need["POST /api/v1/unknown"], need["POST /"], need["PATCH /api/v1/pipelines/{name}"], need["DELETE /metrics"], need["POST /livez"] = Admin, Admin, Admin, Admin, Admin
	for _, pattern := range slices.Sorted(maps.Keys(need)) {
		method, path := concrete(pattern)
		if g := browse(t, method, base+path); g.status != http.StatusUnauthorized || g.header.Get("WWW-Authenticate") == "" || g.problem(t).Code != CodeUnauthenticated {
			t.Errorf("%s without a token: %d %s", pattern, g.status, g.body)
		}
		for _, token := range tokens() {
			g := browse(t, method, base+path, "Authorization", "Bearer "+string(token.Secret))
			want := http.StatusForbidden
			if token.Role.Includes(need[pattern]) {
				want = http.StatusOK
			}
			if g.status != want && !(want == http.StatusOK && g.status == http.StatusServiceUnavailable) {
				t.Errorf("%s as %s: %d, want %d: %s", pattern, token.Role, g.status, want, g.body)
			}
			if want == http.StatusForbidden && g.problem(t).Code != CodeForbidden {
				t.Errorf("%s as %s: %s", pattern, token.Role, g.body)
			}
		}
	}
}

// What one part takes for another's path must not bring a request past its role.
func TestPathsInDisguiseNeedTheSameRole(t *testing.T) {
	s := start(t, Options{Settings: Settings{Tokens: tokens()}})
	for _, path := range []string{
		"//api/v1/pipelines", "/api//v1/pipelines", "/assets/../api/v1/pipelines", "/./metrics", "/%61pi/v1/pipelines",
		"/api/v1/pipelines/orders%2Fstop", "/API/v1/../../api/v1/daemon", "/livez/../metrics", "/readyz/../api/v1/logs",
	} {
		g := browse(t, http.MethodGet, s.Addresses()[0]+path)
		if g.status != http.StatusUnauthorized {
			t.Errorf("GET %s: %d %s", path, g.status, g.body)
		}
	}
	for _, path := range []string{"/api/v1/pipelines/orders/../orders/stop", "/api/v1/pipelines//stop", "/assets/..%2fapi/v1/reload", "/livez"} {
		if g := browse(t, http.MethodPost, s.Addresses()[0]+path, "Authorization", "Bearer "+readToken); g.status != http.StatusForbidden {
			t.Errorf("POST %s as read: %d %s", path, g.status, g.body)
		}
	}
}

func TestWhatNeedsNoToken(t *testing.T) {
	s := start(t, Options{Settings: Settings{Tokens: tokens(), MetricsPublic: true}})
	for _, path := range []string{"/livez", "/healthz", "/readyz", "/", "/assets/app.js", "/pipelines/orders", "/metrics"} {
		if g := browse(t, http.MethodGet, s.Addresses()[0]+path); g.status != http.StatusOK {
			t.Errorf("%s: %d %s", path, g.status, g.body)
		}
	}
	if g := browse(t, http.MethodGet, s.Addresses()[0]+"/debug/pprof/", "Authorization", "Bearer "+adminToken); g.status != http.StatusNotFound {
		t.Errorf("profiles are shown by default: %d", g.status)
	}
}

func TestWithoutTokensEverybodyHasTheLocalRole(t *testing.T) {
	for role, want := range map[Role]int{"": http.StatusOK, Admin: http.StatusOK, Operate: http.StatusForbidden, Read: http.StatusForbidden} {
		s := start(t, Options{Settings: Settings{LocalRole: role}})
		if g := browse(t, http.MethodDelete, s.Addresses()[0]+"/api/v1/pipelines/orders"); g.status != want {
			t.Errorf("with local_role %q: %d, want %d", role, g.status, want)
		}
		if g := browse(t, http.MethodGet, s.Addresses()[0]+"/api/v1/pipelines", "Authorization", "Bearer of-another-server"); g.status != http.StatusOK {
			t.Errorf("with local_role %q and a token that nothing asks for: %d", role, g.status)
		}
	}
}

func TestWhatIsNotProtectedIsNotServed(t *testing.T) {
	token, client := tokens(), []ClientCert{{SAN: "ops", Role: Admin}}
	for _, tt := range []struct {
		s    Settings
		want string // empty where it is fine
	}{
		{Settings{Listen: []string{"127.0.0.1:1", "[::1]:1", "localhost:1"}}, ""},
		{Settings{Listen: []string{"0.0.0.0:8700"}}, "http.cert_file"},
		{Settings{Listen: []string{":8700"}}, "http.cert_file"},
		{Settings{Listen: []string{"127.0.0.1:8700", "192.168.1.1:8700"}, Tokens: token}, "192.168.1.1:8700 can be reached"},
		{Settings{Listen: []string{"etl.example.com:8700"}, CertFile: "c", KeyFile: "k"}, "so that it is known who asks"},
		{Settings{Listen: []string{"[::]:8700"}, CertFile: "c", KeyFile: "k", Tokens: token}, ""},
		{Settings{Listen: []string{"[::]:8700"}, CertFile: "c", KeyFile: "k", ClientCAFile: "a", Clients: client}, ""},
		{Settings{Listen: []string{"[::]:8700"}, Insecure: true}, "http.local_role"},
		{Settings{Listen: []string{"[::]:8700"}, Insecure: true, LocalRole: Read}, ""},
		{Settings{Listen: []string{"[::]:8700"}, Insecure: true, Tokens: token}, ""},
		{Settings{Listen: []string{"8700"}}, "HOST:PORT"},
		{Settings{CertFile: "c"}, "belong together"},
		{Settings{ClientCAFile: "a", Clients: client}, "needs http.cert_file"},
		{Settings{CertFile: "c", KeyFile: "k", Clients: client}, "belong together"},
		{Settings{LocalRole: "root"}, "read, operate or admin"},
		{Settings{LocalRole: Read, Tokens: token}, "leave it out"},
		{Settings{Tokens: []Token{{Name: "a", Role: Read, Secret: "short"}}}, "5 characters"},
		{Settings{Tokens: []Token{{Name: "a", Role: Read}}}, "token_file"},
		{Settings{Tokens: []Token{{Name: "a", Role: "all", Secret: readToken}}}, `role is "all"`},
		{Settings{Tokens: append(tokens(), tokens()...)}, "two of the name viewer"},
		{Settings{Tokens: []Token{{Name: "a\nb", Role: Read, Secret: readToken}}}, "name is"},
		{Settings{Hosts: []string{"http://x"}}, "http.hosts.0"},
		{Settings{Roots: []string{"saved"}}, "http.roots.0"},
	} {
		tt.s.MaxConnections = 1
		err := tt.s.Check()
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.s, err, tt.want)
		}
	}
	_, err := Serve(t.Context(), Options{Settings: Settings{Listen: []string{"0.0.0.0:0"}, MaxConnections: 1}, Service: &fakeDaemon{}, Log: slog.New(slog.DiscardHandler)})
	if err == nil {
		t.Error("it was served all the same")
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	s := Settings{Tokens: tokens()}
	asJSON, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "settings", s, "secret", s.Tokens[0].Secret)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "settings", s, "secret", s.Tokens[0].Secret)
	for _, text := range []string{string(asJSON), log.String(), fmt.Sprintf("%v %+v %#v %s", s, s, s, s.Tokens)} {
		if strings.Contains(text, readToken) || !strings.Contains(text, "***") {
			t.Errorf("it prints %s", text)
		}
	}
}

func TestPagesOfOtherSitesAreKeptOut(t *testing.T) {
	s := start(t, Options{Settings: Settings{Hosts: []string{"etl.example.com"}}})
	base := s.Addresses()[0]
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(base, "http://"))
	for host, ok := range map[string]bool{
		"127.0.0.1:" + port: true, "localhost": true, "LOCALHOST:" + port: true, "[::1]:" + port: true, "etl.example.com": true, "ETL.example.com.:8700": true, "10.1.2.3:8700": true,
		"evil.example.com": false, "evil.example.com:" + port: false, "localhost.evil.com": false, "127.0.0.1.evil.com": false, "x@localhost": false,
	} {
		want := http.StatusOK
		if !ok {
			want = http.StatusMisdirectedRequest
		}
		for _, path := range []string{"/", "/api/v1/pipelines", "/metrics", "/readyz?verbose"} {
			if g := browse(t, http.MethodGet, base+path, "Host", host); g.status != want {
				t.Errorf("%s of host %s: %d, want %d", path, host, g.status, want)
			}
		}
	}
	if g := browse(t, http.MethodGet, base+"/readyz", "Host", "pod-7.example.com"); g.status != http.StatusOK {
		t.Errorf("a probe by another name: %d %s", g.status, g.body)
	}
	const post, get = http.MethodPost, http.MethodGet
	for _, tt := range []struct {
		method, path string
		headers      []string
		ok           bool
	}{
		{post, "/api/v1/reload", nil, true},
		{post, "/api/v1/reload", []string{"Origin", base}, true},
		{post, "/api/v1/reload", []string{"Sec-Fetch-Site", "same-origin"}, true},
		{post, "/api/v1/reload", []string{"Origin", "https://evil.example.com"}, false},
		{post, "/api/v1/reload", []string{"Origin", "null"}, false},
		{post, "/api/v1/reload", []string{"Origin", "http://127.0.0.1:1"}, false},
		{post, "/api/v1/reload", []string{"Sec-Fetch-Site", "cross-site"}, false},
		{post, "/api/v1/reload", []string{"Sec-Fetch-Site", "same-site"}, false},
		{"DELETE", "/api/v1/pipelines/orders", []string{"Sec-Fetch-Site", "cross-site"}, false},
		{get, "/api/v1/pipelines/orders/tap", []string{"Sec-Fetch-Site", "cross-site"}, false},
		{get, "/metrics", []string{"Sec-Fetch-Site", "same-site"}, false},
		{get, "/", []string{"Sec-Fetch-Site", "cross-site"}, true}, // a link to the dashboard
	} {
		g := browse(t, tt.method, base+tt.path, tt.headers...)
		if ok := g.status == http.StatusOK; ok != tt.ok || !ok && g.problem(t).Code != CodeForbidden {
			t.Errorf("%s %s with %v: %d %s", tt.method, tt.path, tt.headers, g.status, g.body)
		}
	}
}

func TestEachAnswerTellsBrowsersWhatItIsNot(t *testing.T) {
	s := start(t, Options{Settings: Settings{Tokens: tokens()}})
	for _, path := range []string{"/", "/api/v1/pipelines", "/livez", "/nowhere"} {
		g := browse(t, http.MethodGet, s.Addresses()[0]+path)
		for key, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"} {
			if g.header.Get(key) != want {
				t.Errorf("%s: %s is %q", path, key, g.header.Get(key))
			}
		}
		csp := g.header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'"} {
			if !strings.Contains(csp, want) {
				t.Errorf("%s: the policy %q lacks %s", path, csp, want)
			}
		}
		if strings.Contains(csp, "unsafe") || strings.Contains(csp, "*") || strings.Contains(csp, "http") {
			t.Errorf("%s: the policy is %q", path, csp)
		}
	}
}

func TestTheSocketNeedsNoToken(t *testing.T) {
	ln, err := Listen(t.Context(), []string{filepath.Join(t.TempDir(), "run")})
	if err != nil {
		t.Fatal(err)
	}
	path := ln.Addr().String()
	start(t, Options{Settings: Settings{Tokens: tokens(), Listen: []string{}}, Socket: ln})
	g := browseWith(t, NewClient(path).http, http.MethodDelete, "http://process/api/v1/pipelines/orders")
	if g.status != http.StatusOK || !strings.Contains(g.body, `"role":"admin"`) {
		t.Errorf("%d %s", g.status, g.body)
	}
}

func TestAnswersThatChangeSomethingComeToTheirEndAndStreamsDoNot(t *testing.T) {
	streams, acts, goOn := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var o Options
	parts(&o)
	o.API = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			close(streams)
			<-r.Context().Done()
			return
		}
		close(acts)
		select {
		case <-goOn:
			answer(w, http.StatusOK, "done")
		case <-r.Context().Done():
			refuse(w, problemOf(r.Context().Err()))
		}
	})
	s := start(t, o)
	var wg sync.WaitGroup
	wg.Go(func() { browse(t, http.MethodGet, s.Addresses()[0]+"/api/v1/stream") })
	wg.Go(func() {
		if g := browse(t, http.MethodPost, s.Addresses()[0]+"/api/v1/pipelines/orders/stop"); g.status != http.StatusOK {
			t.Errorf("what was under way got %d %s", g.status, g.body)
		}
	})
	<-streams
	<-acts
	closed := make(chan error, 1)
	go func() { closed <- s.Close(context.Background()) }()
	<-s.handler.ending.Done()
	close(goOn)
	wg.Wait()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	s.listeners = 0 // the cleanup closes it once more
}

func TestAPanicOfAHandlerIsAnAnswer(t *testing.T) {
	var log bytes.Buffer
	o := Options{Log: slog.New(slog.NewTextHandler(&log, nil))}
	parts(&o)
	o.API = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a bug") })
	s := start(t, o)
	g := browse(t, http.MethodGet, s.Addresses()[0]+"/api/v1/pipelines")
	if g.status != http.StatusInternalServerError || g.problem(t).Code != CodeFailed || strings.Contains(g.body, "a bug") {
		t.Errorf("%d %s", g.status, g.body)
	}
	if !strings.Contains(log.String(), "a bug") || !strings.Contains(log.String(), "server_test.go") {
		t.Errorf("the log is %s", log.String())
	}
}

func TestABodyIsBounded(t *testing.T) {
	read := make(chan error, 1)
	var o Options
	parts(&o)
	o.API = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		read <- err
	})
	s := start(t, o)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.Addresses()[0]+"/api/v1/plan", strings.NewReader(strings.Repeat("x", mostServedBody+1)))
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := http.DefaultClient.Do(req); err == nil {
		resp.Body.Close()
	}
	if err := <-read; err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("reading it ended with %v", err)
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln := limitConnections(inner, 2)
	accepted := make(chan net.Conn)
	ended := make(chan error, 1)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				ended <- err
				return
			}
			accepted <- c
		}
	}()
	var dialed []net.Conn
	for range 3 {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		dialed = append(dialed, c)
	}
	first, second := <-accepted, <-accepted
	if n := len(ln.(*limited).slots); n != 2 {
		t.Errorf("%d are open", n)
	}
	select {
	case <-accepted:
		t.Error("a third one was taken")
	default:
	}
	first.Close()
	first.Close() // as net/http may
	third := <-accepted
	if err := ln.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err == nil {
		t.Error("Accept has not ended")
	}
	for _, c := range append(dialed, second, third) {
		c.Close()
	}
}

func TestAnAddressInUseIsToldAndNothingStays(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
	o := Options{Settings: Settings{Listen: []string{free.Addr().String(), taken.Addr().String()}, MaxConnections: 1}, Service: &fakeDaemon{}, Log: slog.New(slog.DiscardHandler)}
	if _, err := Serve(t.Context(), o); err == nil || !strings.Contains(err.Error(), "http.listen") || !strings.Contains(err.Error(), "in use") {
		t.Errorf("error %v", err)
	}
	again, err := net.Listen("tcp", free.Addr().String())
	if err != nil {
		t.Fatalf("the other address is still taken: %v", err)
	}
	again.Close()
}
