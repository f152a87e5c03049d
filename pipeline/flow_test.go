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

func TestTasksThatHearTheSameAreWhereTheLastOfThemIs(t *testing.T) {
	f := newFlow(3) // a source's task and two of a keyed step
	f.join(1, 2)
	f.set(0, mark{time: 100, idle: true})
	f.set(1, mark{time: 50, idle: true})
	f.set(2, mark{time: state.MinTime, idle: true})
	if f.now.time != 100 || !f.now.idle {
		t.Errorf("all are idle, and event time is at %+v, want the most: 100", f.now)
	}
	f = newFlow(2)
	f.join(0, 2)
	f.set(0, mark{time: 90})
	f.set(1, mark{time: 50, idle: true})
	if f.now != (mark{time: 50}) {
		t.Errorf("%+v: one task of a step still has rows from 50 on", f.now)
	}
	f.set(0, mark{time: 90, idle: true})
	if f.now.time != 50 {
		t.Errorf("%+v: one task of a step still has rows from 50 on", f.now)
	}
	f.set(1, mark{time: 90, idle: true})
	if f.now != (mark{time: 90, idle: true}) {
		t.Errorf("%+v: both tasks have come to 90", f.now)
	}
	f.set(0, mark{time: state.MaxTime})
	if f.now.time != 90 {
		t.Errorf("%+v: one task of a step is not at the end", f.now)
	}
	f.set(1, mark{time: state.MaxTime})
	if f.now.time != state.MaxTime {
		t.Errorf("%+v: both tasks are at the end", f.now)
	}
}
