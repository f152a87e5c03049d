package pipeline_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	_ "github.com/sluice-etl/sluice/connectors/files"
	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
	"github.com/sluice-etl/sluice/storage"
)

// weak is a sink whose Prepare fails once.
type weak struct{ failed *atomic.Bool }

func init() {
	var failed atomic.Bool
	connectors.RegisterSink(connectors.SinkSpec{
		Name: "weak", Doc: "Fails to prepare once.", NewConfig: func() any { return &struct{}{} },
		New: func(any) (connectors.Sink, error) { return weak{&failed}, nil },
	})
}

func (weak) Guarantee() connectors.Guarantee                  { return connectors.AtLeastOnce }
func (weak) Open(context.Context, connectors.SinkEnv) error   { return nil }
func (weak) Start(context.Context, connectors.Restored) error { return nil }
func (w weak) Writer(int) (connectors.Writer, error)          { return w, nil }
func (weak) Write(context.Context, *connectors.Rows) error    { return nil }
func (weak) Tick(context.Context, time.Time) error            { return nil }
func (weak) Close() error                                     { return nil }
func (w weak) Barrier(context.Context, connectors.Barrier) (connectors.Prepare, error) {
	return func(context.Context, connectors.CheckpointFiles) (connectors.Prepared, error) {
		if w.failed.CompareAndSwap(false, true) {
			return connectors.Prepared{}, errors.New("the target is down")
		}
		return connectors.Prepared{}, nil
	}, nil
}

func TestAFailedPrepareOfOneSinkLeavesTheOthersOfItsTaskWorking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		address := "mem://" + unused("prepare-test")
		w := pipelinetest.New(t, strings.Replace(`
pipeline: two-sinks
parallelism: 1
source: {feed: {name: FEED-in}}
sinks:
  first: {from: source, weak: {}}
  second: {from: source, file: {path: "OUT", roll: {age: 2s}}}
checkpoint: {storage: STORAGE, interval: 1s}
`, "OUT", address, 1))
		feed := w.Feed("in", 1)
		fill(feed, 1, 0, 10)
		p := w.Start()
		time.Sleep(6 * time.Second)
		out, err := storage.Open(address)
		if err != nil {
			t.Fatal(err)
		}
		if files, err := out.List(t.Context(), ""); err != nil || len(files) != 1 {
			t.Errorf("%d files are published after six intervals, error %v", len(files), err)
		}
		feed.End()
		if s, err := p.Wait(); err != nil || s.Restarts != 0 {
			t.Errorf("%d restarts, error %v", s.Restarts, err)
		}
	})
}
