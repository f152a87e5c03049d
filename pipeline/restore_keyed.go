package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/spec"
	"github.com/sluice-etl/sluice/pipeline/state"
	"github.com/sluice-etl/sluice/pipeline/state/disk"
)

// keyedState is what a subtask of a keyed step notes in a checkpoint beside its
// key groups.
type keyedState struct {
	// Watermark is how far event time had come for the subtask's key groups.
	Watermark int64 `json:"watermark"`
	// Floors are the key groups that had come further before a restart.
	Floors []keyGroupFloor `json:"floors,omitempty"`
	// Definition is what the state hangs on, see definer.
	Definition string `json:"definition,omitempty"`
	// Layout is how the state is kept, noted by the first subtask for all.
	Layout json.RawMessage `json:"layout,omitempty"`
}

// keyGroupFloor is a watermark that holds for key groups, both ends included, beyond
// that of the subtask that owns them now.
type keyGroupFloor struct {
	First     int   `json:"first"`
	Last      int   `json:"last"`
	Watermark int64 `json:"watermark"`
}

// keyedStates reads what the subtasks of a keyed step noted, by subtask.
func keyedStates(op *checkpoint.Operator) (map[int]keyedState, error) {
	out := map[int]keyedState{}
	for _, st := range op.Subtasks {
		var k keyedState
		if err := json.Unmarshal(st.State, &k); err != nil {
			return nil, fmt.Errorf("state of step %s: read what subtask %d noted: %w", op.UID, st.Subtask, err)
		}
		out[st.Subtask] = k
	}
	return out, nil
}

// keyedSteps are the chains that begin with a keyed step.
func (p *Plan) keyedSteps() []*chain {
	var out []*chain
	for _, c := range p.chains {
		if c.keyed != nil {
			out = append(out, c)
		}
	}
	return out
}

// restoredState is the checkpoint that state begins with.
type restoredState struct {
	meta  *checkpoint.Metadata // nil for nothing
	files connectors.CheckpointFiles
	reuse bool // they are the job's own
}

// loadState opens the state of all keyed steps, at once for as many tasks as there
// are processors, and lets the steps begin.
func (a *attempt) loadState(ctx context.Context, from restoredState) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, t := range a.tasks {
		if t.keyed == nil {
			continue
		}
		g.Go(func() (err error) {
			defer connectors.Recovered(&err)
			return t.keyed.load(ctx, from)
		})
	}
	return g.Wait()
}

// resumeClocks tells the clocks of the sources how far event time had come in the keyed
// steps, so that a clock that has moved it on does not begin anew.
func (a *attempt) resumeClocks() {
	for _, t := range a.tasks {
		// At the end of time is a step whose own sources have ended; others go on.
		if t.keyed != nil && t.flow.now.time != state.MaxTime {
			a.clocks.resume(t.chain.scope, t.flow.now.time)
		}
	}
}

// load opens the task's state and lets the step begin on it.
func (k *keyedTask) load(ctx context.Context, from restoredState) error {
	name, groups := k.node.spec.Name, k.run.Groups
	first, last := state.GroupsOf(k.task.subtask, k.task.attempt.parallelism, groups)
	opts := state.Options{
		First: first, Last: last, Groups: groups, Log: k.task.attempt.log.With("step", name), Failpoint: k.task.attempt.opts.Failpoint,
	}
	if op := findOperator(from.meta, k.node.spec.UID); op != nil {
		if err := k.restoreWatermarks(op, first, last); err != nil {
			return err
		}
		opts.Restore = &state.Restore{Files: from.files, Reuse: from.reuse}
		for _, piece := range op.KeyGroups {
			opts.Restore.Pieces = append(opts.Restore.Pieces, state.Piece(piece))
		}
	}
	store, err := k.task.attempt.openStore(ctx, k.task, opts)
	if err != nil {
		return fmt.Errorf("state of step %s: %w", name, err)
	}
	if err := k.start(store); err != nil {
		return fmt.Errorf("step %s: start: %w", name, err)
	}
	return k.checked(nil)
}

// restoreWatermarks notes how far event time had come for the key groups that the
// subtask owns now. The least of them is where the task goes on from.
func (k *keyedTask) restoreWatermarks(op *checkpoint.Operator, first, last int) error {
	noted, err := keyedStates(op)
	if err != nil || last < first {
		return err
	}
	k.first, k.floor = first, make([]int64, last-first+1)
	least := int64(math.MaxInt64)
	for i := range k.floor {
		k.floor[i] = state.MinTime
		if st, ok := noted[state.SubtaskOf(first+i, max(op.Parallelism, 1), k.run.Groups)]; ok {
			k.floor[i] = st.watermark(first + i)
		}
		least = min(least, k.floor[i])
	}
	k.task.flow.now.time = least
	return nil
}

// watermark is how far event time had come for a key group.
func (s *keyedState) watermark(group int) int64 {
	wm := s.Watermark
	for _, f := range s.Floors {
		if f.First <= group && group <= f.Last {
			wm = max(wm, f.Watermark)
		}
	}
	return wm
}

// floors are the key groups that are still ahead of the task, for they were restored
// from a subtask that had come further.
func (k *keyedTask) floors() []keyGroupFloor {
	var out []keyGroupFloor
	for i, wm := range k.floor {
		group := k.first + i
		switch n := len(out); {
		case wm <= k.task.flow.now.time:
			continue
		case n > 0 && out[n-1].Last == group-1 && out[n-1].Watermark == wm:
			out[n-1].Last = group
		default:
			out = append(out, keyGroupFloor{First: group, Last: group, Watermark: wm})
		}
	}
	if out == nil {
		k.floor = nil // the task has come as far as all of them
	}
	return out
}

// openStore opens the state of one subtask in the backend of the file. Where it owns
// no key group there is nothing to keep on disk.
func (a *attempt) openStore(ctx context.Context, t *task, opts state.Options) (state.Store, error) {
	if a.workdir == nil || opts.Last < opts.First {
		return state.OpenMemory(ctx, opts)
	}
	opts.Dir = filepath.Join(a.workdir.path, t.keyed.node.spec.UID, strconv.Itoa(t.subtask))
	owners := min(a.parallelism, opts.Groups) * len(a.plan.keyedSteps())
	opts.Memory = a.plan.Spec.Checkpoint.State.Budget() / int64(owners)
	return disk.Open(ctx, opts)
}

// takeWorkdir takes the directory that the disk backend works in. At a first start one
// that can never be had is for a person to mend.
func (a *attempt) takeWorkdir(first bool) (err error) {
	p := a.plan.Spec
	if p.Checkpoint.State.Backend != spec.DiskState || len(a.plan.keyedSteps()) == 0 {
		return nil
	}
	base := p.Checkpoint.State.Dir
	if base == "" {
		base = filepath.Join(os.TempDir(), "sluice-state")
	}
	a.workdir, err = openWorkdir(filepath.Join(base, p.Name))
	if err != nil && first && (unusable(err) || errors.Is(err, fs.ErrNotExist)) {
		return connectors.Permanent(fmt.Errorf("checkpoint.state.dir %s cannot be written to: %w", base, err))
	}
	return err
}
