package pipeline_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
)

// through runs values of one partition through the given transforms and sinks to
// the end, and returns the world.
func through(t *testing.T, rest string, records ...pipelinetest.Record) (*pipelinetest.World, error) {
	t.Helper()
	w := pipelinetest.New(t, "pipeline: steps\nparallelism: 1\nsource: {feed: {name: FEED-in}}\n"+rest+
		"checkpoint: {storage: STORAGE, interval: 1s}\nrestart: none\n")
	feed := w.Feed("in", 1)
	for _, r := range records {
		feed.Add(0, r)
	}
	feed.End()
	_, err := w.Run()
	return w, err
}

const toOut = "sink: {collect: {name: TARGET-out}}\n"

func values(vs ...string) []pipelinetest.Record {
	var out []pipelinetest.Record
	for _, v := range vs {
		out = append(out, pipelinetest.Record{Value: v})
	}
	return out
}

func TestSteps(t *testing.T) {
	tests := []struct {
		name  string
		steps string
		in    []string
		want  []string
	}{
		{"nothing changes what nothing touches", "", []string{`{"a": 1.10, "b":9007199254740993,"c":1e400}`, `[1,2]`, `not json`},
			[]string{`{"a": 1.10, "b":9007199254740993,"c":1e400}`, `[1,2]`, `not json`}},
		{"set sees the record as it came in", "transforms: [{set: {a: a + 1, b: a * 10}}]\n", []string{`{"a":1,"z":0}`}, []string{`{"a":2,"z":0,"b":10}`}},
		{"set of an absent field writes null", "transforms: [{set: {b: a}}]\n", []string{`{}`}, []string{`{"b":null}`}},
		{"map makes a new record in the order written", "transforms: [{map: {z: a, y: 1, x: missing}}]\n", []string{`{"a":"é"}`}, []string{`{"z":"é","y":1,"x":null}`}},
		{"drop acts on all occurrences, keep leaves them", "transforms: [{drop: [a]}, {keep: [b, d]}]\n", []string{`{"a":1,"b":2,"a":3,"c":4,"b":5}`}, []string{`{"b":2,"b":5}`}},
		{"rename leaves absent absent", "transforms: [{rename: {a: b}}]\n", []string{`{"a":1,"c":2}`, `{"b":3}`, `{"a":1,"b":2}`}, []string{`{"b":1,"c":2}`, `{"b":3}`, `{"b":1}`}},
		{"a renamed field is read by its new name", "transforms: [{rename: {a: b}}, {filter: b > 1}, {set: {c: b + 1}}]\n", []string{`{"a":1}`, `{"a":2}`}, []string{`{"b":2,"c":3}`}},
		{"a step reads what an earlier one set", "transforms: [{set: {b: a + 1}}, {set: {c: b + 1}}, {drop: [a, b]}]\n", []string{`{"a":1}`}, []string{`{"c":3}`}},
		{"this is the record as it is at the step", "transforms: [{set: {b: 2}}, {map: {all: this}}]\n", []string{`{"a":1}`}, []string{`{"all":{"a":1,"b":2}}`}},
		{"unnest in place", "transforms: [{unnest: {field: tags}}]\n", []string{`{"id":1,"tags":["x",{"y":2}]}`, `{"id":2,"tags":[]}`, `{"id":3}`},
			[]string{`{"id":1,"tags":"x"}`, `{"id":1,"tags":{"y":2}}`}},
		{"unnest as another field keeps empty ones on request", "transforms: [{unnest: {field: tags, as: tag, keep_empty: true}}, {set: {n: id + 1}}]\n",
			[]string{`{"id":1,"tags":[7,8]}`, `{"id":2,"tags":null}`}, []string{`{"id":1,"tag":7,"n":2}`, `{"id":1,"tag":8,"n":2}`, `{"id":2,"tag":null,"n":3}`}},
		{"first match of a route wins", `
transforms:
  - {name: r, route: {big: n > 10, even: n % 2 == 0, else: rest}}
  - {name: a, from: r.big, set: {b: '"big"'}}
  - {name: b, from: r.even, set: {b: '"even"'}}
  - {name: c, from: [a, b, r.rest], set: {seen: true}}
`, []string{`{"n":1}`, `{"n":2}`, `{"n":12}`}, []string{`{"n":1,"seen":true}`, `{"n":12,"b":"big","seen":true}`, `{"n":2,"b":"even","seen":true}`}},
		{"a decimal and a time stay what they are over a union", `
transforms:
  - {name: r, route: {x: n == 1, else: y}}
  - {name: a, from: r.x, set: {d: 'decimal("1.10")', t: 'date_trunc("hour", at)'}}
  - {name: b, from: r.y, set: {d: 'decimal("2.20")', t: at}}
  - {name: u, from: [a, b], set: {sum: 'd + decimal("0.05")'}}
  - {drop: [d, t, at]}
`, []string{`{"n":1,"at":"2026-01-01T10:20:30Z"}`, `{"n":2,"at":"2026-01-01T10:20:30Z"}`}, []string{`{"n":1,"sum":1.15}`, `{"n":2,"sum":2.25}`}},
		{"duplicate keys: the last is read, passthrough keeps all", "transforms: [{filter: a == 2}]\n", []string{`{"a":1,"a":2}`}, []string{`{"a":1,"a":2}`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, err := through(t, tt.steps+toOut, values(tt.in...)...)
				if err != nil {
					t.Fatal(err)
				}
				equal(t, sorted(w.Target("out").Values()), sorted(tt.want))
			})
		})
	}
}

func TestAFailedRecordStopsThePipelineWithItsPlace(t *testing.T) {
	tests := []struct {
		name, steps, value string
		want               []string
	}{
		{"not JSON", "transforms: [{filter: n > 1}]\n", `{"n": oops`, []string{"feed/0@1", "source", "byte"}},
		{"a field of another type", "transforms: [{name: dear, filter: n > 1}]\n", `{"n": "text"}`, []string{"feed/0@1", "step dear", "`n > 1`", "string"}},
		{"null in an arithmetic", "transforms: [{name: calc, set: {m: n * 2}}]\n", `{"n": null}`, []string{"feed/0@1", "step calc", "n is null", "??"}},
		{"a missing field as a condition", "transforms: [{name: cond, filter: ok}]\n", `{"n": 5}`, []string{"feed/0@1", "step cond", "?? false"}},
		{"an overflow", "transforms: [{name: calc, set: {m: n * 3000000000000000000}}]\n", `{"n": 5}`, []string{"feed/0@1", "step calc"}},
		{"an empty value where a field is read", "transforms: [{filter: n > 1}]\n", ``, []string{"feed/0@1", "empty"}},
		{"no object to set a field in", "transforms: [{name: put, set: {m: 1}}]\n", `"text"`, []string{"feed/0@1", "step put", "no object"}},
		{"no object to drop a field of", "transforms: [{name: cut, drop: [m]}]\n", `[1]`, []string{"feed/0@1", "step cut", "no object"}},
		{"no list to unnest", "transforms: [{name: un, unnest: {field: n}}]\n", `{"n": 5}`, []string{"feed/0@1", "step un", "int"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first := `{"n": 2, "ok": true}`
				if strings.Contains(tt.steps, "unnest") {
					first = `{"n": [2]}`
				}
				_, err := through(t, tt.steps+toOut, values(first, tt.value)...)
				var rec *connectors.RecordError
				if !errors.As(err, &rec) || !connectors.IsPermanent(err) {
					t.Fatalf("error %v", err)
				}
				for _, want := range tt.want {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("the error lacks %q: %v", want, err)
					}
				}
			})
		})
	}
}

func TestSkippedRecordsAreCountedByStepAndReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, `
pipeline: skip
parallelism: 1
source: {feed: {name: FEED-in}}
transforms: [{name: dear, filter: n > 1}, {name: calc, set: {m: 10 / n}, on_error: fail}]
sink: {collect: {name: TARGET-out}}
on_error: skip
checkpoint: {storage: STORAGE}
`)
		feed := w.Feed("in", 1)
		feed.Append(0, `{"n":2}`, `nonsense`, `{"n":"x"}`, `{"n":null}`, `{"n":5}`)
		feed.End()
		s, err := w.Run()
		if err != nil {
			t.Fatal(err)
		}
		equal(t, w.Target("out").Values(), []string{`{"n":2,"m":5}`, `{"n":5,"m":2}`})
		if s.Counts.Skipped != 3 || s.Failures["source: decode"] != 1 || s.Failures["dear: type"] != 1 || s.Failures["dear: null"] != 1 {
			t.Errorf("skipped %d, failures %v", s.Counts.Skipped, s.Failures)
		}
	})
}

func TestDeadLettersCarryTheOriginalAndTheReason(t *testing.T) {
	const rest = `
transforms: [{name: dear, filter: n > 1}]
on_error: {dead_letter: lost}
sinks:
  out: {collect: {name: TARGET-out}}
  lost: {%s: {name: TARGET-lost}}
`
	bad := pipelinetest.Record{Value: "\xff{", Key: "k", Headers: []connectors.Header{{Key: "h", Value: []byte("v")}}}
	t.Run("as headers", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w, err := through(t, fmt.Sprintf(rest, "collect"), pipelinetest.Record{Value: `{"n":2}`}, bad)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, w.Target("out").Values(), []string{`{"n":2}`})
			rows := w.Target("lost").Rows()
			if len(rows) != 1 || rows[0].Value != bad.Value || rows[0].Key != "k" {
				t.Fatalf("dead letters are %+v", rows)
			}
			want := map[string]string{
				"h": "v", "dead_letter.step": "source", "dead_letter.kind": "decode",
				"dead_letter.topic": "feed", "dead_letter.partition": "0", "dead_letter.offset": "1",
			}
			for k, v := range want {
				if rows[0].Headers[k] != v {
					t.Errorf("header %s is %q, want %q", k, rows[0].Headers[k], v)
				}
			}
			if rows[0].Headers["dead_letter.reason"] == "" || rows[0].Headers["dead_letter.time"] == "" {
				t.Errorf("headers lack the reason or the time: %v", rows[0].Headers)
			}
		})
	})
	t.Run("as rows", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w, err := through(t, fmt.Sprintf(rest, "collect_rows"), pipelinetest.Record{Value: `{"n":2}`}, bad)
			if err != nil {
				t.Fatal(err)
			}
			rows := w.Target("lost").Values()
			var got map[string]any
			if len(rows) != 1 || json.Unmarshal([]byte(rows[0]), &got) != nil {
				t.Fatalf("dead letters are %q", rows)
			}
			if headers := fmt.Sprint(got["headers"]); headers != "[map[key:h value:v]]" {
				t.Errorf("the headers are %s", headers)
			}
			if got["topic"] != "feed" || got["offset"] != 1.0 || got["value"] != "/3s=" || got["value_base64"] == nil || got["key"] != "k" || got["step"] != "source" {
				t.Errorf("the row is %v", got)
			}
		})
	})
}

func TestADeadLetterBehindAUnionHasTheValueOfItsSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, err := through(t, `
transforms:
  - {name: r, route: {a: n > 1, else: b}}
  - {name: x, from: r.a, set: {m: 1}}
  - {name: u, from: [x, r.b], filter: k > 0}
on_error: {dead_letter: lost}
sinks:
  out: {collect: {name: TARGET-out}}
  lost: {collect: {name: TARGET-lost}}
`, values(`{"n": 2, "k": 1}`, `{"n": 3, "k": null}`, `{"n": 1,  "k": "x"}`)...)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, w.Target("out").Values(), []string{`{"n": 2, "k": 1,"m":1}`})
		equal(t, sorted(w.Target("lost").Values()), sorted([]string{`{"n": 3, "k": null}`, `{"n": 1,  "k": "x"}`}))
	})
}

func TestWhatStepsLeaveOutIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, `
pipeline: counts
parallelism: 1
source: {feed: {name: FEED-in}}
transforms:
  - filter: n > 1
  - {name: list, unnest: {field: l}}
  - {name: by, route: {a: n > 2}}
  - {from: by.a, set: {x: 1}}
sink: {collect: {name: TARGET-out}}
on_error: skip
checkpoint: {storage: STORAGE}
`)
		feed := w.Feed("in", 1)
		feed.Append(0, `{"n":1}`, `{"n":null}`, `{"n":5}`, `{"n":2,"l":[1,2]}`, `{"n":3,"l":[1]}`)
		feed.Add(0, pipelinetest.Record{Null: true})
		feed.End()
		s, err := w.Run()
		// One and a tombstone by the filter, one without a list, two by no branch.
		if err != nil || s.Counts.Filtered != 5 || s.Counts.Skipped != 1 || s.Counts.Written != 1 {
			t.Errorf("counts %+v, error %v", s.Counts, err)
		}
	})
}

func TestMaxErrorsStopsThePipeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := through(t, "on_error: skip\nmax_errors: 2 per 1m\ntransforms: [{filter: n > 1}]\n"+toOut, values("x", "x", `{"n":2}`, "x")...)
		if !connectors.IsPermanent(err) || !strings.Contains(err.Error(), "max_errors") {
			t.Errorf("error %v", err)
		}
	})
}

func TestARowThatTheSinkRefusesGoesToItsOnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, `
pipeline: refuse
parallelism: 1
source: {feed: {name: FEED-in}}
sink: {collect: {name: TARGET-out}, on_error: skip}
checkpoint: {storage: STORAGE}
`)
		w.Target("out").Refuse = func(v string) string {
			if len(v) > 3 {
				return "too large"
			}
			return ""
		}
		feed := w.Feed("in", 1)
		feed.Append(0, "1", "12345", "2")
		feed.End()
		s, err := w.Run()
		if err != nil || s.Counts.Skipped != 1 || s.Counts.Written != 2 || s.Failures["sink: refused"] != 1 {
			t.Fatalf("counts %+v, failures %v, error %v", s.Counts, s.Failures, err)
		}
		equal(t, w.Target("out").Values(), []string{"1", "2"})
	})
}

func TestValuesOfALineSinkAreOneLineEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, `
pipeline: lines
parallelism: 1
source: {feed: {name: FEED-in}}
sink: {collect_rows: {name: TARGET-out}, on_error: skip}
checkpoint: {storage: STORAGE}
`)
		feed := w.Feed("in", 1)
		feed.Append(0, "{\n\"a\":\r\n 1}", "", `"x\ny"`)
		feed.Add(0, pipelinetest.Record{Null: true})
		feed.End()
		s, err := w.Run()
		if err != nil || s.Counts.Skipped != 1 {
			t.Fatalf("%d skipped, error %v", s.Counts.Skipped, err)
		}
		equal(t, w.Target("out").Values(), []string{`{ "a":   1}`, `"x\ny"`, "null"})
	})
}

func TestLargeResultsOfManyRowsKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, `
pipeline: large
parallelism: 1
source: {feed: {name: FEED-in, batch: 1000}}
transforms:
  - {name: big, set: {r: 'repeat("x", n * 100)', s: 'repeat("y", (600 - n) * 100)'}, on_error: skip}
  - map: {n: n, size: len(r) + len(s)}
sink: {collect: {name: TARGET-out}}
checkpoint: {storage: STORAGE}
`)
		feed := w.Feed("in", 1)
		var want []string
		for n := range 600 {
			switch n % 100 {
			case 50:
				feed.Add(0, pipelinetest.Record{Null: true})
				want = append(want, "")
			case 70:
				feed.Append(0, `{"n":null}`)
			default:
				feed.Append(0, fmt.Sprintf(`{"n":%d}`, n))
				want = append(want, fmt.Sprintf(`{"n":%d,"size":60000}`, n))
			}
		}
		feed.End()
		s, err := w.Run()
		if err != nil || s.Counts.Skipped != 6 {
			t.Fatalf("%d skipped, error %v", s.Counts.Skipped, err)
		}
		equal(t, w.Target("out").Values(), want)
	})
}

func TestTombstones(t *testing.T) {
	tombstone := pipelinetest.Record{Key: "gone", Null: true}
	tests := []struct {
		name, steps string
		want        int // tombstones that come out
	}{
		{"pass untouched", "", 1},
		{"do not pass a filter that does not ask for them", "transforms: [{filter: n > 1}]\n", 0},
		{"pass a filter that does", "transforms: [{filter: meta.tombstone || n > 1}]\n", 1},
		{"pass a set", "transforms: [{set: {m: n + 1}}]\n", 1},
		{"go to the else branch", "transforms: [{name: r, route: {a: n > 1, else: b}}, {from: [r.a, r.b], set: {x: 1}}]\n", 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, err := through(t, tt.steps+toOut, pipelinetest.Record{Value: `{"n":5}`}, tombstone)
				if err != nil {
					t.Fatal(err)
				}
				n := 0
				for _, r := range w.Target("out").Rows() {
					if r.Tombstone {
						n++
						if r.Key != "gone" {
							t.Errorf("its key is %q", r.Key)
						}
					}
				}
				if n != tt.want || len(w.Target("out").Rows()) != 1+tt.want {
					t.Errorf("%d tombstones came out of %d rows, want %d", n, len(w.Target("out").Rows()), tt.want)
				}
			})
		})
	}
}

func TestTwoSourcesAreOneConsistentCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, `
pipeline: two
parallelism: 2
sources:
  a: {feed: {name: FEED-a}}
  b: {feed: {name: FEED-b}}
transforms:
  - {name: mark, from: a, set: {from: '"a"'}}
  - {name: both, from: [mark, b], filter: n >= 0}
sink: {collect: {name: TARGET-out, prepare_ms: 30}}
checkpoint: {storage: STORAGE, interval: 100ms}
`)
		a, b, n := w.Feed("a", 2), w.Feed("b", 3), 0
		for round := range 8 {
			p := w.Start()
			for range 4 {
				fill(a, 2, n, n+20)
				fill(b, 3, n, n+20)
				n += 20
				time.Sleep(time.Duration(29+round*11) * time.Millisecond)
			}
			p.Crash()
		}
		a.End()
		b.End()
		if _, err := w.Run(); err != nil {
			t.Fatal(err)
		}
		var want []string
		for i := range n {
			want = append(want, fmt.Sprintf(`{"n": %d,"from":"a"}`, i), fmt.Sprintf(`{"n": %d}`, i))
		}
		equal(t, sorted(w.Target("out").Values()), sorted(want))
	})
}

func TestThrottleHoldsTheRateAndLetsBarriersThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, `
pipeline: slow
parallelism: 2
source: {feed: {name: FEED-in, batch: 500}}
transforms: [{throttle: {records_per_second: 100}}]
sink: {collect: {name: TARGET-out}}
checkpoint: {storage: STORAGE, interval: 1s, timeout: 1s}
`)
		feed := w.Feed("in", 2)
		fill(feed, 2, 0, 1000)
		feed.End()
		began := time.Now()
		s, err := w.Run()
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 9*time.Second || took > 11*time.Second {
			t.Errorf("1000 records took %s at 100 a second", took)
		}
		// One checkpoint each second, none of them late for its timeout.
		if s.Checkpoints < 9 {
			t.Errorf("%d checkpoints in 10 s", s.Checkpoints)
		}
	})
}

func TestEventTimeOfASource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, `
pipeline: times
parallelism: 1
source: {feed: {name: FEED-in}, timestamp: at}
transforms: [{map: {ms: unix_ms(meta.timestamp)}}]
sink: {collect: {name: TARGET-out}}
on_error: skip
checkpoint: {storage: STORAGE}
`)
		feed := w.Feed("in", 1)
		feed.Append(0, `{"at": 1500}`, `{"at": "1970-01-01T00:00:02Z"}`, `{"at": true}`, `{}`)
		feed.End()
		s, err := w.Run()
		if err != nil {
			t.Fatal(err)
		}
		equal(t, w.Target("out").Values(), []string{`{"ms":1500}`, `{"ms":2000}`})
		if s.Failures["source: timestamp"] != 2 {
			t.Errorf("failures are %v", s.Failures)
		}
	})
}
