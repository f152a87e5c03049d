package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// Metrics gathers what running pipelines are at, for Prometheus. It implements
// prometheus.Collector and is safe for concurrent use.
type Metrics struct {
	now       func() time.Time
	program   func() Program
	pipelines func() []Watched
}

// Watched is a pipeline that metrics tell of.
type Watched struct {
	Name    string
	Control *pipeline.Control // nil where it has never run
	Ready   *bool             // whether it is well; nil where nobody judges that
}

// Program is what metrics tell of the program as a whole.
type Program struct {
	Version string
	// Reloaded is whether the newest reload of the folder of pipelines worked; nil before one.
	Reloaded *bool
	// MemoryBudget is what memory sets, and MemoryUsed what is taken of it, in bytes; a
	// budget of 0 is not shown.
	MemoryBudget, MemoryUsed int64
	// Reloads count changed files by what came of them, such as switched.
	Reloads map[string]uint64
}

// NewMetrics makes Metrics that ask at each scrape for the program and for the pipelines
// that there are then, each name once.
func NewMetrics(program func() Program, pipelines func() []Watched) *Metrics {
	return &Metrics{now: time.Now, program: program, pipelines: pipelines}
}

// metric describes one metric.
type metric struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	name   string
	help   string
	labels []string
}

func newMetric(kind prometheus.ValueType, name, help string, labels []string) *metric {
	name = "etl_" + name
	return &metric{desc: prometheus.NewDesc(name, help, labels, nil), kind: kind, name: name, help: help, labels: labels}
}

// counter and gauge describe a metric whose first label is the pipeline.
func counter(name, help string, labels ...string) *metric {
	return newMetric(prometheus.CounterValue, name, help, append([]string{"pipeline"}, labels...))
}

func gauge(name, help string, labels ...string) *metric {
	return newMetric(prometheus.GaugeValue, name, help, append([]string{"pipeline"}, labels...))
}

// metrics lists all that there are.
func metrics() []*metric {
	return slices.Concat(processMetrics, pipelineMetrics, operatorMetrics, taskMetrics, splitMetrics, stepMetrics, sinkMetrics, checkpointMetrics)
}

// Those of the program as a whole.
var (
	metricBuildInfo    = newMetric(prometheus.GaugeValue, "build_info", "The version of the program; the value is 1.", []string{"version", "go_version"})
	metricReloaded     = newMetric(prometheus.GaugeValue, "last_reload_success", "1 where the newest reload of the folder of pipelines worked.", nil)
	metricMemoryBudget = newMetric(prometheus.GaugeValue, "memory_budget_bytes", "What fetch buffers, queues, sinks and caches may take together (memory).", nil)
	metricMemoryUsed   = newMetric(prometheus.GaugeValue, "memory_used_bytes", "What is taken of that budget: what state in memory holds, and the half that buffers are given.", nil)

	metricReloads = newMetric(prometheus.CounterValue, "reloads_total", "Changed files of pipelines by what came of them: switched (the new definition runs), refused (not taken over), rolled_back (it did not come to run) and invalid.", []string{"result"})

	processMetrics = []*metric{metricBuildInfo, metricReloaded, metricReloads, metricMemoryBudget, metricMemoryUsed}
)

// Those of a pipeline as a whole. What is counted begins anew at a restart of the pipeline.
var (
	metricRunning      = gauge("pipeline_running", "1 while records flow, 0 while the pipeline starts, restarts, ends or has ended.")
	metricReady        = gauge("pipeline_ready", "1 where the pipeline makes progress or has nothing to do, as /readyz judges.")
	metricRestarts     = counter("restarts_total", "Restarts of the pipeline in the process.")
	metricRead         = counter("records_read_total", "Records that sources gave.")
	metricReadBytes    = counter("bytes_read_total", "Bytes of the values of records that sources gave.")
	metricWritten      = counter("records_written_total", "Records that sinks took.")
	metricFiltered     = counter("records_filtered_total", "Records that steps left out as they should.")
	metricSkipped      = counter("records_skipped_total", "Records left out by on_error: skip.")
	metricDead         = counter("records_dead_lettered_total", "Records sent to a sink of dead letters.")
	metricLost         = counter("commits_lost_total", "Commits that were lost and given up by on_lost_commit: accept_loss.")
	metricLostRecords  = counter("records_lost_total", "Records in lost commits, where that is known.")
	metricSourceEvents = counter("source_events_total", "What a source counts of its own: new, gone and recreated topics, missing offsets.", "source", "event")

	pipelineMetrics = []*metric{metricRunning, metricReady, metricRestarts, metricRead, metricReadBytes, metricWritten, metricFiltered, metricSkipped, metricDead, metricLost, metricLostRecords, metricSourceEvents}
)

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range metrics() {
		out <- d.desc
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	p, s := m.program(), sender{out: out}
	s.send(metricBuildInfo, 1, p.Version, runtime.Version())
	if p.Reloaded != nil {
		s.send(metricReloaded, truth(*p.Reloaded))
	}
	for result, n := range p.Reloads {
		s.send(metricReloads, float64(n), result)
	}
	if p.MemoryBudget > 0 {
		s.send(metricMemoryBudget, float64(p.MemoryBudget))
		s.send(metricMemoryUsed, float64(p.MemoryUsed))
	}
	for _, w := range m.pipelines() {
		s := sender{out: out, first: []string{w.Name}}
		if w.Ready != nil {
			s.send(metricReady, truth(*w.Ready))
		}
		if w.Control == nil {
			s.send(metricRunning, 0)
			continue
		}
		s.pipeline(w.Control)
		s.flow(w.Control, m.now())
		s.checkpoints(w.Control)
	}
}

// sender hands values over.
type sender struct {
	out   chan<- prometheus.Metric
	first []string // values of the first labels
}

func (s sender) send(m *metric, v float64, labels ...string) {
	values := slices.Concat(s.first, labels)
	for i := range values {
		values[i] = strings.ToValidUTF8(values[i], "\uFFFD") // a file's path can be anything
	}
	s.out <- prometheus.MustNewConstMetric(m.desc, m.kind, v, values...)
}

// pipeline tells of a pipeline as a whole.
func (s sender) pipeline(c *pipeline.Control) {
	p, status := c.Progress(), c.Status()
	s.send(metricRunning, truth(status.Phase == pipeline.Running))
	s.send(metricRestarts, float64(status.Restarts))
	s.send(metricRead, float64(p.Counts.Read))
	s.send(metricReadBytes, float64(p.Counts.Bytes))
	s.send(metricWritten, float64(p.Counts.Written))
	s.send(metricFiltered, float64(p.Counts.Filtered))
	s.send(metricSkipped, float64(p.Counts.Skipped))
	s.send(metricDead, float64(p.Counts.Dead))
	s.send(metricLost, float64(p.Counts.LostCommits))
	s.send(metricLostRecords, float64(p.Counts.LostRecords))
	for source, counts := range p.Sources {
		for event, n := range counts {
			s.send(metricSourceEvents, float64(n), source, event)
		}
	}
}

// timed reports whether there is an event time to show: not before the first
// record, and not behind the last one.
func timed(ms int64) bool { return ms != state.MinTime && ms != state.MaxTime }

func seconds(ms int64) float64 { return float64(ms) / 1000 }

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Handler answers with the metrics, and those of the Go runtime and the process.
func (m *Metrics) Handler() (http.Handler, error) {
	registry := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{m, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), nil
}

// Serve answers /metrics on an address until ctx ends. It returns once the address
// is taken, which bound names with its port; wait waits for the end.
func (m *Metrics) Serve(ctx context.Context, address string) (bound string, wait func() error, err error) {
	handler, err := m.Handler()
	if err != nil {
		return "", nil, err
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return "", nil, fmt.Errorf("serve metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", handler)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	done := make(chan error, 1)
	go func() { done <- server.Serve(ln) }()
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	return ln.Addr().String(), func() error {
		err := <-done
		stop()
		if errors.Is(err, http.ErrServerClosed) {
			return nil
		}
		return fmt.Errorf("serve metrics: %w", err)
	}, nil
}
