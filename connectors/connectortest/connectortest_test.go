package connectortest

import (
	"context"
	"errors"
	"io/fs"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-etl/sluice/connectors"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSinkAcceptsAModelSink(t *testing.T) {
	TestSink(t, func(*testing.T) Sink { return model(none) })
}

func TestSinkAcceptsAModelThatWritesAtOnce(t *testing.T) {
	TestSink(t, func(*testing.T) Sink { return atOnceModel(none) })
}

func TestChaosAcceptsAModelSink(t *testing.T) {
	TestSinkChaos(t, 5, func(*testing.T, uint64) Chaos { return Chaos{Sink: model(none)} })
}

func TestChaosFindsPlantedFaults(t *testing.T) {
	for _, f := range []fault{losesFailed, neverRevokes, abortsOnClose, repeats, reorders} {
		t.Run(string(f), func(t *testing.T) {
			for seed := range uint64(20) {
				if runChaos(Chaos{Sink: model(f)}, seed) != nil {
					return
				}
			}
			t.Errorf("no run finds a sink that %s", f)
		})
	}
}

// findsFault runs all checks over a model sink that has a fault, and reports whether one
// of them fails.
func findsFault(model func(fault) Sink, f fault) bool {
	fresh := func() Sink {
		target := model(f)
		target.Virtual = false
		if f == hangs {
			target.Timeout = 10 * time.Millisecond
		}
		return target
	}
	for _, c := range sinkChecks {
		target := fresh()
		if c.applies != nil && !c.applies(&target) {
			continue
		}
		if sink, _ := target.New(); c.twoPhase && !isTwoPhase(sink) {
			continue
		}
		if c.cases == nil {
			if runSinkCheck(c.run, fresh()) != nil {
				return true
			}
			continue
		}
		cases, err := c.list(fresh())
		if err != nil {
			return true
		}
		for _, one := range cases {
			if runSinkCheck(one.run, fresh()) != nil {
				return true
			}
		}
	}
	return false
}

func isTwoPhase(s connectors.Sink) bool {
	_, two := s.(connectors.TwoPhaseSink)
	return two
}

func TestSinkFindsEachPlantedFault(t *testing.T) {
	if findsFault(model, none) || findsFault(atOnceModel, none) {
		t.Fatal("a sink that is right has a fault")
	}
	for _, f := range []fault{addsAgain, deletesOnce} {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			if !findsFault(atOnceModel, f) {
				t.Errorf("no check finds a sink that %s", f)
			}
		})
	}
	for _, f := range []fault{
		losesFailed, keepsRows, publishesEarly, repeats, neverRevokes, abortsOnClose, noEmpty, dropsFirst, reorders, hangs,
		stateInMemory, ignoresRoll, numbersOnly, swallows, tellsOnce, tellsForever, blamesAll, blamesWrong, givesUp, saysDone,
		dropsUnsent, clearsFirst, namesNoStep, keepsDeleted, stageTwice, hidesWitness,
	} {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			if !findsFault(model, f) {
				t.Errorf("no check finds a sink that %s", f)
			}
		})
	}
}

func TestANetworkedSinkDeclaresWhatItHasNoHookFor(t *testing.T) {
	s := model(none)
	s.Network.Throttle, s.Poison = nil, nil
	if err := s.checkHooks(); err == nil {
		t.Error("hooks are missing and nothing is said of it")
	}
	s.Without = map[string]string{WithoutThrottle: "it has no such answer", WithoutPoison: "it takes all"}
	if err := s.checkHooks(); err != nil {
		t.Error(err)
	}
	s.Without["sleep"] = "no reason"
	if err := s.checkHooks(); err == nil {
		t.Error("a declaration for no check is taken")
	}
}

func TestFilesVerifyWhatTheyOpen(t *testing.T) {
	ctx := context.Background()
	var files Files
	w, err := files.Create(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("abc")); err != nil {
		t.Fatal(err)
	}
	ref, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := files.Open(ctx, ref); err != nil {
		t.Errorf("open: %v", err)
	}
	bad := ref
	bad.Size++
	if _, err := files.Open(ctx, bad); err == nil {
		t.Error("a file of another size was opened")
	}
	files.Retain(nil)
	if _, err := files.Open(ctx, ref); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a removed file: %v", err)
	}
}
