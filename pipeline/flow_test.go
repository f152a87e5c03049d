package pipeline

import (
	"testing"

	"github.com/sluice-etl/sluice/pipeline/state"
)

func TestEventTimeOfATaskIsTheLeastOfItsSendersThatAreNotIdle(t *testing.T) {
	type step struct {
		sender int
		mark   mark
		want   mark
	}
	idle := func(t int64) mark { return mark{time: t, idle: true} }
	at := func(t int64) mark { return mark{time: t} }
	end := at(state.MaxTime)
	tests := []struct {
		name  string
		steps []step
	}{
		{"nothing before all have told", []step{{0, at(5), at(state.MinTime)}, {1, at(3), at(3)}, {1, at(9), at(5)}}},
		{"an idle one does not hold it", []step{{0, at(5), at(state.MinTime)}, {1, idle(2), at(5)}, {0, at(7), at(7)}}},
		{"all idle: the most of them", []step{{0, idle(5), at(state.MinTime)}, {1, idle(2), idle(5)}, {1, idle(8), idle(8)}}},
		{"it never goes back", []step{{0, at(5), at(state.MinTime)}, {1, idle(state.MinTime), at(5)}, {1, at(2), at(5)}, {1, at(6), at(5)}, {0, at(8), at(6)}}},
		{"one that is at its end does not hold it", []step{{0, end, at(state.MinTime)}, {1, at(3), at(3)}, {1, idle(4), idle(4)}, {1, at(5), at(5)}}},
		{"the end comes when all are at their end", []step{{0, end, at(state.MinTime)}, {1, idle(3), idle(3)}, {1, end, end}}},
		{"one that wakes holds it where it is", []step{{0, at(5), at(state.MinTime)}, {1, idle(1), at(5)}, {1, at(state.MinTime), at(5)}, {0, at(9), at(5)}, {1, at(7), at(7)}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFlow(2)
			for i, s := range tt.steps {
				before := f.now
				changed := f.set(s.sender, s.mark)
				if f.now != s.want || changed != (before != s.want) {
					t.Fatalf("step %d: %+v, changed %v; want %+v", i, f.now, changed, s.want)
				}
			}
		})
	}
}
