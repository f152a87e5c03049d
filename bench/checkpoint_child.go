package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/spec"
	"github.com/sluice-etl/sluice/storage"
	_ "github.com/sluice-etl/sluice/storage/all" // where checkpoints go
)

// The hidden subcommands that take and restore a checkpoint of much state, each in a
// process of its own.
const (
	takeCommand    = "take-checkpoint"
	restoreCommand = "restore-checkpoint"
)

// taken is what was measured of taking checkpoints.
type taken struct {
	Bytes    int64   `json:"bytes"`        // of the checkpoint
	Quiet    float64 `json:"quiet_mb_s"`   // uploaded while no record came
	Bare     float64 `json:"bare_mb_s"`    // as many bytes written by nothing but the store
	Loaded   float64 `json:"loaded_s"`     // a checkpoint beside full load
	Rate     float64 `json:"rate"`         // records a second without a checkpoint
	Beside   float64 `json:"rate_beside"`  // and beside one
	Gap      float64 `json:"gap_ms"`       // longest time without results before any checkpoint
	Pause    float64 `json:"pause_ms"`     // in the first second from its trigger on
	Longest  float64 `json:"longest_ms"`   // and after that, while it is written
	Sync     float64 `json:"sync_ms"`      // longest Ack.Sync of a task
	Align    float64 `json:"alignment_ms"` // longest alignment
	PeakRSS  int64   `json:"peak_rss_bytes"`
	StateRSS int64   `json:"state_rss_bytes"` // before the first checkpoint
}

// restored is what was measured of restoring.
type restored struct {
	Seconds  float64 `json:"seconds"`
	CPU      float64 `json:"cpu_seconds"`
	Bare     float64 `json:"bare_seconds"` // the same files read by nothing but the store
	BareCPU  float64 `json:"bare_cpu_seconds"`
	PeakRSS  int64   `json:"peak_rss_bytes"`
	Restored string  `json:"restored"`
}

type childOptions struct {
	backend, storage, dir string
	keys                  int64
}

func childFlags(name string, args []string) (o childOptions, err error) {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.StringVar(&o.backend, "backend", "memory", "memory or disk")
	flags.StringVar(&o.storage, "storage", "", "address of the checkpoints")
	flags.StringVar(&o.dir, "dir", "", "working folder")
	flags.Int64Var(&o.keys, "keys", 0, "keys in the state")
	return o, flags.Parse(args)
}

// running is the pipeline at work.
type running struct {
	control *pipeline.Control
	cancel  context.CancelFunc
	ended   chan error
}

// errDone ends a run that has been measured.
var errDone = errors.New("measured")

// start runs the pipeline and waits until records flow.
func (o childOptions) start(ctx context.Context) (*running, error) {
	p, faults := spec.Parse("checkpoint.yaml", []byte(keysPipeline(o.backend, o.storage, o.dir, o.keys)), spec.Options{})
	plan := pipeline.NewPlan(p)
	if faults.HasErrors() || p.Diagnostics().HasErrors() {
		return nil, fmt.Errorf("the pipeline has faults: %v", p.Diagnostics())
	}
	ctx, cancel := context.WithCancelCause(ctx)
	r := &running{control: &pipeline.Control{}, cancel: func() { cancel(errDone) }, ended: make(chan error, 1)}
	flows := make(chan struct{}, 1)
	go func() {
		_, err := pipeline.Run(ctx, pipeline.Options{
			Plan: plan, Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})), Control: r.control,
			Running: func() {
				select {
				case flows <- struct{}{}:
				default:
				}
			},
		})
		r.ended <- err
	}()
	select {
	case <-flows:
		return r, nil
	case err := <-r.ended:
		return nil, fmt.Errorf("the pipeline ended: %w", err)
	}
}

// end ends the run as a crash would.
func (r *running) end() error {
	r.cancel()
	if err := <-r.ended; err != nil && !errors.Is(err, errDone) {
		return err
	}
	return nil
}

// await waits until so many records were given out.
func (r *running) await(n int64) error {
	for keyLoad.made.Load() < n {
		select {
		case err := <-r.ended:
			return fmt.Errorf("the pipeline ended: %w", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

// rest lets nothing come for a while, so that queues are empty.
func rest() {
	keyLoad.paused.Store(true)
	for last := int64(-1); last != keyLoad.rows.Load(); {
		last = keyLoad.rows.Load()
		<-time.After(300 * time.Millisecond)
	}
}

// load lets records come again, and begins to look for gaps.
func load() {
	keyLoad.paused.Store(false)
	<-time.After(time.Second)
	keyLoad.gap.Store(0)
}

// atBarrier is how long after its trigger a gap counts as the barrier's: nearly all that
// records have to do then and not later, such as copying what the checkpoint still
// reads, falls into it.
const atBarrier = time.Second

// steady is how long the load without a checkpoint is measured.
const steady = 4 * time.Second

func takeMain(args []string) error {
	o, err := childFlags(takeCommand, args)
	if err != nil {
		return err
	}
	ctx := context.Background()
	r, err := o.start(ctx)
	if err != nil {
		return err
	}
	var out taken
	if err := r.await(o.keys + keySplits<<10); err != nil {
		return err
	}
	rest()
	out.StateRSS = rss("VmRSS")
	began := time.Now()
	if _, err := r.control.Checkpoint(ctx); err != nil {
		return err
	}
	quiet := time.Since(began)
	out.Bytes = r.control.Checkpoints().Last.NewSize
	out.Quiet = float64(out.Bytes) / 1e6 / quiet.Seconds()

	if err := o.beside(ctx, r, &out); err != nil {
		return err
	}
	out.PeakRSS = peakRSS()
	if err := r.end(); err != nil {
		return err
	}
	if out.Bare, err = bareWrite(ctx, o.storage, out.Bytes); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

// beside measures a checkpoint beside full load.
func (o childOptions) beside(ctx context.Context, r *running, out *taken) error {
	load()
	rows, began := keyLoad.made.Load(), time.Now()
	<-time.After(steady)
	out.Rate = float64(keyLoad.made.Load()-rows) / time.Since(began).Seconds()
	out.Gap = float64(keyLoad.gap.Swap(0)) / 1e6

	rows, began = keyLoad.made.Load(), time.Now()
	barrier := time.AfterFunc(atBarrier, func() { keyLoad.barrier.Store(keyLoad.gap.Swap(0)) })
	if _, err := r.control.Checkpoint(ctx); err != nil {
		return err
	}
	took := time.Since(began)
	if barrier.Stop() { // it is over already
		keyLoad.barrier.Store(keyLoad.gap.Load())
	}
	out.Loaded = took.Seconds()
	out.Pause, out.Longest = float64(keyLoad.barrier.Load())/1e6, float64(keyLoad.gap.Load())/1e6
	out.Beside = float64(keyLoad.made.Load()-rows) / took.Seconds()
	for _, t := range r.control.Checkpoints().Last.Tasks {
		out.Sync = max(out.Sync, float64(t.Sync)/1e6)
		out.Align = max(out.Align, float64(t.Alignment)/1e6)
	}
	return nil
}

// bareFiles is how many files the bare loops write or read at a time.
const bareFiles = 8

// bareWrite writes so many bytes into a store as a checkpoint is written, in some files at
// a time, and removes them.
func bareWrite(ctx context.Context, address string, bytes int64) (mbs float64, err error) {
	store, err := storage.Open(address)
	if err != nil {
		return 0, err
	}
	block := noise(256 << 10)
	began := time.Now()
	g, gctx := errgroup.WithContext(ctx)
	for i := range bareFiles {
		g.Go(func() error {
			w, err := store.Create(gctx, path.Join("bare", fmt.Sprint("file-", i)))
			if err != nil {
				return err
			}
			defer w.Abort()
			for left := bytes / bareFiles; left > 0; left -= int64(len(block)) {
				if _, err := w.Write(block[:min(left, int64(len(block)))]); err != nil {
					return err
				}
			}
			return w.Close()
		})
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	took := time.Since(began)
	return float64(bytes) / 1e6 / took.Seconds(), store.RemoveAll(ctx, "bare")
}

func restoreMain(args []string) error {
	o, err := childFlags(restoreCommand, args)
	if err != nil {
		return err
	}
	ctx := context.Background()
	keyLoad.paused.Store(true)
	cpu, began := cpuTime(), time.Now()
	r, err := o.start(ctx)
	if err != nil {
		return err
	}
	out := restored{Seconds: time.Since(began).Seconds(), CPU: (cpuTime() - cpu).Seconds(), PeakRSS: peakRSS()}
	from := r.control.Status().Restored
	if from == nil {
		return errors.New("nothing was restored")
	}
	out.Restored = from.Path
	if err := r.end(); err != nil {
		return err
	}
	cpu, began = cpuTime(), time.Now()
	if err := bareRead(ctx, o.storage); err != nil {
		return err
	}
	out.Bare, out.BareCPU = time.Since(began).Seconds(), (cpuTime() - cpu).Seconds()
	return json.NewEncoder(os.Stdout).Encode(out)
}

// bareRead reads the newest state files of the store's only job.
func bareRead(ctx context.Context, address string) error {
	store, err := storage.Open(address)
	if err != nil {
		return err
	}
	all, err := store.List(ctx, "checkpoint")
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(bareFiles)
	var mu sync.Mutex
	var bytes int64
	for _, f := range all {
		if !strings.Contains(f.Name, "/shared/") {
			continue
		}
		g.Go(func() error {
			in, err := store.Open(ctx, f.Name)
			if err != nil {
				return err
			}
			n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, in, make([]byte, 256<<10))
			mu.Lock()
			bytes += n
			mu.Unlock()
			return errors.Join(err, in.Close())
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if bytes == 0 {
		return errors.New("there are no state files")
	}
	return nil
}

// cpuTime is the processor time of this process so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
