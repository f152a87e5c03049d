package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/state"
	"github.com/sluice-etl/sluice/pipeline/transform"
)

// byKey connects one of several senders to all receivers, which own as many key
// groups. The key of a record is in its only slot.
func byKey(t *testing.T, sender int, to []*inbox) (*keyedExchange, *edge) {
	t.Helper()
	base := transform.NewBase()
	base.NewSlot()
	e := &edge{from: transform.NewView(base), keying: &keying{step: "step", keys: []int{0}, rows: true}}
	l, err := newLane(e, 0, func(_ context.Context, _ *connectors.Batch, _ uint16, e *connectors.RecordError) error { return e })
	if err != nil {
		t.Fatal(err)
	}
	x := &keyedExchange{
		outlet: outlet{stride: 2, maxRows: 3, pool: connectors.NewBatchPool(4)}, groups: groups, owners: ownersOf(len(to), groups),
		lanes: map[*edge]*keyedLane{e: newKeyedLane(e, l, func(int) {})}, exprs: expr.NewEnv(),
	}
	for _, in := range to {
		x.ports = append(x.ports, port{inbox: in, sender: sender})
	}
	return x, e
}

const groups = 128

func keyed(keys ...string) (*connectors.Batch, []uint16) {
	b := &connectors.Batch{Stride: 1}
	var sel []uint16
	for i, k := range keys {
		b.Records = append(b.Records, connectors.Record{Key: []byte(k), Value: []byte("v" + k), Offset: int64(i), Origin: &connectors.Origin{}})
		b.Slots = append(b.Slots, connectors.StringValue(k))
		sel = append(sel, uint16(i))
	}
	return b, sel
}

func TestEachKeyGoesToTheOwnerOfItsGroupInOrder(t *testing.T) {
	ctx := context.Background()
	in := []*inbox{newInbox(1, 1<<20), newInbox(1, 1<<20), newInbox(1, 1<<20)}
	x, e := byKey(t, 0, in)
	var keys []string
	want := make([][]string, len(in))
	for i := range 50 {
		k := fmt.Sprint("key", i%17)
		keys = append(keys, k)
		key := state.MakeKey(state.AppendKey(nil, connectors.StringValue(k)), groups)
		at := state.SubtaskOf(key.Group, len(in), groups)
		want[at] = append(want[at], fmt.Sprint("v", k, "@", i))
	}
	b, sel := keyed(keys...)
	if err := x.send(ctx, e, b, sel); err != nil {
		t.Fatal(err)
	}
	clear(b.Records) // the exchange has copied what it sent
	x.mark(mark{time: 7})
	bar := &barrier{id: checkpoint.ID{Number: 1}}
	if err := x.barrier(ctx, bar); err != nil {
		t.Fatal(err)
	}
	x.mark(mark{time: 8})
	for i, box := range in {
		var got []string
		var marks []int64
		for {
			it, _, ok := box.take()
			if !ok {
				break
			}
			if it.mark.set {
				marks = append(marks, it.mark.time)
			}
			if it.barrier != nil {
				marks = append(marks, 0)
				continue
			}
			if it.batch == nil {
				continue
			}
			for row, r := range it.batch.Records {
				got = append(got, fmt.Sprint(string(r.Value), "@", r.Offset))
				key := state.AppendKey(nil, connectors.StringValue(string(r.Key)))
				if k := transform.RowKey(it.batch, uint16(row), groups); string(k.Bytes) != string(key) {
					t.Errorf("the key of %s is %q, want %q", r.Key, k.Bytes, key)
				}
			}
			it.batch.Recycle()
		}
		if !slices.Equal(got, want[i]) {
			t.Errorf("receiver %d got %v, want %v", i, got, want[i])
		}
		if !slices.Equal(marks, []int64{7, 0, 8}) {
			t.Errorf("receiver %d was told %v: the barrier, 0, stands between two marks", i, marks)
		}
	}
}

func TestNullAndEmptyStayApartOverAnExchange(t *testing.T) {
	in := newInbox(1, 1<<20)
	x, e := byKey(t, 0, []*inbox{in})
	e.keying.tombstones = true
	b, sel := keyed("", "")
	b.Records[0] = connectors.Record{
		Key: []byte{}, Headers: []connectors.Header{{Key: "null"}, {Key: "empty", Value: []byte{}}, {Key: "x", Value: []byte("1")}},
	}
	b.Records[1] = connectors.Record{Value: []byte{}}
	if err := x.send(context.Background(), e, b, sel); err != nil {
		t.Fatal(err)
	}
	it, _, _ := in.take()
	got := it.batch.Records
	if got[0].Value != nil || got[0].Key == nil || got[1].Value == nil || got[1].Key != nil {
		t.Errorf("got %#v", got)
	}
	if h := got[0].Headers; h[0].Value != nil || h[1].Value == nil || string(h[2].Value) != "1" {
		t.Errorf("headers %#v", h)
	}
}

func TestMarksTakeNoRoomAndTheLastOneCounts(t *testing.T) {
	in := newInbox(1, 1<<20)
	for i := range 1000 {
		in.mark(0, mark{time: int64(i)})
	}
	if n := len(in.queues[0].items); n != 1 {
		t.Errorf("%d items for marks alone", n)
	}
	b, _ := keyed("a")
	if err := in.put(t.Context(), 0, item{batch: b, bytes: 1}); err != nil {
		t.Fatal(err)
	}
	in.mark(0, mark{time: 1000, idle: true})
	first, _, _ := in.take()
	second, _, _ := in.take()
	if first.mark.time != 999 || second.batch != b || second.mark != (mark{time: 1000, idle: true, set: true}) {
		t.Errorf("got %+v and %+v", first, second)
	}
}

func TestASenderWaitsForRoomAndABarrierDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newInbox(1, 1000)
		x, e := byKey(t, 0, []*inbox{in})
		ctx, cancel := context.WithCancelCause(context.Background())
		sent := 0
		done := make(chan error)
		go func() {
			for {
				b, sel := keyed("a0", "b0", "c0")
				if err := x.send(ctx, e, b, sel); err != nil {
					done <- err
					return
				}
				sent++
			}
		}()
		synctest.Wait()
		first := sent
		if first == 0 || first > 3 {
			t.Errorf("%d batches of about 400 bytes went into room for 1000", first)
		}
		if err := x.ports[0].inbox.put(ctx, 0, item{barrier: &barrier{}}); err != nil {
			t.Error(err)
		}
		it, _, _ := in.take()
		it.batch.Recycle()
		synctest.Wait()
		if sent != first+1 {
			t.Errorf("%d more batches went into the room of one", sent-first)
		}
		stop := errors.New("stop")
		cancel(stop)
		if err := <-done; !errors.Is(err, stop) {
			t.Errorf("error %v", err)
		}
	})
}

func TestAlignmentHoldsAnInputUntilTheBarrierIsOnAll(t *testing.T) {
	for _, exact := range []bool{true, false} {
		t.Run(fmt.Sprintf("exactly_once %v", exact), func(t *testing.T) {
			in := newInbox(2, 1<<20)
			a := newAligner(in, 2, exact)
			ctx, bar := context.Background(), &barrier{id: checkpoint.ID{Number: 7}}
			put := func(sender int, it item) {
				if err := in.put(ctx, sender, it); err != nil {
					t.Fatal(err)
				}
			}
			batch := func(name string) item {
				b, _ := keyed(name)
				return item{batch: b, bytes: 1}
			}
			put(0, item{barrier: bar})
			put(0, batch("after0"))
			put(1, batch("before1"))
			put(1, item{barrier: bar})
			put(1, batch("after1"))
			var got []string
			for {
				it, sender, ok := in.take()
				if !ok {
					break
				}
				if it.barrier == nil {
					got = append(got, string(it.batch.Records[0].Key))
				} else if _, complete := a.arrive(sender, it.barrier, time.Now()); complete {
					got = append(got, "cut")
				}
			}
			cut := slices.Index(got, "cut")
			if len(got) != 4 || cut < 0 || slices.Index(got, "before1") > cut {
				t.Fatalf("order is %v", got)
			}
			if early := slices.Index(got, "after0") < cut; early == exact {
				t.Errorf("order is %v", got)
			}
		})
	}
}

func TestInboxKeepsOrderOverManyItems(t *testing.T) {
	in := newInbox(1, 1<<20)
	next := 0
	for i := range 1000 {
		if err := in.put(context.Background(), 0, item{edge: i, bytes: 1}); err != nil {
			t.Fatal(err)
		}
		if i%3 != 0 {
			it, _, _ := in.take()
			if it.edge != next {
				t.Fatalf("item %d came, want %d", it.edge, next)
			}
			next++
		}
	}
	if len(in.queues[0].items) > 1000 {
		t.Errorf("the queue holds %d slots", len(in.queues[0].items))
	}
}
