package connectortest

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-etl/sluice/connectors"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shelf is the target of a model sink: batches of values that are staged or out.
type shelf struct {
	mu     sync.Mutex
	next   int
	staged map[int]staged
	out    []string
}

type staged struct {
	generation uint64
	values     []string
}

// fault names what a planted faulty sink does wrong.
type fault string

const (
	none           fault = ""
	losesFailed    fault = "forgets what it prepared for a failed checkpoint"
	keepsRows      fault = "keeps borrowed bytes"
	publishesEarly fault = "publishes when it prepares"
	repeats        fault = "publishes again what is published"
	neverRevokes   fault = "revokes nothing"
	abortsOnClose  fault = "drops on close what a checkpoint holds"
	noEmpty        fault = "hands over nothing for an empty checkpoint"
	dropsFirst     fault = "drops the first row of a batch"
	reorders       fault = "writes a batch in reverse"
	hangs          fault = "never returns from a prepare"
	stateInMemory  fault = "commits from its memory, not from the handle"
)

// modelSink is the smallest two-phase sink that is right, and wrong on request.
type modelSink struct {
	shelf   *shelf
	fault   fault
	env     connectors.SinkEnv
	writers []*modelWriter
	memory  map[int]bool
}

func (s *modelSink) Guarantee() connectors.Guarantee { return connectors.ExactlyOnce }
func (s *modelSink) Open(_ context.Context, env connectors.SinkEnv) error {
	s.env = env
	return nil
}
func (s *modelSink) Start(context.Context, connectors.Restored) error { return nil }
func (s *modelSink) Writer(int) (connectors.Writer, error) {
	w := &modelWriter{sink: s}
	s.writers = append(s.writers, w)
	return w, nil
}
func (s *modelSink) Close() error {
	if s.fault == abortsOnClose {
		s.shelf.mu.Lock()
		defer s.shelf.mu.Unlock()
		clear(s.shelf.staged)
	}
	return nil
}
func (s *modelSink) Committer() connectors.Committer { return (*modelCommitter)(s) }

type modelCommitter modelSink

func (c *modelCommitter) ID() string    { return "model" }
func (c *modelCommitter) Expires() bool { return false }
func (c *modelCommitter) Commit(_ context.Context, com connectors.Committable, _ bool) error {
	if com.Empty {
		return nil
	}
	id, err := strconv.Atoi(string(com.Data))
	if err != nil {
		return err
	}
	s := c.shelf
	s.mu.Lock()
	defer s.mu.Unlock()
	got, ok := s.staged[id]
	if c.fault == stateInMemory && !c.memory[id] {
		return nil
	}
	if ok {
		s.out = append(s.out, got.values...)
		if c.fault != repeats {
			delete(s.staged, id)
		}
	}
	return nil
}
func (c *modelCommitter) Witness(context.Context) (connectors.CheckpointID, bool, error) {
	return connectors.CheckpointID{}, false, connectors.ErrNoWitness
}
func (c *modelCommitter) Revoke(_ context.Context, keep []connectors.Committable) error {
	if c.fault == neverRevokes {
		return nil
	}
	c.shelf.mu.Lock()
	defer c.shelf.mu.Unlock()
	for id, s := range c.shelf.staged {
		held := slices.ContainsFunc(keep, func(k connectors.Committable) bool { return string(k.Data) == strconv.Itoa(id) })
		if s.generation < c.env.Generation() && !held {
			delete(c.shelf.staged, id)
		}
	}
	return nil
}
func (c *modelCommitter) Done(n connectors.CheckpointID) {
	for _, w := range c.writers {
		w.mu.Lock()
		w.pending = slices.DeleteFunc(w.pending, func(p connectors.Committable) bool { return p.Checkpoint.Number <= n.Number })
		w.mu.Unlock()
	}
}

type modelWriter struct {
	sink    *modelSink
	values  []string
	kept    [][]byte
	mu      sync.Mutex
	pending []connectors.Committable
}

func (w *modelWriter) Write(_ context.Context, rows *connectors.Rows) error {
	values := rows.Values
	switch w.sink.fault {
	case dropsFirst:
		values = values[min(1, len(values)):]
	case reorders:
		values = slices.Clone(values)
		slices.Reverse(values)
	case keepsRows:
		w.kept = append(w.kept, values...)
		return nil
	default:
	}
	for _, v := range values {
		w.values = append(w.values, string(v))
	}
	return nil
}

func (w *modelWriter) Tick(context.Context, time.Time) error { return nil }

func (w *modelWriter) Barrier(_ context.Context, b connectors.Barrier) (connectors.Prepare, error) {
	for _, v := range w.kept {
		w.values = append(w.values, string(v))
	}
	values := w.values
	w.values, w.kept = nil, nil
	return func(ctx context.Context, _ connectors.CheckpointFiles) (connectors.Prepared, error) {
		if w.sink.fault == hangs {
			<-ctx.Done()
			return connectors.Prepared{}, ctx.Err()
		}
		return w.prepare(b.ID, values), nil
	}, nil
}

func (w *modelWriter) prepare(id connectors.CheckpointID, values []string) connectors.Prepared {
	s := w.sink.shelf
	s.mu.Lock()
	defer s.mu.Unlock()
	own := connectors.Committable{Committer: "model", Checkpoint: id, Empty: true}
	switch {
	case w.sink.fault == publishesEarly:
		s.out = append(s.out, values...)
	case len(values) > 0:
		s.next++
		s.staged[s.next] = staged{id.Generation, values}
		w.sink.memory[s.next] = true
		own.Empty, own.Data = false, json.RawMessage(strconv.Itoa(s.next))
	case w.sink.fault == noEmpty:
		return connectors.Prepared{}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sink.fault == losesFailed {
		w.pending = nil
	}
	w.pending = append(w.pending, own)
	return connectors.Prepared{Committables: slices.Clone(w.pending)}
}

func (w *modelWriter) Close() error { return nil }

func model(f fault) Sink {
	s := &shelf{staged: map[int]staged{}}
	var mu sync.Mutex
	return Sink{
		New: func() (connectors.Sink, error) {
			mu.Lock()
			defer mu.Unlock()
			return &modelSink{shelf: s, fault: f, memory: map[int]bool{}}, nil
		},
		Read: func(context.Context) ([]string, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return slices.Clone(s.out), nil
		},
		Ordered: true,
		Timeout: 5 * time.Second,
	}
}

func TestSinkAcceptsAModelSink(t *testing.T) {
	TestSink(t, func(*testing.T) Sink { return model(none) })
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

func TestSinkFindsEachPlantedFault(t *testing.T) {
	for _, f := range []fault{
		losesFailed, keepsRows, publishesEarly, repeats, neverRevokes, abortsOnClose,
		noEmpty, dropsFirst, reorders, hangs, stateInMemory,
	} {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			for _, c := range sinkChecks {
				target := model(f)
				if f == hangs {
					target.Timeout = 10 * time.Millisecond
				}
				if runSinkCheck(c, target) != nil {
					return
				}
			}
			t.Errorf("no check finds a sink that %s", f)
		})
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
