package pipeline_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
)

// refusing is a pipeline whose target refuses rows at the commit.
func refusing(onError string) string {
	return `
pipeline: late
parallelism: 2
source: {feed: {name: FEED-in}}
sinks:
  table: {from: source, collect: {name: TARGET-out}, on_error: ` + onError + `}
  letters: {from: [], collect: {name: TARGET-letters}}
checkpoint: {storage: STORAGE, interval: 100ms}
`
}

func lateWorld(t *testing.T, onError string) *pipelinetest.World {
	text := refusing(onError)
	if !strings.Contains(onError, "letters") {
		text = strings.Replace(text, "  letters: {from: [], collect: {name: TARGET-letters}}\n", "", 1)
	}
	w := pipelinetest.New(t, strings.Replace(text, "from: [], ", "", 1))
	w.Target("out").RefuseLate = func(value string) string {
		if strings.Contains(value, "7") {
			return "violates a constraint"
		}
		return ""
	}
	return w
}

func TestARowThatIsRefusedAtTheCommitGoesToOnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := lateWorld(t, "{dead_letter: letters}")
		feed := w.Feed("in", 2)
		for i := range 20 {
			feed.Append(i%2, fmt.Sprintf(`{"n": %d}`, i))
		}
		p := w.Start()
		time.Sleep(time.Second)
		letters := w.Target("letters").Rows()
		if len(letters) != 2 {
			t.Fatalf("%d dead letters, want 2", len(letters))
		}
		slices.SortFunc(letters, func(a, b pipelinetest.Row) int { return strings.Compare(b.Value, a.Value) })
		got := letters[0]
		if got.Value != `{"n": 7}` || got.Headers["dead_letter.step"] != "table" || got.Headers["dead_letter.reason"] != "violates a constraint" ||
			got.Headers["dead_letter.kind"] != "constraint" || got.Headers["dead_letter.partition"] != "1" || got.Headers["dead_letter.offset"] != "3" {
			t.Errorf("the dead letter is %+v", got)
		}
		feed.End()
		if s, err := p.Wait(); err != nil || s.Counts.Dead != 2 {
			t.Errorf("%d dead letters counted, error %v", s.Counts.Dead, err)
		}
		if n := len(w.Target("out").Rows()); n != 18 {
			t.Errorf("%d rows are in the table, want 18", n)
		}
	})
}

func TestRowsThatAreRefusedAtTheVeryEndGoToOnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := lateWorld(t, "{dead_letter: letters}")
		feed := w.Feed("in", 2)
		fill(feed, 2, 0, 100)
		feed.End()
		s, err := w.Run()
		if err != nil || s.Outcome != pipeline.Finished {
			t.Fatalf("outcome %s, error %v", s.Outcome, err)
		}
		if out, dead := len(w.Target("out").Rows()), len(w.Target("letters").Rows()); out != 81 || dead != 19 {
			t.Errorf("%d rows and %d dead letters, want 81 and 19", out, dead)
		}
	})
}

func TestARowThatIsRefusedAtTheCommitStopsThePipelineByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := lateWorld(t, "fail")
		fill(w.Feed("in", 2), 2, 0, 20)
		_, err := w.Run()
		if !connectors.IsPermanent(err) || !strings.Contains(err.Error(), "in/1@3") && !strings.Contains(err.Error(), "in/1@8") {
			t.Errorf("the error is %v", err)
		}
	})
}

func TestARowThatIsRefusedAtTheCommitCanBeSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := lateWorld(t, "skip")
		feed := w.Feed("in", 2)
		fill(feed, 2, 0, 20)
		feed.End()
		s, err := w.Run()
		if err != nil || s.Counts.Skipped != 2 {
			t.Errorf("%d skipped, error %v", s.Counts.Skipped, err)
		}
	})
}

func TestADeadLetterThatIsRefusedAtTheCommitStopsThePipeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := lateWorld(t, "{dead_letter: letters}")
		w.Target("letters").RefuseLate = w.Target("out").RefuseLate
		fill(w.Feed("in", 2), 2, 0, 8)
		_, err := w.Run()
		if !connectors.IsPermanent(err) || !strings.Contains(err.Error(), "sink letters refuses a dead letter") {
			t.Errorf("the error is %v", err)
		}
	})
}

func TestTemplatesOfASinkAreFilledIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, `
pipeline: labelled
source: {feed: {name: FEED-in}}
transforms:
  - set: {region: '"r" + string(n % 3)'}
sink: {collect: {name: TARGET-out, label: "{{dt}}={region}/n={n + 1}"}}
checkpoint: {storage: STORAGE, interval: 100ms}
`)
		feed := w.Feed("in", 1)
		fill(feed, 1, 4, 5)
		feed.End()
		if _, err := w.Run(); err != nil {
			t.Fatal(err)
		}
		if got := w.Target("out").Rows()[0].Headers["label"]; got != "{dt}=r1/n=5" {
			t.Errorf("the label is %s", got)
		}
	})
}

func TestAFaultInATemplateIsPlacedInItsText(t *testing.T) {
	got := faultsOf(t, `
pipeline: labelled
source: {feed: {name: a}}
sink: {collect: {name: b, label: "n={n +}"}}
`)
	if !strings.Contains(got, "test.yaml:4") {
		t.Errorf("the faults are\n%s", got)
	}
}

func TestASinkIsToldTheColumnsWhereTheyAreKnown(t *testing.T) {
	const declared = `
pipeline: typed
source:
  feed: {name: a}
  schema: {id: int, price: decimal, note: string?, at: timestamp, tags: [string], who: {name: string, age: int?}}
transforms:
  - keep: [id, price, note, at, tags, who]
  - set: {big: price > 10, text: string(id)}
sink: {collect: {name: b, columns: "COLUMNS"}}
`
	all := "id int, price decimal, note string?, at timestamp, tags [string], who {name string, age int?}, big bool, text string"
	if got := faultsOf(t, strings.Replace(declared, "COLUMNS", all, 1)); strings.Contains(got, "error") {
		t.Errorf("the faults are\n%s", got)
	}
	if got := faultsOf(t, strings.Replace(declared, "COLUMNS", "none", 1)); !strings.Contains(got, "the rows have id int") || !strings.Contains(got, "test.yaml:9:36") {
		t.Errorf("the faults are\n%s", got)
	}
	open := strings.Replace(strings.Replace(declared, "who: {name: string, age: int?}", "who: map", 1), "COLUMNS", "any", 1)
	if got := faultsOf(t, open); strings.Contains(got, "error") {
		t.Errorf("with a field of which not all is known the faults are\n%s", got)
	}
}
