package connectortest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// Chaos is a sink whose target fails while faults are on.
type Chaos struct {
	Sink
	// Faults turns the faults of the target on and off; nil where there are none
	// but crashes.
	Faults func(on bool)
}

// chaosSteps is how many steps a chaotic run takes.
const chaosSteps = 60

// TestSinkChaos runs an exactly-once sink through random steps, with a crash and
// a restore, at another parallelism now and then, wherever it reports an error
// and at random moments between all steps of a checkpoint. At the end the faults
// are off, and all records must be there once. Each seed is a run of its own.
func TestSinkChaos(t *testing.T, seeds int, fresh func(t *testing.T, seed uint64) Chaos) {
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			if err := runChaos(fresh(t, seed), seed); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func runChaos(c Chaos, seed uint64) error {
	timeout := c.Timeout
	if timeout == 0 {
		timeout = 60 * time.Second
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if c.Faults == nil {
		c.Faults = func(bool) {}
	}
	m := &monkey{world: newWorld(c.Sink), rand: rand.New(rand.NewPCG(seed, 2))}
	defer m.wake(ctx)
	c.Faults(true)
	for range chaosSteps {
		m.step(ctx)
	}
	c.Faults(false)
	m.crash()
	p, err := m.world.start(ctx, m.last, 2)
	if err != nil {
		return fmt.Errorf("start without faults: %w", err)
	}
	m.wake(ctx)
	if err := p.feed(ctx, 10, whole); err != nil {
		return fmt.Errorf("without faults: %w", err)
	}
	if err := p.finish(ctx); err != nil {
		return errors.Join(err, fmt.Errorf("steps: %s", m.log))
	}
	return nil
}

// monkey takes random steps. Any error ends its process.
type monkey struct {
	world *world
	rand  *rand.Rand
	p     *process
	last  *snapshot // newest complete checkpoint
	log   []string
	// zombies are commits of older processes that come late, of checkpoints that
	// are not complete.
	zombies []func(ctx context.Context)
	// sleeping are those processes: they are not closed before that.
	sleeping []*process
	haunts   bool // p will be one
}

func (m *monkey) crash() {
	switch {
	case m.p == nil:
	case m.haunts:
		m.sleeping = append(m.sleeping, m.p)
	default:
		_ = m.p.stop()
	}
	m.p, m.haunts = nil, false
}

// wake lets the processes that sleep do what they were at, and ends them.
func (m *monkey) wake(ctx context.Context) {
	for _, late := range m.zombies {
		late(ctx)
	}
	for _, p := range m.sleeping {
		_ = p.stop()
	}
	m.zombies, m.sleeping = nil, nil
}

func (m *monkey) step(ctx context.Context) {
	name, err := m.take(ctx)
	if err != nil {
		name += " fails"
		m.crash()
	}
	m.log = append(m.log, name)
}

func (m *monkey) take(ctx context.Context) (string, error) {
	if m.p == nil {
		var err error
		m.p, err = m.world.start(ctx, m.last, 1+m.rand.IntN(3))
		if err == nil {
			m.wake(ctx)
		}
		return "start", err
	}
	switch m.rand.IntN(8) {
	case 0:
		m.crash()
		return "crash", nil
	case 1:
		s, err := m.p.prepare(ctx, m.rand.IntN(3) == 0)
		if err == nil {
			m.haunt(m.p.committer, s.Committables)
		}
		return "attempt", err
	case 2, 3, 4:
		return "checkpoint", m.checkpoint(ctx)
	default:
		return "feed", m.p.feed(ctx, m.rand.IntN(60), whole)
	}
}

// haunt makes a process try to commit when a newer one has started. Whether it is
// refused does not matter, only what the target shows.
func (m *monkey) haunt(c connectors.Committer, coms []connectors.Committable) {
	m.haunts = true
	m.zombies = append(m.zombies, func(ctx context.Context) {
		for _, com := range coms {
			_ = c.Commit(ctx, com, false)
		}
	})
}

var errCrash = errors.New("crash")

// checkpoint may end after each of its steps.
func (m *monkey) checkpoint(ctx context.Context) error {
	s, err := m.p.prepare(ctx, m.rand.IntN(3) == 0)
	if err != nil {
		return err
	}
	if s, err = m.world.complete(s); err != nil {
		return err
	}
	m.last = s
	for _, c := range s.Committables {
		if m.rand.IntN(10) == 0 {
			return errCrash
		}
		if err := m.commit(ctx, c); err != nil {
			return err
		}
	}
	if m.rand.IntN(10) == 0 {
		return errCrash
	}
	m.p.committer.Done(s.ID)
	m.world.retain()
	return nil
}

// commit tries again, as the engine does.
func (m *monkey) commit(ctx context.Context, c connectors.Committable) error {
	var err error
	for range 1 + m.rand.IntN(4) {
		if err = m.p.committer.Commit(ctx, c, false); err == nil {
			return nil
		}
	}
	return err
}
