package deferred

import (
	"slices"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/connectortest"
)

// numbers are the checkpoints that committables with rows or notes are of.
func numbers(coms []connectors.Committable) (out []uint64) {
	for _, c := range coms {
		if !c.Empty {
			out = append(out, c.Checkpoint.Number)
		}
	}
	return out
}

func TestRowsBehindABarrierAreNotInItsCheckpoint(t *testing.T) {
	target := &table{}
	r := start(t, target.sink(), &connectortest.Files{}, 1, nil)
	r.must(r.write(0, "a"))
	first := r.barrier()
	r.must(r.write(0, "b"))
	second := r.barrier()
	coms := first()
	for _, c := range coms {
		r.must(r.sink.Committer().Commit(t.Context(), c, false))
	}
	if got := target.read(); !slices.Equal(numbers(coms), []uint64{1}) || !slices.Equal(got, []string{"a"}) {
		t.Errorf("the first checkpoint is %v and brings %q", numbers(coms), got)
	}
	r.commit(second(), false)
	if got := target.read(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("rows %q", got)
	}
}

// With several checkpoints under way, the proof of one comes while a later one is prepared.
func TestAProofInTheMiddleOfALaterPrepare(t *testing.T) {
	target, files := &table{}, &connectortest.Files{}
	var r *run
	var proven []connectors.Committable // once it is the time
	r = start(t, target.sink(), files, 1, func(e *connectors.SinkEnv) {
		e.Failpoint = func(name string) {
			if coms := proven; name == "memory.keep.before" && coms != nil {
				proven = nil
				for _, c := range coms {
					r.must(r.sink.Committer().Commit(t.Context(), c, false))
				}
				r.sink.Committer().Done(coms[len(coms)-1].Checkpoint)
			}
		}
	})
	r.must(r.write(0, "a"))
	first := r.barrier()
	r.must(r.write(0, "b"))
	second := r.barrier()
	r.must(r.write(0, "c"))
	third := r.barrier()
	first()
	proven = second()
	coms := third()
	if got := numbers(coms); !slices.Equal(got, []uint64{3}) {
		t.Errorf("the third checkpoint hands over %v", got)
	}
	r.commit(coms, false)
	if got := target.read(); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("rows %q", got)
	}
}

// A commit can be under way while a subtask has failed and its rows are gone.
func TestACommitTakesTheRowsOfAllSubtasksOrNone(t *testing.T) {
	target := &table{}
	r := start(t, target.sink(), &connectortest.Files{}, 1, func(e *connectors.SinkEnv) {
		e.Subtasks = 2
		e.Restored = func() connectors.CheckpointFiles { return nil } // the job is new
	})
	r.must(r.write(0, "a"))
	r.must(r.write(1, "b"))
	coms := r.prepare()
	if coms[0].Records != 2 { // what a lost commit is reported with
		t.Errorf("the committable is of %d records", coms[0].Records)
	}
	r.must(r.writers[1].Close())
	err := r.sink.Committer().Commit(t.Context(), coms[0], false)
	if err == nil || connectors.IsPermanent(err) { // a restart brings them
		t.Errorf("error %v", err)
	}
	if got := target.read(); len(got) > 0 {
		t.Errorf("rows %q", got)
	}
	next := start(t, target.sink(), r.files, 2, nil)
	next.commit(coms, true)
	if got := target.read(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("rows %q", got)
	}
}

func TestRefusedRowsAreSettledOnceByACheckpointOfAllSubtasks(t *testing.T) {
	target := &table{refuses: "x"}
	r := start(t, target.sink(), &connectortest.Files{}, 1, func(e *connectors.SinkEnv) { e.Subtasks = 2 })
	r.must(r.write(1, "x"))
	r.commit(r.prepare(), false)
	// By one writer only: what another one hands over can belong to another checkpoint.
	r.must(r.writers[1].Tick(t.Context(), time.Now()))
	if rows := r.tick(); len(rows) != 1 {
		t.Fatalf("%d rows are handed over", len(rows))
	}
	r.must(r.write(1, "a"))
	r.commit(r.prepare(), false)
	if !target.rejected[0].settled {
		t.Error("the row is not settled")
	}
	// What is idle writes nothing to the database.
	if coms := r.prepare(); !coms[0].Empty {
		t.Errorf("a checkpoint without rows has committables %+v", coms)
	}
}

func TestCheckpointsThatFailedAreForgotten(t *testing.T) {
	target := &table{}
	r := start(t, target.sink(), &connectortest.Files{}, 1, func(e *connectors.SinkEnv) { e.Subtasks = 2 })
	for range 3 {
		r.id.Number++
		for i, w := range r.writers {
			prepare, err := w.Barrier(t.Context(), connectors.Barrier{ID: r.id})
			r.must(err)
			if i == 0 { // the other one could not
				_, err = prepare(t.Context(), r.files)
				r.must(err)
			}
		}
	}
	r.commit(r.prepare(), false)
	if n := len(r.sink.attempts); n > 0 {
		t.Errorf("%d checkpoints are kept in memory", n)
	}
}

func TestRefusedRowsAreAskedForOnlyWhereThereMayBeSome(t *testing.T) {
	target := &table{}
	r := start(t, target.sink(), &connectortest.Files{}, 1, nil)
	for i, lost := range []int{0, 1, 0, 0} {
		before := target.asked
		r.must(r.write(0, "a"))
		coms := r.prepare()
		target.lost = lost // perhaps with rows that were refused
		if lost > 0 && r.sink.Committer().Commit(t.Context(), coms[0], false) == nil {
			t.Fatal("no error")
		}
		r.commit(coms, false)
		if got := target.asked - before; got != lost {
			t.Errorf("at commit %d the target is asked %d times, want %d", i+1, got, lost)
		}
	}
}

func TestACommittableWithoutItsFilesIsDamaged(t *testing.T) {
	target := &table{}
	r := start(t, target.sink(), &connectortest.Files{}, 1, nil)
	r.must(r.write(0, "a"))
	coms := r.prepare()
	r.stop()
	two := coms[0]
	two.Files = append(two.Files[:1:1], two.Files[0])
	next := target.sink()
	r.must(next.Open(t.Context(), connectors.SinkEnv{Generation: func() uint64 { return 2 }, Restored: func() connectors.CheckpointFiles { return r.files }}))
	if err := next.Committer().Commit(t.Context(), two, true); !connectors.IsPermanent(err) {
		t.Errorf("error %v", err)
	}
	if got := target.read(); len(got) > 0 {
		t.Errorf("rows %q", got)
	}
}

// Subtasks prepare beside each other. A target that applies a checkpoint in several steps
// and notes how many are done needs the same rows in the same places when another process
// goes on with it.
func TestACommitHasItsRowsInTheSameOrderInEachProcess(t *testing.T) {
	here := &table{}
	r := start(t, here.sink(), &connectortest.Files{}, 1, func(e *connectors.SinkEnv) { e.Subtasks = 3 })
	var prepares []connectors.Prepare
	r.id.Number++
	for i, w := range r.writers {
		r.must(r.write(i, string(rune('a'+i))))
		p, err := w.Barrier(t.Context(), connectors.Barrier{ID: r.id})
		r.must(err)
		prepares = append(prepares, p)
	}
	var coms []connectors.Committable
	for _, i := range []int{2, 0, 1} { // in the order in which they come to it
		got, err := prepares[i](t.Context(), r.files)
		r.must(err)
		coms = append(coms, got.Committables...)
	}
	r.commit(coms, false)
	there := &table{}
	start(t, there.sink(), r.files, 2, nil, coms...)
	if first, again := here.read(), there.read(); len(first) != 3 || !slices.Equal(first, again) {
		t.Errorf("the process that prepared it applies %q, the next one %q", first, again)
	}
}
