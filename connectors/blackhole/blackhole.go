// Package blackhole is the sink that takes everything and keeps nothing, for
// trying pipelines out and for measuring them.
package blackhole

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// Config is the block of a blackhole sink. It has no keys.
type Config struct{}

func init() {
	connectors.RegisterSink(connectors.SinkSpec{
		Name:           "blackhole",
		Example:        "blackhole: {}\n",
		Doc:            "Counts records and drops them: for trying a pipeline and for measuring it.",
		NewConfig:      func() any { return new(Config) },
		New:            func(any) (connectors.Sink, error) { return new(Sink), nil },
		Changes:        func(any) connectors.Changes { return connectors.Changes{Mode: connectors.AllChanges} },
		DeadLetterRows: true,
	})
}

// Sink drops what it is given.
type Sink struct {
	records, bytes atomic.Int64
}

var _ connectors.Sink = (*Sink)(nil)

// Counts is how many records and bytes of encoded values the sink has taken.
func (s *Sink) Counts() (records, bytes int64) { return s.records.Load(), s.bytes.Load() }

// Guarantee is at_least_once: nothing that it did can be undone.
func (s *Sink) Guarantee() connectors.Guarantee { return connectors.AtLeastOnce }

// Open does nothing.
func (s *Sink) Open(context.Context, connectors.SinkEnv) error { return nil }

// Start does nothing.
func (s *Sink) Start(context.Context, connectors.Restored) error { return nil }

// Writer makes a writer that adds to the sink's counts.
func (s *Sink) Writer(int) (connectors.Writer, error) { return writer{s}, nil }

// Close does nothing.
func (s *Sink) Close() error { return nil }

type writer struct{ sink *Sink }

func (w writer) Write(_ context.Context, rows *connectors.Rows) error {
	n := 0
	for _, v := range rows.Values {
		n += len(v)
	}
	w.sink.records.Add(int64(rows.Len()))
	w.sink.bytes.Add(int64(n))
	return nil
}

func (w writer) Tick(context.Context, time.Time) error { return nil }

func (w writer) Barrier(context.Context, connectors.Barrier) (connectors.Prepare, error) {
	return nothing, nil
}

func (w writer) Close() error { return nil }

func nothing(context.Context, connectors.CheckpointFiles) (connectors.Prepared, error) {
	return connectors.Prepared{}, nil
}
