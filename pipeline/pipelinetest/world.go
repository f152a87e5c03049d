// Package pipelinetest runs pipelines in memory: tests feed records in, crash and
// restart the process's part, and look at what was published.
package pipelinetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-etl/sluice/connectors/format/registry"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/spec"
	"github.com/sluice-etl/sluice/storage"
	_ "github.com/sluice-etl/sluice/storage/mem" // the worlds' checkpoints
)

// worlds finds the feeds and targets that configurations name: sources and sinks
// are made by the engine from their configuration alone.
var worlds struct {
	sync.Mutex
	feeds   map[string]*Feed
	targets map[string]*Target
	n       atomic.Int64
}

func feedOf(name string) *Feed {
	worlds.Lock()
	defer worlds.Unlock()
	return worlds.feeds[name]
}

func targetOf(name string) *Target {
	worlds.Lock()
	defer worlds.Unlock()
	if worlds.targets == nil {
		worlds.targets = map[string]*Target{}
	}
	if worlds.targets[name] == nil {
		worlds.targets[name] = newTarget()
	}
	return worlds.targets[name]
}

// World is a pipeline with all that is around it and outlives its crashes: feeds,
// targets and checkpoint storage.
type World struct {
	t     testing.TB
	id    string
	yaml  string
	saved bool
	// Options are given to each run; Plan, Log and Stop are set by it.
	Options pipeline.Options
}

// New makes a world of a pipeline file. In it, FEED and TARGET before a name stand
// for feeds and targets of this world, and STORAGE for its checkpoint storage:
// `source: {feed: {name: FEED-a}}`.
func New(t testing.TB, yaml string) *World {
	w := &World{t: t, id: fmt.Sprintf("w%d-", worlds.n.Add(1))}
	w.Redefine(yaml)
	return w
}

// Redefine changes the world's pipeline file for the runs that are started from now on.
func (w *World) Redefine(yaml string) {
	w.yaml = strings.NewReplacer("FEED-", w.id, "TARGET-", w.id, "STORAGE", "mem://"+w.id+"checkpoints").Replace(yaml)
}

// Text is the world's pipeline file, with the names that it has in this world.
func (w *World) Text() string { return w.yaml }

// Feed is the feed of a name, made with a number of partitions if it is not there.
func (w *World) Feed(name string, partitions int) *Feed {
	worlds.Lock()
	defer worlds.Unlock()
	if worlds.feeds == nil {
		worlds.feeds = map[string]*Feed{}
	}
	if worlds.feeds[w.id+name] == nil {
		worlds.feeds[w.id+name] = newFeed(partitions)
	}
	return worlds.feeds[w.id+name]
}

// Target is the target of a name.
func (w *World) Target(name string) *Target { return targetOf(w.id + name) }

// Plan is the world's pipeline, planned; the test ends if the file has faults.
func (w *World) Plan() *pipeline.Plan {
	w.t.Helper()
	p, _ := spec.Parse("test.yaml", []byte(w.yaml), spec.Options{ReadSchema: registry.Read})
	plan := pipeline.NewPlan(p)
	if faults := p.Diagnostics(); faults.HasErrors() {
		var text strings.Builder
		_ = faults.Print(&text, false)
		w.t.Fatalf("the pipeline has faults:\n%s", text.String())
	}
	return plan
}

// SaveStorage keeps a copy of the checkpoint storage, for PutBackStorage.
func (w *World) SaveStorage() { w.saved = w.copyStorage("checkpoints", "saved") }

// PutBackStorage makes the checkpoint storage what it was at SaveStorage.
func (w *World) PutBackStorage() {
	w.t.Helper()
	if !w.saved {
		w.t.Fatal("no storage is saved")
	}
	w.copyStorage("saved", "checkpoints")
}

// Address is where the world's checkpoints are.
func (w *World) Address() string { return "mem://" + w.id + "checkpoints" }

// Storage is the world's checkpoint storage.
func (w *World) Storage() storage.FS {
	w.t.Helper()
	fs, err := storage.Open(w.Address())
	if err != nil {
		w.t.Fatal(err)
	}
	return fs
}

func (w *World) copyStorage(from, to string) bool {
	w.t.Helper()
	ctx := context.Background()
	src, err := storage.Open("mem://" + w.id + from)
	if err != nil {
		w.t.Fatal(err)
	}
	dst, err := storage.Open("mem://" + w.id + to)
	if err != nil {
		w.t.Fatal(err)
	}
	empty := func(f storage.FS) error {
		dirs, err := f.Dirs(ctx, "")
		for _, d := range dirs {
			err = errors.Join(err, f.RemoveAll(ctx, d))
		}
		return err
	}
	files, err := src.List(ctx, "")
	err = errors.Join(err, empty(dst))
	for _, info := range files {
		data, readErr := storage.ReadFile(ctx, src, info.Name, 1<<30)
		err = errors.Join(err, readErr, storage.WriteFile(ctx, dst, info.Name, data))
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return true
}

// errCrash is the cause of a context that ends as a crash would end a process.
var errCrash = errors.New("crashed by the test")

// Process is one run of the world's pipeline.
type Process struct {
	crash context.CancelCauseFunc
	stop  chan struct{}
	done  chan struct{}

	summary *pipeline.Summary
	err     error
}

// Start runs the pipeline beside the test.
func (w *World) Start() *Process {
	w.t.Helper()
	ctx, crash := context.WithCancelCause(context.Background())
	p := &Process{crash: crash, stop: make(chan struct{}), done: make(chan struct{})}
	opts := w.Options
	opts.Plan, opts.Stop = w.Plan(), p.stop
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	go func() {
		defer close(p.done)
		p.summary, p.err = pipeline.Run(ctx, opts)
	}()
	return p
}

// Run runs the pipeline until it ends by itself.
func (w *World) Run() (*pipeline.Summary, error) {
	w.t.Helper()
	return w.Start().Wait()
}

// Wait waits for the end of the run.
func (p *Process) Wait() (*pipeline.Summary, error) {
	<-p.done
	return p.summary, p.err
}

// Crash ends the run without a last checkpoint, and waits.
func (p *Process) Crash() {
	p.crash(errCrash)
	<-p.done
}

// Stop asks the run to end after a last checkpoint, and waits.
func (p *Process) Stop() (*pipeline.Summary, error) {
	close(p.stop)
	return p.Wait()
}
