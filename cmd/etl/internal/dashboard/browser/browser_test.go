//go:build integration

package browser

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	root      = "../../../../.."
	broker    = "127.0.0.1:19792"
	topic     = "browser-orders"
	results   = "browser-results"
	partCount = 3
)

// kafka runs the script for the broker, which the test kills.
func kafka(args ...string) error {
	cmd := exec.Command(filepath.Join(root, "deploy/services/kafka.sh"), args...)
	cmd.Env = append(os.Environ(), "SERVICES_INSTANCE=browser", "KAFKA_PORT=19792", "KAFKA_HEAP=512m", "NODES=1", "KAFKA_SECURE=0", "KAFKA_EXTRA=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kafka.sh %v: %w\n%s", args, err, out)
	}
	return nil
}

// run runs a command and fails the test where that does not work.
func run(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

func TestDashboardInABrowser(t *testing.T) {
	chromium := os.Getenv("CHROMIUM")
	if chromium == "" {
		t.Fatal("CHROMIUM is not set: run this by deploy/services/with.sh chromium -- go test, or make integration")
	}
	run(t, ".", "npm", "ci", "--no-audit", "--no-fund")
	run(t, root, "make", "dashboard")
	w := newWorld(t)
	control := httptest.NewServer(w)
	defer control.Close()
	definition, err := os.ReadFile(w.template)
	if err != nil {
		t.Fatal(err)
	}
	shots, err := filepath.Abs("screenshots")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", "--test", "--test-reporter=spec", "drive.test.mjs")
	cmd.Env = append(os.Environ(), "ETL_URL="+w.url, "ETL_CONTROL="+control.URL, "ETL_DEFINITION="+string(definition), "ETL_TOPIC="+topic, "ETL_SCREENSHOTS="+shots, "CHROMIUM="+chromium)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("the tests in the browser failed: %v\n%s", err, w.tail())
	}
}

// world is the daemon and the broker, and what happens to them.
type world struct {
	t        *testing.T
	etl      string // the program
	dir      string
	url      string
	template string // file of the definition that the tests create
	client   *kgo.Client
	log      *os.File

	mu     sync.Mutex
	daemon *exec.Cmd
	broken []byte // what a file had before it was broken
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir()}
	w.etl = filepath.Join(w.dir, "etl")
	run(t, root, "go", "build", "-buildvcs=false", "-o", w.etl, "./cmd/etl")
	_ = kafka("clean") // of a run that was killed
	if err := kafka("start"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kafka("clean") })
	w.makeTopics()
	w.write("etl.yaml", fmt.Sprintf("http: {listen: [%q], roots: [%q]}\nruntime_dir: %s/run\nstate_dir: %s/state\n", w.freeAddress(), "file://"+w.dir, w.dir, w.dir))
	w.template = w.write("orders.template", fmt.Sprintf(`pipeline: orders
sources:
  in:
    kafka: {brokers: [%[1]q], topics: [%[2]s]}
    timestamp: at
transforms:
  - name: priced
    filter: price > 1
  - name: per-item
    aggregate: {by: [item], window: {tumbling: 1s}, select: {n: count(), total: sum(price)}}
sinks:
  out:
    kafka: {brokers: [%[1]q], topic: %[3]s}
checkpoint: {storage: "file://%[4]s/checkpoints", interval: 2s, savepoints: "file://%[4]s/savepoints"}
`, broker, topic, results, w.dir))
	if err := os.Mkdir(filepath.Join(w.dir, "pipelines"), 0o700); err != nil {
		t.Fatal(err)
	}
	var err error
	if w.log, err = os.Create(filepath.Join(w.dir, "etl.log")); err != nil {
		t.Fatal(err)
	}
	if err := w.serve(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.kill() })
	go w.produce()
	return w
}

func (w *world) write(name, text string) string {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// freeAddress is one of this machine that nobody listens on, and that stays the
// daemon's when it is started again.
func (w *world) freeAddress() string {
	w.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	w.url = "http://" + ln.Addr().String()
	return ln.Addr().String()
}

func (w *world) makeTopics() {
	w.t.Helper()
	var err error
	w.client, err = kgo.NewClient(kgo.SeedBrokers(broker), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(w.client.Close)
	made, err := kadm.NewClient(w.client).CreateTopics(w.t.Context(), partCount, 1, nil, topic, results)
	if err == nil {
		err = made.Error()
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// produce writes orders until the test ends. While the broker is down the client waits.
func (w *world) produce() {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for i := 0; ; i++ {
		select {
		case <-w.t.Context().Done():
			return
		case <-ticker.C:
		}
		value := fmt.Sprintf(`{"id": %d, "item": "item-%d", "price": %d, "at": %q}`, i, i%7, i%90, time.Now().UTC().Format(time.RFC3339Nano))
		w.client.TryProduce(w.t.Context(), &kgo.Record{Topic: topic, Partition: int32(i % partCount), Key: fmt.Appendf(nil, "%d", i), Value: []byte(value)}, nil)
	}
}

// serve starts the daemon and returns when it answers.
func (w *world) serve() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.daemon = exec.Command(w.etl, "--config", filepath.Join(w.dir, "etl.yaml"), "serve", filepath.Join(w.dir, "pipelines"))
	w.daemon.Stdout, w.daemon.Stderr = w.log, w.log
	if err := w.daemon.Start(); err != nil {
		return err
	}
	var last error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		resp, err := http.Get(w.url + "/livez")
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			err = fmt.Errorf("/livez answers %s", resp.Status)
		}
		last = err
		<-time.After(50 * time.Millisecond)
	}
	return fmt.Errorf("the daemon does not come up: %w\n%s", last, w.tail())
}

// kill ends the daemon as a crash does.
func (w *world) kill() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.daemon == nil {
		return nil
	}
	err := w.daemon.Process.Kill()
	_ = w.daemon.Wait()
	w.daemon = nil
	return err
}

// tail is the end of the daemon's log.
func (w *world) tail() string {
	text, err := os.ReadFile(w.log.Name())
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-20_000):])
}

// ServeHTTP does what the tests in the browser ask for.
func (w *world) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	var answer any
	var err error
	switch strings.TrimPrefix(r.URL.Path, "/") {
	case "poison":
		answer, err = w.poison()
	case "halt", "start":
		err = kafka(map[string][]string{"/halt": {"halt", "1"}, "/start": {"restart", "1"}}[r.URL.Path]...)
	case "break-file":
		err = w.breakFile()
	case "mend-file":
		err = replace(w.file(), w.broken)
	case "kill-daemon":
		err = w.kill()
	case "start-daemon":
		err = w.serve()
	default:
		err = fmt.Errorf("there is nothing called %s", r.URL.Path)
	}
	if err != nil {
		http.Error(out, err.Error(), http.StatusInternalServerError)
		return
	}
	if answer != nil {
		_ = json.NewEncoder(out).Encode(answer)
	}
}

// poison writes a record that is no JSON.
func (w *world) poison() (any, error) {
	r, err := w.client.ProduceSync(w.t.Context(), &kgo.Record{Topic: topic, Partition: 1, Value: []byte(`{"price": `)}).First()
	if err != nil {
		return nil, err
	}
	return struct {
		Partition int32 `json:"partition"`
		Offset    int64 `json:"offset"`
	}{r.Partition, r.Offset}, nil
}

// file is the one that the daemon keeps the pipeline in.
func (w *world) file() string { return filepath.Join(w.dir, "pipelines", "orders.yaml") }

// breakFile gives the pipeline's file a fault, as an editor does that saves half of a thought.
func (w *world) breakFile() error {
	text, err := os.ReadFile(w.file())
	if err != nil {
		return err
	}
	w.broken = text
	return replace(w.file(), bytes.Replace(text, []byte("aggregate:"), []byte("aggregates:"), 1))
}

// replace changes a file by a rename, as editors do.
func replace(path string, text []byte) error {
	next := filepath.Join(filepath.Dir(path), ".next")
	if err := os.WriteFile(next, text, 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}
