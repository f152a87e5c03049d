// Command bench measures what a record costs in a running pipeline, on a real
// Kafka broker, beside bare client loops that do nothing but read and write the
// same records. `make bench` runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

type options struct {
	etl       string
	workloads string
	brokers   []string
	count     int64
	repeat    int
	only      string
	markdown  string
	state     int64  // bytes of state in the checkpoints that are measured
	bucket    string // address of a place on S3 for them; empty for none
	pipelines int    // of the daemon that is measured; 0 for none
}

// children are the hidden subcommands that are measured in processes of their own.
var children = map[string]func(args []string) error{
	bareCommand: bareMain, sinkCommand: sinkMain, takeCommand: takeMain, restoreCommand: restoreMain,
}

func main() {
	if len(os.Args) > 1 {
		if child := children[os.Args[1]]; child != nil {
			exit(child(os.Args[2:]))
		}
	}
	var o options
	brokers := flag.String("brokers", os.Getenv("KAFKA_BROKERS"), "addresses of the broker, separated by commas")
	flag.StringVar(&o.etl, "etl", "bin/etl", "the program to measure")
	flag.StringVar(&o.workloads, "workloads", "bench/workloads", "folder of the pipeline files")
	flag.Int64Var(&o.count, "count", defaultCount, "records in the input topic")
	flag.IntVar(&o.repeat, "repeat", 3, "rounds; the cheapest run of each counts")
	flag.StringVar(&o.only, "only", "", "measure only what has this text in its name")
	flag.Int64Var(&o.state, "state", 1<<30, "bytes of state in the checkpoints that are measured; 0 for none")
	flag.StringVar(&o.bucket, "s3", bucketOfTests(), "address of a place on S3 for checkpoints, such as s3://bucket; that of the test service if there is one")
	flag.IntVar(&o.pipelines, "pipelines", 50, "pipelines of the idle daemon that is measured; 0 for none")
	flag.StringVar(&o.markdown, "markdown", "", "write the report to this file too")
	flag.Parse()
	o.brokers = strings.Split(*brokers, ",")
	if *brokers == "" && (o.records() || o.pipelines > 0 && strings.Contains(daemonName, o.only)) {
		exit(errors.New("no broker: set KAFKA_BROKERS, or run `make bench`, which starts one"))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	exit(run(ctx, o))
}

// bucketOfTests is the bucket of the S3 server that runs for tests, empty where there is none.
func bucketOfTests() string {
	if bucket := os.Getenv("S3_BUCKET"); bucket != "" && os.Getenv("AWS_ENDPOINT_URL_S3") != "" {
		return "s3://" + bucket
	}
	return ""
}

func exit(err error) {
	if err == nil {
		os.Exit(0)
	}
	fmt.Fprintln(os.Stderr, "bench:", err)
	os.Exit(1)
}

// defaultCount is how many records the input topic has where nothing else is said.
const defaultCount = 5_000_000

// records tells whether a workload over the input topic is to be measured.
func (o options) records() bool {
	return slices.ContainsFunc(measurements, func(m measurement) bool { return !m.bare && strings.Contains(m.name, o.only) })
}

// run measures everything and prints the report.
func run(ctx context.Context, o options) error {
	dir, err := os.MkdirTemp("", "etl-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	results := map[string]result{}
	if o.records() {
		if err := measureRecords(ctx, o, dir, results); err != nil {
			return err
		}
	}
	sinks, err := measureSinks(ctx, o, dir)
	if err != nil {
		return err
	}
	var checkpoints []checkpointRun
	if o.state > 0 {
		if checkpoints, err = measureCheckpoints(ctx, o, dir); err != nil {
			return err
		}
	}
	var daemons []daemonRun
	if o.pipelines > 0 && strings.Contains(daemonName, o.only) {
		if daemons, err = measureDaemon(ctx, o, dir); err != nil {
			return err
		}
	}
	return report(results, sinks, checkpoints, daemons, o, time.Now())
}

// measureRecords fills the input topic and measures everything o.repeat times in turn, so
// that a busy minute of the machine hits all alike.
func measureRecords(ctx context.Context, o options, dir string, results map[string]result) error {
	broker, err := newBroker(o.brokers)
	if err != nil {
		return err
	}
	defer broker.close()
	input, err := broker.fillBids(ctx, o.count)
	if err != nil {
		return err
	}
	for round := range o.repeat {
		for _, m := range measurements {
			if !m.bare && !strings.Contains(m.name, o.only) {
				continue
			}
			e := environment{options: o, broker: broker, input: input, dir: filepath.Join(dir, fmt.Sprintf("%s-%d", m.name, round))}
			r, err := e.measure(ctx, m)
			if err != nil {
				return fmt.Errorf("measure %s: %w", m.name, err)
			}
			fmt.Fprintf(os.Stderr, "round %d  %-22s %6.0f ns/record  %9.0f records/s\n", round+1, m.name, r.nanos(), r.rate())
			if best, ok := results[m.name]; !ok || r.CPU < best.CPU {
				results[m.name] = r
			}
		}
	}
	return nil
}
