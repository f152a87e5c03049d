package pipeline_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
)

// slow is a sink that takes a while for each batch and counts its ticks.
type slow struct{ ticks *atomic.Int64 }

var slowTicks atomic.Int64

func init() {
	connectors.RegisterSink(connectors.SinkSpec{
		Name: "slow", Doc: "Takes its time.", NewConfig: func() any { return &struct{}{} },
		New: func(any) (connectors.Sink, error) { return slow{&slowTicks}, nil },
	})
}

func (slow) Guarantee() connectors.Guarantee                  { return connectors.AtLeastOnce }
func (slow) Open(context.Context, connectors.SinkEnv) error   { return nil }
func (slow) Start(context.Context, connectors.Restored) error { return nil }
func (s slow) Writer(int) (connectors.Writer, error)          { return s, nil }
func (slow) Write(context.Context, *connectors.Rows) error {
	time.Sleep(150 * time.Millisecond)
	return nil
}
func (s slow) Tick(context.Context, time.Time) error { s.ticks.Add(1); return nil }
func (slow) Close() error                            { return nil }
func (slow) Barrier(context.Context, connectors.Barrier) (connectors.Prepare, error) {
	return func(context.Context, connectors.CheckpointFiles) (connectors.Prepared, error) {
		return connectors.Prepared{}, nil
	}, nil
}

func TestWritersBehindAnExchangeAreToldTheTimeUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, `
pipeline: busy
parallelism: 1
sources:
  a: {feed: {name: FEED-a}}
  b: {feed: {name: FEED-b}}
sink: {from: [a, b], slow: {}}
checkpoint: {storage: STORAGE, interval: 1h}
`)
		fill(w.Feed("a", 1), 1, 0, 1000)
		fill(w.Feed("b", 1), 1, 0, 1000)
		p := w.Start()
		time.Sleep(10 * time.Second)
		if n := slowTicks.Load(); n < 45 {
			t.Errorf("%d ticks within ten seconds", n)
		}
		p.Crash()
	})
}
