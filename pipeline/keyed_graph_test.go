package pipeline_test

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
	"github.com/sluice-etl/sluice/pipeline/spec"
)

func TestInputsOfKeyedSteps(t *testing.T) {
	tests := []struct {
		name  string
		steps string
		in    []string
		want  []string
	}{
		{"a key that is computed", "[{zz-tally: {by: {k: 'lower(a) + \"!\"'}}}]",
			[]string{`{"a":"X"}`, `{"a":"x"}`, `{"a":"y"}`}, []string{`x! 2`, `y! 1`}},
		{"a key of a field that a step made", "[{set: {k: a % 2}}, {zz-tally: {by: [k]}}]",
			[]string{`{"a":1}`, `{"a":2}`, `{"a":3}`}, []string{`0 1`, `1 2`}},
		{"a key of the whole value after a step", "[{set: {k: a % 2}}, {drop: [a]}, {zz-tally: {by: {all: 'to_json(this)'}}}]",
			[]string{`{"a":1}`, `{"a":2}`, `{"a":3}`}, []string{`{"k":0} 1`, `{"k":1} 2`}},
		{"no field is read: the key is the record's place", "[{zz-tally: {by: {p: meta.partition}}}]",
			[]string{`not json`, `{"a":2}`}, []string{`0 1`, `1 1`}},
		{"keyed twice", "[{zz-tally: {by: [a, b]}}, {name: second, zz-tally: {by: {k: key}}}]",
			[]string{`{"a":1,"b":1}`, `{"a":1,"b":2}`, `{"a":1,"b":2}`}, []string{`1 2`}},
		{"a union of branches that look the same", "[{name: r, route: {x: a > 2, else: y}}, {name: t, from: [r.x, r.y], zz-tally: {by: [a]}}]",
			[]string{`{"a":1}`, `{"a":3}`, `{"a":3}`}, []string{`1 1`, `3 2`}},
		{"a union of branches that do not", "[{name: r, route: {x: a > 2, else: y}}, {name: s, from: r.x, set: {a: 1}}, {name: t, from: [s, r.y], zz-tally: {by: [a]}}]",
			[]string{`{"a":1}`, `{"a":3}`, `{"a":3}`}, []string{`1 3`}},
		{"a step with itself", "[{name: p, zz-pair: {left: source, right: source, by: [a]}}]",
			[]string{`{"a":1}`, `{"a":2}`, `{"a":1}`}, []string{`1 2 2`, `2 1 1`}},
		{"two branches of one chain", "[{name: r, route: {x: a > 2, else: y}}, {name: s, from: r.x, set: {k: a - 2}}, {name: m, from: r.y, set: {k: a}}, {name: p, zz-pair: {left: s, right: m, by: [k]}}]",
			[]string{`{"a":1}`, `{"a":3}`, `{"a":3}`, `{"a":2}`}, []string{`1 2 1`, `2 0 1`}},
		{"the result of a keyed step with its source", "[{name: t, zz-tally: {by: {a: a}}}, {name: u, from: t, map: {a: key}}, {name: p, zz-pair: {left: u, right: source, by: [a]}}]",
			[]string{`{"a":1}`, `{"a":1}`, `{"a":2}`}, []string{`1 1 2`, `2 1 1`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := pipelinetest.New(t, "pipeline: inputs\nparallelism: 2\nsource: {feed: {name: FEED-in}}\ntransforms: "+tt.steps+
					"\nsink: {collect: {name: TARGET-out}}\ncheckpoint: {storage: STORAGE}\nrestart: none\n")
				feed := w.Feed("in", 2)
				for i, v := range tt.in {
					feed.Append(i%2, v)
				}
				feed.End()
				if _, err := w.Run(); err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, v := range w.Target("out").Values() {
					got = append(got, strings.TrimRight(tallyRow(t, v), " "))
				}
				equal(t, sorted(got), sorted(tt.want))
			})
		})
	}
}

func TestTombstonesAreNotCountedUnlessTheKeyNeedsNoValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, err := through(t, "transforms: [{zz-tally: {by: {k: meta.partition}}}]\n"+toOut,
			pipelinetest.Record{Null: true}, pipelinetest.Record{Value: `{}`}, pipelinetest.Record{Null: true})
		if err != nil {
			t.Fatal(err)
		}
		if got := w.Target("out").Values(); len(got) != 1 || tallyRow(t, got[0]) != "0 1" {
			t.Errorf("got %v", got)
		}
	})
}

func TestDeadLettersOfAKeyedStepCarryTheValueOfTheSource(t *testing.T) {
	tests := []struct{ name, step, reason string }{
		{"the key cannot be evaluated", "zz-tally: {by: {k: 10 / (a - 3)}}", "zero"},
		{"an argument cannot be evaluated", "zz-tally: {by: [a], odd: 10 / (a - 3) > 100 || true}", "zero"},
		{"an argument is of another type", "zz-tally: {by: [a], odd: b}", "bool"},
		{"the step refuses it", "zz-tally: {by: [a], odd: a != 3}", "odd"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, err := through(t, "transforms: [{set: {a: a + 1}}, {name: count, "+tt.step+", on_error: {dead_letter: dead}}]\n"+
					"sinks:\n  out: {from: count, collect: {name: TARGET-out}}\n  dead: {collect: {name: TARGET-dead}}\n",
					pipelinetest.Record{Value: `{"a":1,"b":true}`}, pipelinetest.Record{Value: `{"b": 1.10, "a" :2}`, Key: "kk", Headers: []connectors.Header{{Key: "h", Value: []byte("v")}}},
					pipelinetest.Record{Value: `{"a":3,"b":true}`})
				if err != nil {
					t.Fatal(err)
				}
				rows := w.Target("dead").Rows()
				if len(rows) != 1 {
					t.Fatalf("%d dead letters", len(rows))
				}
				r := rows[0]
				if r.Value != `{"b": 1.10, "a" :2}` || r.Key != "kk" || r.Headers["h"] != "v" || r.Headers["dead_letter.offset"] != "1" || r.Headers["dead_letter.step"] == "" || !strings.Contains(r.Headers["dead_letter.reason"], tt.reason) {
					t.Errorf("the dead letter is %+v", r)
				}
				if n := len(w.Target("out").Values()); n != 2 {
					t.Errorf("%d rows of results, want 2", n)
				}
			})
		})
	}
}

func TestARowBehindAKeyedStepIsADeadLetterAsItWouldBeWritten(t *testing.T) {
	for name, steps := range map[string]string{
		"in its chain":    "{name: odd, set: {m: 1 / (key - 2)}}",
		"behind a union":  "{name: r, route: {x: key > 1, else: y}}, {name: z, from: r.x, set: {extra: null}}, {name: odd, from: [z, r.y], set: {m: 1 / (key - 2)}}",
		"in the next one": "{name: odd, zz-tally: {by: {k: 1 / (key - 2)}}}",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, err := through(t, "transforms: [{zz-tally: {by: [a]}}, "+strings.TrimSuffix(steps, "}")+", on_error: {dead_letter: dead}}]\n"+
					"sinks:\n  out: {from: odd, collect: {name: TARGET-out}}\n  dead: {collect: {name: TARGET-dead}}\n", values(`{"a":2}`, `{"a":1}`)...)
				if err != nil {
					t.Fatal(err)
				}
				got := w.Target("dead").Values()
				if len(got) != 1 || !strings.HasPrefix(got[0], `{"key":2,"end":9223372036854775807,"n0":1`) {
					t.Errorf("dead letters are %v", got)
				}
			})
		})
	}
}

func TestARowThatTakesBackARefusedOneIsLeftOutSilently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// n0 counts up, and each step of it takes the one before back.
		w := pipelinetest.New(t, "pipeline: back\nparallelism: 1\nsource: {feed: {name: FEED-in}}\n"+
			"transforms: [{name: t, zz-tally: {by: [a], every: true}}, {name: p, zz-pair: {left: t, right: t, by: {k: 1 / (n0 - 2)}}, on_error: skip}]\n"+toOut+"checkpoint: {storage: STORAGE}\n")
		w.Feed("in", 1).Append(0, `{"a":2}`, `{"a":2}`, `{"a":2}`)
		w.Feed("in", 1).End()
		s, err := w.Run()
		if err != nil {
			t.Fatal(err)
		}
		if s.Counts.Skipped != 2 {
			t.Errorf("%d skipped, want the new row on each side", s.Counts.Skipped)
		}
	})
}

func TestUpdatingStreamsAreRefusedWhereTheyWouldBeCountedTwice(t *testing.T) {
	tests := []struct{ name, steps, want string }{
		{"directly", "[{name: t, zz-tally: {by: [a], every: true}}, {name: u, zz-tally: {by: [key]}}]", "step t"},
		{"behind steps that pass it on", "[{name: t, zz-tally: {by: [a], every: true}}, {filter: n0 > 1}, {set: {m: 1}}, {name: u, zz-tally: {by: [key]}}]", "step t"},
		{"in a union with another", "[{name: t, zz-tally: {by: [a], every: true}}, {name: u, from: [source, t], zz-tally: {by: [key]}}]", "step t"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, _ := spec.Parse("test.yaml", []byte("pipeline: p\nsource: {feed: {name: x}}\ntransforms: "+tt.steps+"\nsink: {from: u, blackhole: {}}\n"), spec.Options{})
			pipeline.NewPlan(p)
			var text strings.Builder
			_ = p.Diagnostics().Print(&text, false)
			if !p.Diagnostics().HasErrors() || !strings.Contains(text.String(), "updating stream") || !strings.Contains(text.String(), tt.want) || !strings.Contains(text.String(), "on_close") {
				t.Errorf("the faults are:\n%s", text.String())
			}
		})
	}
}

func TestStateOfAnotherDefinitionIsRefused(t *testing.T) {
	base := at(2, counting)
	tests := []struct{ name, from, to, want string }{
		{"another window", "size: 10s", "size: 20s", "size 20s"},
		{"another key", "by: [k]", "by: [t]", "by [{t"},
		{"another kind of step", "zz-tally: {by: [k], size: 10s}", "filter: k > 1", "--allow-non-restored-state"},
		{"another number of key groups", "max_parallelism: 8", "max_parallelism: 16", "can never change"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := pipelinetest.New(t, base)
				clicks(w.Feed("in", 2), 2, 0, 100)
				p := w.Start()
				time.Sleep(time.Second)
				if _, err := p.Stop(); err != nil {
					t.Fatal(err)
				}
				w.Redefine(strings.Replace(base, tt.from, tt.to, 1))
				_, err := w.Run()
				if err == nil || !connectors.IsPermanent(err) || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("error %v", err)
				}
				w.Redefine(base)
				w.Feed("in", 2).End()
				if _, err := w.Run(); err != nil {
					t.Fatal(err)
				}
				equal(t, sorted(w.Target("out").Values()), wantClicks([2]int{0, 100}))
			})
		})
	}
}

func TestANewJobGoesOnFromItsOwnCopyOfTheState(t *testing.T) {
	for _, backend := range []string{"memory", "disk"} {
		t.Run(backend, func(t *testing.T) {
			yaml := counting
			if backend == "disk" {
				yaml = strings.Replace(yaml, "interval", fmt.Sprintf("state: {backend: disk, dir: %q}, interval", t.TempDir()), 1)
			}
			synctest.Test(t, func(t *testing.T) { copyState(t, yaml) })
		})
	}
}

func copyState(t *testing.T, yaml string) {
	w := pipelinetest.New(t, at(2, yaml))
	feed := w.Feed("in", 2)
	clicks(feed, 2, 0, 100)
	p := w.Start()
	time.Sleep(time.Second)
	s, err := p.Stop()
	if err != nil {
		t.Fatal(err)
	}
	clicks(feed, 2, 100, 50)
	old := newest(t, w, s.Job)
	for _, parallelism := range []int{2, 3, 1} {
		w.Redefine(at(parallelism, yaml))
		w.Options.From = old
		run := w.Start()
		time.Sleep(10 * time.Millisecond) // it has a first checkpoint and no other yet
		if err := w.Storage().RemoveAll(t.Context(), "counting/"+s.Job); err != nil {
			t.Fatal(err)
		}
		run.Crash()
		w.Options.From = ""
		run = w.Start()
		time.Sleep(time.Second)
		if s, err = run.Stop(); err != nil {
			t.Fatal(err)
		}
		old = newest(t, w, s.Job)
	}
	feed.End()
	w.Options.From = ""
	if _, err := w.Run(); err != nil {
		t.Fatal(err)
	}
	equal(t, sorted(w.Target("out").Values()), wantClicks([2]int{0, 100}, [2]int{100, 50}))
}

// newest is the path of a job's newest checkpoint.
func newest(t *testing.T, w *pipelinetest.World, job string) string {
	t.Helper()
	files, err := w.Storage().List(t.Context(), "counting/"+job)
	if err != nil {
		t.Fatal(err)
	}
	last := 0
	for _, f := range files {
		var n int
		dir, name := path.Split(f.Name)
		if _, err := fmt.Sscanf(path.Base(dir), "chk-%d", &n); err == nil && name == "_metadata" {
			last = max(last, n)
		}
	}
	return fmt.Sprintf("%s/counting/%s/chk-%d", w.Address(), job, last)
}

// tallyRow shows a row of zz-tally or zz-pair without the end of its window.
func tallyRow(t *testing.T, row string) string {
	t.Helper()
	var r struct {
		Key    any
		N0, N1 *int
	}
	if err := json.Unmarshal([]byte(row), &r); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprint(r.Key, " ", *r.N0)
	if r.N1 != nil {
		text += fmt.Sprint(" ", *r.N1)
	}
	return text
}

func TestRecordsThatAStepKeptAreReadBehindIt(t *testing.T) {
	tests := []struct {
		name  string
		steps string
		in    []string
		want  []string
	}{
		{"a field that the step does not know", "[{dedup: {by: [a], keep: last, emit: on_close}}, {filter: b > 1}, {set: {c: b * 2}}]",
			[]string{`{"a":1,"b":1}`, `{"a":2,"b":5}`, `{"a":1, "b":2}`, `{"a":2,"b":1}`}, []string{`{"a":1, "b":2,"c":4}`}},
		{"a decimal that was made before it", "[{set: {d: 'decimal(\"1.10\") * b'}}, {dedup: {by: [a], keep: last, emit: on_close}}, {set: {e: 'd + decimal(\"0.05\")'}}, {drop: [b]}]",
			[]string{`{"a":1,"b":1}`, `{"a":1,"b":2}`}, []string{`{"a":1,"d":2.20,"e":2.25}`}},
		{"records that go through as they came", "[{dedup: {by: [a]}}, {set: {c: b * 2}}]",
			[]string{`{"a":1, "b":1}`, `{"a":1,"b":2}`}, []string{`{"a":1, "b":1,"c":2}`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, err := through(t, "transforms: "+tt.steps+"\n"+toOut, values(tt.in...)...)
				if err != nil {
					t.Fatal(err)
				}
				equal(t, sorted(w.Target("out").Values()), tt.want)
			})
		})
	}
}
