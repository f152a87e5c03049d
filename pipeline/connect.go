package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
)

// construct makes the sources, which does no I/O.
func (a *attempt) construct() error {
	p := a.plan
	for _, c := range p.chains {
		if c.source == nil {
			continue
		}
		src, err := c.source.spec.Spec.New(c.source.spec.Config)
		if err != nil {
			return fmt.Errorf("source %s: %w", c.source.spec.Name, err)
		}
		a.sources = append(a.sources, &sourceRun{node: c.source, chain: c, source: src, subtasks: a.parallelism})
	}
	return nil
}

// makeSinks makes the sinks anew and closes those that could not be opened.
func (a *attempt) makeSinks() error {
	for _, s := range a.sinks {
		a.note("sink", s.sink.Close())
	}
	a.sinks, a.shared.byKey = map[string]*sinkRun{}, nil
	tally := &a.opts.Control.commits
	tally.restart()
	a.commits = &committers{log: a.log, tally: tally, mask: a.plan.Spec.Mask, byID: map[string]connectors.Committer{}, uids: map[string][]string{}, loss: newLossRule(&a.plan.Spec.Checkpoint, a.counts)}
	for _, s := range a.plan.sinks {
		sink, err := s.spec.Spec.New(s.spec.Config)
		if err != nil {
			return connectors.Permanent(fmt.Errorf("sink %s: %w", s.spec.Name, err))
		}
		a.sinks[s.spec.Name] = &sinkRun{node: s, sink: sink}
	}
	return nil
}

// openSinks connects the sinks. It changes nothing in their targets. It can be
// repeated: each try has sinks of its own. readOnly is for those that are only looked at.
func (a *attempt) openSinks(ctx context.Context, readOnly bool) error {
	if err := a.makeSinks(); err != nil {
		return err
	}
	for _, s := range a.plan.sinks {
		run := a.sinks[s.spec.Name]
		env := a.sinkEnv(s, readOnly)
		if err := run.sink.Open(ctx, env); err != nil {
			return fmt.Errorf("sink %s: open: %w", s.spec.Name, advised(run.sink, err))
		}
		if two, ok := run.sink.(connectors.TwoPhaseSink); ok {
			c := two.Committer()
			a.commits.byID[c.ID()], a.commits.uids[c.ID()] = c, append(a.commits.uids[c.ID()], s.spec.UID)
			a.commits.tally.belongs(s.spec.Name, c.ID())
		}
	}
	return nil
}

// advised puts what a sink or step that could not be opened says to do behind the error.
func advised(of any, err error) error {
	a, ok := of.(connectors.OpenAdviser)
	if !ok {
		return err
	}
	key, help := a.OpenAdvice(err)
	if help == "" || strings.Contains(err.Error(), help) {
		return err
	}
	if key != "" {
		help = key + ": " + help
	}
	return fmt.Errorf("%w (%s)", err, help)
}

// sinkEnv is what a sink is opened with.
func (a *attempt) sinkEnv(s *sinkNode, readOnly bool) connectors.SinkEnv {
	cp := &a.plan.Spec.Checkpoint
	slots := 16
	if cp.TolerableFailures >= 0 {
		slots = cp.MaxConcurrent + int(cp.TolerableFailures) + 1
	}
	return connectors.SinkEnv{
		Log: a.log.With("sink", s.spec.Name), Pipeline: a.plan.Spec.Name, Name: s.spec.Name,
		Subtasks: s.writers * a.parallelism, Generation: a.generation.Load, Origin: a.originName, Slots: slots,
		Shared: a.shared.get, Encoding: "json", Budget: a.opts.sinkBudget(len(a.plan.sinks)),
		Interval: cp.Interval, Failpoint: a.opts.Failpoint, ReadOnly: readOnly,
		Restored: a.restoredFiles, OnError: connectors.RowAction(s.spec.OnError.Action), Columns: s.columns,
	}
}

// restoredFiles reads the files of the checkpoint that is restored, once it is chosen.
func (a *attempt) restoredFiles() connectors.CheckpointFiles {
	files, _ := a.restored.Load().(connectors.CheckpointFiles)
	return files
}

func (a *attempt) originName() string {
	name, _ := a.origin.Load().(string)
	return name
}

// startSinks hands the sinks what they left in the restored checkpoint.
func (a *attempt) startSinks(ctx context.Context, m *checkpoint.Metadata, files connectors.CheckpointFiles, own bool) error {
	for _, s := range a.plan.sinks {
		restored := connectors.Restored{Files: files, Own: own}
		if op := findOperator(m, s.spec.UID); op != nil {
			for _, st := range op.Subtasks {
				restored.Subtasks = append(restored.Subtasks, connectors.Prepared{State: st.State, Files: st.Files})
			}
		}
		if err := a.sinks[s.spec.Name].sink.Start(ctx, restored); err != nil {
			return fmt.Errorf("sink %s: start: %w", s.spec.Name, err)
		}
	}
	return nil
}

// listSplits asks the sources what is there to read. What refuses the start is told of
// all sources at once.
func (a *attempt) listSplits(ctx context.Context, m *checkpoint.Metadata) error {
	var faults []error
	for _, s := range a.sources {
		var restored []connectors.Split
		if op := findOperator(m, s.node.spec.UID); op != nil {
			restored = op.Splits
			if restored == nil {
				restored = []connectors.Split{}
			}
		}
		splits, err := s.source.Splits(ctx, restored)
		if err == nil {
			s.splits = sortSplits(splits)
			keepSkips(s.splits, restored)
			err = a.checkDropped(s.node.spec.Name, restored, splits)
		} else {
			err = sourceFault(s, err)
		}
		if err != nil && !connectors.IsPermanent(err) {
			return err
		}
		faults = append(faults, err)
	}
	return connectors.Permanent(errors.Join(faults...))
}

func sourceFault(s *sourceRun, err error) error {
	return fmt.Errorf("source %s: %w", s.node.spec.Name, err)
}

// checkDropped refuses to forget positions: what the source does not read any more
// would be read from its start when it is named again.
func (a *attempt) checkDropped(source string, restored, now []connectors.Split) error {
	kept := map[string]bool{}
	for _, sp := range now {
		kept[sp.ID] = true
	}
	var gone []string
	for _, sp := range restored {
		if !kept[sp.ID] {
			gone = append(gone, fmt.Sprintf("%s at %d", sp.ID, sp.Offset))
		}
	}
	if len(gone) == 0 {
		return nil
	}
	if a.opts.AllowNonRestoredState {
		a.log.Warn("positions are dropped, as asked", "source", source, "splits", strings.Join(gone, ", "))
		return nil
	}
	return connectors.Permanent(fmt.Errorf("source %s does not read %s any more, which the checkpoint has positions of: "+
		"name it again, or drop the positions with --allow-non-restored-state", source, strings.Join(gone, ", ")))
}

func sortSplits(s []connectors.Split) []connectors.Split {
	s = slices.Clone(s)
	slices.SortFunc(s, func(a, b connectors.Split) int { return strings.Compare(a.ID, b.ID) })
	return s
}

func findOperator(m *checkpoint.Metadata, uid string) *checkpoint.Operator {
	if m == nil {
		return nil
	}
	for i := range m.Operators {
		if m.Operators[i].UID == uid {
			return &m.Operators[i]
		}
	}
	return nil
}

// operators is the state of a new job before its first record.
func (a *attempt) operators(m *checkpoint.Metadata) []checkpoint.Operator {
	var ops []checkpoint.Operator
	for _, s := range a.sources {
		ops = append(ops, checkpoint.Operator{
			UID: s.node.spec.UID, Kind: "source " + s.node.spec.Kind, Parallelism: a.parallelism, Splits: s.splits,
		})
	}
	for _, c := range a.plan.keyedSteps() {
		if op := findOperator(m, c.keyed.spec.UID); op != nil {
			ops = append(ops, *op)
		}
	}
	for _, s := range a.plan.sinks {
		if op := findOperator(m, s.spec.UID); op != nil {
			ops = append(ops, *op)
		}
	}
	return ops
}

// readsNew reports whether there are splits that a checkpoint does not know.
func (a *attempt) readsNew(m *checkpoint.Metadata) bool {
	for _, s := range a.sources {
		known := map[string]bool{}
		if op := findOperator(m, s.node.spec.UID); op != nil {
			for _, sp := range op.Splits {
				known[sp.ID] = true
			}
		}
		for _, sp := range s.splits {
			if !known[sp.ID] {
				return true
			}
		}
	}
	return false
}

// openReaders deals the splits out to the subtasks and makes their readers.
func (a *attempt) openReaders() error {
	for _, s := range a.sources {
		dealt := make([][]connectors.Split, a.parallelism)
		for i, sp := range s.splits {
			dealt[i%a.parallelism] = append(dealt[i%a.parallelism], sp)
		}
		for _, t := range a.tasks {
			if t.chain != s.chain {
				continue
			}
			env := connectors.ReaderEnv{
				Log: a.log.With("source", s.node.spec.Name), Subtask: t.subtask, Subtasks: a.parallelism,
				Budget:  a.opts.sourceBudget(len(a.sources) * max(1, min(a.parallelism, len(s.splits)))),
				Batches: connectors.NewBatchPool(idleBatches),
			}
			r, err := newSourceReader(s, env, dealt[t.subtask], a.clocks)
			if err != nil {
				return fmt.Errorf("source %s: %w", s.node.spec.Name, err)
			}
			t.reader = r
			s.tasks = append(s.tasks, t)
			a.left.Add(1)
		}
	}
	return nil
}
