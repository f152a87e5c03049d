// Package stdout is the sink that prints each record as a line, for trying
// pipelines out.
package stdout

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// Config is the block of a stdout sink.
type Config struct {
	Changelog bool `key:"changelog" doc:"Takes an updating stream row by row, and writes what each row does as the last field, op: insert, update_before, update_after or delete."`
}

func init() {
	connectors.RegisterSink(connectors.SinkSpec{
		Name:           "stdout",
		Example:        "stdout: {}\n",
		Doc:            "Prints each record as one line of JSON on standard output.",
		NewConfig:      func() any { return new(Config) },
		New:            func(any) (connectors.Sink, error) { return New(os.Stdout), nil },
		Changes:        func(c any) connectors.Changes { return connectors.TakesChangelog(c.(*Config).Changelog) },
		DeadLetterRows: true,
		Lines:          true,
	})
}

// flushAt is how many bytes a writer collects before it prints them.
const flushAt = 64 << 10

// Sink prints lines. Those of one writer keep their order; writers never mix
// within a line.
type Sink struct {
	mu  sync.Mutex
	out io.Writer
}

var _ connectors.Sink = (*Sink)(nil)

// New makes a sink that prints on out.
func New(out io.Writer) *Sink { return &Sink{out: out} }

// Guarantee is at_least_once: what is printed stays printed.
func (s *Sink) Guarantee() connectors.Guarantee { return connectors.AtLeastOnce }

// Open does nothing.
func (s *Sink) Open(context.Context, connectors.SinkEnv) error { return nil }

// Start does nothing.
func (s *Sink) Start(context.Context, connectors.Restored) error { return nil }

// Writer makes a writer of its own buffer.
func (s *Sink) Writer(int) (connectors.Writer, error) { return &writer{sink: s}, nil }

// Close does nothing: standard output is not the sink's to close.
func (s *Sink) Close() error { return nil }

// print writes whole lines. A reader that went away cannot come back, so that
// error is permanent.
func (s *Sink) print(lines []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.out.Write(lines); err != nil {
		return connectors.Permanent(fmt.Errorf("write to standard output: %w", err))
	}
	return nil
}

type writer struct {
	sink *Sink
	buf  []byte
}

func (w *writer) Write(_ context.Context, rows *connectors.Rows) error {
	for _, v := range rows.Values {
		w.buf = append(append(w.buf, v...), '\n')
		if len(w.buf) >= flushAt {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *writer) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	err := w.sink.print(w.buf)
	w.buf = w.buf[:0]
	return err
}

func (w *writer) Tick(context.Context, time.Time) error { return w.flush() }

func (w *writer) Barrier(context.Context, connectors.Barrier) (connectors.Prepare, error) {
	return nothing, w.flush()
}

func (w *writer) Close() error { return w.flush() }

func nothing(context.Context, connectors.CheckpointFiles) (connectors.Prepared, error) {
	return connectors.Prepared{}, nil
}
