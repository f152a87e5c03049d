package kafka

import (
	"errors"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
)

// inspection opens the transactions of a process's pipeline from beside.
func inspection(t *testing.T, brokers []string, pipeline string) *Transactions {
	t.Helper()
	c := NewSinkConfig()
	c.Brokers = brokers
	x, err := OpenTransactions(testContext(t), c, pipeline, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.Close() })
	return x
}

func TestTransactionsAreListedAndEndedFromBeside(t *testing.T) {
	_, brokers := fake(t)
	transactionsEnded(t, brokers)
}

func transactionsEnded(t *testing.T, brokers []string) {
	out := topic(t, brokers, 1, nil)
	ctx := testContext(t)
	p := process(t, brokers, 1, nil, out).start(1, nil)
	p.write(0, "one")
	one := p.prepared(1, 1)
	p.write(0, "two")
	two := p.prepared(1, 2) // lists that of 1 too
	p.write(0, "three")
	if err := p.writers[0].Tick(ctx, p.sinks[0].(*txnSink).set.now()); err != nil {
		t.Fatal(err)
	}
	// What it has not prepared is open too.
	if _, err := p.writers[0].Barrier(ctx, connectors.Barrier{ID: connectors.CheckpointID{Generation: 1, Number: 3}}); err != nil {
		t.Fatal(err)
	}
	if err := p.sinks[0].(*txnSink).stream.drain(ctx, p.writers[0].(*writer).stream.first()); err != nil {
		t.Fatal(err)
	}
	p.stop()

	x := inspection(t, brokers, "p-"+out)
	list, err := x.Look(ctx, two)
	if err != nil || len(list) != 2 || list[0].Status != StatusOpen || list[1].Status != StatusOpen || list[1].Records != 1 || list[1].Checkpoint != 2 || list[1].Proven {
		t.Fatalf("transactions %+v %v", list, err)
	}
	if len(list[0].Topics) != 1 || list[0].Topics[0] != out {
		t.Errorf("topics %v", list[0].Topics)
	}
	others, err := x.Others(ctx, two)
	if err != nil || len(others) != 1 || others[0].Referenced || others[0].TransactionalID == list[0].TransactionalID {
		t.Errorf("others %+v %v", others, err)
	}
	if done, err := x.End(ctx, &one[0], true); err != nil || done.Status != StatusCommitted {
		t.Errorf("commit: %+v %v", done, err)
	}
	if done, err := x.End(ctx, &one[0], true); err != nil || done.Status != StatusCommitted {
		t.Errorf("a second commit: %+v %v", done, err)
	}
	if _, err := x.End(ctx, &one[0], false); !connectors.IsPermanent(err) {
		t.Errorf("abort of what is committed: %v", err)
	}
	second := two[len(two)-1]
	if done, err := x.End(ctx, &second, false); err != nil || done.Status != StatusAborted {
		t.Errorf("abort: %+v %v", done, err)
	}
	if _, err := x.End(ctx, &second, true); !connectors.IsPermanent(err) {
		t.Errorf("commit of what is aborted: %v", err)
	}
	// A start finds what was done.
	b := process(t, brokers, 1, nil, out)
	defer b.stop()
	b.mustCommit(one, true)
	if err := b.commit.Commit(ctx, second, true); !errors.Is(err, connectors.ErrLost) {
		t.Errorf("restored after the abort: %v, want ErrLost", err)
	}
	b.start(1, one)
	wantTopic(t, "topic", brokers, out, []string{"one"})
}
