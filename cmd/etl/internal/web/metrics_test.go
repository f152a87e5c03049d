package web

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	_ "github.com/sluice-etl/sluice/connectors/all"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/spec"
	_ "github.com/sluice-etl/sluice/storage/all"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMetricsShowEventTimeOfSplitsAndSteps(t *testing.T) {
	p, faults := spec.Parse("p.yaml", []byte(`
pipeline: clicks
parallelism: 2
source:
  generate: {kind: bid, rate: 200}
  timestamp: date_time
  watermark: {delay: 10ms}
transforms:
  - name: per-bidder
    aggregate: {by: [bidder], window: {tumbling: 1h}, select: {n: count()}}
sink: {blackhole: {}}
`), spec.Options{})
	plan := pipeline.NewPlan(p)
	if faults.HasErrors() || p.Diagnostics().HasErrors() {
		t.Fatal(p.Diagnostics())
	}
	opts := pipeline.Options{Plan: plan, Log: slog.New(slog.DiscardHandler), Control: &pipeline.Control{}}
	m := watching(Watched{Name: "clicks", Control: opts.Control})
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() {
		_, err := pipeline.Run(ctx, opts)
		ran <- err
	}()
	address, wait, err := m.Serve(ctx, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`etl_split_watermark_seconds{pipeline="clicks",source="source",split=`,
		`etl_step_watermark_seconds{pipeline="clicks",step="per-bidder",subtask="1"}`,
		`etl_step_watermark_lag_seconds{pipeline="clicks",step="per-bidder",subtask="0"}`,
		`etl_split_idle{pipeline="clicks",`,
		`etl_state_entries{pipeline="clicks",step="per-bidder",subtask="0"}`,
		`etl_records_read_total{pipeline="clicks"}`,
		`etl_completed_checkpoints_total{pipeline="clicks"} 1`,
		`etl_checkpoints_total{pipeline="clicks"} 1`,
		`etl_failed_checkpoints_total{pipeline="clicks"} 0`,
		`etl_in_progress_checkpoints{pipeline="clicks"} 0`,
		`etl_last_completed_checkpoint_id{pipeline="clicks"} 1`,
		`etl_last_checkpoint_external_path{path="mem://clicks-unstored-`,
		`etl_last_checkpoint_duration_seconds{pipeline="clicks"}`,
		`etl_last_checkpoint_completed_timestamp_seconds{pipeline="clicks"}`,
		`etl_last_checkpoint_size_bytes{pipeline="clicks"}`,
		`etl_last_checkpoint_full_size_bytes{pipeline="clicks"}`,
		`etl_checkpoint_alignment_seconds{pipeline="clicks",subtask="1",task=`,
		`etl_checkpoint_start_delay_seconds{pipeline="clicks",subtask="0",task=`,
		`etl_restarts_total{pipeline="clicks"} 0`,
		`etl_build_info{go_version="go`, `version="1.2.3"} 1`,
		`etl_pipeline_running{pipeline="clicks"} 1`,
		`etl_operator_records_in_total{operator="per-bidder",pipeline="clicks"}`,
		`etl_operator_records_out_total{operator="source",pipeline="clicks"}`,
		`etl_operator_bytes_in_total{operator="source",pipeline="clicks"}`,
		`etl_operator_records_dropped_total{operator="per-bidder",pipeline="clicks"} 0`,
		`etl_task_busy_ratio{pipeline="clicks",subtask="1",task="per-bidder"}`,
		`etl_task_backpressured_ratio{pipeline="clicks",subtask="0",task="source"}`,
		`etl_task_idle_ratio{pipeline="clicks",subtask="0",task="source"}`,
		`etl_task_queued_bytes{pipeline="clicks",subtask="0",task="per-bidder"}`,
		`etl_sink_commits_total{pipeline="clicks",sink="sink"}`,
		`etl_sink_pending{pipeline="clicks",sink="sink"} 0`,
		`etl_sink_oldest_pending_seconds{pipeline="clicks",sink="sink"} 0`,
		`etl_checkpoint_interval_seconds{pipeline="clicks"} 60`,
		`etl_failed_checkpoints_in_row{pipeline="clicks"} 0`,
		`process_resident_memory_bytes `,
	}
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(time.Minute)
	for missing := want; len(missing) > 0; {
		select {
		case <-ticker.C:
		case err := <-ran:
			t.Fatalf("the pipeline ended: %v", err)
		case <-deadline:
			t.Fatalf("the metrics lack %q", missing)
		}
		text := get(t, "http://"+address+"/metrics")
		missing = nil
		for _, w := range want {
			if !strings.Contains(text, w) {
				missing = append(missing, w)
			}
		}
	}
	cancel()
	if err := wait(); err != nil {
		t.Error(err)
	}
	<-ran
}

// watching makes Metrics of pipelines.
func watching(w ...Watched) *Metrics {
	return NewMetrics(func() Program { return Program{Version: "1.2.3"} }, func() []Watched { return w })
}

func get(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, resp.Status, err)
	}
	return string(text)
}

func TestMetricsAreOfThePipelinesThatThereAreAtTheScrape(t *testing.T) {
	var there []Watched
	well, worked := false, true
	m := NewMetrics(
		func() Program {
			return Program{Version: "1.2.3", Reloaded: &worked, MemoryBudget: 100, MemoryUsed: 7, Reloads: map[string]uint64{"refused": 2}}
		},
		func() []Watched { return there })
	h, err := m.Handler()
	if err != nil {
		t.Fatal(err)
	}
	scrape := func() string {
		r := httptest.NewRecorder()
		h.ServeHTTP(r, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
		if r.Code != http.StatusOK {
			t.Fatalf("a scrape is answered by %d: %s", r.Code, r.Body)
		}
		return r.Body.String()
	}
	text := scrape()
	for _, want := range []string{"etl_last_reload_success 1", "etl_memory_budget_bytes 100", "etl_memory_used_bytes 7", `etl_reloads_total{result="refused"} 2`} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %s", want)
		}
	}
	if strings.Contains(text, "pipeline=") {
		t.Errorf("there is no pipeline, and metrics are\n%s", text)
	}
	there = []Watched{{Name: "never-ran", Ready: &well}, {Name: "waits", Control: &pipeline.Control{}}}
	text = scrape()
	for _, want := range []string{`etl_pipeline_ready{pipeline="never-ran"} 0`, `etl_pipeline_running{pipeline="never-ran"} 0`, `etl_pipeline_running{pipeline="waits"} 0`} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %s", want)
		}
	}
	there = there[1:]
	if text = scrape(); strings.Contains(text, "never-ran") || !strings.Contains(text, "waits") {
		t.Errorf("one pipeline was removed, and metrics are\n%s", text)
	}
}

func TestAnAddressThatIsTakenIsAnError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	m := watching()
	address, wait, err := m.Serve(ctx, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := watching().Serve(ctx, address); err == nil {
		t.Error("two servers have one address")
	}
	cancel()
	if err := wait(); err != nil {
		t.Error(err)
	}
}
