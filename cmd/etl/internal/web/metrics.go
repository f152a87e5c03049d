package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// Metrics gathers what running pipelines are at, for Prometheus. It implements
// prometheus.Collector.
type Metrics struct {
	now       func() time.Time
	pipelines []watched
}

type watched struct {
	name    string
	control *pipeline.Control
}

// NewMetrics makes Metrics of no pipeline.
func NewMetrics() *Metrics { return &Metrics{now: time.Now} }

// Watch adds a pipeline, before Serve.
func (m *Metrics) Watch(name string, control *pipeline.Control) {
	m.pipelines = append(m.pipelines, watched{name, control})
}

// desc describes a metric whose first label is the pipeline.
func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("etl_"+name, help, append([]string{"pipeline"}, labels...), nil)
}

// What is counted begins anew at a restart of the pipeline.
var (
	descRead     = desc("records_read_total", "Records that sources gave.")
	descBytes    = desc("bytes_read_total", "Bytes of the values of records that sources gave.")
	descWritten  = desc("records_written_total", "Records that sinks took.")
	descFiltered = desc("records_filtered_total", "Records that steps left out as they should.")
	descSkipped  = desc("records_skipped_total", "Records left out by on_error: skip.")
	descDead     = desc("records_dead_lettered_total", "Records sent to a sink of dead letters.")
	descLost     = desc("commits_lost_total", "Commits that were lost and given up by on_lost_commit: accept_loss.")
	descLostRecs = desc("records_lost_total", "Records in lost commits, where that is known.")
	descSource   = desc("source_events_total", "What a source counts of its own: new, gone and recreated topics, missing offsets.", "source", "event")
	descLate     = desc("records_late_total", "Records that came too late for a step, with nothing reading its branch of them.", "step", "subtask")

	descEventTime = desc("split_event_time_seconds", "Highest event time read from a split, in seconds since 1970.", "source", "split")
	descSplitMark = desc("split_watermark_seconds", "Watermark of a split, in seconds since 1970.", "source", "split")
	descPosition  = desc("split_position", "Position of the next record to read.", "source", "split")
	descLag       = desc("split_lag_records", "Records that a split has and that were not read yet, where its source knows.", "source", "split")
	descIdle      = desc("split_idle", "1 where a split does not hold event time back: it has nothing more to give for now.", "source", "split")
	descCaughtUp  = desc("split_caught_up", "1 where a split is read to its present end.", "source", "split")
	descPaused    = desc("split_paused", "1 where a split waits for others whose event time is behind (max_drift).", "source", "split")

	descStepMark   = desc("step_watermark_seconds", "How far event time has come for a keyed step, in seconds since 1970.", "step", "subtask")
	descStepLag    = desc("step_watermark_lag_seconds", "How far event time is behind the clock for a keyed step.", "step", "subtask")
	descStepIdle   = desc("step_idle", "1 where no source above a keyed step has more to give for now.", "step", "subtask")
	descStateKeys  = desc("state_entries", "Entries in the state of a keyed step; an estimate on disk.", "step", "subtask")
	descStateBytes = desc("state_memory_bytes", "Memory that the state of a keyed step takes.", "step", "subtask")
	descStateDisk  = desc("state_disk_bytes", "Disk space that the state of a keyed step takes.", "step", "subtask")
)

var descriptions = []*prometheus.Desc{
	descRead, descBytes, descWritten, descFiltered, descSkipped, descDead, descLost, descLostRecs, descSource, descLate,
	descEventTime, descSplitMark, descPosition, descLag, descIdle, descCaughtUp, descPaused,
	descStepMark, descStepLag, descStepIdle, descStateKeys, descStateBytes, descStateDisk,
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range slices.Concat(descriptions, checkpointDescriptions) {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	for _, w := range m.pipelines {
		p := w.control.Progress()
		count := func(d *prometheus.Desc, n int64) {
			out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), w.name)
		}
		count(descRead, p.Counts.Read)
		count(descBytes, p.Counts.Bytes)
		count(descWritten, p.Counts.Written)
		count(descFiltered, p.Counts.Filtered)
		count(descSkipped, p.Counts.Skipped)
		count(descDead, p.Counts.Dead)
		count(descLost, p.Counts.LostCommits)
		count(descLostRecs, p.Counts.LostRecords)
		for source, counts := range p.Sources {
			for event, n := range counts {
				out <- prometheus.MustNewConstMetric(descSource, prometheus.CounterValue, float64(n), w.name, source, event)
			}
		}
		for i := range p.Splits {
			collectSplit(out, w.name, &p.Splits[i])
		}
		for i := range p.Steps {
			m.collectStep(out, w.name, &p.Steps[i])
		}
		collectCheckpoints(out, w.name, w.control)
	}
}

func collectSplit(out chan<- prometheus.Metric, name string, s *pipeline.SplitProgress) {
	gauge := func(d *prometheus.Desc, v float64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, name, s.Source, s.Split)
	}
	if s.MaxTime != nil {
		gauge(descEventTime, seconds(*s.MaxTime))
	}
	if timed(s.Watermark) {
		gauge(descSplitMark, seconds(s.Watermark))
	}
	gauge(descPosition, float64(s.Next))
	if s.Behind >= 0 {
		gauge(descLag, float64(s.Behind))
	}
	gauge(descIdle, truth(s.Idle))
	gauge(descCaughtUp, truth(s.CaughtUp))
	gauge(descPaused, truth(s.Paused))
}

func (m *Metrics) collectStep(out chan<- prometheus.Metric, name string, s *pipeline.StepProgress) {
	subtask := strconv.Itoa(s.Subtask)
	gauge := func(d *prometheus.Desc, v float64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, name, s.Step, subtask)
	}
	out <- prometheus.MustNewConstMetric(descLate, prometheus.CounterValue, float64(s.Late), name, s.Step, subtask)
	if timed(s.Watermark) {
		gauge(descStepMark, seconds(s.Watermark))
		gauge(descStepLag, float64(m.now().UnixMilli())/1000-seconds(s.Watermark))
	}
	gauge(descStepIdle, truth(s.Idle))
	gauge(descStateKeys, float64(s.State.Keys))
	gauge(descStateBytes, float64(s.State.Memory))
	gauge(descStateDisk, float64(s.State.Disk))
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

// Serve answers /metrics on an address until ctx ends. It returns once the address
// is taken, which bound names with its port; wait waits for the end.
func (m *Metrics) Serve(ctx context.Context, address string) (bound string, wait func() error, err error) {
	registry := prometheus.NewRegistry()
	if err := registry.Register(m); err != nil {
		return "", nil, fmt.Errorf("register metrics: %w", err)
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return "", nil, fmt.Errorf("serve metrics: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
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
