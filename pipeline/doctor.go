package pipeline

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/spec"
)

// DoctorOptions say how the surroundings of a pipeline are checked.
type DoctorOptions struct {
	// Write allows checks that write scratch files and objects, and remove them again.
	Write bool
	// Timeout is how long the checks of one component may take; 0 for 10 seconds.
	Timeout time.Duration
}

const defaultCheckTimeout = 10 * time.Second

// Component is what was found out about one thing that a pipeline needs.
type Component struct {
	Role string `json:"role"` // source, lookup, sink, storage or host
	Name string `json:"name"`
	Kind string `json:"kind"`
	// Findings are in the order of the checks, at least one.
	Findings []Found `json:"findings"`
}

// Found is one finding with its place in the pipeline's file.
type Found struct {
	Check  string           `json:"check"`
	Level  connectors.Level `json:"level"`
	Detail string           `json:"detail"`
	Advice string           `json:"advice,omitempty"`
	Key    string           `json:"key,omitempty"` // path of keys, dotted; empty where all is well
	File   string           `json:"file,omitempty"`
	Line   int              `json:"line,omitempty"` // 0 where the file does not have the key
	Took   time.Duration    `json:"took"`           // nanoseconds
}

// Doctor checks each source, lookup, sink and storage of a pipeline for real, and the
// machine, all at the same time. It takes no ownership and disturbs no running pipeline.
// Components that do not answer in time are told of as such. Its error says that the
// pipeline cannot be made.
func Doctor(ctx context.Context, opts Options, how DoctorOptions) ([]Component, error) {
	if how.Timeout <= 0 {
		how.Timeout = defaultCheckTimeout
	}
	r, err := newRunner(opts)
	if err != nil {
		return nil, err
	}
	a := r.newAttempt()
	if err := a.construct(); err != nil {
		return nil, err
	}
	if err := a.makeSinks(); err != nil {
		return nil, err
	}
	d := &doctor{runner: r, attempt: a, how: how, surveyed: make(chan struct{})}
	exams := d.exams()
	var wg sync.WaitGroup
	for _, e := range exams {
		wg.Go(func() { e.run(ctx, d) })
	}
	wg.Wait()
	out := make([]Component, 0, len(exams))
	for _, e := range exams {
		out = append(out, e.component)
	}
	return out, nil
}

// doctor is one Doctor.
type doctor struct {
	runner  *runner
	attempt *attempt
	how     DoctorOptions

	surveyed chan struct{} // closed when the checkpoints' storage was looked at
	known    bool          // it could be: the attempt's origin is what it should be
}

// exams lists what is to be checked, in the order of the report.
func (d *doctor) exams() []*exam {
	p := d.attempt.plan.Spec
	var out []*exam
	for _, s := range d.attempt.sources {
		sp := s.node.spec
		out = append(out, &exam{component: Component{Role: "source", Name: sp.Name, Kind: sp.Kind}, path: sp.ConfigPath(), check: d.source(s)})
	}
	out = append(out, d.lookups()...)
	for _, s := range d.attempt.plan.sinks {
		out = append(out, &exam{component: Component{Role: "sink", Name: s.spec.Name, Kind: s.spec.Kind}, path: s.spec.ConfigPath(), check: d.sink(d.attempt.sinks[s.spec.Name])})
	}
	out = append(out, &exam{
		component: Component{Role: "storage", Name: "checkpoints", Kind: schemeOf(p.Checkpoint.Storage)}, path: []string{"checkpoint", "storage"}, check: d.storage,
	})
	if dir := p.Checkpoint.Savepoints.Dir; dir != "" {
		out = append(out, &exam{
			component: Component{Role: "storage", Name: "savepoints", Kind: schemeOf(dir)}, path: []string{"checkpoint", "savepoints", "dir"}, check: d.savepoints,
		})
	}
	return append(out, &exam{component: Component{Role: "host", Name: hostName()}, path: []string{"checkpoint"}, check: d.host})
}

// exam is the checks of one component.
type exam struct {
	component Component
	path      []string // of its block in the file
	check     func(ctx context.Context, d *connectors.Diagnosis)

	mu   sync.Mutex
	over bool // what is reported from now on is not heard any more
	last time.Time
}

// patience is how long a component may take beyond its time to say why it is late.
const patience = time.Second

// run does the checks, and goes on without those that hang.
func (e *exam) run(ctx context.Context, d *doctor) {
	bounded, cancel := context.WithTimeout(ctx, d.how.Timeout)
	defer cancel()
	e.last = time.Now()
	file := d.attempt.plan.Spec
	report := func(f connectors.Finding) { e.add(file, f) }
	done := make(chan error, 1)
	go func() {
		var err error
		defer func() { done <- err }()
		defer connectors.Recovered(&err)
		e.check(bounded, &connectors.Diagnosis{Write: d.how.Write, Timeout: d.how.Timeout, Reach: reach(file), Report: report})
	}()
	var err error
	select {
	case err = <-done:
	case <-bounded.Done():
		late := time.NewTimer(patience)
		defer late.Stop()
		select {
		case err = <-done:
		case <-late.C:
			err = fmt.Errorf("no answer within %s: what it asked last is still under way", d.how.Timeout)
		}
	}
	if err != nil {
		report(connectors.Finding{Check: "answer", Level: connectors.LevelFailed, Detail: err.Error()})
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
}

// add takes a finding over.
func (e *exam) add(file *spec.Pipeline, f connectors.Finding) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over {
		return
	}
	now := time.Now()
	if f.Took == 0 {
		f.Took = now.Sub(e.last)
	}
	e.last = now
	out := Found{Check: f.Check, Level: f.Level, Detail: file.Mask(f.Detail), Advice: file.Mask(f.Advice), Took: f.Took}
	if f.Level != connectors.LevelOK && e.component.Role != "host" || f.Key != "" {
		path := e.path
		if f.Key != "" {
			path = append(path[:len(path):len(path)], strings.Split(f.Key, ".")...)
		}
		pos := file.Position(path...)
		out.Key, out.File = strings.Join(path, "."), pos.File()
		if pos.String() != pos.File() { // as it is of a flag
			out.Line = pos.Line()
		}
	}
	e.component.Findings = append(e.component.Findings, out)
}

// reach is how old the oldest checkpoint or savepoint is that the pipeline keeps by
// itself, as far as its settings tell.
func reach(p *spec.Pipeline) time.Duration {
	cp := &p.Checkpoint
	back := time.Duration(max(cp.Retained, 1))*cp.Interval + cp.Timeout + longestDelay(&p.Restart)
	return max(back, time.Duration(cp.Savepoints.Keep)*cp.Savepoints.Every)
}

// schemeOf is the scheme of a storage address.
func schemeOf(address string) string {
	switch scheme, _, isURL := strings.Cut(address, "://"); {
	case address == "":
		return "none"
	case isURL:
		return scheme
	}
	return "file"
}
