package connectortest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// shelf is the target of a model sink: batches of rows that are staged or out.
type shelf struct {
	mu      sync.Mutex
	next    int
	staged  map[int]staged
	out     []string
	last    connectors.CheckpointID
	late    map[int]connectors.Record // refused at commits and not settled
	changed map[string]string         // of an updating stream, by group

	down     bool
	requests int
	lose     int // which request from now on loses its reply
	putOff   int
}

type staged struct {
	id   connectors.CheckpointID
	rows []connectors.Record
}

var (
	errDown = errors.New("connection refused")
	errLost = errors.New("connection reset")
)

// request runs f in the target.
func (s *shelf) request(f func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.down:
		return errDown
	case s.putOff > 0:
		s.putOff--
		return errors.New("slow down")
	}
	s.requests++
	f()
	s.lose--
	if s.lose == 0 {
		return errLost
	}
	return nil
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
	revokesKept    fault = "revokes what the restored checkpoint holds"
	abortsOnClose  fault = "drops on close what a checkpoint holds"
	noEmpty        fault = "hands over nothing for an empty checkpoint"
	dropsFirst     fault = "drops the first row of a batch"
	reorders       fault = "writes a batch in reverse"
	hangs          fault = "never returns from a prepare"
	stateInMemory  fault = "commits from its memory, not from the handle"
	ignoresRoll    fault = "keeps rows back at a barrier that rolls"
	numbersOnly    fault = "takes a lower number for an older checkpoint"
	swallows       fault = "tells nobody of rows that are refused"
	tellsOnce      fault = "hands a refused row over once, whatever becomes of it"
	tellsForever   fault = "hands refused rows over again for ever"
	blamesAll      fault = "fails the write when one row is refused"
	blamesWrong    fault = "blames another row"
	givesUp        fault = "ends the pipeline when the target is down"
	saysDone       fault = "says that a commit is done when the target is down"
	dropsUnsent    fault = "drops what it could not send"
	clearsFirst    fault = "removes what is staged before it is published"
	namesNoStep    fault = "names no durable step"
	keepsDeleted   fault = "does not delete rows"
	stageTwice     fault = "publishes twice what it staged again after a lost reply"
	hidesWitness   fault = "keeps a witness and never finds it"
)

// modelSink is the smallest two-phase sink that is right, and wrong on request.
type modelSink struct {
	shelf   *shelf
	fault   fault
	early   bool // rows are refused when they are written
	env     connectors.SinkEnv
	writers []*modelWriter
	memory  map[int]bool

	mu     sync.Mutex
	handed map[int]bool // refused rows that this process handed over
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

func (s *modelSink) step(name string) {
	if s.fault != namesNoStep {
		s.env.Failpoint(name)
	}
}

// handle is the data of a committable.
type handle struct {
	ID     int   `json:"id"`
	Settle []int `json:"settle,omitempty"`
}

type modelCommitter modelSink

func (c *modelCommitter) ID() string    { return "model" }
func (c *modelCommitter) Expires() bool { return false }

func (c *modelCommitter) Commit(_ context.Context, com connectors.Committable, _ bool) error {
	var h handle
	if com.Empty {
		return nil
	}
	if err := json.Unmarshal(com.Data, &h); err != nil {
		return err
	}
	s := c.shelf
	s.mu.Lock()
	forgotten := c.fault == stateInMemory && !c.memory[h.ID]
	s.mu.Unlock()
	if forgotten {
		return nil
	}
	sink := (*modelSink)(c)
	if c.fault == clearsFirst {
		s.mu.Lock()
		got := s.staged[h.ID]
		delete(s.staged, h.ID)
		s.mu.Unlock()
		sink.step("commit.before")
		s.mu.Lock()
		s.publish(got.rows)
		s.mu.Unlock()
		return nil
	}
	sink.step("commit.before")
	err := s.request(func() { c.apply(com.Checkpoint, h) })
	sink.step("commit.after")
	if err != nil && c.fault == saysDone {
		return nil
	}
	if err != nil && c.fault == givesUp {
		return connectors.Permanent(err)
	}
	return err
}

func (c *modelCommitter) apply(id connectors.CheckpointID, h handle) {
	s := c.shelf
	if c.fault == numbersOnly && id.Number <= s.last.Number && id.Generation > s.last.Generation {
		delete(s.staged, h.ID)
		return
	}
	got, ok := s.staged[h.ID]
	if !ok {
		return
	}
	s.last = id
	s.publish(got.rows)
	if c.fault != tellsForever {
		for _, i := range h.Settle {
			delete(s.late, i)
		}
	}
	if c.fault != repeats {
		delete(s.staged, h.ID)
	}
}

// isPoison tells the values that the target refuses.
func isPoison(v []byte) bool { return strings.Contains(string(v), "poison") }

func (s *shelf) publish(rows []connectors.Record) {
	for _, r := range rows {
		switch {
		case isPoison(r.Value):
			s.next++
			s.late[s.next] = r
		case r.Op == connectors.Delete:
			delete(s.changed, string(r.Key))
		default:
			s.out = append(s.out, string(r.Value))
			s.changed[string(r.Key)] = string(r.Value)
		}
	}
}

func (c *modelCommitter) Witness(context.Context) (connectors.CheckpointID, bool, error) {
	if c.fault == hidesWitness {
		return connectors.CheckpointID{}, false, nil
	}
	return connectors.CheckpointID{}, false, connectors.ErrNoWitness
}

func (c *modelCommitter) Revoke(_ context.Context, keep []connectors.Committable) error {
	if c.fault == neverRevokes {
		return nil
	}
	c.shelf.mu.Lock()
	defer c.shelf.mu.Unlock()
	for id, s := range c.shelf.staged {
		held := slices.ContainsFunc(keep, func(k connectors.Committable) bool {
			var h handle
			return json.Unmarshal(k.Data, &h) == nil && h.ID == id
		})
		if s.id.Generation < c.env.Generation() && (!held || c.fault == revokesKept) {
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
	rows    []connectors.Record
	settle  []int
	mu      sync.Mutex
	pending []connectors.Committable
	unsent  []connectors.Record // of prepares that failed
}

func (w *modelWriter) Write(_ context.Context, rows *connectors.Rows) error {
	var refused connectors.RowsError
	for i, v := range rows.Values {
		if w.sink.fault == dropsFirst && i == 0 {
			continue
		}
		if w.sink.early && isPoison(v) {
			switch w.sink.fault {
			case blamesAll:
				return errors.New("bad request")
			case swallows:
				continue
			case blamesWrong:
				i--
			default:
			}
			refused.Rows = append(refused.Rows, connectors.RowError{Row: i, Kind: "value", Reason: "it is poison"})
			continue
		}
		r := *rows.Record(i)
		r.Key, r.Headers = slices.Clone(r.Key), nil
		if r.Value = v; w.sink.fault != keepsRows {
			r.Value = slices.Clone(v)
		}
		if v == nil {
			r.Op = connectors.Delete
		}
		if r.Op == connectors.UpdateBefore || r.Op == connectors.Delete && w.sink.fault == keepsDeleted {
			continue
		}
		w.rows = append(w.rows, r)
	}
	if w.sink.fault == reorders {
		slices.Reverse(w.rows)
	}
	if len(refused.Rows) > 0 {
		return &refused
	}
	return nil
}

func (w *modelWriter) Tick(context.Context, time.Time) error {
	s := w.sink
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shelf.mu.Lock()
	defer s.shelf.mu.Unlock()
	var e connectors.RejectedError
	for i, r := range s.shelf.late {
		if s.handed[i] || s.fault == swallows {
			continue
		}
		s.handed[i] = true
		w.settle = append(w.settle, i)
		e.Rows = append(e.Rows, connectors.Rejected{Record: r, Kind: "constraint", Reason: "it is poison"})
		if s.fault == tellsOnce {
			delete(s.shelf.late, i)
		}
	}
	if len(e.Rows) > 0 {
		return &e
	}
	return nil
}

func (w *modelWriter) Barrier(_ context.Context, b connectors.Barrier) (connectors.Prepare, error) {
	rows, settle := w.rows, w.settle
	w.rows, w.settle = nil, nil
	if w.sink.fault == ignoresRoll && len(rows) > 0 {
		rows, w.rows = rows[:len(rows)-1], rows[len(rows)-1:]
	}
	return func(ctx context.Context, _ connectors.CheckpointFiles) (connectors.Prepared, error) {
		if w.sink.fault == hangs {
			<-ctx.Done()
			return connectors.Prepared{}, ctx.Err()
		}
		return w.prepare(b.ID, rows, settle)
	}, nil
}

func (w *modelWriter) prepare(id connectors.CheckpointID, rows []connectors.Record, settle []int) (connectors.Prepared, error) {
	s := w.sink.shelf
	own := connectors.Committable{Committer: "model", Checkpoint: id, Empty: true}
	w.mu.Lock()
	defer w.mu.Unlock()
	rows = append(w.unsent, rows...)
	w.unsent = nil
	switch {
	case w.sink.fault == publishesEarly:
		s.mu.Lock()
		s.publish(rows)
		s.mu.Unlock()
	case len(rows) > 0 || len(settle) > 0:
		h := handle{Settle: settle}
		w.sink.step("stage.before")
		err := s.request(func() { h.ID = s.stage(id, rows) })
		w.sink.step("stage.after")
		if err != nil {
			if w.sink.fault == stageTwice && errors.Is(err, errLost) {
				s.mu.Lock()
				s.publish(s.staged[h.ID].rows)
				s.mu.Unlock()
			}
			if w.sink.fault != dropsUnsent {
				w.unsent = rows
			}
			return connectors.Prepared{}, err
		}
		s.mu.Lock()
		w.sink.memory[h.ID] = true
		s.mu.Unlock()
		own.Empty = false
		own.Data, _ = json.Marshal(h)
	case w.sink.fault == noEmpty:
		return connectors.Prepared{}, nil
	}
	if w.sink.fault == losesFailed {
		w.pending = nil
	}
	w.pending = append(w.pending, own)
	return connectors.Prepared{Committables: slices.Clone(w.pending)}, nil
}

func (s *shelf) stage(id connectors.CheckpointID, rows []connectors.Record) int {
	s.next++
	s.staged[s.next] = staged{id, rows}
	return s.next
}

func (w *modelWriter) Close() error { return nil }

// model is a target with all hooks, of a sink that has a fault.
func model(f fault) Sink {
	s := modelTarget()
	return s.sink(func() (connectors.Sink, error) {
		early := f == blamesAll || f == blamesWrong
		return &modelSink{shelf: s, fault: f, early: early, memory: map[int]bool{}, handed: map[int]bool{}}, nil
	})
}
