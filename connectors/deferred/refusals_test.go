package deferred

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/connectortest"
)

func TestRefusedRowsAreHandedOverOnceAcrossCrashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target, files := &table{refuses: "x"}, &connectortest.Files{}
		r := start(t, target.sink(), files, 1, nil)
		r.must(r.write(0, "a", "x1", "b", "x2"))
		first := r.prepare()
		r.commit(first, false)
		rows := r.tick()
		if len(rows) != 2 || rows[0].Kind != "constraint" {
			t.Fatalf("handed over %+v", rows)
		}
		rec := rows[1].Record
		if rec.Origin.Topic != "in" || rec.Origin.Partition != 1 || rec.Offset != 3 || string(rec.Value) != "raw x2" || string(rec.Key) != "k" ||
			rec.Time != 5 || len(rec.Headers) != 2 || rec.Headers[0].Value != nil || rec.Headers[1].Value == nil {
			t.Errorf("record %+v", rec)
		}
		if more := r.tick(); more != nil {
			t.Errorf("handed over again: %+v", more)
		}
		second := r.prepare() // holds the note, and no rows
		if second[0].Empty {
			t.Fatal("the note is lost")
		}
		r.stop()

		// The second checkpoint never became complete: the rows come again.
		r = start(t, target.sink(), files, 2, nil)
		r.id.Number = 2
		if rows := r.tick(); len(rows) != 2 {
			t.Fatalf("after a crash before the checkpoint %d rows are handed over", len(rows))
		}
		third := r.prepare()
		fourth := r.prepare()
		if len(fourth) != 2 || fourth[0].Checkpoint != third[0].Checkpoint {
			t.Errorf("the note of a failed checkpoint is not with the next one: %+v", fourth)
		}
		r.stop()

		// It became complete and was not committed: they do not.
		r = start(t, target.sink(), files, 3, nil, fourth...)
		if rows := r.tick(); rows != nil {
			t.Errorf("after the checkpoint was restored %d rows are handed over", len(rows))
		}
	})
}

func TestARefusedRowEndsTheRunOnce(t *testing.T) {
	target, files := &table{refuses: "x"}, &connectortest.Files{}
	r := start(t, target.sink(), files, 1, func(e *connectors.SinkEnv) { e.OnError = connectors.RowFail })
	r.must(r.write(0, "a", "x1", "b", "x2"))
	coms := r.prepare()
	err := r.sink.Committer().Commit(t.Context(), coms[0], false)
	var at *connectors.RecordError
	if !connectors.IsPermanent(err) || !errors.As(err, &at) || at.Offset != 1 || at.Origin.Topic != "in" || strings.Contains(err.Error(), "x1") {
		t.Fatalf("error %v", err)
	}
	if got := target.read(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("rows %q", got)
	}
	n := start(t, target.sink(), files, 2, func(e *connectors.SinkEnv) { e.OnError = connectors.RowFail })
	n.commit(coms, true)
	if got := target.read(); len(got) != 2 {
		t.Errorf("rows %q", got)
	}
}

func TestACommitIsDoneOnceItsRefusedRowsAreKnown(t *testing.T) {
	target := &table{refuses: "x"}
	r := start(t, target.sink(), &connectortest.Files{}, 1, func(e *connectors.SinkEnv) { e.OnError = connectors.RowSkip })
	r.must(r.write(0, "a", "x1"))
	coms := r.prepare()
	target.unheard = 2
	for range 2 {
		if err := r.sink.Committer().Commit(t.Context(), coms[0], false); !errors.Is(err, errReplyLost) {
			t.Fatalf("error %v", err)
		}
		if rows := r.tick(); rows != nil {
			t.Fatalf("handed over %+v", rows)
		}
		r.prepare() // barriers go on
	}
	r.commit(coms, false)
	if rows := r.tick(); len(rows) != 1 {
		t.Errorf("%d rows are handed over", len(rows))
	}
	if got := target.read(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("rows %q", got)
	}
}

func TestARefusedRowEndsTheRunEvenIfRepliesGetLost(t *testing.T) {
	for _, lost := range []string{"apply", "rejected"} {
		target := &table{refuses: "x"}
		r := start(t, target.sink(), &connectortest.Files{}, 1, func(e *connectors.SinkEnv) { e.OnError = connectors.RowFail })
		r.must(r.write(0, "a", "x1"))
		coms := r.prepare()
		if lost == "apply" {
			target.lost = 1
		} else {
			target.unheard = 1
		}
		if err := r.sink.Committer().Commit(t.Context(), coms[0], false); !errors.Is(err, errReplyLost) {
			t.Fatalf("lost %s: error %v", lost, err)
		}
		if err := r.sink.Committer().Commit(t.Context(), coms[0], false); !connectors.IsPermanent(err) || !strings.Contains(err.Error(), "in/1@1") {
			t.Errorf("lost %s: error %v", lost, err)
		}
	}
}

func TestManyRefusedRowsComeInPortions(t *testing.T) {
	const n = pagesAtOnce*rejectedAtOnce + rejectedAtOnce + 1
	target := &table{refuses: "x"}
	r := start(t, target.sink(), &connectortest.Files{}, 1, nil)
	values := make([]string, connectors.MaxBatch/2)
	for i := range values {
		values[i] = "x"
	}
	for left := n; left > 0; left -= len(values) {
		r.must(r.write(0, values[:min(left, len(values))]...))
	}
	r.commit(r.prepare(), false)
	total, most := 0, 0
	for range 3 {
		came := 0
		for rows := r.tick(); rows != nil; rows = r.tick() {
			came += len(rows)
			if len(rows) > rejectedAtOnce {
				t.Errorf("%d rows are handed over at once", len(rows))
			}
		}
		total, most = total+came, max(most, came)
		r.commit(r.prepare(), false)
	}
	if total != n || most > pagesAtOnce*rejectedAtOnce {
		t.Errorf("%d rows are handed over, %d at most between two checkpoints, want %d", total, most, n)
	}
	for i := range target.rejected {
		if !target.rejected[i].settled {
			t.Fatalf("row %d is not settled", i)
		}
	}
}

func TestLargeRefusedRowsAreNotAllInMemory(t *testing.T) {
	const n, size = 60, 1 << 20
	target := &table{refuses: "x"}
	r := start(t, target.sink(), &connectortest.Files{}, 1, nil)
	large := strings.Repeat("x", size)
	for range n {
		r.must(r.write(0, large))
	}
	total := 0
	for range n {
		r.commit(r.prepare(), false)
		var held int64
		for _, p := range r.sink.refusals.pages {
			held += p.size
		}
		if held > 2*rejectedBytes {
			t.Fatalf("%d bytes of refused rows are in memory", held)
		}
		for rows := r.tick(); rows != nil; rows = r.tick() {
			total += len(rows)
		}
	}
	if total != n {
		t.Errorf("%d rows are handed over, want %d", total, n)
	}
}

func TestRefusedRowsThatARestoredCheckpointSettlesAreNotHandedOver(t *testing.T) {
	target, files := &table{refuses: "x"}, &connectortest.Files{}
	r := start(t, target.sink(), files, 1, nil)
	r.must(r.write(0, "x1"))
	r.commit(r.prepare(), false)
	r.must(r.write(0, "x2"))
	r.prepare() // fails
	if rows := r.tick(); len(rows) != 1 {
		t.Fatalf("%d rows are handed over", len(rows))
	}
	third := r.prepare() // holds the rows of the second, and the note
	r.stop()
	if len(third) != 2 {
		t.Fatalf("committables %+v", third)
	}
	r = start(t, target.sink(), files, 2, nil, third...)
	if rows := r.tick(); len(rows) != 1 || string(rows[0].Record.Value) != "raw x2" {
		t.Errorf("handed over %+v", rows)
	}
}
