package blackhole

import (
	"testing"

	"github.com/sluice-etl/sluice/connectors"
)

func TestBlackholeCountsWhatItTakes(t *testing.T) {
	s := new(Sink)
	w, err := s.Writer(0)
	if err != nil {
		t.Fatal(err)
	}
	rows := &connectors.Rows{Batch: new(connectors.Batch), Sel: []uint16{0, 2}, Values: [][]byte{[]byte("abc"), nil}}
	ctx := t.Context()
	write := func() {
		if err := w.Write(ctx, rows); err != nil {
			t.Fatal(err)
		}
	}
	write()
	prepare, err := w.Barrier(ctx, connectors.Barrier{})
	if err != nil {
		t.Fatal(err)
	}
	if p, err := prepare(ctx, nil); err != nil || p.State != nil || p.Committables != nil {
		t.Errorf("prepared %+v, %v", p, err)
	}
	if n, size := s.Counts(); n != 2 || size != 3 {
		t.Errorf("%d records, %d bytes", n, size)
	}
	if n := testing.AllocsPerRun(100, write); n != 0 {
		t.Errorf("%v allocations a batch", n)
	}
}
