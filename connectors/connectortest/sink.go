package connectortest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// Reader returns the values that a reader of a target sees at this moment, by other means
// than the sink's own.
type Reader func(ctx context.Context) ([]string, error)

// Sink is a sink under test, with a target of its own.
type Sink struct {
	// New makes the sink anew over the same target, as a process that starts does.
	New  func() (connectors.Sink, error)
	Read Reader
	// Ordered says that Read returns the records of one partition in the order in
	// which they were written.
	Ordered bool
	// Timeout bounds each check, 30s if 0: a sink that hangs fails.
	Timeout time.Duration
	// Network are the hooks of a target that is reached over a network; nil for others.
	// With them every check that needs one is run, or declared in Without.
	Network *Network
	// Poison makes the value of a record that the target refuses, in place of the one
	// with "partition" and "offset"; nil where the target takes all.
	Poison func(partition, offset int) string
	// Updating is a target for an updating stream; nil where the sink takes none.
	Updating *Updating
	// Without says which checks do not apply and why, by the names of this package.
	Without map[string]string
	// Virtual says that sink and target know no time but that of testing/synctest: the
	// target is then down for a minute rather than for a moment.
	Virtual bool
}

// TestSink runs every check of the contract that applies to a sink's guarantee,
// each on a target of its own that fresh makes.
func TestSink(t *testing.T, fresh func(t *testing.T) Sink) {
	for _, c := range sinkChecks {
		t.Run(c.name, func(t *testing.T) {
			if c.virtual && fresh(t).Virtual {
				synctest.Test(t, func(t *testing.T) { c.test(t, fresh) })
				return
			}
			c.test(t, fresh)
		})
	}
}

type sinkCheck struct {
	name     string
	twoPhase bool
	run      func(ctx context.Context, w *world) error
	// cases makes further runs, each on a target of its own; run is nil then.
	cases func(ctx context.Context, w *world) ([]testCase, error)
	// applies tells whether a sink has what the check needs; nil for every one.
	applies func(s *Sink) bool
	virtual bool
}

// testCase is one run of a check.
type testCase struct {
	name string
	run  func(ctx context.Context, w *world) error
}

func (c *sinkCheck) test(t *testing.T, fresh func(t *testing.T) Sink) {
	target := fresh(t)
	if err := target.checkHooks(); err != nil {
		t.Fatal(err)
	}
	if c.applies != nil && !c.applies(&target) {
		return
	}
	s, err := target.New()
	if err != nil {
		t.Fatal(err)
	}
	if _, two := s.(connectors.TwoPhaseSink); c.twoPhase && !two {
		if s.Guarantee() == connectors.ExactlyOnce {
			t.Fatal("an exactly-once sink must be a TwoPhaseSink")
		}
		return // the check concerns two-phase sinks only
	}
	if c.cases == nil {
		if err := runSinkCheck(c.run, target); err != nil {
			t.Fatal(err)
		}
		return
	}
	cases, err := c.list(target)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range cases {
		t.Run(one.name, func(t *testing.T) {
			if err := runSinkCheck(one.run, fresh(t)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// list finds the cases of a check.
func (c *sinkCheck) list(target Sink) (cases []testCase, err error) {
	err = runSinkCheck(func(ctx context.Context, w *world) (err error) {
		cases, err = c.cases(ctx, w)
		return err
	}, target)
	return cases, err
}

func runSinkCheck(run func(ctx context.Context, w *world) error, target Sink) error {
	timeout := target.Timeout
	if timeout == 0 {
		timeout = 30 * time.Second
	}
	if target.Virtual {
		timeout += 2 * virtualOutage
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return run(ctx, newWorld(target))
}

var sinkChecks = []sinkCheck{
	{name: "takes batches of any shape", run: anyShape},
	{name: "opens and closes without records", run: unused},
	{name: "takes checkpoints without records", run: emptyCheckpoints},
	{name: "goes on after a restore", run: restoreEach},
	{name: "shows nothing before the commit", twoPhase: true, run: invisible},
	{name: "loses nothing of a failed checkpoint", twoPhase: true, run: failedCheckpoint},
	{name: "loses nothing of a cancelled prepare", twoPhase: true, run: cancelledPrepare},
	{name: "takes back what no checkpoint holds", twoPhase: true, run: crashBeforeMetadata},
	{name: "publishes what a crash left prepared", twoPhase: true, run: crashBeforeCommit},
	{name: "publishes once what a crash left published", twoPhase: true, run: crashAfterCommit},
	{name: "publishes once when starts are interrupted", twoPhase: true, run: crashWhileRestoring},
	{name: "restores at another parallelism", run: rescale},
	{name: "lets a newer process take over", twoPhase: true, run: takeOver},
	{name: "restores a checkpoint before the last one", run: olderCheckpoint},
	{name: "restores an old savepoint", run: oldSavepoint},
	{name: "goes on from another job's checkpoint", run: anotherJob},
	{name: "crashes at each durable step", cases: crashPoints},
	{name: "takes back and replaces rows", run: updates, applies: func(s *Sink) bool { return s.Updating != nil }},
	{name: "tells of a row that the target refuses", run: poisoned, applies: func(s *Sink) bool { return s.Poison != nil }},
	{name: "waits for a target that is down", run: outage, virtual: true, applies: func(s *Sink) bool { return s.Network != nil }},
	{name: "acknowledges nothing while the target is down", run: silence, virtual: true, applies: func(s *Sink) bool { return s.Network != nil }},
	{name: "bears being put off", run: throttled, applies: func(s *Sink) bool { return s.Network != nil && s.Network.Throttle != nil }},
	{name: "bears the loss of each reply", cases: lostReplies, applies: func(s *Sink) bool { return s.Network != nil && s.Network.LoseReply != nil }},
}
