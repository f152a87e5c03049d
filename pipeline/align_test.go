package pipeline

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/checkpoint"
)

// alignRig sends through an inbox, and takes from it as a task does.
type alignRig struct {
	t       *testing.T
	in      *inbox
	align   *aligner
	senders int
	aligned []*alignment
}

func newAlignRig(t *testing.T, senders int, exact bool) *alignRig {
	in := newInbox(senders, 1<<20)
	return &alignRig{t: t, in: in, align: newAligner(in, senders, exact), senders: senders}
}

func (r *alignRig) put(sender int, it item) {
	r.t.Helper()
	if err := r.in.put(r.t.Context(), sender, it); err != nil {
		r.t.Fatal(err)
	}
}

func (r *alignRig) barrier(sender int, n uint64) {
	r.t.Helper()
	r.put(sender, item{barrier: &barrier{id: checkpoint.ID{Number: n}}})
}

// drain takes what it can: the numbers of edges of items that came, and cuts as -number.
func (r *alignRig) drain() []int {
	var got []int
	for {
		it, sender, ok := r.in.take()
		if !ok {
			return got
		}
		if it.barrier == nil {
			got = append(got, it.edge)
			continue
		}
		if al, complete := r.align.arrive(sender, it.barrier, time.Now()); complete {
			r.aligned = append(r.aligned, al)
			got = append(got, -int(it.barrier.id.Number))
		}
	}
}

func (r *alignRig) want(want ...int) {
	r.t.Helper()
	if got := r.drain(); !slices.Equal(got, want) {
		r.t.Errorf("got %v, want %v", got, want)
	}
}

func TestALaterBarrierOfAHeldInputWaitsItsTurn(t *testing.T) {
	r := newAlignRig(t, 2, true)
	r.barrier(0, 1)
	r.put(0, item{edge: 1, bytes: 10})
	r.barrier(0, 2)
	r.put(0, item{edge: 2, bytes: 10})
	r.want() // held
	r.put(1, item{edge: 11, bytes: 10})
	r.barrier(1, 1)
	r.put(1, item{edge: 12, bytes: 10})
	r.want(11, -1, 1, 12) // and now held behind barrier 2
	if r.aligned[0].buffered != 20 {
		t.Errorf("%d bytes were held back, want 20", r.aligned[0].buffered)
	}
	r.barrier(1, 2)
	r.want(-2, 2)
}

func TestWithoutHoldingBarriersAreCountedByNumber(t *testing.T) {
	r := newAlignRig(t, 3, false)
	for n := range 3 {
		r.barrier(0, uint64(n+1))
		r.put(0, item{edge: n + 1, bytes: 10})
	}
	r.want(1, 2, 3) // nothing is held
	r.barrier(1, 1)
	r.barrier(1, 2)
	r.barrier(2, 1)
	r.want(-1)
	r.barrier(2, 2)
	r.barrier(2, 3)
	r.want(-2)
	r.barrier(1, 3)
	r.want(-3)
	if len(r.align.open) > 0 {
		t.Errorf("%d alignments are left", len(r.align.open))
	}
}

// A checkpoint that failed holds nothing back, though one input may bring its barrier much
// later than the others, and behind that of the next one.
func TestABarrierOfAFailedCheckpointHoldsNothing(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprint("told late ", late), func(t *testing.T) {
			r := newAlignRig(t, 2, true)
			if !late {
				r.in.waive(1)
			}
			r.barrier(0, 1)
			r.put(0, item{edge: 1, bytes: 10})
			if late {
				r.want()
				r.in.waive(1)
			}
			r.want(1)
			r.barrier(0, 2)
			r.put(0, item{edge: 2, bytes: 10})
			r.want() // held for checkpoint 2
			r.barrier(1, 1)
			r.put(1, item{edge: 11, bytes: 10})
			r.want(-1, 11) // which that of checkpoint 1 does not change
			r.barrier(1, 2)
			r.want(-2, 2)
		})
	}
}

func TestManyFailedCheckpointsAreForgotten(t *testing.T) {
	in := newInbox(1, 1)
	for n := range uint64(10 * rememberedNumbers) {
		in.waive(n)
	}
	if n := len(in.waived.last); n != rememberedNumbers || !in.waived.has(10*rememberedNumbers-1) {
		t.Errorf("%d are remembered", n)
	}
}
