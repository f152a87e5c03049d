package pipeline_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
)

// behindSteps is a pipeline whose sink refuses a row behind a keyed step.
const behindSteps = `
pipeline: behind
parallelism: 2
on_error: {dead_letter: letters}
source:
  feed: {name: FEED-in}
  schema: {k: string, n: int}
transforms:
  - name: double
    set: {double: n * 2}
  - name: step
    STEP
sinks:
  out: {from: step, collect: {name: TARGET-out, changes: all}}
  letters: {collect: {name: TARGET-letters}, on_error: fail}
checkpoint: {storage: STORAGE, interval: 100ms}
restart: none
`

// The documents say what letters hold of rows that keyed steps gave out again.
func TestLettersBehindKeyedSteps(t *testing.T) {
	const (
		bytes = `{"k":"refuse",  "n":2 }`           // as the source gave them
		row   = `{"k":"refuse",  "n":2,"double":4}` // as the step was given it
	)
	for _, c := range []struct{ name, step, value, offset string }{
		{"the first of some", "dedup: {by: [k], within: 1h}", bytes, "1"},
		{"the last of some", "dedup: {by: [k], within: 1h, keep: last, emit: on_close}", row, "1"},
		{"the last of some so far", "dedup: {by: [k], within: 1h, keep: last}", row, "1"},
		{"the best", "top: {by: [k], n: 1, order: [{n: desc}]}", row, "1"},
		{"a count", "aggregate: {by: [k], select: {n: count()}, ttl: forever}", `{"k":"refuse","n":1}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := pipelinetest.New(t, strings.Replace(behindSteps, "STEP", c.step, 1))
				w.Target("out").Refuse = func(value string) string {
					if strings.Contains(value, "refuse") {
						return "it is refused"
					}
					return ""
				}
				feed := w.Feed("in", 1)
				feed.Append(0, `{"k":"a", "n":1}`, bytes)
				feed.End()
				if _, err := w.Run(); err != nil {
					t.Fatal(err)
				}
				rows := w.Target("letters").Rows()
				if len(rows) != 1 || rows[0].Value != c.value || rows[0].Headers["dead_letter.offset"] != c.offset {
					t.Errorf("the letters are %+v", rows)
				}
			})
		})
	}
}
