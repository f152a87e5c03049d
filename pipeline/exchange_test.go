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
	"github.com/sluice-etl/sluice/pipeline/transform"
)

// hashExchange connects one of several senders to all receivers, by the last
// digit of the record's key.
func hashExchange(t *testing.T, sender int, to []*inbox) (*localExchange, *edge) {
	t.Helper()
	e := &edge{from: transform.NewView(transform.NewBase())}
	choose := func(b *connectors.Batch, row uint16) (int, *connectors.RecordError) {
		key := b.Records[row].Key
		if len(key) == 0 {
			return 0, recordError(b, row, "", "key", "there is no key")
		}
		return int(key[len(key)-1]-'0') % len(to), nil
	}
	fail := func(_ context.Context, _ *connectors.Batch, _ uint16, e *connectors.RecordError) error { return e }
	l, err := newLane(e, 0, choose, fail)
	if err != nil {
		t.Fatal(err)
	}
	x := &localExchange{edges: map[*edge]*lane{e: l}, stride: 0, maxRows: 3, pool: connectors.NewBatchPool(4)}
	for _, in := range to {
		x.ports = append(x.ports, port{inbox: in, sender: sender})
	}
	return x, e
}

func keyed(keys ...string) (*connectors.Batch, []uint16) {
	b := &connectors.Batch{}
	var sel []uint16
	for i, k := range keys {
		b.Records = append(b.Records, connectors.Record{Key: []byte(k), Value: []byte("v" + k), Offset: int64(i)})
		sel = append(sel, uint16(i))
	}
	return b, sel
}

func TestHashExchangeSendsEachKeyToOneReceiverInOrder(t *testing.T) {
	ctx := context.Background()
	in := []*inbox{newInbox(1, 1<<20), newInbox(1, 1<<20), newInbox(1, 1<<20)}
	x, e := hashExchange(t, 0, in)
	b, sel := keyed("a1", "b2", "c1", "d0", "e1", "f1", "g2")
	if err := x.send(ctx, e, b, sel); err != nil {
		t.Fatal(err)
	}
	clear(b.Records) // the exchange has copied what it sent
	bar := &barrier{id: checkpoint.ID{Number: 1}}
	if err := x.barrier(ctx, bar); err != nil {
		t.Fatal(err)
	}
	want := [][]string{{"vd0"}, {"va1", "vc1", "ve1", "vf1"}, {"vb2", "vg2"}}
	for i, box := range in {
		var got []string
		for {
			it, _, ok := box.take()
			if !ok {
				t.Fatalf("receiver %d got no barrier", i)
			}
			if it.barrier != nil {
				break
			}
			for _, r := range it.batch.Records {
				got = append(got, string(r.Value))
			}
			it.batch.Recycle()
		}
		if !slices.Equal(got, want[i]) {
			t.Errorf("receiver %d got %v, want %v", i, got, want[i])
		}
	}
}

func TestNullAndEmptyStayApartOverAnExchange(t *testing.T) {
	in := newInbox(1, 1<<20)
	x, e := hashExchange(t, 0, []*inbox{in})
	x.edges[e].choose = nil
	b := &connectors.Batch{Records: []connectors.Record{
		{Key: []byte{}, Headers: []connectors.Header{{Key: "null"}, {Key: "empty", Value: []byte{}}, {Key: "x", Value: []byte("1")}}},
		{Value: []byte{}},
	}}
	if err := x.send(context.Background(), e, b, []uint16{0, 1}); err != nil {
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

func TestARowWithoutAReceiverGoesToOnError(t *testing.T) {
	x, e := hashExchange(t, 0, []*inbox{newInbox(1, 1<<20)})
	b, sel := keyed("")
	var rec *connectors.RecordError
	if err := x.send(context.Background(), e, b, sel); !errors.As(err, &rec) {
		t.Errorf("error %v", err)
	}
}

func TestASenderWaitsForRoomAndABarrierDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newInbox(1, 1000)
		x, e := hashExchange(t, 0, []*inbox{in})
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
