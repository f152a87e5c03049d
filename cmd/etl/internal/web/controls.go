package web

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
	"github.com/sluice-etl/sluice/pipeline"
)

// Controls is the service of a process that runs what it was started with, and that
// has no folder of pipelines: of etl run.
type Controls struct {
	fixed
	version   string
	started   time.Time
	order     []string
	pipelines map[string]controlled
}

type controlled struct {
	plan    *pipeline.Plan
	control *pipeline.Control
}

var _ api.Service = (*Controls)(nil)

// NewControls makes the service of no pipeline.
func NewControls(version string) *Controls {
	return &Controls{version: version, started: time.Now(), pipelines: map[string]controlled{}}
}

// Add adds a pipeline, before the service is served.
func (c *Controls) Add(p *pipeline.Plan, control *pipeline.Control) {
	c.order = append(c.order, p.Spec.Name)
	c.pipelines[p.Spec.Name] = controlled{p, control}
}

func (c *Controls) find(name string) (controlled, error) {
	p, ok := c.pipelines[name]
	if !ok {
		return p, fmt.Errorf("this process runs no pipeline %q: %w", name, api.ErrUnknown)
	}
	return p, nil
}

// Daemon tells how the process is.
func (c *Controls) Daemon(ctx context.Context) api.Daemon {
	ok, _ := c.Ready(ctx)
	return api.Daemon{Version: c.version, PID: os.Getpid(), Started: c.started, Listens: []string{}, Ready: ok}
}

// Ready tells whether each pipeline runs or is done.
func (c *Controls) Ready(ctx context.Context) (ok bool, pipelines map[string]api.Health) {
	ok, pipelines = true, map[string]api.Health{}
	for _, p := range c.Pipelines(ctx) {
		ok, pipelines[p.Name] = ok && p.Health.OK, p.Health
	}
	return ok, pipelines
}

// Pipelines lists the pipelines in the order of the command line.
func (c *Controls) Pipelines(context.Context) []api.Pipeline {
	out := make([]api.Pipeline, 0, len(c.order))
	for _, name := range c.order {
		out = append(out, c.pipelines[name].shown(name))
	}
	return out
}

// Pipeline tells how a pipeline is.
func (c *Controls) Pipeline(_ context.Context, name string) (*api.Pipeline, error) {
	p, err := c.find(name)
	if err != nil {
		return nil, err
	}
	shown := p.shown(name)
	return &shown, nil
}

func (p controlled) shown(name string) api.Pipeline {
	s := p.control.Status()
	out := api.Pipeline{
		Name: name, State: stateOf(s), Since: s.Since, Status: &s, Failure: s.Failure, Restarts: s.Restarts,
		LagRecords: -1, LagSeconds: -1, FailedCheckpoints: p.control.Checkpoints().FailedInARow,
	}
	out.Health = api.Health{OK: out.State != api.Restarting && out.State != api.Failed, Problems: []api.Problem{}}
	if !out.Health.OK {
		out.Health.Problems = append(out.Health.Problems, api.Problem{Kind: "restart", Level: "error", Text: s.Failure, Since: s.Since})
	}
	return out
}

// stateOf is the state that a phase and an outcome come to.
func stateOf(s pipeline.Status) api.State {
	switch {
	case s.Phase == "":
		return api.Starting
	case s.Phase != pipeline.Ended:
		return api.State(s.Phase) // the words are the same
	case s.Outcome == pipeline.Finished, s.Outcome == pipeline.AlreadyFinished:
		return api.Finished
	case s.Outcome == pipeline.Failed:
		return api.Failed
	}
	return api.Stopped
}

// Describe tells how a pipeline runs.
func (c *Controls) Describe(_ context.Context, name string) (*pipeline.Description, error) {
	p, err := c.find(name)
	if err != nil {
		return nil, err
	}
	d := p.plan.Describe()
	return &d, nil
}

// Flow tells what flows through a pipeline.
func (c *Controls) Flow(_ context.Context, name string) (*pipeline.Flow, error) {
	p, err := c.find(name)
	if err != nil {
		return nil, err
	}
	f := p.control.Flow()
	return &f, nil
}

// Tap shows records at an operator of a pipeline.
func (c *Controls) Tap(ctx context.Context, name, operator string, o pipeline.TapOptions) (<-chan pipeline.Tapped, error) {
	p, err := c.find(name)
	if err != nil {
		return nil, err
	}
	return p.control.Tap(ctx, operator, o)
}

// Failures are the newest records that failed.
func (c *Controls) Failures(_ context.Context, name string) ([]pipeline.Failure, error) {
	p, err := c.find(name)
	if err != nil {
		return nil, err
	}
	return p.control.Failures(), nil
}

// Stop ends the job of a pipeline.
func (c *Controls) Stop(ctx context.Context, _, name string, o pipeline.StopOptions) (*pipeline.Taken, error) {
	p, err := c.find(name)
	if err != nil {
		return nil, err
	}
	return p.control.Stop(ctx, o)
}

// Cancel ends the job of a pipeline at once.
func (c *Controls) Cancel(ctx context.Context, _, name string) (*pipeline.Taken, error) {
	p, err := c.find(name)
	if err != nil {
		return nil, err
	}
	return p.control.Cancel(ctx)
}

// Checkpoints are those of this process.
func (c *Controls) Checkpoints(_ context.Context, name string) (*api.Checkpoints, error) {
	p, err := c.find(name)
	if err != nil {
		return nil, err
	}
	settings := p.plan.Spec.Checkpoint
	return &api.Checkpoints{
		Stats: p.control.Checkpoints(), Earlier: []checkpoint.AttemptStats{}, Duration: map[string]float64{}, Size: map[string]float64{},
		Interval: settings.Interval.Seconds(), Timeout: settings.Timeout.Seconds(), Mode: settings.Mode, Storage: settings.Storage, Retained: settings.Retained,
	}, nil
}

// Checkpoint takes one now.
func (c *Controls) Checkpoint(ctx context.Context, _, name string) (*pipeline.Taken, error) {
	p, err := c.find(name)
	if err != nil {
		return nil, err
	}
	return p.control.Checkpoint(ctx)
}

// Savepoint takes one.
func (c *Controls) Savepoint(ctx context.Context, _, name, dir string) (*pipeline.Taken, error) {
	p, err := c.find(name)
	if err != nil {
		return nil, err
	}
	return p.control.Savepoint(ctx, dir)
}
