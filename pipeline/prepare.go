package pipeline

import (
	"cmp"
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
}

// preparedSink is what one writer has to prepare.
type preparedSink struct {
	sink    *sinkWriter
	prepare connectors.Prepare
}

// prepare makes durable what a task had before a barrier, its state and what its
// writers took, and acknowledges it.
func (a *attempt) prepare(ctx context.Context, b *barrier, ack checkpoint.Ack, parts prepared) {
	var broken error
	defer func() {
		if broken != nil {
			a.fail(broken)
		}
	}()
	defer recoverTo(&broken)
	began := time.Now()
	files := a.files(b.id.Number)
	failed := parts.writeState(ctx, a, files, &ack)
	for _, p := range parts.sinks {
		// All of them, also when one fails: the others hold what the next is to hand over.
		got, err := p.prepare(ctx, files)
		if err != nil {
			failed = cmp.Or(failed, fmt.Errorf("sink %s: prepare checkpoint %d: %w", p.sink.name, b.id.Number, err))
			continue
		}
		ack.Committables = append(ack.Committables, got.Committables...)
		if got.State != nil || len(got.Files) > 0 {
			sp := p.sink.node.spec
			ack.Operators = append(ack.Operators, checkpoint.OperatorState{
				UID: sp.UID, Kind: "sink " + sp.Kind, Parallelism: p.sink.node.writers * a.parallelism,
				State: &checkpoint.SubtaskState{Subtask: p.sink.index, State: got.State, Files: got.Files},
			})
		}
	}
	if failed != nil {
		a.declined(ctx, b, ack.Task, failed)
		return
	}
	ack.Checkpoint, ack.Async = b.id, time.Since(began)
	a.coord.Ack(ack)
}

// writeState writes the picture of the task's keyed state.
func (p *prepared) writeState(ctx context.Context, a *attempt, files connectors.CheckpointFiles, ack *checkpoint.Ack) error {
	if p.keyed == nil {
		return nil
	}
	node := p.keyed.node
	cp := &a.plan.Spec.Checkpoint
	pieces, err := p.snapshot.Write(ctx, files, state.Form{Compression: cp.Compression, Neutral: !cp.Increments()})
	if err != nil {
		return fmt.Errorf("state of step %s: %w", node.spec.Name, err)
	}
	own, err := json.Marshal(p.noted)
	if err != nil {
		return err
	}
	op := checkpoint.OperatorState{
		UID: node.spec.UID, Kind: node.spec.Kind, Parallelism: a.parallelism,
		State: &checkpoint.SubtaskState{Subtask: p.keyed.task.subtask, State: own},
	}
	for _, piece := range pieces {
		op.KeyGroups = append(op.KeyGroups, checkpoint.KeyGroups(piece))
	}
	ack.Operators = append(ack.Operators, op)
	return nil
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
