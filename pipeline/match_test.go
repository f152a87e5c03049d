package pipeline_test

import (
	"context"
	"net/url"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
	"github.com/sluice-etl/sluice/storage"
)

const matched = `
pipeline: matched
parallelism: 2
max_parallelism: 8
source: {name: in, feed: {name: FEED-in}, timestamp: t}
transforms:
  - name: sums
    uid: sums-1
    aggregate: {by: [k], select: {n: count(), s: sum(v)}}
  - name: firsts
    from: in
    dedup: {by: [k, v], within: 1h}
sinks:
  out: {from: sums, collect: {name: TARGET-out}}
  once: {from: firsts, collect: {name: TARGET-once}}
checkpoint: {storage: STORAGE, interval: 100ms}
`

// stoppedWorld is a pipeline that has state and was stopped.
func stoppedWorld(t *testing.T, yaml string) *pipelinetest.World {
	t.Helper()
	w := pipelinetest.New(t, yaml)
	feed := w.Feed("in", 2)
	for i := range 20 {
		feed.Append(i%2, `{"k": "a", "v": 1, "t": 1000}`)
	}
	p := w.Start()
	time.Sleep(time.Second)
	if _, err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	return w
}

func TestChangesThatKeepTheMeaningOfStateAreAccepted(t *testing.T) {
	for name, change := range map[string][]string{
		"a step gets another name and keeps its uid": {"name: sums\n", "name: totals\n", "from: sums", "from: totals"},
		"parallelism":                         {"parallelism: 2", "parallelism: 3"},
		"having":                              {"select: {n: count(), s: sum(v)}", "select: {n: count(), s: sum(v)}, having: n > 0"},
		"other names of results":              {"n: count(), s: sum(v)", "records: count(), total: sum(v)"},
		"an expression around the same calls": {"s: sum(v)", "s: sum(v) * 2"},
		"how often results are given out":     {"s: sum(v)}", "s: sum(v)}, emit: {every: 1s}"},
		"a step without state before it":      {"timestamp: t}\ntransforms:\n", "timestamp: t}\ntransforms:\n  - {name: some, filter: v > 0}\n", "uid: sums-1\n", "uid: sums-1\n    from: some\n"},
		"the backend of state":                {"interval: 100ms", "interval: 100ms, state: {backend: disk, dir: DIR}"},
		"a new sink":                          {"sinks:\n", "sinks:\n  more: {from: sums, collect: {name: TARGET-more}}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				w := stoppedWorld(t, matched)
				w.Redefine(strings.Replace(strings.NewReplacer(change...).Replace(matched), "DIR", dir, 1))
				feed := w.Feed("in", 2)
				feed.Append(0, `{"k": "a", "v": 1, "t": 2000}`)
				feed.End()
				s, err := w.Run()
				if err != nil || s.Counts.Read != 1 {
					t.Fatalf("%d read, error %v", s.Counts.Read, err)
				}
				// The state went on: the last total counts all records, and the repeat is one.
				if rows := w.Target("out").Values(); !strings.Contains(rows[len(rows)-1], ":21") {
					t.Errorf("the last row is %s", rows[len(rows)-1])
				}
				equal(t, w.Target("once").Values(), []string{`{"k": "a", "v": 1, "t": 1000}`})
			})
		})
	}
}

func TestChangesUnderTheStateOfAStepAreRefusedWithBothDefinitions(t *testing.T) {
	for name, change := range map[string]struct{ from, to, was, is string }{
		"another key":         {"by: [k], select", "by: [v], select", `aggregate by "k"`, `"v" was "k"`},
		"a window":            {"by: [k], select", "by: [k], window: {tumbling: 10s}, select", `window`, "tumbling"},
		"another aggregate":   {"sum(v)", "max(v)", `"sum(v)"`, `"max(v)" was "sum(v)"`},
		"one aggregate more":  {"s: sum(v)", "s: sum(v), m: max(v)", `"count()" "sum(v)"`, `"max(v)" is new`},
		"one aggregate less":  {"n: count(), s: sum(v)", "s: sum(v)", `"count()" "sum(v)"`, `"count()" is gone`},
		"a ttl":               {"s: sum(v)}", "s: sum(v)}, ttl: 1h", `"sum(v)"`, "with ttl is new"},
		"another span":        {"within: 1h", "within: 2h", "within 1h", "2h0m0s was 1h0m0s"},
		"another kind":        {"dedup: {by: [k, v], within: 1h}", "aggregate: {by: [k], select: {n: count()}}", "firsts is a dedup in the checkpoint", "aggregate in the file"},
		"keys of a dedup":     {"by: [k, v]", "by: [k]", "dedup by k, v", "dedup by k"},
		"an order of selects": {"n: count(), s: sum(v)", "s: sum(v), n: count()", `"count()" "sum(v)"`, `"sum(v)" "count()"`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := stoppedWorld(t, matched)
				w.Redefine(strings.Replace(matched, change.from, change.to, 1))
				_, err := w.Run()
				if !connectors.IsPermanent(err) {
					t.Fatalf("error %v", err)
				}
				wantTexts(t, err.Error(), change.was, change.is, "another name or uid", "--allow-non-restored-state")
			})
		})
	}
}

func TestAllThatDoesNotFitIsNamedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := stoppedWorld(t, matched)
		w.Redefine(strings.NewReplacer("max_parallelism: 8", "max_parallelism: 16", "within: 1h", "within: 2h",
			"uid: sums-1", "uid: sums-2", "sum(v)", "max(v)").Replace(matched))
		_, err := w.Run()
		if !connectors.IsPermanent(err) {
			t.Fatalf("error %v", err)
		}
		wantTexts(t, err.Error(), "for 3 reasons", "max_parallelism is 8 in the checkpoint and 16 in the file", "2h0m0s was 1h0m0s", "sums-1 (aggregate)")

		plan, err := pipeline.PlanRestore(context.Background(), withPlan(w))
		if err != nil {
			t.Fatal(err)
		}
		wantTexts(t, plan.Refused, "for 3 reasons", "max_parallelism is 8 in the checkpoint and 16 in the file", "2h0m0s was 1h0m0s", "sums-1 (aggregate)")
		got := map[string]pipeline.Action{}
		for _, x := range plan.Operators {
			got[x.UID] = x.Action
		}
		for uid, want := range map[string]pipeline.Action{"in": pipeline.Kept, "sums-2": pipeline.Empty, "firsts": pipeline.Refused, "sums-1": pipeline.Dropped} {
			if got[uid] != want {
				t.Errorf("%s is %q, want %q", uid, got[uid], want)
			}
		}
	})
}

func TestAnOperatorWithoutStateStartsEmptyAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := stoppedWorld(t, matched)
		w.Redefine(strings.Replace(matched, "uid: sums-1", "uid: sums-2", 1))
		w.Options.AllowNonRestoredState = true
		log := logTo(w)
		feed := w.Feed("in", 2)
		feed.Append(0, `{"k": "a", "v": 1, "t": 2000}`)
		feed.End()
		if _, err := w.Run(); err != nil {
			t.Fatal(err)
		}
		rows := w.Target("out").Values()
		wantTexts(t, rows[len(rows)-1], `"n":1`)
		wantTexts(t, log.String(), "it begins without", "uid=sums-2", "state is dropped, as asked", "sums-1 (aggregate)")
	})
}

// withPlan are a world's options with its plan, as for a start.
func withPlan(w *pipelinetest.World) pipeline.Options {
	opts := w.Options
	opts.Plan = w.Plan()
	if opts.Log == nil {
		logTo(w)
		opts.Log = w.Options.Log
	}
	return opts
}

func TestAPlanOfARestoreLeavesNoTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, onLoss(""))
		feed, out := lostAtACrash(t, w)
		before := names(t, w.Storage())
		rows := len(out.Values())
		plan, err := pipeline.PlanRestore(context.Background(), withPlan(w))
		if err != nil || plan.Refused != "" {
			t.Fatalf("refused %q, error %v", plan.Refused, err)
		}
		if after := names(t, w.Storage()); after != before || len(out.Values()) != rows {
			t.Errorf("it wrote:\n%s\nthere was:\n%s", after, before)
		}
		c := plan.Checkpoint
		if c == nil || c.Committed || len(plan.Pending) == 0 || plan.Pending[0].Records == 0 || plan.Job == "" || plan.Next != c.Number+1 {
			t.Errorf("the plan is %+v", plan)
		}
		if plan.Owner == nil || plan.Owner.Generation != 1 {
			t.Errorf("the owner is %+v", plan.Owner)
		}
		// The start does what the plan said.
		feed.End()
		if _, err := w.Run(); err != nil {
			t.Fatal(err)
		}
		plan, err = pipeline.PlanRestore(context.Background(), withPlan(w))
		if err != nil || !plan.Finished {
			t.Errorf("after the end: %+v, %v", plan, err)
		}
		opts := withPlan(w)
		opts.From = c.Path
		if plan, err = pipeline.PlanRestore(context.Background(), opts); err != nil || plan.Refused == "" {
			t.Errorf("a checkpoint that was left behind: %+v, %v", plan, err)
		}
		opts.From = "none"
		if plan, err = pipeline.PlanRestore(context.Background(), opts); err != nil || plan.Refused != "" || plan.Checkpoint != nil ||
			len(plan.Republished) != 1 || plan.Republished[0].First != 1 || plan.Republished[0].Splits[0].From != -1 {
			t.Errorf("from none: %+v, %v", plan, err)
		}
	})
}

func names(t *testing.T, f storage.FS) string {
	t.Helper()
	infos, err := f.List(context.Background(), "")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, info := range infos {
		out = append(out, info.Name)
	}
	return strings.Join(out, "\n")
}

// hesitant is a storage that has to be probed.
type hesitant struct{ storage.FS }

// probeFaults are what the next probes fail with; nil for none.
var probeFaults []error

func init() {
	storage.Register("probed", func(u *url.URL) (storage.FS, error) {
		fs, err := storage.Open("mem://" + u.Host)
		return hesitant{fs}, err
	})
}

func (h hesitant) Probe(context.Context) (storage.Capabilities, error) {
	if len(probeFaults) > 0 {
		err := probeFaults[0]
		probeFaults = probeFaults[1:]
		if err != nil {
			return storage.Capabilities{}, err
		}
	}
	return storage.Capabilities{Reason: "it answers 501 to If-None-Match"}, nil
}

func TestAStorageThatCannotExcludeIsToldOfAtEachStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		probeFaults = []error{context.DeadlineExceeded, nil}
		w := pipelinetest.New(t, strings.Replace(straight, "STORAGE", "probed://"+unused("probed"), 1))
		feed := w.Feed("in", 2)
		fill(feed, 2, 0, 10)
		for range 2 {
			log := logTo(w)
			p := w.Start()
			time.Sleep(time.Second)
			if _, err := p.Stop(); err != nil {
				t.Fatal(err)
			}
			wantTexts(t, log.String(), "start this pipeline only once at a time", "501")
		}
		probeFaults = []error{connectors.Permanent(os.ErrInvalid)}
		if _, err := w.Run(); !connectors.IsPermanent(err) {
			t.Errorf("a fault that a person must mend: %v", err)
		}
		probeFaults = []error{os.ErrPermission}
		if _, err := w.Run(); !connectors.IsPermanent(err) {
			t.Errorf("no permission: %v", err)
		}
	})
}
