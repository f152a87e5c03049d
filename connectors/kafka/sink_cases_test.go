package kafka

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-etl/sluice/connectors"
)

// sinkCases hold on the embedded broker and on a real one.
var sinkCases = []struct {
	name string
	run  func(t *testing.T, brokers []string)
}{
	{"records are seen when their checkpoint is committed", seenWhenCommitted},
	{"a later process commits what an earlier one prepared", committedByLaterProcess},
	{"a commit can be repeated, also after its id was used on", commitRepeated},
	{"a commit is proven by what a later generation found", provenByLaterGeneration},
	{"revocation takes away what no checkpoint holds", revoked},
	{"an older process is fenced by revocation", zombieFenced},
	{"two sinks with two subtasks share one transaction", sharedTransaction},
	{"a failed checkpoint's transaction is handed over with the next", failedAttemptHandedOver},
	{"checkpoints without records leave nothing to commit", emptyCheckpoints},
	{"a transaction whose rows were all refused holds nothing back", allRefused},
	{"an old witness is renewed without records", witnessRenewed},
	{"slots run out into backpressure", slotsRunOut},
	{"more slots of an earlier run are taken over", strayIDsTakenOver},
	{"a lost reply to a commit is no loss", repliesLost},
	{"a lost request to commit is repeated", requestsLost},
	{"a lost reply to a commit after a restart is no loss", replyLostAfterRestart},
}

func seenWhenCommitted(t *testing.T, brokers []string) {
	out := topic(t, brokers, 2, nil)
	p := process(t, brokers, 1, nil, out).start(1, nil)
	defer p.stop()
	for n := uint64(1); n <= 4; n++ {
		values := numbers(int(n)*100, int(n)*100+100)
		p.write(0, values...)
		cs := p.prepared(7, n)
		if len(cs) != 1 || cs[0].Empty || cs[0].Expires.Before(time.Now()) {
			t.Fatalf("committables of checkpoint %d: %+v", n, cs)
		}
		wantTopic(t, "before the commit", brokers, out, numbers(100, int(n)*100))
		p.mustCommit(cs, false)
		wantTopic(t, "after the commit", brokers, out, numbers(100, int(n)*100+100))
		w, ok, err := p.commit.Witness(testContext(t))
		if want := (connectors.CheckpointID{Generation: 7, Number: n}); err != nil || !ok || w != want {
			t.Fatalf("witness %v %v %v, want %v", w, ok, err, want)
		}
		p.commit.Done(cs[0].Checkpoint)
	}
}

func committedByLaterProcess(t *testing.T, brokers []string) {
	out := topic(t, brokers, 1, nil)
	a := process(t, brokers, 1, nil, out).start(1, nil)
	a.write(0, numbers(0, 100)...)
	cs := a.prepared(1, 5)
	a.write(0, "never")
	a.stop()

	b := process(t, brokers, 1, nil, out)
	defer b.stop()
	b.mustCommit(cs, true)
	b.start(1, cs)
	wantTopic(t, "after the restart", brokers, out, numbers(0, 100))
	b.write(0, numbers(100, 200)...)
	next := b.prepared(2, 6)
	b.mustCommit(next, false)
	wantTopic(t, "going on", brokers, out, numbers(0, 200))
}

func commitRepeated(t *testing.T, brokers []string) {
	out := topic(t, brokers, 1, nil)
	a := process(t, brokers, 1, func(_ *SinkConfig, e *connectors.SinkEnv) { e.Slots = 2 }, out).start(1, nil)
	var all []connectors.Committable
	for n := uint64(1); n <= 5; n++ { // each of the two ids is used more than once
		a.write(0, numbers(int(n)*10, int(n)*10+10)...)
		cs := a.prepared(1, n)
		a.mustCommit(cs, false)
		a.mustCommit(cs, false)
		a.commit.Done(cs[len(cs)-1].Checkpoint)
		all = append(all, cs...)
	}
	a.write(0, "never") // an open transaction in an id that a committable names
	a.stop()

	b := process(t, brokers, 1, nil, out)
	defer b.stop()
	b.mustCommit(all, true)
	b.start(1, all)
	b.mustCommit(all, true)
	wantTopic(t, "after the repeats", brokers, out, numbers(10, 60))
	b.write(0, "later")
	b.mustCommit(b.prepared(2, 6), false)
	b.mustCommit(all, true) // proven through the later generation's witness
}

func revoked(t *testing.T, brokers []string) {
	out := topic(t, brokers, 1, nil)
	a := process(t, brokers, 1, nil, out).start(1, nil)
	a.write(0, "one")
	one := a.prepared(1, 1)
	a.mustCommit(one, false)
	a.commit.Done(one[0].Checkpoint)
	a.write(0, "two")
	two := a.prepared(1, 2) // its checkpoint never completes
	a.stop()

	b := process(t, brokers, 1, nil, out)
	defer b.stop()
	b.mustCommit(one, true)
	b.start(1, one)
	err := b.commit.Commit(testContext(t), two[0], true)
	if !errors.Is(err, connectors.ErrLost) {
		t.Errorf("commit of what was revoked: %v, want ErrLost", err)
	}
	wantTopic(t, "topic", brokers, out, []string{"one"})
}

func zombieFenced(t *testing.T, brokers []string) {
	out := topic(t, brokers, 1, nil)
	a := process(t, brokers, 1, nil, out).start(1, nil)
	defer a.stop()
	a.write(0, "old")
	cs := a.prepared(1, 1)

	b := process(t, brokers, 1, nil, out).start(1, nil)
	defer b.stop()
	b.write(0, "new")
	if err := a.commit.Commit(testContext(t), cs[0], false); !errors.Is(err, connectors.ErrFenced) {
		t.Errorf("the older process commits: %v, want ErrFenced", err)
	}
	b.mustCommit(b.prepared(2, 1), false)
	wantTopic(t, "topic", brokers, out, []string{"new"})
}

func sharedTransaction(t *testing.T, brokers []string) {
	first, second := topic(t, brokers, 2, nil), topic(t, brokers, 1, nil)
	p := process(t, brokers, 2, nil, first, second).start(2, nil)
	defer p.stop()
	ctx := testContext(t)
	id := connectors.CheckpointID{Generation: 1, Number: 1}
	p.write(0, "a1")
	p.write(1, "b1")
	p.write(2, "c1")
	p.write(3, "d1")
	// Writer 0 is past its barrier and writes on while the others still write
	// what belongs to the checkpoint.
	var prepares []connectors.Prepare
	for i, w := range p.writers {
		prepare, err := w.Barrier(ctx, connectors.Barrier{ID: id})
		if err != nil {
			t.Fatal(err)
		}
		prepares = append(prepares, prepare)
		p.write(i, "later")
		for j := i + 1; j < len(p.writers); j++ {
			p.write(j, "e1")
		}
	}
	var got []connectors.Prepared
	for _, prepare := range prepares {
		one, err := prepare(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, one)
	}
	cs := committables(got)
	if len(cs) != 1 {
		t.Fatalf("%d committables, want one for all", len(cs))
	}
	p.mustCommit(cs, false)
	// What came later is open and holds readers back; another process aborts it.
	process(t, brokers, 2, nil, first, second).start(2, nil).stop()
	wantTopic(t, "first topic", brokers, first, []string{"a1", "b1", "e1"})
	wantTopic(t, "second topic", brokers, second, []string{"c1", "d1", "e1", "e1", "e1", "e1", "e1"})
}

func failedAttemptHandedOver(t *testing.T, brokers []string) {
	out := topic(t, brokers, 1, nil)
	a := process(t, brokers, 2, nil, out).start(2, nil)
	ctx := testContext(t)
	a.write(0, "one")
	a.prepared(1, 1) // not completed
	a.write(1, "two")
	for _, w := range a.writers { // aborted before its prepares ran
		if _, err := w.Barrier(ctx, connectors.Barrier{ID: connectors.CheckpointID{Generation: 1, Number: 2}}); err != nil {
			t.Fatal(err)
		}
	}
	a.write(0, "three")
	cs := a.prepared(1, 3)
	if len(cs) != 3 || cs[0].Checkpoint.Number != 1 || cs[1].Checkpoint.Number != 2 || cs[2].Checkpoint.Number != 3 {
		t.Fatalf("committables %+v, want those of 1, 2 and 3", cs)
	}
	a.stop()
	b := process(t, brokers, 2, nil, out)
	defer b.stop()
	b.mustCommit(cs, true)
	b.start(2, cs)
	wantTopic(t, "topic", brokers, out, []string{"one", "two", "three"})
}

func emptyCheckpoints(t *testing.T, brokers []string) {
	out := topic(t, brokers, 1, nil)
	p := process(t, brokers, 1, nil, out).start(1, nil)
	defer p.stop()
	for n := uint64(1); n <= 8; n++ { // more than there are slots
		cs := p.prepared(1, n)
		if len(cs) != 1 || !cs[0].Empty {
			t.Fatalf("checkpoint %d: %+v, want one empty committable", n, cs)
		}
		p.mustCommit(cs, false)
		p.commit.Done(cs[0].Checkpoint)
	}
	if _, ok, err := p.commit.Witness(testContext(t)); ok || err != nil {
		t.Errorf("witness %v %v, want none", ok, err)
	}
}

func allRefused(t *testing.T, brokers []string) {
	out := topic(t, brokers, 1, nil)
	p := process(t, brokers, 1, nil, out).start(1, nil)
	defer p.stop()
	for n := uint64(1); n <= 6; n++ {
		p.write(0)
		if err := p.writers[0].Write(testContext(t), rowsOf(string(make([]byte, 2<<20)))); err == nil {
			t.Fatal("a record of 2 MiB is taken")
		}
		cs := p.prepared(1, n)
		p.mustCommit(cs, false)
		p.commit.Done(cs[0].Checkpoint)
	}
	p.write(0, "one")
	cs := p.prepared(1, 7)
	p.mustCommit(cs, false)
	if w, ok, err := p.commit.Witness(testContext(t)); err != nil || !ok || w.Number != 7 {
		t.Errorf("witness %v %v %v, want checkpoint 7", w, ok, err)
	}
	wantTopic(t, "topic", brokers, out, []string{"one"})
}

func witnessRenewed(t *testing.T, brokers []string) {
	out := topic(t, brokers, 1, nil)
	p := process(t, brokers, 1, nil, out).start(1, nil)
	p.write(0, "one")
	p.mustCommit(p.prepared(3, 1), false)
	p.commit.Done(connectors.CheckpointID{Generation: 3, Number: 1})
	p.sinks[0].(*txnSink).set.now = func() time.Time { return time.Now().Add(25 * time.Hour) }
	cs := p.prepared(3, 2)
	if len(cs) != 1 || cs[0].Empty || !dataOf(t, cs[0]).WitnessOnly {
		t.Fatalf("committables %+v, want a witness", cs)
	}
	p.mustCommit(cs, false)
	p.commit.Done(cs[0].Checkpoint)
	if w, ok, err := p.commit.Witness(testContext(t)); err != nil || !ok || w.Number != 2 {
		t.Errorf("witness %v %v %v, want checkpoint 2", w, ok, err)
	}
	p.write(0, "three")
	cs = p.prepared(3, 3)
	p.stop()
	b := process(t, brokers, 1, nil, out)
	defer b.stop()
	b.mustCommit(cs, true)
	wantTopic(t, "topic", brokers, out, []string{"one", "three"})
}

func slotsRunOut(t *testing.T, brokers []string) {
	out := topic(t, brokers, 1, nil)
	p := process(t, brokers, 1, func(_ *SinkConfig, e *connectors.SinkEnv) { e.Slots = 2 }, out).start(1, nil)
	defer p.stop()
	p.write(0, "one")
	one := p.prepared(1, 1)
	p.write(0, "two")
	p.prepared(1, 2)
	written := make(chan error, 1)
	go func() { written <- p.writers[0].Write(testContext(t), rowsOf("three")) }()
	select {
	case err := <-written:
		t.Fatalf("written without a free slot: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	p.mustCommit(one, false)
	if err := <-written; err != nil {
		t.Fatal(err)
	}
}

func strayIDsTakenOver(t *testing.T, brokers []string) {
	out := topic(t, brokers, 1, nil)
	slots := func(n int) func(*SinkConfig, *connectors.SinkEnv) {
		return func(_ *SinkConfig, e *connectors.SinkEnv) { e.Slots = n }
	}
	a := process(t, brokers, 1, slots(5), out).start(1, nil)
	defer a.stop()
	var last []connectors.Committable
	for n := uint64(1); n <= 4; n++ {
		a.write(0, "never")
		last = a.prepared(1, n)
	}
	b := process(t, brokers, 1, slots(2), out).start(1, nil)
	defer b.stop()
	for _, c := range last {
		if err := a.commit.Commit(testContext(t), c, false); !errors.Is(err, connectors.ErrFenced) {
			t.Errorf("commit of %s by the older process: %v, want ErrFenced", dataOf(t, c).TransactionalID, err)
		}
	}
	if got := stored(t, brokers, out, kgo.ReadCommitted()); len(got) != 0 {
		t.Errorf("topic holds %v", got)
	}
}

func provenByLaterGeneration(t *testing.T, brokers []string) {
	out := topic(t, brokers, 1, nil)
	var first []connectors.Committable
	var processes []*run
	for g := uint64(1); g <= 4; g++ { // each goes on from a checkpoint without records
		p := process(t, brokers, 1, nil, out).start(1, nil)
		p.write(0, numbers(int(g), int(g)+1)...)
		cs := p.prepared(g, g*10)
		p.mustCommit(cs, false)
		p.commit.Done(cs[0].Checkpoint)
		p.prepared(g, g*10+1)
		first = append(first, cs...)
		processes = append(processes, p)
	}
	for _, p := range processes {
		p.stop()
	}
	b := process(t, brokers, 1, nil, out)
	defer b.stop()
	b.mustCommit(first, true)
	wantTopic(t, "topic", brokers, out, numbers(1, 5))
}
