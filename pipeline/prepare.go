package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// prepared is what a task has to make durable for a barrier.
type prepared struct {
	sinks    []preparedSink
	keyed    *keyedTask // nil where the task has no keyed state
	snapshot state.Snapshot
	noted    keyedState
	neutral  bool // in the form that every backend reads
}

// preparedSink is what one writer has to prepare.
type preparedSink struct {
	sink    *sinkWriter
	prepare connectors.Prepare
}

// prepare makes durable what a task had before a barrier, its state and what its
// writers took, and acknowledges it. All of it is written at the same time.
func (a *attempt) prepare(ctx context.Context, b *barrier, ack checkpoint.Ack, parts prepared) {
	var broken error
	defer func() {
		if broken != nil {
			a.fail(broken)
		}
	}()
	defer connectors.Recovered(&broken)
	began := time.Now()
	files := a.job.Files(b.id.Number)
	var (
		beside sync.WaitGroup
		keyed  *checkpoint.OperatorState
		got    = make([]connectors.Prepared, len(parts.sinks))
		failed = make([]error, len(parts.sinks)+1)
	)
	guarded := func(err *error, f func() error) {
		beside.Go(func() {
			var broken error // by a panic, after which what the task holds means nothing
			defer func() {
				if broken != nil {
					*err = broken
					a.fail(broken)
				}
			}()
			defer connectors.Recovered(&broken)
			*err = f()
		})
	}
	if parts.keyed != nil {
		guarded(&failed[0], func() (err error) {
			keyed, err = a.writeState(ctx, b, a.job.StateFiles(b.id.Number), &parts)
			return err
		})
	}
	for i, p := range parts.sinks {
		// All of them, also when one fails: the others hold what the next is to hand over.
		guarded(&failed[i+1], func() (err error) {
			if got[i], err = p.prepare(ctx, files); err != nil {
				return fmt.Errorf("sink %s: prepare checkpoint %d: %w", p.sink.name, b.id.Number, err)
			}
			return nil
		})
	}
	beside.Wait()
	for _, err := range failed {
		if err != nil {
			a.declined(ctx, b, ack.Task, err)
			return
		}
	}
	if keyed != nil {
		ack.Operators = append(ack.Operators, *keyed)
	}
	for i, p := range parts.sinks {
		p.acknowledge(a, &got[i], &ack)
	}
	ack.Checkpoint, ack.Async = b.id, time.Since(began)
	a.coord.Ack(ack)
}

// acknowledge adds what a writer has prepared.
func (p *preparedSink) acknowledge(a *attempt, got *connectors.Prepared, ack *checkpoint.Ack) {
	ack.Committables = append(ack.Committables, got.Committables...)
	a.commits.tally.prepared(got.Committables, time.Now())
	if got.State == nil && len(got.Files) == 0 {
		return
	}
	sp := p.sink.node.spec
	ack.Operators = append(ack.Operators, checkpoint.OperatorState{
		UID: sp.UID, Kind: "sink " + sp.Kind, Parallelism: p.sink.node.writers * a.parallelism,
		State: &checkpoint.SubtaskState{Subtask: p.sink.index, State: got.State, Files: got.Files},
	})
}

// writeState writes the picture of the task's keyed state, unless the checkpoint fails
// meanwhile.
func (a *attempt) writeState(ctx context.Context, b *barrier, files connectors.CheckpointFiles, p *prepared) (*checkpoint.OperatorState, error) {
	ctx, end := a.uploads.begin(ctx, b.id.Number)
	defer end()
	node := p.keyed.node
	cp := &a.plan.Spec.Checkpoint
	pieces, err := p.snapshot.Write(ctx, limitedFiles{files, a.uploads.slots}, state.Form{Compression: cp.Compression, Neutral: p.neutral || !cp.Increments()})
	if err != nil {
		return nil, fmt.Errorf("state of step %s: %w", node.spec.Name, err)
	}
	own, err := json.Marshal(p.noted)
	if err != nil {
		return nil, err
	}
	op := &checkpoint.OperatorState{
		UID: node.spec.UID, Kind: node.spec.Kind, Parallelism: a.parallelism,
		State: &checkpoint.SubtaskState{Subtask: p.keyed.task.subtask, State: own},
	}
	for _, piece := range pieces {
		op.KeyGroups = append(op.KeyGroups, checkpoint.KeyGroups(piece))
	}
	return op, nil
}

// declined fails the checkpoint, or the attempt where trying again is no use.
func (a *attempt) declined(ctx context.Context, b *barrier, t checkpoint.TaskID, err error) {
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, connectors.ErrFenced), connectors.IsPermanent(err):
		a.fail(err)
	default:
		a.coord.Decline(t, b.id, err)
	}
}

// prepareSequence runs functions one after the other, beside the task that adds them.
type prepareSequence struct {
	mu      sync.Mutex
	queue   []func()
	running bool
}

func (s *prepareSequence) add(wg *sync.WaitGroup, f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, f)
	if s.running {
		return
	}
	s.running = true
	wg.Go(s.drain)
}

func (s *prepareSequence) drain() {
	for {
		s.mu.Lock()
		if len(s.queue) == 0 {
			s.running = false
			s.mu.Unlock()
			return
		}
		f := s.queue[0]
		s.queue = s.queue[1:]
		s.mu.Unlock()
		f()
	}
}
