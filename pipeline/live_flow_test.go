package pipeline_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
)

// operatorFlow finds an operator in a flow.
func operatorFlow(t *testing.T, f *pipeline.Flow, name string) pipeline.OperatorFlow {
	t.Helper()
	for _, o := range f.Operators {
		if o.Name == name {
			return o
		}
	}
	t.Fatalf("there is no operator %s in %+v", name, f.Operators)
	return pipeline.OperatorFlow{}
}

// controlled is a world whose pipeline can be looked at.
func controlled(t *testing.T, yaml string) (*pipelinetest.World, *pipeline.Control) {
	t.Helper()
	w := pipelinetest.New(t, yaml)
	w.Options.Control = &pipeline.Control{}
	return w, w.Options.Control
}

func TestFlowCountsEachOperatorOverBranchesAndSubtasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, control := controlled(t, `
pipeline: branches
parallelism: 2
source: {feed: {name: FEED-in}}
transforms:
  - {name: even, filter: n % 2 == 0}
  - {name: split, from: even, route: {small: n < 100, big: n >= 900}, on_error: skip}
  - {name: mark, from: split.small, set: {small: true}}
  - {name: sums, from: [mark, split.big], dedup: {by: {k: n % 4}, within: 1h}}
sinks:
  out: {from: sums, collect: {name: TARGET-out}}
  seen: {from: mark, collect: {name: TARGET-seen}}
`)
		feed := w.Feed("in", 4)
		fill(feed, 4, 0, 1000)
		p := w.Start()
		synctest.Wait()
		time.Sleep(time.Second)
		f := control.Flow()
		want := []struct {
			name             string
			in, out, dropped int64
		}{
			{"source", 1000, 1000, 0}, {"even", 1000, 500, 500}, {"split", 500, 100, 400},
			{"mark", 50, 50, 0}, {"sums", 100, 2, 98}, {"out", 2, 2, 0}, {"seen", 50, 50, 0},
		}
		for i, x := range want {
			o := f.Operators[i]
			if o.Name != x.name || o.In != x.in || o.Out != x.out || o.Dropped != x.dropped {
				t.Errorf("operator %d is %+v, want %+v", i, o, x)
			}
		}
		if b := operatorFlow(t, &f, "split").Branches; b["small"] != 50 || b["big"] != 50 {
			t.Errorf("split gave out %v", b)
		}
		if o := operatorFlow(t, &f, "source"); o.BytesIn != 10*8+90*9+900*10 {
			t.Errorf("the source gave %d bytes", o.BytesIn)
		}
		if o := operatorFlow(t, &f, "seen"); o.BytesIn != 10/2*21+90/2*22 {
			t.Errorf("the sink took %d bytes", o.BytesIn)
		}
		p.Crash()
	})
}

func TestFlowCountsAKeyedStepOverItsSubtasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, control := controlled(t, `
pipeline: keyed
parallelism: 2
source: {feed: {name: FEED-in}, timestamp: t}
transforms:
  - name: sums
    aggregate: {by: [k], window: {tumbling: 10s}, select: {n: count()}}
    on_error: skip
sink: {collect: {name: TARGET-out}}
`)
		feed := w.Feed("in", 2)
		now := time.Now().UnixMilli() / 10_000 * 10_000
		for i := range 200 {
			feed.Append(i%2, fmt.Sprintf(`{"k": %d, "t": %d}`, i%10, now-20_000+int64(i)))
		}
		feed.Append(0, fmt.Sprintf(`{"k": 1, "t": %d}`, now-5_000))
		feed.Append(1, fmt.Sprintf(`{"k": 1, "t": %d}`, now-5_000))
		feed.Append(0, fmt.Sprintf(`{"k": 1, "t": %d}`, now-50_000)) // too late
		p := w.Start()
		time.Sleep(time.Second)
		f := control.Flow()
		o := operatorFlow(t, &f, "sums")
		if o.In != 203 || o.Out != 10 || o.Late != 1 || o.Keys == 0 || o.StateMemory == 0 {
			t.Errorf("the step is %+v", o)
		}
		if o.Watermark == nil || *o.Watermark < now-10_000 || *o.Watermark > now-5_000 {
			t.Errorf("its watermark is %v, now is %d", o.Watermark, now)
		}
		if o := operatorFlow(t, &f, "sink"); o.In != 10 || o.Out != 10 {
			t.Errorf("the sink is %+v", o)
		}
		if len(f.Tasks) != 4 || f.Tasks[0].Chain != "source" || f.Tasks[3].Chain != "sums" || f.Tasks[3].Subtask != 1 || f.Tasks[3].Queue == 0 {
			t.Errorf("the tasks are %+v", f.Tasks)
		}
		p.Crash()
	})
}

func TestASlowSinkIsBusyAndHoldsUpThoseBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, control := controlled(t, `
pipeline: slow
parallelism: 1
source: {feed: {name: FEED-in}}
transforms: [{name: once, dedup: {by: [n], within: 1h}}]
sink: {collect: {name: TARGET-out}}
`)
		feed := w.Feed("in", 1)
		w.Target("out").BeforeWrite = func(string) error {
			time.Sleep(10 * time.Millisecond)
			return nil
		}
		w.Options.Memory = 1 // queues of the least size
		p := w.Start()
		time.Sleep(10 * time.Second)
		f := control.Flow()
		for _, task := range f.Tasks {
			if task.Idle < 0.99 {
				t.Errorf("with nothing to do, a task is %+v", task)
			}
		}
		fill(feed, 1, 0, 5000)
		time.Sleep(20 * time.Second)
		f = control.Flow()
		for _, task := range f.Tasks {
			if sum := task.Busy + task.Backpressured + task.Idle; math.Abs(sum-1) > 1e-9 {
				t.Errorf("shares of %+v are %v together", task, sum)
			}
		}
		if s := f.Tasks[0]; s.Backpressured < 0.9 {
			t.Errorf("the source is %+v", s)
		}
		if s := f.Tasks[1]; s.Busy < 0.9 || s.Queued == 0 || s.Queued > s.Queue {
			t.Errorf("the sink's task is %+v", s)
		}
		p.Crash()
	})
}

func TestFailuresNameTheRecordAndSurviveTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, control := controlled(t, `
pipeline: failing
parallelism: 1
source: {feed: {name: FEED-in}}
transforms:
  - {name: half, set: {half: 'n / m'}, on_error: skip}
  - {name: whole, set: {whole: 'int(text)'}}
sink: {collect: {name: TARGET-out}}
`)
		feed := w.Feed("in", 1)
		feed.Append(0, `{"n": 1, "m": 2, "text": "1"}`, `{"n": "secret", "m": 1, "text": "1"}`)
		p := w.Start()
		time.Sleep(time.Second)
		f := control.Flow()
		var reasons int64
		for _, n := range operatorFlow(t, &f, "half").Errors {
			reasons += n
		}
		if o := operatorFlow(t, &f, "half"); o.In != 2 || o.Out != 1 || reasons != 1 {
			t.Errorf("half is %+v", o)
		}
		feed.Append(0, `{"n": 1, "m": 2, "text": "secret"}`)
		if _, err := p.Wait(); !connectors.IsPermanent(err) {
			t.Fatalf("the run ends with %v", err)
		}
		failures := control.Failures()
		if len(failures) != 2 {
			t.Fatalf("failures are %+v", failures)
		}
		stopped, skipped := failures[0], failures[1]
		if stopped.Operator != "whole" || stopped.Outcome != "fail" || stopped.Topic != "feed" || stopped.Partition != 0 || stopped.Offset != 2 || stopped.Expression == "" {
			t.Errorf("the record that stopped the pipeline is %+v", stopped)
		}
		if skipped.Operator != "half" || skipped.Outcome != "skip" || skipped.Offset != 1 || skipped.Kind == "" || skipped.Time.IsZero() {
			t.Errorf("the record that was skipped is %+v", skipped)
		}
		if text := fmt.Sprintf("%+v", failures); strings.Contains(text, "secret") {
			t.Errorf("failures show what the record holds: %s", text)
		}
	})
}

func TestOnlyTheNewestFailuresAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, control := controlled(t, `
pipeline: failing
source: {feed: {name: FEED-in}, on_error: skip}
transforms: [{filter: n > 0}]
sink: {collect: {name: TARGET-out}}
`)
		feed := w.Feed("in", 1)
		for range 250 {
			feed.Append(0, "broken")
		}
		feed.End()
		if _, err := w.Run(); err != nil {
			t.Fatal(err)
		}
		failures := control.Failures()
		if len(failures) != 100 || failures[0].Offset != 249 || failures[99].Offset != 150 {
			t.Errorf("%d failures, from %+v to %+v", len(failures), failures[0], failures[len(failures)-1])
		}
	})
}

func TestACommitThatIsTriedAgainIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, control := controlled(t, straight)
		feed := w.Feed("in", 2)
		var down atomic.Bool
		w.Target("out").BeforeCommit = func(connectors.CheckpointID) error {
			if down.Load() {
				return errors.New("the password is wrong")
			}
			return nil
		}
		p := w.Start()
		fill(feed, 2, 0, 100)
		time.Sleep(time.Second)
		s := control.Flow().Sinks[0]
		if s.Sink != "sink" || s.Guarantee != connectors.ExactlyOnce || s.Commits == 0 || s.Pending != 0 || s.LastCommit == nil || s.LastError != "" {
			t.Errorf("the sink is %+v", s)
		}
		down.Store(true)
		at := time.Now()
		fill(feed, 2, 100, 200)
		time.Sleep(10 * time.Second)
		s = control.Flow().Sinks[0]
		if s.Pending == 0 || s.OldestPending == nil || s.OldestPending.Before(at) || s.Retries == 0 || !strings.Contains(s.LastError, "password is wrong") {
			t.Errorf("while it is down, the sink is %+v", s)
		}
		before := s.Commits
		down.Store(false)
		time.Sleep(10 * time.Second)
		s = control.Flow().Sinks[0]
		if s.Pending != 0 || s.OldestPending != nil || s.Commits <= before || s.LastError != "" {
			t.Errorf("once it is back, the sink is %+v", s)
		}
		p.Crash()
	})
}

func TestLagIsShownWhileASinkHoldsTheReaderUp(t *testing.T) {
	b := newBroker(t)
	w := pipelinetest.New(t, `
pipeline: lagging
parallelism: 1
source: {kafka: {brokers: ["`+b.addr+`"], topics: [in], start: earliest}}
transforms: [{name: once, dedup: {by: [n], within: 1h}}]
sinks:
  out: {from: source, collect: {name: TARGET-out}}
  kept: {from: once, collect: {name: TARGET-once}}
`)
	var down atomic.Bool
	release := make(chan struct{})
	w.Target("out").BeforeWrite = func(string) error {
		if down.Load() {
			<-release
		}
		return nil
	}
	down.Store(true)
	b.send(10)
	s := begin(t, w)
	at := time.Now()
	splits := func() (behind int64, flow pipeline.Flow) {
		flow = s.control.Flow()
		for _, x := range flow.Splits {
			behind += max(0, x.Behind)
		}
		return behind, flow
	}
	eventually(t, "the lag grows by records that nobody fetches", func() bool {
		b.send(10)
		behind, _ := splits()
		return behind > 40
	})
	eventually(t, "it is known how old the next records are, and how long they are kept", func() bool {
		_, flow := splits()
		for _, x := range flow.Splits {
			if x.BehindSeconds > 0 && x.RetentionSeconds > 0 {
				if limit := time.Since(at).Seconds() + 60; x.BehindSeconds > limit || x.CaughtUp {
					t.Fatalf("the split is %+v, of records no older than %v s", x, limit)
				}
				return true
			}
		}
		return false
	})
	down.Store(false)
	close(release)
	eventually(t, "the lag is gone", func() bool {
		behind, flow := splits()
		if behind > 0 || len(flow.Splits) != 2 {
			return false
		}
		for _, x := range flow.Splits {
			if x.BehindSeconds != 0 || x.RetentionSeconds != -1 || x.Position != int64(b.sent/2) {
				return false
			}
		}
		return true
	})
	s.Crash()
}
