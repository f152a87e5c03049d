package cli

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// marker begins every secret of the test, and is in nothing that is shown.
const marker = "markerOfSecrets"

// secretive are pipelines with secrets at every sort of place: as they are, from the
// environment, from files, in addresses. Nothing that they name answers.
var secretive = map[string]string{
	"kafka": `
pipeline: kafka
source: {kafka: {brokers: ["127.0.0.1:1"], topics: [t], sasl: {mechanism: PLAIN, username: u, password: markerOfSecretsSASL0}}}
sink: {blackhole: {}}
`,
	"http": `
pipeline: http
source: {generate: {kind: bid, rate: 10}}
sink: {http: {url: "http://127.0.0.1:1/x", token: "${SECRETS_TEST_TOKEN}", headers: {X-Key: markerOfSecretsHeader}, retry: {max: 1s}}}
`,
	"postgres": `
pipeline: postgres
source: {generate: {kind: bid, rate: 10}}
sink: {postgres: {url: "postgres://u:${file:FOLDER/password}@127.0.0.1:1/db", table: t}}
`,
	"invalid": `
pipeline: invalid
source: {generate: {kind: bid}}
sink: {postgres: {url: "postgres://u:markerOfSecretsURL@127.0.0.1:1/db?x=%zz", tabel: t}}
`,
}

// printed is what a program has printed so far.
type printed struct {
	mu   sync.Mutex
	text strings.Builder
}

func (p *printed) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *printed) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

func TestNothingThatIsShownHoldsASecret(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "FOLDER", dir)), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	t.Setenv("SECRETS_TEST_TOKEN", marker+"Bearer")
	put("password", marker+"Password\n")
	put("token", marker+"OfTheAPI0123456789\n")
	for name, text := range secretive {
		put("pipelines/"+name+".yaml", text)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	_ = free.Close()
	config := put("etl.yaml", fmt.Sprintf(`
log: {level: debug}
runtime_dir: FOLDER/run
pipelines: FOLDER/pipelines
state_dir: FOLDER/state
http:
  listen: [%s]
  audit_file: FOLDER/audit.jsonl
  tokens:
    - {name: owner, role: admin, token_file: FOLDER/token}
    - {name: viewer, role: read, token: markerOfSecretsPlain0123456789}
`, address))
	shown := &printed{}
	a := &app{version: "test", out: shown, err: shown}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() { ended <- a.run(ctx, []string{"--config", config, "serve"}) }()
	exercise(t, "http://"+address, shown, ended)
	cancel()
	<-ended
	audit, err := os.ReadFile(filepath.Join(dir, "audit.jsonl"))
	if err != nil || len(audit) == 0 {
		t.Errorf("the audit log has %d bytes, %v", len(audit), err)
	}
	_, _ = shown.Write(audit)
	for line := range strings.Lines(shown.String()) {
		if at := strings.Index(line, marker); at >= 0 {
			t.Errorf("a secret is shown: …%.300s", line[max(0, at-150):])
		}
	}
}

// exercise calls everything that the daemon answers, once each pipeline has been tried.
func exercise(t *testing.T, base string, shown *printed, ended <-chan int) {
	t.Helper()
	call := func(method, path, token, body string) int {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, method, base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0
		}
		defer func() { _ = resp.Body.Close() }()
		answer, _ := io.ReadAll(resp.Body) // a stream ends with the time for it
		_, _ = fmt.Fprintf(shown, "%s %s: %d %v\n%s\n", method, path, resp.StatusCode, resp.Header, answer)
		return resp.StatusCode
	}
	const owner = marker + "OfTheAPI0123456789"
	for call("GET", "/api/v1/pipelines", owner, "") != http.StatusOK {
		select {
		case code := <-ended:
			t.Fatalf("it ended with %d: %s", code, shown)
		case <-time.After(10 * time.Millisecond):
		}
	}
	for end := time.Now().Add(time.Minute); ; { // until each has failed
		call("GET", "/readyz?verbose", owner, "")
		told := shown.String()
		if strings.Contains(told, "[-] http\n") && strings.Contains(told, "[-] kafka\n") && strings.Contains(told, "[-] postgres\n") && strings.Contains(told, "[-] invalid\n") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("not all have failed: %s", told[max(0, len(told)-3000):])
		}
		<-time.After(50 * time.Millisecond)
	}
	for _, path := range []string{"/metrics", "/readyz?verbose", "/openapi.json", "/api/v1/daemon", "/api/v1/events", "/api/v1/logs", "/api/v1/logs?level=debug", "/nothing", "/debug/pprof/cmdline"} {
		call("GET", path, owner, "")
	}
	for _, path := range []string{"/metrics", "/api/v1/logs"} { // fewer than make an address wait
		call("GET", path, marker+"WrongToken012345", "")
	}
	for name, text := range secretive {
		one := "/api/v1/pipelines/" + name
		for _, path := range []string{"", "/definition", "/graph", "/flow", "/failures", "/checkpoints", "/checkpoints/1", "/savepoints", "/events", "/logs"} {
			if status := call("GET", one+path, owner, ""); status == http.StatusUnauthorized {
				t.Errorf("%s%s: %d", one, path, status)
			}
		}
		body := fmt.Sprintf(`{"definition": %q}`, text)
		call("POST", "/api/v1/validate", owner, body)
		call("POST", "/api/v1/plan", owner, body)
		call("PUT", one, owner, body)
		call("POST", one+"/checkpoints", owner, "")
		call("POST", one+"/restart", marker+"Plain0123456789", "")
		call("POST", one+"/start", owner, `{"from": "s3://u:markerOfSecretsKey@bucket/x"}`)
	}
	call("GET", "/api/v1/stream?pipeline=kafka", owner, "")
	call("POST", "/api/v1/reload", owner, "")
	call("GET", "/api/v1/events", owner, "")
	call("GET", "/api/v1/logs?level=debug", owner, "")
}
