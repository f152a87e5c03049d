package pipeline

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/pipeline/state"
	"github.com/sluice-etl/sluice/pipeline/transform"
)

// keyedTask is the keyed step at the head of a task, at work.
type keyedTask struct {
	task     *task
	node     *keyedNode
	instance transform.KeyedInstance
	store    state.Store
	run      transform.KeyedRun
	outs     []receiver
	counts   *operatorCounts
	failAt   failFunc          // for kept records that cannot be read any more
	current  *connectors.Batch // being processed
	decode   format.Decoder    // of kept records that are given out again; nil where no field is read

	shown struct { // for metrics too
		watermark atomic.Int64 // what the step was told last
		idle      atomic.Bool
	}

	first int     // key group that floors begins with
	floor []int64 // by key group: the restored watermark; nil where nothing was restored
}

// keyedHead prepares the keyed step at the head of the task's chain. It begins to
// work when its state is there, see start.
func (b *builder) keyedHead(n *node) (*keyedTask, error) {
	t := b.task
	outs, err := b.outputs(n)
	if err != nil {
		return nil, err
	}
	for i := range outs {
		outs[i] = b.merging(outs[i])
	}
	k := &keyedTask{task: t, node: t.chain.keyed, outs: outs, counts: t.operator(n.name, len(n.outputs))}
	k.counts.branches = n.outName
	k.failAt = t.failer(t.chain.name, t.chain.onError, t.chain.view)
	k.shown.watermark.Store(state.MinTime)
	if len(t.chain.base.Fields()) > 0 {
		if k.decode, err = t.chain.newDecoder(connectors.FormatConfig{}); err != nil {
			return nil, err
		}
	}
	fail := t.failer(n.name, n.onError, n.outputs[0].view)
	k.run = transform.KeyedRun{
		RunEnv: b.runEnv(k.counts, fail, k.emit), Groups: t.attempt.plan.Spec.MaxParallelism, Watermark: k.watermark,
		Late: k.late, Now: time.Now,
	}
	return k, nil
}

// start begins to work on a state.
func (k *keyedTask) start(store state.Store) (err error) {
	k.store, k.run.Store = store, store
	k.instance, err = k.node.step.Start(k.run)
	return err
}

// emit hands rows on. Those that the step kept and gives out again are decoded first.
func (k *keyedTask) emit(ctx context.Context, output int, b *connectors.Batch, sel []uint16) error {
	if k.decode != nil && b != k.current && k.node.decodes[output] {
		t := k.task
		refused := t.refused[:0]
		sel = k.decode.Decode(b, sel, func(row uint16, e *format.SyntaxError) {
			refused = append(refused, refusal{row, recordError(b, row, t.chain.name, "decode", e.Error())})
		})
		for _, r := range refused {
			if err := k.failAt(ctx, b, r.row, r.err); err != nil {
				return err
			}
		}
		t.refused = refused[:0]
		if len(sel) == 0 {
			return nil
		}
	}
	k.counts.out[output].Add(int64(len(sel)))
	return k.outs[output](ctx, b, sel)
}

// late counts rows that are too late and that no branch reads.
func (k *keyedTask) late(n int) {
	k.task.counts.late.Add(int64(n))
	k.counts.late.Add(int64(n))
}

// watermark is how far event time has come for a key group.
func (k *keyedTask) watermark(group int) int64 {
	now := k.task.flow.now.time
	if at := group - k.first; at >= 0 && at < len(k.floor) {
		return max(now, k.floor[at])
	}
	return now
}

// note is what the checkpoint says of the task beside its state.
func (k *keyedTask) note() keyedState {
	s := keyedState{Watermark: k.task.flow.now.time, Floors: k.floors(), Definition: k.node.definition}
	if k.task.subtask == 0 {
		s.Layout = k.node.layout
	}
	return s
}

// process hands the rows of one input to the step.
func (k *keyedTask) process(ctx context.Context, input int, b *connectors.Batch, sel []uint16) error {
	k.counts.in.Add(int64(len(sel)))
	k.current = b
	err := k.instance.Process(ctx, input, b, sel)
	k.current = nil
	return k.checked(err)
}

// checked adds the first failure of the state's backend: after one, what it answered means nothing.
func (k *keyedTask) checked(err error) error {
	if failed := k.store.Err(); failed != nil {
		return fmt.Errorf("state of step %s: %w", k.node.spec.Name, failed)
	}
	return err
}

// advance tells the step how far event time has come, unless it knows.
func (k *keyedTask) advance(ctx context.Context, watermark int64) error {
	if watermark <= k.shown.watermark.Load() {
		return nil
	}
	k.shown.watermark.Store(watermark)
	return k.checked(k.instance.Watermark(ctx, watermark))
}

func (k *keyedTask) tick(ctx context.Context, now time.Time) error {
	return k.checked(k.instance.Tick(ctx, now))
}

// fork ends the step's part of a checkpoint: what it holds back goes into the state
// or on, and a picture of the state is taken.
func (k *keyedTask) fork(ctx context.Context, number uint64) (state.Snapshot, error) {
	if err := k.checked(k.instance.Barrier(ctx)); err != nil {
		return nil, err
	}
	snap, err := k.store.Fork(number)
	if err != nil {
		return nil, fmt.Errorf("state of step %s: fork for checkpoint %d: %w", k.node.spec.Name, number, err)
	}
	return snap, nil
}

// editsSinks reports whether a sink of the chain writes records that were edited,
// for which an encoder wants to know where the fields are.
func (c *chain) editsSinks() bool {
	for _, n := range c.nodes {
		if l := n.in.Layout(); n.sink != nil && !l.Empty && !l.Untouched() {
			return true
		}
	}
	return false
}
