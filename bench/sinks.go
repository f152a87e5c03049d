package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// sinkInterval is how often both sides publish: checkpoints of the pipelines, and
// transactions, syncs or files of the bare loops.
const sinkInterval = 2 * time.Second

// sinkBench is a sink to measure, beside a loop with nothing but the client library.
type sinkBench struct {
	name  string  // its pipeline is sink-NAME.yaml of the workloads
	needs string  // variable of the environment with its service's address; empty for none
	goal  float64 // the ratio to stay below; 0 for none
	count int64   // records of a run, at the default -count
	// bare writes the records, which it has as Go values or as JSON; nil measures the pipeline alone.
	bare func(ctx context.Context, l *sinkLoop) error
	// place makes what a run writes into, and gives the function that removes it; nil where
	// the folder of the run is all.
	place func(ctx context.Context, o options, run string, count int64) (remove func(context.Context) error, err error)
}

func (s sinkBench) title() string { return onlySinks + "-" + s.name }

// onlySinks is what -only says for nothing but sinks.
const onlySinks = "sinks"

// sinkGoal is how many times the bare library's processor time a sink alone may take.
const sinkGoal = 1.5

// noSink is the pipeline whose sink does nothing.
const noSink = "none"

var sinkBenches = []sinkBench{
	{name: noSink, count: 4_000_000},
	{name: "kafka", needs: "KAFKA_BROKERS", goal: sinkGoal, count: 3_000_000, bare: bareKafka, place: placeTopic},
	{name: "file", goal: sinkGoal, count: 4_000_000, bare: bareFile},
	{name: "s3", needs: "S3_BUCKET", count: 2_000_000, bare: bareS3, place: placeObjects},
	{name: "s3-parquet", needs: "S3_BUCKET", count: 2_000_000, bare: bareS3Parquet, place: placeObjects},
	{name: "hdfs", needs: "HDFS_URL", count: 2_000_000, bare: bareHDFS, place: placeFolder},
	{name: "postgres-insert", needs: "POSTGRES_URL", goal: sinkGoal, count: 1_000_000, bare: barePostgresInsert, place: placePostgres(false)},
	{name: "postgres-upsert", needs: "POSTGRES_URL", goal: sinkGoal, count: 500_000, bare: barePostgresUpsert, place: placePostgres(true)},
	{name: "mysql", needs: "MYSQL_URL", count: 500_000, bare: bareMySQL, place: placeMySQL},
	{name: "iceberg", count: 1_000_000, bare: bareIceberg},
	{name: "elasticsearch", needs: "OPENSEARCH_URL", count: 200_000, bare: bareElasticsearch, place: placeIndex},
	{name: "redis", needs: "REDIS_ADDR", count: 1_000_000, bare: bareRedis, place: placeKeys},
	{name: "mongodb", needs: "MONGODB_URL", count: 20_000, bare: bareMongo, place: placeCollection},
	{name: "http", count: 1_000_000, bare: bareHTTP},
}

// sinkRun is the runs of one sink, of each kind in the order of the rounds.
type sinkRun struct {
	sinkBench
	etl, values, texts []result
	without            []result // the pipeline with a sink that does nothing
}

// alone is the cost of a record in the sink alone, in nanoseconds: what the pipeline takes
// more than one that has the same source and a sink that does nothing.
func (r *sinkRun) alone() float64 {
	with, _ := nanosOf(r.etl)
	without, _ := nanosOf(r.without)
	return with - without
}

// measureSinks runs each sink's pipeline and its bare loops in turn, o.repeat times, so
// that a busy minute of the machine hits all alike.
func measureSinks(ctx context.Context, o options, dir string) ([]*sinkRun, error) {
	var runs []*sinkRun
	for _, s := range sinkBenches {
		if strings.Contains(s.title(), o.only) {
			if s.needs != "" && os.Getenv(s.needs) == "" {
				return nil, fmt.Errorf("no service for %s: set %s, or run `make bench`, which starts all", s.title(), s.needs)
			}
			s.count = max(1000, s.count*o.count/defaultCount)
			runs = append(runs, &sinkRun{sinkBench: s})
		}
	}
	server, err := newDiscard(ctx)
	if err != nil {
		return nil, err
	}
	defer server.close()
	for range o.repeat {
		for _, r := range runs {
			if err := r.round(ctx, o, dir, server.url); err != nil {
				return nil, fmt.Errorf("measure %s: %w", r.title(), err)
			}
		}
	}
	return runs, nil
}

// round measures everything of a sink once.
func (r *sinkRun) round(ctx context.Context, o options, dir, url string) error {
	one := func(to *[]result, kind string, command func(run, dir string) *exec.Cmd) error {
		got, err := r.once(ctx, o, dir, command, url)
		if err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		fmt.Fprintf(os.Stderr, "%-22s %-8s %6.0f ns/record  %9.0f records/s\n", r.title(), kind, got.nanos(), got.rate())
		*to = append(*to, got)
		return nil
	}
	pipeline := func(name string) func(string, string) *exec.Cmd {
		return func(string, string) *exec.Cmd {
			return exec.CommandContext(ctx, o.etl, "run", filepath.Join(o.workloads, "sink-"+name+".yaml"), "--json")
		}
	}
	if err := one(&r.etl, "etl", pipeline(r.name)); err != nil || r.bare == nil {
		return err
	}
	if err := one(&r.without, noSink, pipeline(noSink)); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	loop := func(more ...string) func(run, dir string) *exec.Cmd {
		return func(run, dir string) *exec.Cmd {
			args := []string{sinkCommand, "-sink", r.name, "-count", strconv.FormatInt(r.count, 10), "-run", run, "-dir", dir, "-url", url}
			return exec.CommandContext(ctx, self, append(args, more...)...)
		}
	}
	if err := one(&r.values, "values", loop()); err != nil {
		return err
	}
	return one(&r.texts, "json", loop("-text"))
}

// once runs one process with a target of its own.
func (r *sinkRun) once(ctx context.Context, o options, dir string, command func(run, dir string) *exec.Cmd, url string) (out result, err error) {
	run := strconv.FormatInt(time.Now().UnixNano(), 36)
	dir = filepath.Join(dir, run)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return out, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if r.place != nil {
		remove, err := r.place(ctx, o, run, r.count)
		if err != nil {
			return out, fmt.Errorf("make what it writes into: %w", err)
		}
		defer func() {
			if rerr := remove(context.WithoutCancel(ctx)); err == nil && rerr != nil {
				err = fmt.Errorf("remove what it wrote: %w", rerr)
			}
		}()
	}
	cmd := command(run, dir)
	cmd.Env = append(os.Environ(), "BENCH_RUN="+run, "BENCH_COUNT="+strconv.FormatInt(r.count, 10), "BENCH_DIR="+dir, "BENCH_URL="+url)
	if out, err = timed(cmd); err != nil {
		return out, err
	}
	if out.Read != r.count || out.Written != r.count {
		return out, fmt.Errorf("of %d records it made %d and wrote %d", r.count, out.Read, out.Written)
	}
	return out, nil
}

// nanosOf are the least and the middle cost of a record, in nanoseconds of processor time.
func nanosOf(runs []result) (least, median float64) {
	var all []float64
	for _, r := range runs {
		all = append(all, r.nanos())
	}
	slices.Sort(all)
	return all[0], all[len(all)/2]
}

// sinkTable is the table of sinks, which is Markdown too, and how many goals are missed.
func sinkTable(runs []*sinkRun) (table string, missed int) {
	if len(runs) == 0 {
		return "", 0
	}
	var b strings.Builder
	b.WriteString("\n| sink | records | CPU ns/record, least (median) | without the sink | sink alone | bare library, from values | ratio | bare library, from JSON | ratio | goal | records/s | bare | peak MiB | bare |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range runs {
		least, median := nanosOf(r.etl)
		etl := best(r.etl)
		fmt.Fprintf(&b, "| %s | %d | %.0f (%.0f) |", r.name, r.count, least, median)
		if r.bare == nil {
			fmt.Fprintf(&b, " | | | | | | | %.0f | | %d | |\n", etl.rate(), etl.PeakRSS>>20)
			continue
		}
		without, middle := nanosOf(r.without)
		fmt.Fprintf(&b, " %.0f (%.0f) | %.0f |", without, middle, r.alone())
		over := false
		for _, loop := range [][]result{r.values, r.texts} {
			cost, middle := nanosOf(loop)
			ratio := r.alone() / cost
			fmt.Fprintf(&b, " %.0f (%.0f) | %.2f%s |", cost, middle, ratio, r.judge(ratio, &over))
		}
		if over {
			missed++
		}
		goal := ""
		if r.goal > 0 {
			goal = fmt.Sprintf("%.1f", r.goal)
		}
		bare := best(r.values)
		fmt.Fprintf(&b, " %s | %.0f | %.0f | %d | %d |\n", goal, etl.rate(), bare.rate(), etl.PeakRSS>>20, bare.PeakRSS>>20)
	}
	return b.String(), missed
}

// judge is what is said behind a ratio, and notes one that misses the goal.
func (r *sinkRun) judge(ratio float64, over *bool) string {
	if r.goal == 0 || ratio <= r.goal {
		return ""
	}
	*over = true
	return " (over)"
}

// best is the run that cost least.
func best(runs []result) result {
	return slices.MinFunc(runs, func(a, b result) int { return int(a.CPU - b.CPU) })
}
