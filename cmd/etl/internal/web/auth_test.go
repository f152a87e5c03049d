package web

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
)

// write replaces a file as editors and mounted volumes do: by a rename.
func write(t *testing.T, path, text string) {
	t.Helper()
	next := path + ".new"
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
}

func TestTokensComeFromFilesAndVariablesAndAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	file, other := filepath.Join(dir, "token"), filepath.Join(dir, "other")
	write(t, file, "\n"+readToken+"\n"+operateToken+"  \r\n")
	write(t, other, adminToken)
	t.Setenv("SERVER_TEST_TOKEN", "of-the-environment-0123456789")
	s := start(t, Options{Settings: Settings{Tokens: []Token{
		{Name: "lines", Role: Read, File: file}, {Name: "file", Role: Admin, Secret: Secret("${file:" + other + "}")}, {Name: "env", Role: Operate, Secret: "${SERVER_TEST_TOKEN}"},
	}}})
	who := func(token string) string {
		g := browse(t, http.MethodGet, s.Addresses()[0]+"/api/v1/daemon", "Authorization", "Bearer "+token)
		var c struct{ Name string }
		_ = json.Unmarshal([]byte(g.body), &c)
		return c.Name
	}
	for token, want := range map[string]string{
		readToken: "lines", operateToken: "lines", adminToken: "file", "of-the-environment-0123456789": "env",
		"${SERVER_TEST_TOKEN}": "", readToken + operateToken: "", readToken + "x": "", "": "",
	} {
		if got := who(token); got != want {
			t.Errorf("token %q is of %q, want %q", token, got, want)
		}
	}
	write(t, file, "a-new-token-0123456789")
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	if who("a-new-token-0123456789") != "lines" || who(readToken) != "" {
		t.Error("the file was not read again")
	}
	for _, bad := range []string{"", "short", "with a blank 0123456789"} {
		write(t, file, bad)
		if err := s.Reload(); err == nil || bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("the token %q: %v", bad, err)
		}
	}
	if who("a-new-token-0123456789") != "lines" {
		t.Error("a file that cannot be used took the token away")
	}
}

func TestATokenThatIsNotThereIsToldAtTheStart(t *testing.T) {
	for _, tt := range []struct {
		token Token
		want  string
	}{
		{Token{Secret: "${NO_SUCH_VARIABLE}"}, "NO_SUCH_VARIABLE is not set"},
		{Token{File: "/no/such/file"}, "/no/such/file"},
		{Token{Secret: "${file:/no/such/file}"}, "/no/such/file"},
	} {
		tt.token.Name, tt.token.Role = "ci", Read
		o := Options{Settings: Settings{Listen: []string{"127.0.0.1:0"}, Tokens: []Token{tt.token}, MaxConnections: 1}, Service: &fakeDaemon{}, Log: slog.New(slog.DiscardHandler)}
		if _, err := Serve(t.Context(), o); err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "token ci") {
			t.Errorf("%v, want %q", err, tt.want)
		}
	}
}

func TestWhoGuessesHasToWait(t *testing.T) {
	s := start(t, Options{Settings: Settings{Tokens: tokens()}})
	now := time.Now()
	s.handler.auth.failures.now = func() time.Time { return now }
	try := func(token string) *got {
		return browse(t, http.MethodGet, s.Addresses()[0]+"/api/v1/daemon", "Authorization", "Bearer "+token)
	}
	for i := range failureBurst {
		if g := try(fmt.Sprintf("a-guess-0123456789-%d", i)); g.status != http.StatusUnauthorized {
			t.Fatalf("guess %d: %d", i, g.status)
		}
	}
	// The right one tells nothing either.
	for _, token := range []string{"another-guess", readToken} {
		g := try(token)
		if g.status != http.StatusTooManyRequests || g.header.Get("Retry-After") != "6" || g.problem(t).Code != CodeLimited {
			t.Errorf("%d, Retry-After %q: %s", g.status, g.header.Get("Retry-After"), g.body)
		}
	}
	if g := browse(t, http.MethodGet, s.Addresses()[0]+"/readyz"); g.status != http.StatusOK {
		t.Errorf("a probe from there: %d", g.status)
	}
	now = now.Add(failurePause)
	if g := try(readToken); g.status != http.StatusOK {
		t.Errorf("after the wait: %d %s", g.status, g.body)
	}
	if g := try("one-more-guess"); g.status != http.StatusUnauthorized {
		t.Errorf("after the wait, a guess: %d", g.status)
	}
	if g := try(readToken); g.status != http.StatusTooManyRequests {
		t.Errorf("after that guess: %d", g.status)
	}
}

func TestWhatIsRememberedOfGuessesIsBounded(t *testing.T) {
	f := newFailures()
	now := time.Now()
	f.now = func() time.Time { return now }
	victim := netip.MustParseAddr("10.0.0.1")
	for range 2 * failureBurst {
		f.count(victim)
	}
	if f.wait(victim) != (failureBurst+1)*failurePause {
		t.Errorf("it has to wait %s", f.wait(victim))
	}
	if f.wait(netip.MustParseAddr("10.0.0.2")) != 0 {
		t.Error("its neighbour has to wait")
	}
	// Whoever has a network of IPv6 has all its addresses.
	for i := range 2 * failureBurst {
		f.count(netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", i)))
	}
	if f.wait(netip.MustParseAddr("2001:db8::ffff")) == 0 || f.wait(netip.MustParseAddr("2001:db8:0:1::1")) != 0 {
		t.Error("networks of IPv6 are not told apart")
	}
	for i := range 2 * mostAddresses {
		f.count(netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i)}))
	}
	if len(f.by) != mostAddresses || f.past.Len() != mostAddresses {
		t.Errorf("%d addresses are remembered, and %d in order", len(f.by), f.past.Len())
	}
}

// lines are the entries of an audit log.
func lines(t *testing.T, path string) (all []entry) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for in := bufio.NewScanner(bytes.NewReader(data)); in.Scan(); {
		var e entry
		if err := json.Unmarshal(in.Bytes(), &e); err != nil {
			t.Fatalf("%v: %s", err, in.Text())
		}
		all = append(all, e)
	}
	return all
}

func TestTheAuditLogTellsWhoDidWhat(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	var mu sync.Mutex
	var events []api.Event
	o := Options{Settings: Settings{Tokens: tokens(), AuditFile: path}, Event: func(e api.Event) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, e)
	}}
	parts(&o)
	operations := NewHandler(&fake{}, HandlerOptions{})
	o.API = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/pause"):
			refuse(w, &Problem{Status: http.StatusConflict, Code: CodePhase})
		case strings.HasSuffix(r.URL.Path, "/savepoints"):
			refuse(w, &Problem{Status: http.StatusForbidden, Code: CodeForbidden})
		default:
			r.URL.RawQuery = ""
			operations.ServeHTTP(w, r)
		}
	})
	s := start(t, o)
	call := func(method, path, token string) {
		browse(t, method, s.Addresses()[0]+"/api/v1"+path+"?query=marker", "Authorization", "Bearer "+token)
	}
	call("POST", "/pipelines/orders/start", adminToken)
	call("POST", "/pipelines/orders/pause", operateToken)
	call("POST", "/pipelines/orders/savepoints", operateToken)
	call("GET", "/pipelines", readToken)
	call("POST", "/validate", adminToken)
	call("DELETE", "/pipelines/orders", readToken)
	call("GET", "/pipelines", "a-wrong-token-marker")
	want := []entry{
		{Actor: "owner", Role: Admin, Method: "POST", Path: "/api/v1/pipelines/orders/start", Outcome: "done", Status: 200},
		{Actor: "pager", Role: Operate, Method: "POST", Path: "/api/v1/pipelines/orders/pause", Outcome: "failed", Status: 409},
		{Actor: "pager", Role: Operate, Method: "POST", Path: "/api/v1/pipelines/orders/savepoints", Outcome: "refused", Status: 403},
		{Actor: "viewer", Role: Read, Method: "DELETE", Path: "/api/v1/pipelines/orders", Outcome: "refused", Status: 403, Reason: CodeForbidden},
		{Method: "GET", Path: "/api/v1/pipelines", Outcome: "refused", Status: 401, Reason: CodeUnauthenticated},
	}
	got := lines(t, path)
	if len(got) != len(want) {
		t.Fatalf("%d lines, want %d: %+v", len(got), len(want), got)
	}
	for i, e := range got {
		if e.Time.IsZero() || !strings.HasPrefix(e.Address, "127.0.0.1:") {
			t.Errorf("line %d: %+v", i, e)
		}
		if i == 0 && fmt.Sprint(e.Moved) != fmt.Sprint(moved) {
			t.Errorf("it moved %+v", e.Moved)
		}
		e.Time, e.Address, e.Moved = time.Time{}, "", nil
		if fmt.Sprint(e) != fmt.Sprint(want[i]) {
			t.Errorf("line %d:\n%+v, want\n%+v", i, e, want[i])
		}
	}
	data, _ := os.ReadFile(path)
	if strings.Contains(string(data), "marker") || strings.Contains(string(data), "0123456789") {
		t.Errorf("it holds a query or a token:\n%s", data)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("its mode is %v, %v", info.Mode(), err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(events) != 2 || events[0].Actor != "viewer" || !strings.Contains(events[0].Text, "needs the role admin") || !strings.Contains(events[1].Text, "somebody unknown") {
		t.Errorf("the events are %+v", events)
	}
}

func TestTheAuditLogIsOpenedAnewAndStrangersDoNotFillIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	s := start(t, Options{Settings: Settings{Tokens: tokens(), AuditFile: path}})
	for range 3 * failureBurst {
		browse(t, http.MethodPost, s.Addresses()[0]+"/api/v1/reload")
	}
	if n := len(lines(t, path)); n < failureBurst || n > failureBurst+2 {
		t.Errorf("%d lines of %d requests of a stranger", n, 3*failureBurst)
	}
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	browse(t, http.MethodPost, s.Addresses()[0]+"/api/v1/reload", "Authorization", "Bearer "+adminToken)
	if got := lines(t, path); len(got) != 1 || got[0].Actor != "owner" {
		t.Errorf("the new file has %+v", got)
	}
}
