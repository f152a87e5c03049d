// Package deferredtest drives a sink that keeps rows with the checkpoint step by step, in
// tests against real targets.
package deferredtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/connectortest"
)

// Run is one process with one subtask. Any error that a test does not ask for fails it.
type Run struct {
	T     *testing.T
	Sink  connectors.TwoPhaseSink
	Files *connectortest.Files
	ID    connectors.CheckpointID // of the last checkpoint

	writer connectors.Writer
	closed bool
}

// Env is what a process of a generation is given, before Open.
func Env(files *connectortest.Files, generation uint64) connectors.SinkEnv {
	return connectors.SinkEnv{
		Pipeline: "p", Name: "s", Subtasks: 1, Budget: 16 << 20, OnError: connectors.RowDeadLetter,
		Generation: func() uint64 { return generation }, Restored: func() connectors.CheckpointFiles { return files },
	}
}

// Open opens a sink, and no more.
func Open(t *testing.T, sink connectors.TwoPhaseSink, files *connectortest.Files, generation uint64, change func(*connectors.SinkEnv)) *Run {
	t.Helper()
	env := Env(files, generation)
	if change != nil {
		change(&env)
	}
	r := &Run{T: t, Sink: sink, Files: files, ID: connectors.CheckpointID{Generation: generation}}
	t.Cleanup(r.Stop)
	r.Must(sink.Open(t.Context(), env))
	return r
}

// Start opens a sink and lets records flow, behind a restored checkpoint of which restored
// are the committables.
func Start(t *testing.T, sink connectors.TwoPhaseSink, files *connectortest.Files, generation uint64, change func(*connectors.SinkEnv), restored ...connectors.Committable) *Run {
	t.Helper()
	r := Open(t, sink, files, generation, change)
	r.Resume(restored...)
	return r
}

// Resume commits what is restored, revokes what is not, and makes the writer.
func (r *Run) Resume(restored ...connectors.Committable) {
	r.T.Helper()
	r.Commit(restored, true)
	r.Must(r.Sink.Committer().Revoke(r.T.Context(), restored))
	r.Must(r.Sink.Start(r.T.Context(), connectors.Restored{Files: r.Files}))
	w, err := r.Sink.Writer(0)
	r.Must(err)
	r.writer = w
}

// Must fails the test on an error.
func (r *Run) Must(err error) {
	r.T.Helper()
	if err != nil {
		r.T.Fatal(err)
	}
}

// Stop ends the process.
func (r *Run) Stop() {
	if r.closed {
		return
	}
	r.closed = true
	if r.writer != nil {
		r.Must(r.writer.Close())
	}
	r.Must(r.Sink.Close())
}

// Row is a row to write.
type Row struct {
	Value string // "" is a tombstone
	Key   string
	Op    connectors.Op
}

// Write writes rows of topic in, partition 0, at offsets from 0 on, and returns those that
// are refused.
func (r *Run) Write(rows ...Row) []connectors.RowError {
	r.T.Helper()
	b := new(connectors.Batch)
	b.Size(len(rows), 0)
	out := &connectors.Rows{Batch: b, Layout: &connectors.Layout{}}
	for i, row := range rows {
		rec := connectors.Record{
			Key: []byte(row.Key), Op: row.Op, Origin: &connectors.Origin{Topic: "in"}, Offset: int64(i), Time: 1700000000000,
			Headers: []connectors.Header{{Key: "h", Value: []byte("\xff\x00")}, {Key: "h"}},
		}
		if row.Value != "" {
			rec.Value = []byte(row.Value)
		}
		b.Records[i] = rec
		out.Sel, out.Values = append(out.Sel, uint16(i)), append(out.Values, rec.Value)
	}
	err := r.writer.Write(r.T.Context(), out)
	var refused *connectors.RowsError
	if errors.As(err, &refused) {
		return refused.Rows
	}
	r.Must(err)
	return nil
}

// Values writes rows without keys.
func (r *Run) Values(values ...string) []connectors.RowError {
	r.T.Helper()
	rows := make([]Row, len(values))
	for i, v := range values {
		rows[i].Value = v
	}
	return r.Write(rows...)
}

// Prepare takes a checkpoint up to its committables.
func (r *Run) Prepare() []connectors.Committable {
	r.T.Helper()
	r.ID.Number++
	prepare, err := r.writer.Barrier(r.T.Context(), connectors.Barrier{ID: r.ID})
	r.Must(err)
	got, err := prepare(r.T.Context(), r.Files)
	r.Must(err)
	return got.Committables
}

// Try commits once.
func (r *Run) Try(ctx context.Context, coms []connectors.Committable, restored bool) error {
	for _, c := range coms {
		if err := r.Sink.Committer().Commit(ctx, c, restored); err != nil {
			return err
		}
	}
	if len(coms) > 0 {
		r.ID.Number = max(r.ID.Number, coms[len(coms)-1].Checkpoint.Number)
	}
	r.Sink.Committer().Done(r.ID)
	return nil
}

// patience bounds how long a commit is tried again.
const patience = time.Minute

// Commit commits, trying again as the engine does.
func (r *Run) Commit(coms []connectors.Committable, restored bool) {
	r.T.Helper()
	ctx, cancel := context.WithTimeout(r.T.Context(), patience)
	defer cancel()
	for {
		err := r.Try(ctx, coms, restored)
		if err == nil {
			return
		}
		if connectors.IsPermanent(err) || errors.Is(err, connectors.ErrFenced) || ctx.Err() != nil {
			r.T.Fatal(err)
		}
		pause := time.NewTimer(50 * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
	}
}

// Checkpoint takes a checkpoint and commits it.
func (r *Run) Checkpoint() {
	r.T.Helper()
	r.Commit(r.Prepare(), false)
}

// Tick gives the rows that a tick hands over.
func (r *Run) Tick() []connectors.Rejected {
	r.T.Helper()
	err := r.writer.Tick(r.T.Context(), time.Now())
	var rejected *connectors.RejectedError
	if errors.As(err, &rejected) {
		return rejected.Rows
	}
	r.Must(err)
	return nil
}

// AllRefused ticks until no more refused rows are handed over.
func (r *Run) AllRefused() (all []connectors.Rejected) {
	r.T.Helper()
	for rows := r.Tick(); rows != nil; rows = r.Tick() {
		all = append(all, rows...)
	}
	return all
}
