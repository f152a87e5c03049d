package pipeline_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/spec"
)

// ward is what the patients of a test do; one test at a time uses it.
var ward struct {
	open     func(ctx context.Context, env connectors.SinkEnv) error
	diagnose func(ctx context.Context, d *connectors.Diagnosis)
	witness  func(ctx context.Context, origin string) (connectors.CheckpointID, bool, error)
	closed   bool
}

type patientConfig struct {
	Name string `key:"name" doc:"What it is called."`
	Deep struct {
		Key string `key:"key" doc:"A key within a block."`
	} `key:"deep" doc:"A block."`
}

type commits = connectors.Committer

// patient is a two-phase sink that is looked at, and must not be used.
type patient struct {
	connectors.Sink
	commits
	env connectors.SinkEnv
}

func (p *patient) Guarantee() connectors.Guarantee { return connectors.ExactlyOnce }

func (p *patient) Open(ctx context.Context, env connectors.SinkEnv) error {
	p.env = env
	return ward.open(ctx, env)
}

func (p *patient) Diagnose(ctx context.Context, d *connectors.Diagnosis) { ward.diagnose(ctx, d) }
func (p *patient) Committer() connectors.Committer                       { return p }
func (p *patient) Witness(ctx context.Context) (connectors.CheckpointID, bool, error) {
	return ward.witness(ctx, p.env.Origin())
}

func (p *patient) Close() error {
	ward.closed = true
	return nil
}

func init() {
	connectors.RegisterSink(connectors.SinkSpec{
		Name: "patient", Doc: "A sink of tests.", NewConfig: func() any { return &patientConfig{} },
		New: func(any) (connectors.Sink, error) { return &patient{}, nil },
	})
}

const admitted = `
pipeline: admitted
source: {generate: {count: 1}}
sink:
  patient:
    name: x
    deep: {key: y}
checkpoint: {storage: STORAGE, interval: 1m, retained: 5, savepoints: {dir: STORAGE/saved, every: 1d, keep: 4}}
`

// healthy makes the patient of the test do all that it should.
func healthy(t *testing.T) {
	ward.open = func(context.Context, connectors.SinkEnv) error { return nil }
	ward.diagnose = func(context.Context, *connectors.Diagnosis) {}
	ward.witness = func(context.Context, string) (connectors.CheckpointID, bool, error) {
		return connectors.CheckpointID{}, false, nil
	}
	ward.closed = false
}

// examined are the components of a definition, by their roles and names.
func examined(t *testing.T, text string, how pipeline.DoctorOptions) map[string]pipeline.Component {
	t.Helper()
	text = strings.ReplaceAll(text, "STORAGE", "mem://"+strings.ToLower(t.Name()))
	p, _ := spec.Parse("p.yaml", []byte(text), spec.Options{})
	plan := pipeline.NewPlan(p)
	if p.Diagnostics().HasErrors() {
		t.Fatal(p.Diagnostics())
	}
	found, err := pipeline.Doctor(t.Context(), pipeline.Options{Plan: plan, Log: slog.New(slog.DiscardHandler)}, how)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]pipeline.Component{}
	for _, c := range found {
		name := c.Role + " " + c.Name
		if c.Role == "host" {
			name = c.Role
		}
		if len(c.Findings) == 0 {
			t.Errorf("%s: nothing is said of it", name)
		}
		out[name] = c
	}
	return out
}

func wantFound(t *testing.T, c pipeline.Component, want ...pipeline.Found) {
	t.Helper()
	if len(c.Findings) != len(want) {
		t.Fatalf("%s: %+v, want %d findings", c.Name, c.Findings, len(want))
	}
	for i, f := range c.Findings {
		f.Took = 0
		if f != want[i] {
			t.Errorf("%s: found\n%+v, want\n%+v", c.Name, f, want[i])
		}
	}
}

func TestDoctorTellsOfEachComponentWithItsPlaceInTheFile(t *testing.T) {
	healthy(t)
	ward.open = func(_ context.Context, env connectors.SinkEnv) error {
		if !env.ReadOnly {
			t.Error("a sink is opened to be written to")
		}
		return nil
	}
	ward.diagnose = func(_ context.Context, d *connectors.Diagnosis) {
		if d.Reach != 4*24*time.Hour || d.Write {
			t.Errorf("reach %s, write %t; want the four days of the savepoints, and false", d.Reach, d.Write)
		}
		d.OK("version", "1.0")
		d.Warn("clock", "deep.key", "it is late", "wind it")
	}
	all := examined(t, admitted, pipeline.DoctorOptions{})
	wantFound(t, all["sink sink"],
		pipeline.Found{Check: "open", Level: connectors.LevelOK, Detail: "it opens, and takes rows of this pipeline; result exactly once"},
		pipeline.Found{Check: "version", Level: connectors.LevelOK, Detail: "1.0"},
		pipeline.Found{Check: "clock", Level: connectors.LevelWarning, Detail: "it is late", Advice: "wind it", Key: "sink.patient.deep.key", File: "p.yaml", Line: 7},
		pipeline.Found{Check: "last commit", Level: connectors.LevelOK, Detail: "none yet"})
	for _, name := range []string{"source source", "storage checkpoints", "storage savepoints", "host"} {
		for _, f := range all[name].Findings {
			if f.Level == connectors.LevelFailed {
				t.Errorf("%s: %+v", name, f)
			}
		}
	}
	if !ward.closed {
		t.Error("the sink is left open")
	}
}

func TestDoctorTellsWhyASinkCannotBeOpened(t *testing.T) {
	healthy(t)
	ward.open = func(context.Context, connectors.SinkEnv) error {
		return connectors.Advise("name", errors.New("there is no x"), "make it")
	}
	ward.diagnose = func(context.Context, *connectors.Diagnosis) { t.Error("a sink that is not open is looked at further") }
	wantFound(t, examined(t, admitted, pipeline.DoctorOptions{})["sink sink"],
		pipeline.Found{Check: "open", Level: connectors.LevelFailed, Detail: "there is no x", Advice: "make it", Key: "sink.patient.name", File: "p.yaml", Line: 6})
}

func TestDoctorReadsTheMarkOfTheLastCommit(t *testing.T) {
	for name, c := range map[string]struct {
		id    connectors.CheckpointID
		ok    bool
		err   error
		level connectors.Level
		text  string
	}{
		"there is one":          {connectors.CheckpointID{Generation: 3, Number: 7}, true, nil, connectors.LevelOK, "checkpoint 7, by generation 3"},
		"of another pipeline":   {err: &connectors.ForeignWitnessError{Text: "other"}, level: connectors.LevelWarning, text: "other"},
		"it may not be read":    {err: errors.New("no right"), level: connectors.LevelFailed, text: "no right"},
		"the target keeps none": {err: connectors.ErrNoWitness},
	} {
		healthy(t)
		ward.witness = func(context.Context, string) (connectors.CheckpointID, bool, error) { return c.id, c.ok, c.err }
		got := examined(t, admitted, pipeline.DoctorOptions{})["sink sink"].Findings[1:]
		switch {
		case c.text == "" && len(got) == 0:
		case len(got) != 1 || got[0].Level != c.level || !strings.Contains(got[0].Detail, c.text):
			t.Errorf("%s: found %+v", name, got)
		}
	}
}

func TestDoctorGoesOnWithoutWhatHangsOrBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		healthy(t)
		release := make(chan struct{})
		ward.diagnose = func(_ context.Context, d *connectors.Diagnosis) {
			<-release
			d.OK("too late", "")
		}
		began := time.Now()
		all := examined(t, admitted, pipeline.DoctorOptions{Timeout: 3 * time.Second})
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it takes %s where 3s are allowed", took)
		}
		got := all["sink sink"].Findings
		if len(got) != 2 || got[1].Level != connectors.LevelFailed || !strings.Contains(got[1].Detail, "no answer within 3s") {
			t.Errorf("found %+v", got)
		}
		close(release)
	})
	healthy(t)
	ward.diagnose = func(context.Context, *connectors.Diagnosis) { panic("broken") }
	got := examined(t, admitted, pipeline.DoctorOptions{})["sink sink"].Findings
	if len(got) != 2 || got[1].Level != connectors.LevelFailed || !strings.Contains(got[1].Detail, "broken") {
		t.Errorf("a panic: found %+v", got)
	}
}

func TestDoctorWarnsOfCheckpointsThatGoWithTheProcess(t *testing.T) {
	healthy(t)
	without := admitted[:strings.Index(admitted, "checkpoint:")]
	got := examined(t, without, pipeline.DoctorOptions{})["storage checkpoints"].Findings
	if len(got) != 1 || got[0].Level != connectors.LevelWarning || got[0].Key != "checkpoint.storage" {
		t.Errorf("found %+v", got)
	}
}
