package daemon

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/spec"
)

// Pipelines implements api.Service.
func (d *Daemon) Pipelines(context.Context) []api.Pipeline {
	units := d.all()
	out := make([]api.Pipeline, 0, len(units))
	for _, u := range units {
		out = append(out, u.show())
	}
	return out
}

// Pipeline implements api.Service.
func (d *Daemon) Pipeline(_ context.Context, name string) (*api.Pipeline, error) {
	u, err := d.find(name)
	if err != nil {
		return nil, err
	}
	p := u.show()
	return &p, nil
}

// show is the pipeline at a glance.
func (u *unit) show() api.Pipeline {
	u.mu.Lock()
	defer u.mu.Unlock()
	p := api.Pipeline{
		Name: u.name, File: u.file.file, Failure: u.failure, Help: u.help, Pending: u.pending,
		Counts: u.sample.counts(), LagRecords: -1, LagSeconds: -1, Guarantee: u.def.guarantee(), Health: u.health(),
	}
	p.State, p.Since = u.state()
	r := u.run
	if r == nil {
		r = u.last
	}
	if r != nil {
		s := r.control.Status()
		p.Status, p.Restarts = &s, s.Restarts
		if u.run != nil && s.Phase == pipeline.Restarting {
			p.Failure = s.Failure
		}
		p.Checkpoint, p.FailedCheckpoints = glance(&s, &u.watch.stats)
		p.LagRecords, p.LagSeconds = lag(&u.watch.flow)
	}
	if p.State == api.Invalid {
		p.Failure, p.Help = u.def.failure(), "mend "+u.def.file+": it is read again when it changes"
	}
	p.ReadRate, p.ByteRate, p.WriteRate = u.sample.rates()
	return p
}

// Watched is a pipeline for metrics.
type Watched struct {
	Name    string
	Control *pipeline.Control // nil where it has never run
	Ready   bool
}

// Watched are all pipelines.
func (d *Daemon) Watched() []Watched {
	units := d.all()
	out := make([]Watched, 0, len(units))
	for _, u := range units {
		u.mu.Lock()
		w := Watched{Name: u.name, Ready: u.health().OK}
		if r := u.run; r != nil {
			w.Control = r.control
		} else if u.last != nil {
			w.Control = u.last.control
		}
		u.mu.Unlock()
		out = append(out, w)
	}
	return out
}

// MemoryUsed is what is taken of the memory of all pipelines, in bytes.
func (d *Daemon) MemoryUsed() int64 { return d.budget.Used() }

// LastReloadOK reports whether the newest reload of the folder worked; nil before one.
func (d *Daemon) LastReloadOK() *bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lastReload == nil {
		return nil
	}
	ok := d.lastReload.OK
	return &ok
}

// glance is the newest completed checkpoint, and how many have failed since.
func glance(s *pipeline.Status, stats *checkpoint.Stats) (*api.Checkpoint, int) {
	last := stats.Last
	if last == nil {
		return nil, stats.FailedInARow
	}
	return &api.Checkpoint{
		Number: last.ID.Number, Path: s.Last, Time: last.Triggered.Add(last.Duration), Duration: last.Duration.Seconds(),
		Size: last.Size, NewSize: last.NewSize,
	}, stats.FailedInARow
}

// guaranteeRanks orders guarantees, the weakest first.
var guaranteeRanks = map[connectors.Guarantee]int{connectors.AtLeastOnce: 1, connectors.EffectivelyOnce: 2, connectors.ExactlyOnce: 3}

// guarantee is the weakest of the sinks'.
func (f *definition) guarantee() string {
	if !f.valid() {
		return ""
	}
	weakest := connectors.Guarantee("")
	for _, o := range f.description().Operators {
		if o.Guarantee != "" && (weakest == "" || guaranteeRanks[o.Guarantee] < guaranteeRanks[weakest]) {
			weakest = o.Guarantee
		}
	}
	return string(weakest)
}

// Ready implements api.Service.
func (d *Daemon) Ready(context.Context) (bool, map[string]api.Health) {
	ok, all := d.isStarted() && !d.isEnding(), map[string]api.Health{}
	for _, u := range d.all() {
		u.mu.Lock()
		h := u.health()
		u.mu.Unlock()
		all[u.name] = h
		ok = ok && h.OK
	}
	return ok, all
}

// Definition implements api.Service.
func (d *Daemon) Definition(_ context.Context, name string) (*api.Definition, error) {
	u, err := d.find(name)
	if err != nil {
		return nil, err
	}
	u.mu.Lock()
	def, file := u.def, u.file
	u.mu.Unlock()
	out := &api.Definition{File: file.file, Faults: file.report()}
	if file.plan != nil {
		out.Written = file.plan.Spec.Written()
		if file.valid() {
			out.Effective = string(file.plan.Spec.Redacted())
		}
	}
	if def.plan != nil && def != file {
		out.Running = def.plan.Spec.Written()
	}
	return out, nil
}

// Describe implements api.Service.
func (d *Daemon) Describe(_ context.Context, name string) (*pipeline.Description, error) {
	u, err := d.find(name)
	if err != nil {
		return nil, err
	}
	u.mu.Lock()
	def := u.def
	u.mu.Unlock()
	if !def.valid() {
		return nil, conflict("the file of pipeline %s has faults: %s", name, def.failure())
	}
	out := def.plan.Describe()
	return &out, nil
}

// shown is the run that tells of a pipeline: what runs, or what ran last.
func (d *Daemon) shown(name string) (*unit, *run, error) {
	u, err := d.find(name)
	if err != nil {
		return nil, nil, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.run != nil {
		return u, u.run, nil
	}
	return u, u.last, nil
}

// Flow implements api.Service.
func (d *Daemon) Flow(_ context.Context, name string) (*pipeline.Flow, error) {
	_, r, err := d.shown(name)
	if err != nil {
		return nil, err
	}
	out := pipeline.Flow{Time: time.Now()}
	if r != nil {
		out = r.control.Flow()
	}
	return &out, nil
}

// Tap implements api.Service.
func (d *Daemon) Tap(ctx context.Context, name, operator string, o pipeline.TapOptions) (<-chan pipeline.Tapped, error) {
	_, r, err := d.control(name, "be tapped")
	if err != nil {
		return nil, err
	}
	return r.control.Tap(ctx, operator, o)
}

// Failures implements api.Service.
func (d *Daemon) Failures(_ context.Context, name string) ([]pipeline.Failure, error) {
	_, r, err := d.shown(name)
	if err != nil || r == nil {
		return []pipeline.Failure{}, err
	}
	return append([]pipeline.Failure{}, r.control.Failures()...), nil
}

// Checkpoints implements api.Service.
func (d *Daemon) Checkpoints(_ context.Context, name string) (*api.Checkpoints, error) {
	u, r, err := d.shown(name)
	if err != nil {
		return nil, err
	}
	out := &api.Checkpoints{Earlier: []checkpoint.AttemptStats{}}
	if r != nil {
		out.Stats = r.control.Checkpoints()
	}
	if out.History == nil {
		out.History = []checkpoint.AttemptStats{}
	}
	u.past.Lock()
	if u.past.history != nil {
		out.Earlier = u.past.earlier(out.History)
	}
	u.past.Unlock()
	u.mu.Lock()
	def := u.def
	u.mu.Unlock()
	if def.valid() {
		c := &def.plan.Spec.Checkpoint
		out.Interval, out.Timeout, out.Mode = c.Interval.Seconds(), c.Timeout.Seconds(), c.Mode
		out.Storage, out.Retained = c.Storage, c.Retained
	}
	out.Duration, out.Size = percentiles(slices.Concat(out.History, out.Earlier))
	return out, nil
}

// percentiles are those of the durations, in seconds, and sizes, in bytes, of the
// completed checkpoints of a history; empty for none.
func percentiles(history []checkpoint.AttemptStats) (durations, sizes map[string]float64) {
	var took, size []float64
	for i := range history {
		if h := &history[i]; h.Status == checkpoint.Completed {
			took, size = append(took, h.Duration.Seconds()), append(size, float64(h.Size))
		}
	}
	return spread(took), spread(size)
}

// spread is how values are spread: the least that so many of them do not exceed.
func spread(values []float64) map[string]float64 {
	out := map[string]float64{}
	if len(values) == 0 {
		return out
	}
	slices.Sort(values)
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	out["min"], out["max"], out["avg"] = values[0], values[len(values)-1], sum/float64(len(values))
	for name, q := range map[string]float64{"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999} {
		at := int(q * float64(len(values)))
		out[name] = values[min(at, len(values)-1)]
	}
	return out
}

// Savepoints implements api.Service.
func (d *Daemon) Savepoints(ctx context.Context, name string) ([]api.Savepoint, error) {
	u, err := d.find(name)
	if err != nil {
		return nil, err
	}
	u.mu.Lock()
	def := u.def
	u.mu.Unlock()
	out := []api.Savepoint{}
	if !def.valid() || def.plan.Spec.Checkpoint.Savepoints.Dir == "" {
		return out, nil
	}
	dir := def.plan.Spec.Checkpoint.Savepoints.Dir
	for _, place := range []string{dir, spec.PeriodicDir(dir, name)} {
		found, err := checkpoint.Savepoints(ctx, place)
		if err != nil {
			return nil, fmt.Errorf("savepoints of pipeline %s: %w", name, err)
		}
		for _, s := range found {
			if s.Meta == nil || s.Meta.Pipeline != name {
				continue
			}
			out = append(out, api.Savepoint{
				Path: s.Path, Number: s.Meta.Number, Time: s.Meta.Completed, Drained: s.Meta.Drained, Periodic: place != dir, Size: sizeOf(s.Meta),
			})
		}
	}
	slices.SortStableFunc(out, func(a, b api.Savepoint) int { return b.Time.Compare(a.Time) })
	return out, nil
}

// sizeOf is the bytes of all files that a savepoint refers to.
func sizeOf(m *checkpoint.Metadata) int64 {
	size := int64(0)
	for _, f := range m.Files() {
		size += f.Size
	}
	return size
}

// Validate implements api.Service.
func (d *Daemon) Validate(_ context.Context, text string) (*api.Validation, error) {
	return d.posted(text).validation(), nil
}

// posted reads a definition that was handed in; what it names beside it is taken from
// the folder of pipelines.
func (d *Daemon) posted(text string) *definition {
	def := &definition{file: d.folder + "/definition.yaml"}
	def.parse([]byte(text), readFile)
	return def
}

// Plan implements api.Service.
func (d *Daemon) Plan(ctx context.Context, text string) (*api.Plan, error) {
	def := d.posted(text)
	if !def.valid() {
		return nil, invalid("the definition has faults:\n%s", def.report())
	}
	out := &api.Plan{Description: def.plan.Describe()}
	if d.opts.PlanText != nil {
		out.Text = d.opts.PlanText(&out.Description)
	}
	u, err := d.find(def.name)
	if err != nil {
		out.Change = "start"
	} else {
		u.mu.Lock()
		out.Change = "reload"
		if u.run == nil {
			out.Change = "start"
		}
		if u.def.fingerprint == def.fingerprint {
			out.Change = "none"
		}
		u.mu.Unlock()
	}
	if out.Change == "none" {
		return out, nil
	}
	restore, err := d.planRestore(ctx, def)
	switch {
	case err != nil:
		out.Change, out.Why = "refused", err.Error()
	case restore.Refused != "":
		out.Change, out.Why = "refused", restore.Refused
	}
	return out, nil
}

// firstLine is the text up to its first line break.
func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
