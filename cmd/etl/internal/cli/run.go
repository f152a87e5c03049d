package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-etl/sluice/pipeline"
)

// runFlags are the flags of run.
type runFlags struct {
	from             string
	set              []string
	acceptDuplicates bool
	allowNonRestored bool
	allowDrained     bool
	claim            bool
	setOffsets       []string
	skip             []string
	metrics          string // address to show them on
}

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run FILE...",
		Short: "Runs pipelines in the foreground",
		Long: `Runs pipelines in the foreground. A pipeline goes on from the newest checkpoint of its last run;
a bounded one ends by itself. SIGTERM or SIGINT takes a last checkpoint and ends; a second one ends at once. Meanwhile
etl savepoint, stop, cancel and checkpoint trigger reach it by its name.

Exit codes: 0 done, 1 failed, 2 invalid file or wrong use, 3 somebody has to act, 4 a newer process has taken over.`,
		Example: `  etl run pipelines/orders.yaml
  etl run orders.yaml --set sink.kafka.topic=orders-test
  etl run orders.yaml -s file:///var/lib/etl/orders/4f1c…/chk-860
  etl run orders.yaml --set-offsets orders/0=1200 --set-offsets orders/1=latest
  etl run orders.yaml --skip orders/0@1200`,
		Args: wantFiles,
		RunE: func(c *cobra.Command, files []string) error {
			if c.Flags().Changed("from") && f.from == "" {
				return usageError(errors.New("-s is empty: name a checkpoint or none, or leave it out"))
			}
			return a.runPipelines(c.Context(), files, f)
		},
	}
	fl := c.Flags()
	fl.StringVarP(&f.from, "from", "s", "", "checkpoint to restore: a path, or none for a fresh start")
	fl.StringArrayVar(&f.set, "set", nil, "override a key of the file, as in --set sink.kafka.topic=test")
	fl.BoolVar(&f.acceptDuplicates, "accept-duplicates", false, "go on from a checkpoint older than what a sink has published")
	fl.BoolVar(&f.claim, "claim", false, "make what -s names the new job's own, which removes it when it is not needed any more")
	fl.BoolVar(&f.allowNonRestored, "allow-non-restored-state", false, "drop state that the file has nothing for")
	fl.BoolVar(&f.allowDrained, "allow-drained", false, "go on from a checkpoint taken at the end of the input")
	fl.StringArrayVar(&f.setOffsets, "set-offsets", nil, "move a position on purpose, state kept: topic/partition=N, or earliest or latest in the place of N; give it for one start only")
	fl.StringArrayVar(&f.skip, "skip", nil, "leave one record out when its turn comes: topic/partition@offset")
	fl.StringVar(&f.metrics, "metrics", "", "address to show Prometheus metrics on, at /metrics, such as 127.0.0.1:9464")
	fl.String("memory", "", "what a pipeline may hold in buffers, such as 512MiB")
	return c
}

// runPipelines runs all files at once; one that fails does not touch the others.
func (a *app) runPipelines(ctx context.Context, files []string, f runFlags) error {
	if f.from != "" && f.from != "none" && len(files) > 1 {
		return usageError(errors.New("a checkpoint belongs to one pipeline: run the others without -s"))
	}
	if len(f.setOffsets)+len(f.skip) > 0 && len(files) > 1 {
		return usageError(errors.New("positions belong to one pipeline: run the others without --set-offsets and --skip"))
	}
	offsets, skip, err := f.moves()
	if err != nil {
		return usageError(err)
	}
	stop, release := stopSignals(a.log)
	defer release()
	plans := make([]*pipeline.Plan, len(files))
	names := map[string]string{}
	var invalid error
	for i, file := range files {
		plan, err := a.load(file, f.set)
		if err != nil {
			invalid = err
			continue
		}
		if other, taken := names[plan.Spec.Name]; taken {
			return usageError(fmt.Errorf("%s and %s are both pipeline %s", other, file, plan.Spec.Name))
		}
		names[plan.Spec.Name], plans[i] = file, plan
	}
	if invalid != nil {
		return invalid
	}
	controls := make([]*pipeline.Control, len(plans))
	for i := range controls {
		controls[i] = &pipeline.Control{}
	}
	endMetrics, err := a.serveMetrics(ctx, f.metrics, plans, controls)
	if err != nil {
		return err
	}
	defer endMetrics()
	endControl, err := a.serveControl(ctx, plans, controls)
	if err != nil {
		return err
	}
	defer endControl()
	debug.SetMemoryLimit(a.settings.Memory*int64(len(files)) + runtimeReserve)
	results := make([]result, len(plans))
	var wg sync.WaitGroup
	for i, plan := range plans {
		wg.Go(func() {
			results[i] = a.runOne(ctx, f, stop, pipeline.Options{Plan: plan, Control: controls[i], SetOffsets: offsets, Skip: skip})
		})
	}
	wg.Wait()
	return a.report(results)
}

// runtimeReserve is what a process needs besides its pipelines' buffers.
const runtimeReserve = 128 << 20

// result is how one pipeline ended, with what it cost. Costs are the process's.
type result struct {
	*pipeline.Summary
	err    error
	cpu    time.Duration
	allocs uint64
	rss    int64
}

func (a *app) runOne(ctx context.Context, f runFlags, stop <-chan struct{}, opts pipeline.Options) result {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began, _ := usage()
	opts.Log, opts.Memory, opts.Grace = a.log, a.settings.Memory, a.settings.ShutdownTimeout
	opts.Stop, opts.Failpoint = stop, failpoint()
	opts.From, opts.Claim, opts.AcceptDuplicates = f.from, f.claim, f.acceptDuplicates
	opts.AllowNonRestoredState, opts.AllowDrained = f.allowNonRestored, f.allowDrained
	s, err := pipeline.Run(ctx, opts)
	runtime.ReadMemStats(&after)
	ended, rss := usage()
	return result{Summary: s, err: err, cpu: ended - began, allocs: after.Mallocs - before.Mallocs, rss: rss}
}

// usage is the process's CPU time and its peak memory in bytes.
func usage() (cpu time.Duration, rss int64) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), u.Maxrss * 1024
}

// report prints what was done and returns the worst outcome.
func (a *app) report(results []result) error {
	worst := &codeError{shown: true}
	for _, r := range results {
		if code := exitOf(r.err); code > worst.code {
			worst.code, worst.err = code, r.err
		}
		if r.err != nil && !a.json {
			text := r.err.Error()
			if name := "pipeline " + r.Pipeline; !strings.HasPrefix(text, name) {
				text = name + ": " + text
			}
			_, _ = fmt.Fprintln(a.err, "error:", text)
		}
		if err := a.printResult(r); err != nil {
			return &codeError{code: max(worst.code, exitFailed), err: fmt.Errorf("print the summary: %w", err)}
		}
	}
	if worst.code == exitFine {
		return nil
	}
	return worst
}

func (a *app) printResult(r result) error {
	if a.json {
		return a.printJSON(r)
	}
	switch r.Outcome {
	case pipeline.AlreadyFinished:
		_, err := fmt.Fprintf(a.err, "%s: finished already, its input was read to the end by an earlier run; -s PATH of a checkpoint reads it again from there, --from none from the start\n", r.Pipeline)
		return err
	case pipeline.Failed:
		if r.Counts.Read == 0 {
			return nil
		}
	}
	// Not to standard output, which may be a sink's.
	w := tabwriter.NewWriter(a.err, 0, 0, 2, ' ', 0)
	rate := float64(r.Counts.Read) / max(r.Elapsed.Seconds(), 1e-9)
	_, _ = fmt.Fprintf(w, "%s\t%s\n", r.Pipeline, r.Outcome)
	if r.Ended != nil && r.Ended.Path != "" {
		_, _ = fmt.Fprintf(w, "  left\t%s\n", r.Ended.Path)
	}
	_, _ = fmt.Fprintf(w, "  read\t%d records, %.1f MB, %.0f records/s\n", r.Counts.Read, float64(r.Counts.Bytes)/1e6, rate)
	_, _ = fmt.Fprintf(w, "  written\t%d\n", r.Counts.Written)
	_, _ = fmt.Fprintf(w, "  filtered\t%d\n", r.Counts.Filtered)
	_, _ = fmt.Fprintf(w, "  late\t%d\n", r.Counts.Late)
	_, _ = fmt.Fprintf(w, "  skipped\t%d\n", r.Counts.Skipped)
	_, _ = fmt.Fprintf(w, "  dead letters\t%d\n", r.Counts.Dead)
	if r.Counts.LostCommits > 0 {
		_, _ = fmt.Fprintf(w, "  lost commits\t%d, with %d records that are known of\n", r.Counts.LostCommits, r.Counts.LostRecords)
	}
	for _, key := range sortedKeys(r.Failures) {
		_, _ = fmt.Fprintf(w, "    %s\t%d\n", key, r.Failures[key])
	}
	_, _ = fmt.Fprintf(w, "  checkpoints\t%d\n", r.Checkpoints)
	for _, m := range r.Moved {
		_, _ = fmt.Fprintf(w, "  moved\t%s from %d to %d\n", m.Split, m.Before, m.After)
	}
	if r.Restarts > 0 {
		_, _ = fmt.Fprintf(w, "  restarts\t%d\n", r.Restarts)
	}
	_, _ = fmt.Fprintf(w, "  took\t%s\n", r.Elapsed.Round(time.Millisecond))
	return w.Flush()
}

func (a *app) printJSON(r result) error {
	text := ""
	if r.err != nil {
		text = r.err.Error()
	}
	path := ""
	if r.Ended != nil {
		path = r.Ended.Path
	}
	return json.NewEncoder(a.out).Encode(struct {
		Pipeline    string           `json:"pipeline"`
		Job         string           `json:"job,omitempty"`
		Outcome     pipeline.Outcome `json:"outcome"`
		Path        string           `json:"path,omitempty"`
		Read        int64            `json:"read"`
		Bytes       int64            `json:"bytes"`
		Written     int64            `json:"written"`
		Filtered    int64            `json:"filtered"`
		Late        int64            `json:"late"`
		Skipped     int64            `json:"skipped"`
		DeadLetters int64            `json:"dead_letters"`
		LostCommits int64            `json:"lost_commits,omitempty"`
		LostRecords int64            `json:"lost_records,omitempty"`
		Errors      map[string]int64 `json:"errors,omitempty"`
		Checkpoints int64            `json:"checkpoints"`
		Moved       []pipeline.Moved `json:"moved,omitempty"`
		Restarts    int              `json:"restarts"`
		Seconds     float64          `json:"seconds"`
		CPUSeconds  float64          `json:"cpu_seconds"`
		Mallocs     uint64           `json:"mallocs"`
		PeakRSS     int64            `json:"peak_rss_bytes"`
		Error       string           `json:"error,omitempty"`
		ExitCode    int              `json:"exit_code"`
	}{
		r.Pipeline, r.Job, r.Outcome, path, r.Counts.Read, r.Counts.Bytes, r.Counts.Written, r.Counts.Filtered, r.Counts.Late, r.Counts.Skipped, r.Counts.Dead,
		r.Counts.LostCommits, r.Counts.LostRecords, r.Failures, r.Checkpoints, r.Moved, r.Restarts, r.Elapsed.Seconds(), r.cpu.Seconds(), r.allocs, r.rss, text, exitOf(r.err),
	})
}

func sortedKeys(m map[string]int64) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
