package daemon

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/spec"
)

// looks are looks at a pipeline, five seconds apart.
type looks struct {
	n    int
	flow func(second int) pipeline.Flow
	// stats are those of each look; of the last one the time is now.
	stats checkpoint.Stats
}

// problem is what a look is to find.
type problem struct {
	kind, level, step string
	text, help        string // parts of them
}

var looked = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// find gives the problems at the last look.
func (l *looks) find() []api.Problem {
	var w splitWatch
	var found []api.Problem
	for i := range max(1, l.n) {
		f := finder{
			now: looked.Add(time.Duration(5*i) * time.Second), control: &pipeline.Control{},
			spec:   &spec.Pipeline{Checkpoint: spec.Checkpoint{Interval: time.Minute, Storage: "s3://bucket/orders"}},
			status: pipeline.Status{Phase: pipeline.Running, Since: looked.Add(-time.Minute)}, stats: l.stats,
			desc: &pipeline.Description{Operators: []pipeline.OperatorDescription{
				{Name: "orders", Role: "source", Chain: "orders"}, {Name: "per-customer", Role: "step", Chain: "per-customer"}, {Name: "table", Role: "sink", Chain: "per-customer"},
			}},
		}
		if l.flow != nil {
			f.flow = l.flow(5 * i)
		}
		f.checkpoints()
		f.alignment()
		f.sinks()
		f.splits(&w)
		found = keepSince(f.found, found)
	}
	return found
}

// split is one that is read on, without lag.
func split(name string, second int) pipeline.SplitFlow {
	return pipeline.SplitFlow{Source: "orders", Split: name, Position: int64(100 * second), RetentionSeconds: -1}
}

// splitsAre is a flow of splits.
func splitsAre(all ...pipeline.SplitFlow) pipeline.Flow { return pipeline.Flow{Splits: all} }

// slowSink has the source wait for the sink.
var slowSink = []pipeline.TaskFlow{{Chain: "orders", Busy: 0.1, Backpressured: 0.9}, {Chain: "per-customer", Busy: 0.97}}

func attempts(failures ...string) checkpoint.Stats {
	s := checkpoint.Stats{FailedInARow: len(failures)}
	for _, f := range failures {
		s.History = append(s.History, checkpoint.AttemptStats{Status: checkpoint.Failed, Failure: f})
	}
	return s
}

func TestProblemsAreNamedWithWhatToDo(t *testing.T) {
	pending := looked.Add(-2 * time.Minute)
	for what, c := range map[string]struct {
		looks
		want []problem
	}{
		"all is well": {looks{n: 20, flow: func(s int) pipeline.Flow { return splitsAre(split("orders/0", s), split("orders/1", s)) }}, nil},
		"lag grows because of a sink": {looks{n: 20, flow: func(s int) pipeline.Flow {
			f := splitsAre(split("orders/0", s))
			f.Splits[0].Behind, f.Tasks = int64(500*s), slowSink
			return f
		}}, []problem{{"lag", levelWarning, "table", "the sink table, which is busy 97%", "parallelism"}}},
		"lag comes and goes": {looks{n: 20, flow: func(s int) pipeline.Flow {
			f := splitsAre(split("orders/0", s))
			f.Splits[0].Behind = int64(500*s) * int64(s/5%2)
			return f
		}}, nil},
		"a split stands still": {looks{n: 8, flow: func(s int) pipeline.Flow {
			f := splitsAre(split("orders/0", 7), split("orders/1", s))
			f.Splits[0].Behind = 10
			return f
		}}, []problem{{"lag", levelError, "orders", "orders/0 of source orders: there are records", "leader"}}},
		"splits of two sources stand still": {looks{n: 8, flow: func(int) pipeline.Flow {
			f := splitsAre(split("orders/0", 7), split("clicks/0", 7))
			f.Splits[0].Behind, f.Splits[1].Behind, f.Splits[1].Source = 10, 10, "clicks"
			return f
		}}, []problem{{"lag", levelError, "orders", "orders/0 of source orders", ""}, {"lag", levelError, "clicks", "clicks/0 of source clicks", ""}}},
		"a split waits for others by max_drift": {looks{n: 8, flow: func(s int) pipeline.Flow {
			f := splitsAre(split("orders/0", 7), split("orders/1", s))
			f.Splits[0].Behind, f.Splits[0].Paused = 10, true
			return f
		}}, nil},
		"a partition is idle": {looks{n: 14, flow: func(s int) pipeline.Flow { return splitsAre(split("orders/0", s), split("orders/1", 7)) }},
			[]problem{{"idle", levelWarning, "orders", "orders/1 of source orders: no records", "watermark: {idle"}}},
		"a partition is idle that holds nothing up": {looks{n: 14, flow: func(s int) pipeline.Flow {
			f := splitsAre(split("orders/0", s), split("orders/1", 7))
			f.Splits[1].Idle = true
			return f
		}}, []problem{{"idle", levelWarning, "orders", "orders/1", "does not hold up event time"}}},
		"nothing comes at all": {looks{n: 14, flow: func(int) pipeline.Flow { return splitsAre(split("orders/0", 7), split("orders/1", 7)) }}, nil},
		"retention is near": {looks{flow: func(s int) pipeline.Flow {
			f := splitsAre(split("orders/0", s))
			f.Splits[0].BehindSeconds, f.Splits[0].RetentionSeconds = 86400, 1800
			return f
		}}, []problem{{"retention", levelWarning, "orders", "in about 30m", "retention.ms"}}},
		"retention is about to overtake": {looks{flow: func(s int) pipeline.Flow {
			f := splitsAre(split("orders/0", s), split("orders/1", s))
			f.Splits[0].BehindSeconds, f.Splits[0].RetentionSeconds = 86400, 1800
			f.Splits[1].BehindSeconds, f.Splits[1].RetentionSeconds = 86400, 60
			return f
		}}, []problem{{"retention", levelError, "orders", "orders/0, orders/1 of source orders", ""}}},
		"retention is short, and what is read is new": {looks{flow: func(s int) pipeline.Flow {
			f := splitsAre(split("orders/0", s))
			f.Splits[0].Behind, f.Splits[0].BehindSeconds, f.Splits[0].RetentionSeconds = 3, 5, 295
			return f
		}}, nil},
		"a commit is tried again": {looks{flow: func(int) pipeline.Flow {
			return pipeline.Flow{Sinks: []pipeline.SinkFlow{{Sink: "table", LastError: "connection refused"}}}
		}}, []problem{{"commit", levelWarning, "table", "connection refused", "nothing is lost"}}},
		"a commit does not work for long": {looks{flow: func(int) pipeline.Flow {
			return pipeline.Flow{Sinks: []pipeline.SinkFlow{{Sink: "table", LastError: "connection refused", OldestPending: &pending}}}
		}}, []problem{{"commit", levelError, "table", "not published for 2m", "target"}}},
		"a sink's credentials do not count": {looks{flow: func(int) pipeline.Flow {
			return pipeline.Flow{Sinks: []pipeline.SinkFlow{{Sink: "table", LastError: "password authentication failed for user etl"}}}
		}}, []problem{{"credentials", levelWarning, "table", "password authentication failed", "renew"}}},
		"a checkpoint fails once":      {looks{stats: attempts("timed out")}, []problem{{"checkpoint", levelWarning, "", "timed out", "tolerable_failures"}}},
		"checkpoints fail":             {looks{stats: attempts("timed out", "refused")}, []problem{{"checkpoint", levelError, "", "2 checkpoints in a row have failed: timed out", ""}}},
		"the bucket is full":           {looks{stats: attempts("XMinioStorageFull: it has reached its minimum free drive threshold", "x")}, []problem{{"checkpoint", levelError, "", "XMinioStorageFull", "make room in s3://bucket/orders"}}},
		"a port that looks like one":   {looks{stats: attempts("read tcp 10.0.0.1:35071: connection reset")}, []problem{{"checkpoint", levelWarning, "", "connection reset", "tolerable_failures"}}},
		"credentials have expired":     {looks{stats: attempts("ExpiredToken: the provided token has expired", "x")}, []problem{{"credentials", levelError, "", "ExpiredToken", "renew"}}},
		"a store says only the status": {looks{stats: attempts("HeadObject, https response error StatusCode: 403")}, []problem{{"credentials", levelWarning, "", "403", "renew"}}},
		"no checkpoint comes":          {looks{n: 45}, []problem{{"checkpoint", levelError, "", "no checkpoint has completed for 5m", "acknowledged"}}},
		"alignment is slow because of one sink": {looks{
			flow: func(int) pipeline.Flow { return pipeline.Flow{Tasks: slowSink} },
			stats: checkpoint.Stats{History: []checkpoint.AttemptStats{{
				ID: checkpoint.ID{Number: 7}, Status: checkpoint.InProgress, Duration: 25 * time.Second, Tasks: []checkpoint.TaskStats{{StartDelay: 12 * time.Second, Alignment: 3 * time.Second}},
			}}},
		}, []problem{{"alignment", levelWarning, "table", "the barrier of checkpoint 7 takes 25s", "faster"}}},
	} {
		t.Run(what, func(t *testing.T) {
			found := c.find()
			if len(found) != len(c.want) {
				t.Fatalf("found %+v, wanted %+v", found, c.want)
			}
			for i, want := range c.want {
				got := &found[i]
				if got.Kind != want.kind || got.Level != want.level || got.Step != want.step || !strings.Contains(got.Text, want.text) || !strings.Contains(got.Help, want.help) {
					t.Errorf("found %+v, wanted %+v", got, want)
				}
			}
		})
	}
}

func TestAProblemKeepsTheTimeAtWhichItBegan(t *testing.T) {
	l := looks{n: 3, stats: attempts("timed out")}
	if found := l.find(); len(found) != 1 || !found[0].Since.Equal(looked) {
		t.Errorf("found %+v, which began at %s", found, looked)
	}
}
