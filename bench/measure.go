package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// measurement is one line of the report.
type measurement struct {
	name string
	bare bool
	args []string // of a bare loop
	base string   // the measurement that the cost is compared to
	goal float64  // the ratio to stay below; 0 for none
	// out tells that it writes a topic, filters that it lets only some bids through,
	// folds that what it writes is made of many bids.
	out, filters, folds bool
	made                int64 // records that the pipeline makes itself, in place of reading bids
	peak                int64 // the most memory that the process may hold, in MiB; 0 for any
}

// What the filtering workload adds to a bid, on average.
const addedBytes = "42"

var measurements = []measurement{
	{name: "bare-read", bare: true},
	{name: "bare-copy", bare: true, out: true},
	{name: "bare-copy-7-of-10", bare: true, out: true, args: []string{"-tenths", "7", "-extra", addedBytes}},
	{name: "passthrough-blackhole", base: "bare-read", goal: 1.1},
	{name: "filter-set-blackhole", base: "bare-read", goal: 1.8, filters: true},
	{name: "tumbling-memory", base: "bare-read", goal: 2.5, folds: true},
	{name: "tumbling-disk", base: "bare-read", folds: true},
	{name: "sliding-memory", base: "tumbling-memory", goal: 2, folds: true},
	{name: "keys-memory", folds: true, made: 10_000_000, peak: 1200},
	{name: "keys-disk", folds: true, made: 10_000_000, peak: 512},
	{name: "passthrough-file", base: "bare-read", goal: 2.0},
	{name: "filter-set-file", base: "bare-read", goal: 2.0, filters: true},
	{name: "passthrough-kafka", base: "bare-copy", goal: 1.2, out: true},
	{name: "filter-set-kafka", base: "bare-copy-7-of-10", goal: 1.2, out: true, filters: true},
}

// summary is what a bounded run and a bare loop print about themselves.
type summary struct {
	Read        int64   `json:"read"`
	Written     int64   `json:"written"`
	Skipped     int64   `json:"skipped"`
	DeadLetters int64   `json:"dead_letters"`
	Seconds     float64 `json:"seconds"`
	Mallocs     uint64  `json:"mallocs"`
	PeakRSS     int64   `json:"peak_rss_bytes"`
	// Before is the processor time that a bare loop took to start and to make its records.
	Before time.Duration `json:"before_ns"`
}

// result is a summary with the processor time that the system charged to the
// process, user and system, from its start to its end; of a bare loop that has to make
// its records, from then on.
type result struct {
	summary
	CPU time.Duration
}

func (r result) nanos() float64  { return float64(r.CPU) / float64(max(r.Read, 1)) }
func (r result) rate() float64   { return float64(r.Read) / max(r.Seconds, 1e-9) }
func (r result) allocs() float64 { return float64(r.Mallocs) / float64(max(r.Read, 1)) }

// environment is what one measurement runs in: nothing of an earlier one is left.
type environment struct {
	options
	broker *broker
	input  input
	dir    string
}

func (e environment) measure(ctx context.Context, m measurement) (result, error) {
	id := strconv.FormatInt(time.Now().UnixNano(), 36)
	out := "bench-out-" + id
	if m.out {
		if err := e.broker.createTopic(ctx, out); err != nil {
			return result{}, err
		}
		defer func() { _ = e.broker.deleteTopic(context.WithoutCancel(ctx), out) }()
	}
	if err := os.MkdirAll(e.dir, 0o755); err != nil {
		return result{}, err
	}
	defer func() { _ = os.RemoveAll(e.dir) }()

	r, err := e.command(ctx, m, id, out)
	if err != nil {
		return r, err
	}
	count := e.input.count
	if m.made > 0 {
		count = m.made
	}
	if r.Read != count {
		return r, fmt.Errorf("it read %d of %d records", r.Read, count)
	}
	want := count
	if m.filters {
		want = e.input.passed
	}
	if m.folds {
		want = r.Written
	}
	if !m.bare && (r.Written != want || r.Skipped+r.DeadLetters > 0) {
		return r, fmt.Errorf("it wrote %d records and skipped %d, where %d should be written", r.Written, r.Skipped+r.DeadLetters, want)
	}
	return r, nil
}

// command runs the pipeline or the bare loop.
func (e environment) command(ctx context.Context, m measurement, id, out string) (result, error) {
	var cmd *exec.Cmd
	if m.bare {
		self, err := os.Executable()
		if err != nil {
			return result{}, err
		}
		args := append([]string{bareCommand, "-brokers", e.brokers[0], "-from", e.input.topic}, m.args...)
		if m.out {
			args = append(args, "-to", out)
		}
		cmd = exec.CommandContext(ctx, self, args...)
	} else {
		cmd = exec.CommandContext(ctx, e.etl, "run", filepath.Join(e.workloads, m.name+".yaml"), "--json")
		cmd.Env = append(os.Environ(), "KAFKA_BROKERS="+e.brokers[0], "BENCH_RUN="+id,
			"BENCH_TOPIC="+e.input.topic, "BENCH_OUT="+out, "BENCH_DIR="+e.dir)
	}
	return timed(cmd)
}

// timed runs a process that prints a summary, and takes its time.
func timed(cmd *exec.Cmd) (result, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return result{}, fmt.Errorf("%w: %s", err, lastLines(stderr.Bytes()))
	}
	s, err := parseSummary(stdout.Bytes())
	if err != nil {
		return result{}, err
	}
	return result{summary: s, CPU: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime() - s.Before}, nil
}

// parseSummary finds the last JSON object of what a process printed.
func parseSummary(stdout []byte) (summary, error) {
	var s summary
	found := false
	for d := json.NewDecoder(bytes.NewReader(stdout)); ; {
		var next summary
		err := d.Decode(&next)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return s, fmt.Errorf("read the summary: %w", err)
		}
		s, found = next, true
	}
	if !found {
		return s, errors.New("it printed no summary")
	}
	return s, nil
}

func lastLines(text []byte) []byte {
	const keep = 2000
	return bytes.TrimSpace(text[max(0, len(text)-keep):])
}
