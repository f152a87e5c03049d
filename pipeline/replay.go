package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/spec"
	"github.com/sluice-etl/sluice/pipeline/transform"
	"github.com/sluice-etl/sluice/storage"
)

// ReplayOptions say which dead letters of a pipeline are brought in again, and how.
type ReplayOptions struct {
	// Sink names the sink that has them; it may be empty where there is one.
	Sink   string
	Filter LetterFilter
	// ToSource writes the records back to where the sources read them, for the running
	// pipeline to read, instead of taking them through the pipeline's steps.
	ToSource bool
}

// replaySuffix is behind the pipeline's name in that of what brings its dead letters in.
const replaySuffix = "-dlq"

// ReplayName is the name under which dead letters of a pipeline are brought in: their
// checkpoints are kept under it.
func ReplayName(pipeline string) string { return pipeline + replaySuffix }

// Replay makes the plan of a bounded pipeline that brings dead letters in, each once,
// however often it is run and wherever it is killed. The pipeline itself may run
// meanwhile.
func Replay(p *spec.Pipeline, opts ReplayOptions) (*Plan, error) {
	if err := opts.Check(p); err != nil {
		return nil, err
	}
	letters, err := letterSink(p, opts.Sink)
	if err != nil {
		return nil, err
	}
	if p.Checkpoint.Storage == "" {
		return nil, errors.New("the pipeline has no checkpoint.storage, and without it nobody knows tomorrow which dead letters are in")
	}
	d := *p
	d.Name = ReplayName(p.Name)
	d.Checkpoint.Claim = false
	if opts.ToSource {
		err = toSource(p, &d, letters, opts.Filter)
	} else {
		err = throughSteps(p, &d, letters, opts.Filter)
	}
	if err != nil {
		return nil, err
	}
	plan := NewPlan(&d)
	if d.Diagnostics().HasErrors() {
		var text strings.Builder
		_ = d.Diagnostics().Print(&text, false)
		return nil, fmt.Errorf("what brings the dead letters in has faults:\n%s", text.String())
	}
	if steps := plan.keyedSteps(); len(steps) > 0 {
		return nil, fmt.Errorf("step %s keeps state, which belongs to the running pipeline and cannot be added to from beside it: "+
			"write the records back to where they came from with --to-source, for the pipeline to read them again", steps[0].keyed.spec.Name)
	}
	if !opts.ToSource {
		plan.limitReach()
	}
	return plan, nil
}

// Check refuses options that do not fit the pipeline.
func (o *ReplayOptions) Check(p *spec.Pipeline) error {
	if _, err := letterSink(p, o.Sink); err != nil {
		return err
	}
	_, err := newLetterFilter(o.Filter)
	return err
}

// letterSink finds the sink whose dead letters are meant.
func letterSink(p *spec.Pipeline, name string) (*spec.Sink, error) {
	used := map[string]bool{}
	for i := range p.Sources {
		used[p.Sources[i].OnError.Sink] = true
	}
	for i := range p.Transforms {
		used[p.Transforms[i].OnError.Sink] = true
	}
	for i := range p.Sinks {
		used[p.Sinks[i].OnError.Sink] = true
	}
	var names []string
	for i := range p.Sinks {
		if used[p.Sinks[i].Name] {
			names = append(names, p.Sinks[i].Name)
		}
	}
	switch {
	case len(names) == 0:
		return nil, fmt.Errorf("pipeline %s sends no dead letters anywhere: on_error: {dead_letter: SINK} names a sink for them", p.Name)
	case name == "" && len(names) > 1:
		return nil, fmt.Errorf("there are several sinks of dead letters, %s: choose one with --sink", strings.Join(names, ", "))
	case name == "":
		name = names[0]
	case !slices.Contains(names, name):
		return nil, fmt.Errorf("sink %s gets no dead letters; there is %s", name, strings.Join(names, ", "))
	}
	s := &p.Sinks[slices.IndexFunc(p.Sinks, func(s spec.Sink) bool { return s.Name == name })]
	if s.Spec.Letters == nil {
		return nil, fmt.Errorf("dead letters cannot be read back from a %s sink: read them there, and use kafka or file for those that are to be brought in", s.Kind)
	}
	return s, nil
}

// lettersOf is the kind of source that reads dead letters in place of another one.
func lettersOf(sink *spec.Sink, filter LetterFilter, only *spec.Source) connectors.SourceSpec {
	return connectors.SourceSpec{
		Name: "dead_letters", Doc: "Reads dead letters back.", Bounded: func(any) bool { return true },
		New: func(any) (connectors.Source, error) {
			inner, err := sink.Spec.Letters(sink.Config)
			if err != nil {
				return nil, fmt.Errorf("read the dead letters of sink %s: %w", sink.Name, err)
			}
			s := &letterSource{inner: inner, rows: sink.Spec.DeadLetterRows, filter: filter}
			if only != nil {
				s.only, err = only.Spec.New(only.Config)
			}
			return s, err
		},
	}
}

// throughSteps puts dead letters in the place of what the sources read.
func throughSteps(p, d *spec.Pipeline, letters *spec.Sink, filter LetterFilter) error {
	d.Sources = slices.Clone(p.Sources)
	for i := range d.Sources {
		s := &d.Sources[i]
		var only *spec.Source
		if len(d.Sources) > 1 {
			only = &p.Sources[i]
		}
		s.Spec, s.Kind = lettersOf(letters, filter, only), "dead_letters"
	}
	d.Sinks = slices.Clone(p.Sinks)
	for i := range d.Sinks {
		if s := &d.Sinks[i]; s.Spec.Beside != nil && s.Config != nil {
			s.Config = s.Spec.Beside(s.Config, replaySuffix)
		}
	}
	return nil
}

// toSource writes the records of dead letters back to the topics that the sources read.
func toSource(p, d *spec.Pipeline, letters *spec.Sink, filter LetterFilter) error {
	d.Sources, d.Transforms, d.Sinks = nil, nil, nil
	taken := map[string]bool{}
	for i := range p.Sources {
		s := &p.Sources[i]
		if s.Spec.Back == nil {
			return fmt.Errorf("nothing can be written back to source %s, which is of kind %s", s.Name, s.Kind)
		}
		ways, err := s.Spec.Back(s.Config)
		if err != nil {
			return fmt.Errorf("source %s: %w", s.Name, err)
		}
		var only *spec.Source
		if len(p.Sources) > 1 {
			only = s
		}
		// By its uid what one way has brought in is known to the other.
		d.Sources = append(d.Sources, spec.Source{
			Name: s.Name, UID: s.UID, Kind: "dead_letters", Spec: lettersOf(letters, filter, only), Config: &struct{}{},
			OnError: spec.OnError{Action: spec.Fail}, Path: s.Path,
		})
		for _, b := range ways {
			if taken[b.Topic] {
				continue
			}
			taken[b.Topic] = true
			if err := addBack(d, s, b); err != nil {
				return err
			}
		}
	}
	return nil
}

// addBack adds the way of one topic's records.
func addBack(d *spec.Pipeline, from *spec.Source, b connectors.Back) error {
	kind, ok := connectors.LookupSink(b.Sink)
	if !ok {
		return fmt.Errorf("there is no sink %s in this program", b.Sink)
	}
	filterKind, _ := transform.Lookup("filter")
	fail := spec.OnError{Action: spec.Fail}
	name := fmt.Sprintf("back-%d", len(d.Sinks)+1)
	// A filter judges tombstones only where it asks for them.
	text := fmt.Sprintf("(meta.tombstone or true) and meta.topic == %q", b.Topic)
	d.Transforms = append(d.Transforms, spec.Transform{
		Name: "of-" + name, UID: "of-" + name, Named: true, Kind: "filter", Spec: filterKind, OnError: fail, Path: from.Path,
		Config: &transform.FilterConfig{Keep: connectors.Expr{Text: text}}, From: []spec.Ref{{Node: from.Name}},
	})
	d.Sinks = append(d.Sinks, spec.Sink{
		Name: name, UID: name, Kind: b.Sink, Spec: kind, Config: b.Config, From: []spec.Ref{{Node: "of-" + name}}, OnError: fail, Path: from.Path,
	})
	return nil
}

// limitReach keeps what is brought in from sinks that had it already: a record that failed
// on the way to one sink has reached the others.
func (p *Plan) limitReach() {
	known := map[string]bool{}
	up := map[string][]string{}
	add := func(name string, from []spec.Ref) {
		known[name] = true
		for _, r := range from {
			up[name] = append(up[name], r.Node)
		}
	}
	for i := range p.Spec.Sources {
		add(p.Spec.Sources[i].Name, nil)
	}
	for i := range p.Spec.Transforms {
		add(p.Spec.Transforms[i].Name, p.Spec.Transforms[i].From)
	}
	for i := range p.Spec.Sinks {
		add(p.Spec.Sinks[i].Name, p.Spec.Sinks[i].From)
	}
	for _, s := range p.sinks {
		reach := map[string]bool{}
		var visit func(name string)
		visit = func(name string) {
			if reach[name] {
				return
			}
			reach[name] = true
			for _, n := range up[name] {
				visit(n)
			}
		}
		visit(s.spec.Name)
		s.passedBy = map[string]bool{}
		for name := range known {
			if !reach[name] {
				s.passedBy[name] = true
			}
		}
	}
}

// reached leaves out the dead letters that failed on the way to other sinks.
func (s *sinkNode) reached(b *connectors.Batch, sel []uint16) []uint16 {
	n := 0
	for _, row := range sel {
		if o := b.Records[row].Origin; o != nil && o.Letter != nil && s.passedBy[o.Letter.Step] {
			continue
		}
		sel[n] = row
		n++
	}
	return sel[:n]
}

// ReadOn is what a replay has to restore: empty for its job that was killed, which goes on
// by itself, otherwise what its last job ended with.
func ReadOn(ctx context.Context, p *spec.Pipeline) (path string, meta *checkpoint.Metadata, err error) {
	fs, err := storage.Open(p.Checkpoint.Storage)
	if err != nil {
		return "", nil, err
	}
	store, err := checkpoint.NewStore(fs, ReplayName(p.Name), checkpoint.StoreOptions{})
	if err != nil {
		return "", nil, err
	}
	sv, err := store.Survey(ctx)
	if err != nil {
		return "", nil, err
	}
	for i := range sv.Checkpoints {
		if f := &sv.Checkpoints[i]; f.Meta != nil && !f.Orphan && f.Path == sv.Last() {
			meta = f.Meta
		}
	}
	if sv.Ended == nil {
		return "", meta, nil
	}
	return sv.Last(), meta, nil
}

// Letters lists the dead letters of a pipeline that are chosen and not yet brought in; with
// all, those too that are.
func Letters(ctx context.Context, p *spec.Pipeline, opts ReplayOptions, all bool, seen func(*Letter)) error {
	sink, err := letterSink(p, opts.Sink)
	if err != nil {
		return err
	}
	inner, err := sink.Spec.Letters(sink.Config)
	if err != nil {
		return fmt.Errorf("read the dead letters of sink %s: %w", sink.Name, err)
	}
	s := &letterSource{inner: inner, rows: sink.Spec.DeadLetterRows, filter: opts.Filter, made: true}
	defer s.Close() //nolint:errcheck // it was read
	var done []connectors.Split
	if !all && p.Checkpoint.Storage != "" {
		_, meta, err := ReadOn(ctx, p)
		if err != nil {
			return err
		}
		for i := range p.Sources {
			if op := findOperator(meta, p.Sources[i].UID); op != nil {
				done = joined(done, op.Splits)
			}
		}
	}
	return s.each(ctx, done, seen)
}

// joined are the splits of several sources that read the same, with what each brought in.
func joined(a, b []connectors.Split) []connectors.Split {
	for _, sp := range b {
		i := slices.IndexFunc(a, func(x connectors.Split) bool { return x.ID == sp.ID })
		if i < 0 {
			a = append(a, sp)
			continue
		}
		x, errX := detailOf(a[i])
		y, errY := detailOf(sp)
		if errX == nil && errY == nil {
			x.Done = merged(append(x.Done, y.Done...))
			a[i].Detail = x.encode()
		}
	}
	return a
}
