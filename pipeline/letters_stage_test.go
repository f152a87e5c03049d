package pipeline_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
)

// failing is a pipeline in which each value fails at another stage.
const failing = `
pipeline: failing
parallelism: 1
on_error: {dead_letter: letters}
source:
  feed: {name: FEED-in}
  schema: {n: int?, s: string?}
transforms:
  - name: half
    set: {half: 12 / n}
sinks:
  out: {from: half, collect: {name: TARGET-out}}
  letters: {collect: {name: TARGET-letters}, on_error: fail}
checkpoint: {storage: STORAGE, interval: 100ms}
restart: none
`

func TestEachStageKeepsTheRecordAndSaysWhatIsWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, failing)
		w.Target("out").Refuse = func(value string) string {
			if strings.Contains(value, "refuse me") {
				return "it is refused"
			}
			return ""
		}
		feed := w.Feed("in", 1)
		feed.Append(0, "broken", `{"n":"text"}`, `{"n": 0 }`, `{"n":3, "s":"refuse me"}`, `{"n":4}`)
		feed.End()
		s, err := w.Run()
		if err != nil {
			t.Fatal(err)
		}
		want := []struct{ value, offset, step, expression string }{
			{"broken", "0", "source", ""}, {`{"n":"text"}`, "1", "source", ""}, {`{"n": 0 }`, "2", "half", "12 / n"}, {`{"n":3, "s":"refuse me"}`, "3", "out", ""},
		}
		rows := w.Target("letters").Rows()
		if len(rows) != len(want) {
			t.Fatalf("%d dead letters: %+v", len(rows), rows)
		}
		kinds := map[string]bool{}
		for _, r := range rows {
			found := false
			for _, x := range want {
				h := r.Headers
				found = found || r.Value == x.value && h["dead_letter.offset"] == x.offset && h["dead_letter.step"] == x.step &&
					h["dead_letter.expression"] == x.expression && h["dead_letter.topic"] != "" && h["dead_letter.reason"] != "" &&
					h["dead_letter.time"] != "" && h["dead_letter.attempt"] == "1"
			}
			if !found {
				t.Errorf("a dead letter is %+v", r)
			}
			kinds[r.Headers["dead_letter.step"]+": "+r.Headers["dead_letter.kind"]] = true
		}
		for kind := range kinds {
			if s.Failures[kind] != 1 {
				t.Errorf("%s is counted %d times", kind, s.Failures[kind])
			}
		}
	})
}

func TestASinkThatRefusesADeadLetterStopsThePipeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, failing)
		w.Target("letters").Refuse = func(string) string { return "too large" }
		feed := w.Feed("in", 1)
		feed.Append(0, `{"n":1}`, "broken")
		feed.End()
		_, err := w.Run()
		if !connectors.IsPermanent(err) || !strings.Contains(err.Error(), "sink letters refuses the dead letter of") || !strings.Contains(err.Error(), "/0@1") || !strings.Contains(err.Error(), "too large") {
			t.Errorf("the error is %v", err)
		}
	})
}

func TestALostTransactionGoesBackForATableToo(t *testing.T) {
	b := newBroker(t)
	yaml := strings.NewReplacer("BROKER", b.addr, "TIMEOUT", "2s").Replace(topicAndFiles)
	yaml = strings.Replace(yaml, "checkpoint:", "  table: {from: source, collect: {name: TARGET-table}}\ncheckpoint:", 1)
	w := pipelinetest.New(t, strings.ReplaceAll(yaml, "FEED-files", t.Name()))
	point := failpoints(w)
	s := begin(t, w)
	b.send(10)
	s.written(30).checkpoint()
	b.send(10)
	crashAt(w, s.written(60), point, "before-commit")
	b.awaitAborted()
	s = begin(t, w)
	b.send(10)
	s.written(60).checkpoint() // the second and third ten
	if _, err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	equal(t, b.out(), rowsBetween(0, 30))
	equal(t, linesIn(t, "mem://"+t.Name()), rowsBetween(0, 30))
	equal(t, sorted(w.Target("table").Values()), rowsBetween(0, 30))
}
