package kafka

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-etl/sluice/connectors"
)

// progressCases hold on the embedded broker and on a real one.
var progressCases = []struct {
	name string
	run  func(t *testing.T, brokers []string)
}{
	{"a partition is at its end once all of it was given out", endOfRecords},
	{"an empty partition and one that is restored at its end are at it", endWithoutRecords},
	{"markers and aborted records stand in no way of the end", endBehindMarkers},
	{"an open transaction is the end for readers of committed records", endAtOpenTransaction},
	{"a position passes aborted records before an open transaction", holeBeforeOpenTransaction},
	{"a paused partition brings nothing until it goes on", pausedWhileReading},
}

func TestProgress(t *testing.T) {
	for _, c := range progressCases {
		t.Run(c.name, func(t *testing.T) {
			_, brokers := fake(t)
			c.run(t, brokers)
		})
	}
}

// following is a reader that reads on and on.
type following struct {
	t      *testing.T
	r      *reader
	values [][]string // by split
	next   []int64
}

func follow(t *testing.T, brokers []string, change func(*SourceConfig), restored []connectors.Split, topics ...string) *following {
	t.Helper()
	s := newTestSource(t, brokers, func(c *SourceConfig) {
		c.Client.FetchMaxWait = connectors.TimeSpan(200 * time.Millisecond)
		if change != nil {
			change(c)
		}
	}, topics...)
	splits := splitsOf(t, s, restored)
	made, err := s.Reader(connectors.ReaderEnv{Subtasks: 1, Budget: 8 << 20, Batches: connectors.NewBatchPool(4)}, splits)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { made.Close() })
	r := made.(*reader)
	r.ends.every, r.ends.provenFor = 50*time.Millisecond, 400*time.Millisecond
	f := &following{t: t, r: r, values: make([][]string, len(splits))}
	for _, sp := range splits {
		f.next = append(f.next, sp.Offset)
	}
	return f
}

// until reads on until done holds, which is asked for before each poll.
func (f *following) until(what string, done func() bool) {
	f.t.Helper()
	for ctx := testContext(f.t); !done(); {
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		b, err := f.r.Poll(short)
		cancel()
		switch {
		case err == nil:
			for i := range b.Records {
				f.values[b.Split] = append(f.values[b.Split], string(b.Records[i].Value))
			}
			f.next[b.Split] = b.Next
			b.Recycle()
		case ctx.Err() != nil:
			f.t.Fatalf("waiting until %s: have %d values at %v", what, len(slices.Concat(f.values...)), f.next)
		case !errors.Is(err, context.DeadlineExceeded):
			f.t.Fatal(err)
		}
	}
}

func (f *following) caughtUp() bool {
	for i := range f.r.splits {
		if !f.r.CaughtUp(i) {
			return false
		}
	}
	return true
}

func (f *following) wantAll(want ...[]string) {
	f.t.Helper()
	for i := range want {
		if !slices.Equal(f.values[i], want[i]) {
			f.t.Errorf("partition %d gave %d values, or others, want %d", i, len(f.values[i]), len(want[i]))
		}
	}
}

func endOfRecords(t *testing.T, brokers []string) {
	in := topic(t, brokers, 2, nil)
	cl := manual(t, brokers)
	send(t, cl, in, 0, numbers(0, 3000)...)
	send(t, cl, in, 1, "one")
	f := follow(t, brokers, nil, nil, in)
	f.until("both are at their end", func() bool {
		if f.r.CaughtUp(0) && len(f.values[0]) < 3000 {
			t.Fatalf("at its end after %d records of 3000", len(f.values[0]))
		}
		return f.caughtUp()
	})
	f.wantAll(numbers(0, 3000), []string{"one"})
	if end, known := f.r.End(0); !known || end != 3000 {
		t.Errorf("a partition of 3000 records ends at %d (known: %v)", end, known)
	}
	send(t, cl, in, 1, "two")
	f.until("the next is read", func() bool { return len(f.values[1]) == 2 && f.caughtUp() })
}

func endWithoutRecords(t *testing.T, brokers []string) {
	in := topic(t, brokers, 2, nil)
	send(t, manual(t, brokers), in, 1, numbers(0, 10)...)
	f := follow(t, brokers, nil, []connectors.Split{
		{ID: splitID(in, 0), Until: -1}, {ID: splitID(in, 1), Offset: 10, Until: -1},
	}, in)
	if f.caughtUp() {
		t.Error("at its end before anybody was asked")
	}
	f.until("both are at their end", f.caughtUp)
	f.wantAll(nil, nil)
}

func endBehindMarkers(t *testing.T, brokers []string) {
	in := topic(t, brokers, 1, nil)
	transact(t, brokers, in, kgo.TryCommit, numbers(0, 5)...)
	transact(t, brokers, in, kgo.TryAbort, "x", "y")
	f := follow(t, brokers, nil, nil, in)
	f.until("it is at its end", f.caughtUp)
	f.wantAll(numbers(0, 5))
	if f.next[0] != 9 {
		t.Errorf("the position is %d, want 9, which is behind the markers", f.next[0])
	}
}

// begin writes values in a transaction that stays open.
func begin(t *testing.T, brokers []string, id, topic string, values ...string) *kgo.Client {
	t.Helper()
	cl := manual(t, brokers, kgo.TransactionalID(id+topic))
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	send(t, cl, topic, 0, values...)
	return cl
}

func endAtOpenTransaction(t *testing.T, brokers []string) {
	in := topic(t, brokers, 1, nil)
	send(t, manual(t, brokers), in, 0, "plain")
	open := begin(t, brokers, "open", in, "later")
	f := follow(t, brokers, nil, nil, in)
	f.until("what is decided is read", f.caughtUp)
	f.wantAll([]string{"plain"})
	all := follow(t, brokers, func(c *SourceConfig) { c.Isolation = readUncommitted }, nil, in)
	all.until("all is read", all.caughtUp)
	all.wantAll([]string{"plain", "later"})
	if err := open.EndTransaction(testContext(t), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	f.until("the rest is read", func() bool { return len(f.values[0]) == 2 && f.next[0] == 3 && f.caughtUp() })
	f.wantAll([]string{"plain", "later"})
}

func holeBeforeOpenTransaction(t *testing.T, brokers []string) {
	in := topic(t, brokers, 1, nil)
	aborted := begin(t, brokers, "aborted", in, "x", "y")
	open := begin(t, brokers, "open", in, "later")
	if err := aborted.EndTransaction(testContext(t), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	f := follow(t, brokers, nil, nil, in)
	f.until("the aborted records are passed", func() bool { return f.caughtUp() && f.next[0] == 2 })
	f.wantAll(nil)
	if err := open.EndTransaction(testContext(t), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	f.until("the rest is read", func() bool { return len(f.values[0]) == 1 && f.caughtUp() })
}

func pausedWhileReading(t *testing.T, brokers []string) {
	const n = 20000
	in := topic(t, brokers, 2, nil)
	cl := manual(t, brokers, kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(8<<10))
	for p := range int32(2) {
		for i := range n {
			cl.Produce(context.Background(), &kgo.Record{Topic: in, Partition: p, Value: []byte(strconv.Itoa(i))}, nil)
		}
	}
	if err := cl.Flush(testContext(t)); err != nil {
		t.Fatal(err)
	}
	f := follow(t, brokers, func(c *SourceConfig) { c.Client.FetchMaxPartitionBytes = 16 << 10 }, nil, in)
	f.until("something is read", func() bool { return len(f.values[0]) > 0 })
	f.r.Pause([]int{0})
	f.until("the other one is read", func() bool { return len(f.values[1]) == n && f.r.CaughtUp(1) })
	at := len(f.values[0])
	if at > n/2 {
		t.Errorf("%d of %d records of the paused partition came", at, n)
	}
	if f.r.CaughtUp(0) {
		t.Error("the paused partition is told to be at its end")
	}
	if _, err := f.r.Poll(shortContext(t)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a poll while all that is left is paused: %v", err)
	}
	f.r.Pause(nil)
	f.until("all is read", f.caughtUp)
	f.wantAll(numbers(0, n), numbers(0, n))
}

func shortContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func TestNobodyKnowsTheEndWhileTheBrokerDoesNotAnswer(t *testing.T) {
	c, brokers := fake(t)
	in := topic(t, brokers, 1, nil)
	send(t, manual(t, brokers), in, 0, "one")
	f := follow(t, brokers, nil, nil, in)
	f.until("it is at its end", f.caughtUp)
	var mu sync.Mutex
	down := true
	c.Control(func(kmsg.Request) (kmsg.Response, error, bool) {
		mu.Lock()
		defer mu.Unlock()
		c.KeepControl()
		if down {
			return nil, errors.New("down"), true
		}
		return nil, nil, false
	})
	f.until("the answer counts no more", func() bool { return !f.caughtUp() })
	mu.Lock()
	down = false
	mu.Unlock()
	f.until("it is known again", f.caughtUp)
	f.wantAll([]string{"one"})
}

func TestPausingOftenLosesNothingAndHoldsNoMemory(t *testing.T) {
	const n = 30000
	_, brokers := fake(t)
	in := topic(t, brokers, 2, nil)
	cl := manual(t, brokers, kgo.ProducerBatchCompression(kgo.Lz4Compression()), kgo.ProducerBatchMaxBytes(8<<10))
	for i := range n {
		cl.Produce(context.Background(), &kgo.Record{Topic: in, Partition: int32(i % 2), Value: []byte(strconv.Itoa(i / 2))}, nil)
	}
	if err := cl.Flush(testContext(t)); err != nil {
		t.Fatal(err)
	}
	f := follow(t, brokers, func(c *SourceConfig) { c.Client.FetchMaxPartitionBytes = 8 << 10 }, nil, in)
	turn := 0
	f.until("all is read", func() bool {
		turn++
		switch {
		case len(f.values[0]) < n/2 && len(f.values[1]) < n/2:
			f.r.Pause([]int{turn % 2})
		case turn%2 == 0:
			f.r.Pause([]int{0, 1})
		default:
			f.r.Pause(nil)
		}
		return len(f.values[0]) == n/2 && len(f.values[1]) == n/2
	})
	f.wantAll(numbers(0, n/2), numbers(0, n/2))
}
