package daemon

import (
	"fmt"
	"time"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
	"github.com/sluice-etl/sluice/pipeline"
)

// runWatch is what is found out of a run from time to time. Its unit's lock guards it.
type runWatch struct {
	problems []api.Problem
	splits   splitWatch
	flow     pipeline.Flow // of the last look
	stats    checkpoint.Stats
	looked   time.Time // the last whole look
	last     string    // newest checkpoint at it
	outages  int
	restarts []time.Time // of the last restartWindow
	restart  int         // how many there were
}

// lookEvery is how often all is looked at; what is cheap to see is seen with each sample.
const lookEvery = 5 * time.Second

// look finds out how the run is. It is called once a second, and does most of it only
// every few, or when something has changed.
func (u *unit) look(now time.Time) {
	u.mu.Lock()
	r := u.run
	u.mu.Unlock()
	if r == nil {
		return
	}
	s, outages := r.control.Status(), len(r.control.Outages())
	u.mu.Lock()
	w := &u.watch
	restarted := s.Restarts > w.restart
	due := restarted || now.Sub(w.looked) >= lookEvery || s.Last != w.last || outages != w.outages
	w.outages = outages
	u.mu.Unlock()
	if restarted {
		u.tell("restarting", levelWarning, "it failed and starts again from its last checkpoint: "+firstLine(s.Failure), "")
	}
	if due {
		u.lookWhole(r, &s, now)
	}
}

// lookWhole finds all problems of a run.
func (u *unit) lookWhole(r *run, s *pipeline.Status, now time.Time) {
	f := finder{
		now: now, spec: r.def.plan.Spec, control: r.control, status: *s, desc: r.def.description(),
		flow: r.control.Flow(), stats: r.control.Checkpoints(),
	}
	u.remember(r, &f.stats)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.run != r {
		return
	}
	w := &u.watch
	for ; w.restart < s.Restarts; w.restart++ {
		w.restarts = append(w.restarts, now)
	}
	for len(w.restarts) > 0 && now.Sub(w.restarts[0]) > restartWindow {
		w.restarts = w.restarts[1:]
	}
	f.outages()
	if s.Phase == pipeline.Running {
		f.checkpoints()
		f.alignment()
		f.sinks()
		f.splits(&w.splits)
	}
	if n := len(w.restarts); n >= mostRestarts {
		f.add("restart", levelWarning, "", "it has restarted "+times(n)+" within "+about(restartWindow), "find what makes it fail in its log; each restart goes back to the last checkpoint")
	}
	w.problems = keepSince(f.found, w.problems)
	w.flow, w.stats, w.looked, w.last = f.flow, f.stats, now, s.Last
}

// close takes over how a run was at its end.
func (w *runWatch) close(r *run) {
	w.problems, w.splits = nil, splitWatch{}
	w.flow, w.stats = pipeline.Flow{}, r.control.Checkpoints()
}

// times is how often something was, in words.
func times(n int) string { return fmt.Sprintf("%d times", n) }
