package pipeline

import (
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// Progress is where a running pipeline is: its counts since the last start or
// restart, its splits and its keyed steps.
type Progress struct {
	Counts Counts
	Splits []SplitProgress // in no order
	Steps  []StepProgress  // by step and subtask
	// Sources is what sources counted that count something of their own, by name of the
	// source and of what is counted.
	Sources map[string]map[string]int64
}

// StepProgress is where one subtask of a keyed step is.
type StepProgress struct {
	Step      string
	Subtask   int
	Watermark int64 // event time, milliseconds since 1970; state.MinTime before there is one
	Idle      bool  // no source above has more to give for now
	Late      int64 // records too late, with no branch reading them
	State     state.Usage
}

// Progress tells what the pipeline is at; it is empty while nothing runs.
func (c *Control) Progress() Progress {
	c.mu.Lock()
	run := c.run
	c.mu.Unlock()
	if run == nil {
		return Progress{}
	}
	var p Progress
	for _, t := range run.a.tasks {
		p.Counts.add(&t.counts)
		if t.reader != nil {
			p.Splits = append(p.Splits, t.reader.clock.progress()...)
		}
		if t.keyed != nil {
			p.Steps = append(p.Steps, t.keyed.progress())
		}
	}
	p.Counts.addLost(run.a.counts)
	p.Sources = map[string]map[string]int64{}
	for _, s := range run.a.sources {
		if c, ok := s.source.(connectors.Counter); ok {
			p.Sources[s.node.spec.Name] = c.Counts()
		}
	}
	return p
}

func (k *keyedTask) progress() StepProgress {
	s := StepProgress{
		Step: k.node.spec.Name, Subtask: k.task.subtask, Watermark: k.shown.watermark.Load(),
		Idle: k.shown.idle.Load(), Late: k.task.counts.late.Load(),
	}
	if k.store != nil {
		s.State = k.store.Usage()
	}
	return s
}

// Counts are those of Progress; they are cheap to tell.
func (c *Control) Counts() Counts {
	c.mu.Lock()
	run := c.run
	c.mu.Unlock()
	var out Counts
	if run != nil {
		for _, t := range run.a.tasks {
			out.add(&t.counts)
		}
	}
	return out
}
