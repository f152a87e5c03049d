package daemon

import (
	"context"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
	"github.com/sluice-etl/sluice/pipeline"
)

const (
	sampleEvery = time.Second
	rateOver    = 10 // samples
)

// sample is what is measured of a pipeline from time to time. Its unit's lock guards it.
type sample struct {
	past   pipeline.Counts // of the runs before
	before pipeline.Counts // of the run, until its last restart
	now    pipeline.Counts // since then
	recent []measured      // oldest first
}

// measured is the counts at a time.
type measured struct {
	at     time.Time
	counts api.Counts
}

// end takes over what a run has counted in all.
func (s *sample) end(r *run) {
	if r.summary != nil {
		plus(&s.past, &r.summary.Counts)
	}
	s.before, s.now, s.recent = pipeline.Counts{}, pipeline.Counts{}, nil
}

// take measures a run, whose counts begin anew with each restart.
func (s *sample) take(now time.Time, c pipeline.Counts) {
	if c.Read < s.now.Read || c.Written < s.now.Written {
		plus(&s.before, &s.now)
	}
	s.now = c
	if len(s.recent) > rateOver {
		s.recent = append(s.recent[:0], s.recent[1:]...)
	}
	s.recent = append(s.recent, measured{now, s.counts()})
}

// counts are those since the daemon began.
func (s *sample) counts() api.Counts {
	all := s.past
	plus(&all, &s.before)
	plus(&all, &s.now)
	return api.Counts{
		Read: all.Read, Bytes: all.Bytes, Written: all.Written, Filtered: all.Filtered, Skipped: all.Skipped, Dead: all.Dead, Late: all.Late,
	}
}

func plus(to, c *pipeline.Counts) {
	to.Read += c.Read
	to.Bytes += c.Bytes
	to.Written += c.Written
	to.Filtered += c.Filtered
	to.Skipped += c.Skipped
	to.Dead += c.Dead
	to.Late += c.Late
}

// rates are the records read, bytes read and records written a second.
func (s *sample) rates() (read, bytes, written float64) {
	if len(s.recent) < 2 {
		return 0, 0, 0
	}
	first, last := &s.recent[0], &s.recent[len(s.recent)-1]
	seconds := last.at.Sub(first.at).Seconds()
	per := func(a, b int64) float64 { return max(0, float64(b-a)/seconds) }
	return per(first.counts.Read, last.counts.Read), per(first.counts.Bytes, last.counts.Bytes), per(first.counts.Written, last.counts.Written)
}

// sampleAll measures all pipelines from time to time until ctx ends.
func (d *Daemon) sampleAll(ctx context.Context) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			for _, u := range d.all() {
				u.measure(now)
				u.look(now)
			}
			d.sampled.Store(time.Now().UnixNano())
		}
	}
}

// measure takes a sample of what runs.
func (u *unit) measure(now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.run == nil {
		return
	}
	u.sample.take(now, u.run.control.Counts())
}

// processNow is what the process takes.
func processNow() api.Daemon {
	out := api.Daemon{PID: os.Getpid(), Routines: runtime.NumGoroutine()}
	var use syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &use) == nil {
		out.CPU = time.Duration(use.Utime.Nano() + use.Stime.Nano()).Seconds()
	}
	out.RSS = residentBytes()
	return out
}
