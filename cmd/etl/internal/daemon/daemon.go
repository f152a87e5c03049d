package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
	"github.com/sluice-etl/sluice/pipeline"
)

// Options say what a daemon runs and how.
type Options struct {
	Settings Settings
	Version  string
	// Log takes the lines of the log, which the daemon keeps in memory too.
	Log *slog.Logger
	// PlanText writes a plan for people, as etl plan does.
	PlanText func(*pipeline.Description) string
	// Failpoint is called with the names of steps that a crash must survive; may be nil.
	Failpoint func(name string)
}

// Daemon runs a folder of pipelines, each supervised by itself. It implements
// api.Service.
type Daemon struct {
	opts    Options
	folder  string // of pipelines
	budget  *pipeline.Budget
	store   *store
	log     *slog.Logger
	lines   *ring[api.Line]
	events  *ring[api.Event]
	began   time.Time
	runs    sync.WaitGroup // of pipelines, and what is done with them
	ready   chan struct{}  // closed once the folder was read for the first time
	ending  chan struct{}  // closed when the daemon is to end
	sampled atomic.Int64   // when all pipelines were measured last, in nanoseconds since 1970

	// scanning is held while the folder is read and what there is gets its unit.
	scanning sync.Mutex

	mu         sync.Mutex
	closed     bool // nothing is spawned any more
	units      map[string]*unit
	edited     map[string]bool            // pipelines whose file is being changed by a caller
	leaving    map[string]<-chan struct{} // closed when the unit is gone that had a name last
	listens    []string
	lastReload *api.Reload
	reloads    ReloadCounts
}

var _ api.Service = (*Daemon)(nil)

// New makes a daemon of the folder in the settings. Nothing runs before Run.
func New(o Options) (*Daemon, error) {
	folder, err := filepath.Abs(o.Settings.Pipelines)
	if err != nil || o.Settings.Pipelines == "" {
		return nil, errors.Join(err, errors.New("there is no folder of pipelines: name it, as in etl serve DIR, or set pipelines"))
	}
	if info, err := os.Stat(folder); err != nil {
		return nil, fmt.Errorf("the folder of pipelines: %w: make it, or name another one", err)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("the folder of pipelines: %s is no folder", folder)
	}
	s, err := openStore(o.Settings.StateDir)
	if err != nil {
		return nil, err
	}
	d := &Daemon{
		opts: o, folder: folder, budget: pipeline.NewBudget(o.Settings.Memory), store: s, began: time.Now(), ready: make(chan struct{}), ending: make(chan struct{}), units: map[string]*unit{}, edited: map[string]bool{}, leaving: map[string]<-chan struct{}{},
		lines: newRing[api.Line](keptLines), events: newRing[api.Event](keptEvents),
	}
	d.log = slog.New(&memoryHandler{lines: d.lines, next: o.Log.Handler()})
	return d, nil
}

// Log is the log of which the daemon shows the lines.
func (d *Daemon) Log() *slog.Logger { return d.log }

// Listens notes an address at which the daemon answers.
func (d *Daemon) Listens(address string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.listens = append(d.listens, address)
}

// Run runs the pipelines until stop is closed, and then ends them with a last
// checkpoint each, within shutdown_timeout.
func (d *Daemon) Run(ctx context.Context, stop <-chan struct{}) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if _, err := d.Reload(ctx, ""); err != nil {
		return errors.Join(err, d.store.close())
	}
	d.sampled.Store(time.Now().UnixNano())
	close(d.ready)
	var helpers sync.WaitGroup
	helpers.Go(func() { d.watchFolder(ctx) })
	helpers.Go(func() { d.sampleAll(ctx) })
	select {
	case <-stop:
	case <-ctx.Done():
	}
	d.shutDown()
	cancel()
	helpers.Wait()
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.runs.Wait()
	return d.store.close()
}

// spawn runs f beside, unless the daemon has ended.
func (d *Daemon) spawn(f func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.runs.Go(f)
	return true
}

// spawnOr runs f beside, or at once where the daemon has ended, which f finds out.
func (d *Daemon) spawnOr(f func()) {
	if !d.spawn(f) {
		f()
	}
}

// shutDown ends all pipelines, which go on when the daemon is started again.
func (d *Daemon) shutDown() {
	close(d.ending)
	began := time.Now()
	var wg sync.WaitGroup
	for _, u := range d.all() {
		wg.Go(func() {
			r := u.running()
			if r == nil {
				return
			}
			taken := r.leave(context.Background())
			switch {
			case r.err != nil:
				d.log.Warn("the pipeline failed while the program was ended: the next start goes on from its last checkpoint", pipelineKey, u.name, "err", r.err)
			case taken.Warning != "":
				d.log.Warn("ended without a last checkpoint: the next start goes on from the one before", pipelineKey, u.name, "checkpoint", taken.Path)
			default:
				d.log.Info("ended with a last checkpoint", pipelineKey, u.name, "checkpoint", taken.Path)
			}
		})
	}
	wg.Wait()
	d.log.Info("all pipelines have ended", "took", time.Since(began).Round(time.Millisecond))
}

// Started is closed once the folder was read for the first time, and its pipelines start.
func (d *Daemon) Started() <-chan struct{} { return d.ready }

func (d *Daemon) isStarted() bool { return closed(d.ready) }

// isEnding reports whether the daemon is to end.
func (d *Daemon) isEnding() bool { return closed(d.ending) }

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Alive reports whether the daemon gets round to its pipelines.
func (d *Daemon) Alive() bool {
	return time.Since(time.Unix(0, d.sampled.Load())) < aliveWithin
}

// aliveWithin is how long ago the last samples may have been taken.
const aliveWithin = 15 * time.Second
