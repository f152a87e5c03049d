package pipeline

import (
	"testing"
	"time"

	"github.com/sluice-etl/sluice/pipeline/spec"
)

func TestRestartStrategies(t *testing.T) {
	const never = -1 * time.Second
	tests := []struct {
		name  string
		rule  spec.Restart
		at    []time.Duration // of failures, since the start
		delay []time.Duration
	}{
		{"none stays down", spec.Restart{Strategy: spec.RestartNone}, []time.Duration{0}, []time.Duration{never}},
		{
			"fixed counts attempts", spec.Restart{Strategy: spec.RestartFixed, Attempts: 2, Delay: time.Second},
			[]time.Duration{0, time.Hour, 2 * time.Hour},
			[]time.Duration{time.Second, time.Second, never},
		},
		{
			"failure_rate forgets", spec.Restart{Strategy: spec.RestartFailureRate, Attempts: 2, Per: time.Minute, Delay: time.Second},
			[]time.Duration{0, 10 * time.Second, 61 * time.Second, 62 * time.Second},
			[]time.Duration{time.Second, time.Second, time.Second, never},
		},
		{
			"exponential grows to its bound and starts over after a long run",
			spec.Restart{Strategy: spec.RestartExponential, Initial: time.Second, Max: 3 * time.Second, Multiplier: 2, ResetAfter: 10 * time.Minute},
			[]time.Duration{time.Second, 2 * time.Second, 3 * time.Second, time.Hour},
			[]time.Duration{time.Second, 2 * time.Second, 3 * time.Second, time.Second},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := restarts{rule: tt.rule}
			start, last := time.Unix(0, 0), time.Duration(0)
			for i, at := range tt.at {
				delay, ok := r.next(start.Add(at), at-last)
				last = at
				if !ok {
					delay = never
				}
				if delay != tt.delay[i] {
					t.Errorf("failure %d: delay %s, want %s", i, delay, tt.delay[i])
				}
			}
		})
	}
}
