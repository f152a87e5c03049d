package pipeline

import (
	"encoding/json"
	"testing"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/pipeline/state"
	"github.com/sluice-etl/sluice/pipeline/transform"
)

// notedBy is an operator of subtasks that noted so much.
func notedBy(t *testing.T, states ...keyedState) *checkpoint.Operator {
	t.Helper()
	op := &checkpoint.Operator{UID: "step", Parallelism: len(states)}
	for i, s := range states {
		own, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		op.Subtasks = append(op.Subtasks, checkpoint.SubtaskState{Subtask: i, State: own})
	}
	return op
}

// A key group whose subtask had come further has windows behind it that have closed:
// they must not be opened again, however often the pipeline is scaled.
func TestWatermarksOfKeyGroupsAreKeptOverRestoresAtOtherParallelisms(t *testing.T) {
	const groups = 8
	restored := func(op *checkpoint.Operator, parallelism int) []*keyedTask {
		var out []*keyedTask
		for i := range parallelism {
			k := &keyedTask{task: &task{flow: newFlow(1), subtask: i}, node: &keyedNode{}, run: transform.KeyedRun{Groups: groups}}
			first, last := state.GroupsOf(i, parallelism, groups)
			if err := k.restoreWatermarks(op, first, last); err != nil {
				t.Fatal(err)
			}
			out = append(out, k)
		}
		return out
	}
	check := func(when string, tasks []*keyedTask, want func(group int) int64) {
		t.Helper()
		for g := range groups {
			k := tasks[state.SubtaskOf(g, len(tasks), groups)]
			if got := k.watermark(g); got != want(g) {
				t.Errorf("%s: the watermark of key group %d is %d, want %d", when, g, got, want(g))
			}
		}
	}
	op := notedBy(t, keyedState{Watermark: 50}, keyedState{Watermark: 100}, keyedState{Watermark: state.MinTime})
	want := func(g int) int64 { return []int64{50, 100, state.MinTime}[state.SubtaskOf(g, 3, groups)] }
	for _, parallelism := range []int{1, 2, 5, 3, 1} {
		tasks := restored(op, parallelism)
		check("after a restore", tasks, want)
		var notes []keyedState
		for _, k := range tasks {
			notes = append(notes, k.note())
		}
		op = notedBy(t, notes...)
	}
	tasks := restored(op, 1)
	tasks[0].task.flow.set(0, mark{time: 70})
	op = notedBy(t, tasks[0].note())
	moved := func(g int) int64 { return max(70, want(g)) }
	check("after time has moved", restored(op, 4), moved)
	tasks[0].task.flow.set(0, mark{time: 100})
	if n := tasks[0].note(); n.Floors != nil || n.Watermark != 100 {
		t.Errorf("noted %+v once the task has come as far as all key groups", n)
	}
	check("later", tasks, func(int) int64 { return 100 })
}
