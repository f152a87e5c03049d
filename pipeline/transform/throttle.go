package transform

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// ThrottleConfig is the block of a throttle.
type ThrottleConfig struct {
	Records float64             `key:"records_per_second" doc:"The most records a second, over all subtasks."`
	Bytes   connectors.ByteSize `key:"bytes_per_second" doc:"The most bytes of record values a second, over all subtasks."`
}

// Validate wants a rate.
func (c *ThrottleConfig) Validate() error {
	if !(c.Records >= 0 && c.Records <= 1e9) {
		return &connectors.FieldError{Key: "records_per_second", Msg: "a rate is above 0 and at most 1e9"}
	}
	if c.Records == 0 && c.Bytes == 0 {
		return errors.New("it needs records_per_second or bytes_per_second")
	}
	return nil
}

func init() {
	Register(Spec{
		Updates:   PassesUpdates,
		Name:      "throttle",
		Doc:       "Slows the stream down to a rate.",
		NewConfig: func() any { return &ThrottleConfig{} },
		Build:     buildThrottle,
	})
}

// throttleStep holds the time at which the next record of all subtasks is due.
type throttleStep struct {
	config ThrottleConfig
	mu     sync.Mutex
	due    time.Time
}

// SliceRows is how many records may go on at once: a tenth of a second's, so
// that a barrier finds a gap.
func (s *throttleStep) SliceRows() int {
	rate := s.config.Records
	if rate == 0 {
		// Bytes are not known beforehand; a record of 1 KiB is taken as usual.
		rate = float64(s.config.Bytes) / 1024
	}
	return min(max(int(rate/10), 1), connectors.MaxBatch)
}

// Due is when the next records may go on.
func (s *throttleStep) Due() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.due
}

func buildThrottle(config any, env *Env) Step {
	env.Output(env.In)
	return &throttleStep{config: *config.(*ThrottleConfig)}
}

func (s *throttleStep) Start(env RunEnv) Instance { return &throttleRun{s, env} }

type throttleRun struct {
	*throttleStep
	env RunEnv
}

func (r *throttleRun) Process(ctx context.Context, b *connectors.Batch, sel []uint16) error {
	r.charge(b, sel, time.Now())
	return r.env.Emit(ctx, 0, b, sel)
}

// charge takes the time that the rows need at the rate.
func (s *throttleStep) charge(b *connectors.Batch, sel []uint16, now time.Time) {
	var cost time.Duration
	if s.config.Records > 0 {
		cost = time.Duration(float64(len(sel)) / s.config.Records * float64(time.Second))
	}
	if s.config.Bytes > 0 {
		n := 0
		for _, row := range sel {
			n += len(b.Records[row].Value)
		}
		cost = max(cost, time.Duration(float64(n)/float64(s.config.Bytes)*float64(time.Second)))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.due.Before(now) {
		s.due = now
	}
	s.due = s.due.Add(cost)
}
