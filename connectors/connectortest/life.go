package connectortest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// life is a pipeline from its first start to the end of its input, restarted as the
// engine does it wherever something fails.
type life struct {
	world *world
	crash *crashPlan // of the first process
	p     *process
	last  *snapshot // newest complete checkpoint
	step  int
}

// lifeSteps are the records before each checkpoint, and whether it rolls.
var lifeSteps = []struct {
	records int
	roll    bool
}{{40, false}, {40, true}, {1, false}, {0, false}, {30, true}}

// patience is how often something is tried again before it counts as failing for good.
const patience = 1000

// run takes the life to its end and looks at what the target holds.
func (l *life) run(ctx context.Context) error {
	for tries := 1; ; tries++ {
		err := l.advance(ctx)
		if err == nil {
			return l.end(ctx)
		}
		l.kill()
		if connectors.IsPermanent(err) {
			return fmt.Errorf("a permanent error where trying again helps: %w", err)
		}
		if tries == patience {
			return fmt.Errorf("it does not come to an end: %w", err)
		}
		if pauseErr := pause(ctx, tries); pauseErr != nil {
			return fmt.Errorf("it does not come to an end: %w", err)
		}
	}
}

func pause(ctx context.Context, tries int) error {
	timer := time.NewTimer(time.Duration(min(tries, 50)) * 4 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *life) advance(ctx context.Context) error {
	if l.p == nil {
		// What a step that crashes leaves running must not touch what comes after it.
		var started *process
		last, crash := l.last, l.crash
		err := l.guard(ctx, func() (err error) {
			started, err = l.world.startWith(ctx, last, 2, crash)
			return err
		})
		if err != nil {
			return err
		}
		l.p = started
	}
	p := l.p
	for l.step < len(lifeSteps) {
		s := lifeSteps[l.step]
		if err := l.guard(ctx, func() error { return p.feed(ctx, s.records, whole) }); err != nil {
			return err
		}
		var done *snapshot
		err := l.guard(ctx, func() (err error) { done, err = p.prepare(ctx, s.roll); return err })
		if err != nil {
			return err
		}
		if done, err = l.world.complete(done); err != nil {
			return err
		}
		l.last = done
		l.step++
		if err := l.commit(ctx, done); err != nil {
			return err
		}
		l.world.retain()
	}
	return nil
}

// commit tries again as the engine does, for a while.
func (l *life) commit(ctx context.Context, s *snapshot) error {
	var err error
	p := l.p
	for i := range 20 {
		if err = l.guard(ctx, func() error { return p.commit(ctx, s) }); err == nil || errors.Is(err, errCrash) {
			return err
		}
		if pauseErr := pause(ctx, i+1); pauseErr != nil {
			return err
		}
	}
	return err
}

// end stops the last process. What it is asked for was committed before.
func (l *life) end(ctx context.Context) error {
	guarantee, next := l.p.sink.Guarantee(), l.p.next
	if err := l.guard(ctx, l.p.stop); err != nil && !errors.Is(err, errCrash) {
		return fmt.Errorf("close: %w", err)
	}
	return l.world.verify(ctx, next, guarantee)
}

// guard runs a step of the process, which can crash meanwhile.
func (l *life) guard(ctx context.Context, f func() error) error {
	if l.crash == nil {
		return f()
	}
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		if l.crash.happened() {
			return errCrash
		}
		return err
	case <-l.crash.hit:
		return errCrash
	case <-ctx.Done():
		return ctx.Err()
	}
}

// kill ends the process. What it held open is closed, as the system does it; a sink
// whose goroutines have died with a lock held is left alone.
func (l *life) kill() {
	crashed := l.crash != nil && l.crash.happened()
	if crashed {
		l.p = l.crash.process
		l.crash = nil
	}
	if l.p == nil {
		return
	}
	closed := make(chan struct{})
	go func(p *process) {
		defer close(closed)
		_ = p.stop()
	}(l.p)
	l.p = nil
	if !crashed {
		<-closed
		return
	}
	select {
	case <-closed:
	case <-time.After(time.Second):
	}
}

// crashPlan ends a process at a named step: from then on each goroutine of it ends where
// it comes to a named step. With no name it notes the steps.
type crashPlan struct {
	name    string
	at      int // which time the step is come to
	hit     chan struct{}
	process *process

	mu    sync.Mutex
	dead  bool
	names []string // in the order in which they were come to first
	seen  map[string]int
}

func newCrashPlan(name string, at int) *crashPlan {
	return &crashPlan{name: name, at: at, hit: make(chan struct{}), seen: map[string]int{}}
}

func (c *crashPlan) happened() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead
}

func (c *crashPlan) failpoint(name string) {
	c.mu.Lock()
	if !slices.Contains(c.names, name) {
		c.names = append(c.names, name)
	}
	c.seen[name]++
	if !c.dead && name == c.name && c.seen[name] == c.at {
		c.dead = true
		close(c.hit)
	}
	dead := c.dead
	c.mu.Unlock()
	if dead {
		runtime.Goexit()
	}
}

// crashPoints lists the first and the last time that a life comes to each named step.
func crashPoints(ctx context.Context, w *world) ([]testCase, error) {
	plan := newCrashPlan("", 0)
	l := &life{world: w, crash: plan}
	if err := l.run(ctx); err != nil {
		return nil, fmt.Errorf("without a crash: %w", err)
	}
	if len(plan.names) == 0 && l.world.exactlyOnce() && w.target.Without[WithoutCrashPoints] == "" {
		return nil, errors.New("the sink names no durable step: call SinkEnv.Failpoint before and after each")
	}
	var cases []testCase
	for _, name := range plan.names {
		for _, at := range slices.Compact([]int{1, plan.seen[name]}) {
			cases = append(cases, testCase{fmt.Sprintf("%s, time %d", name, at), func(ctx context.Context, w *world) error {
				return (&life{world: w, crash: newCrashPlan(name, at)}).run(ctx)
			}})
		}
	}
	return cases, nil
}
