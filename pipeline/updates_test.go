package pipeline_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sluice-etl/sluice/connectors"
	_ "github.com/sluice-etl/sluice/connectors/postgres"
	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
	"github.com/sluice-etl/sluice/pipeline/spec"
)

const changesFrom = "pipeline: changes\nparallelism: 1\nsource: {feed: {name: FEED-in, format: {debezium: {key: id}}}}\n"

// changed runs envelopes through transforms and a sink, and returns its rows as
// "key value", or "key -" for a tombstone.
func changed(t *testing.T, rest string, envelopes ...string) ([]string, error) {
	t.Helper()
	var out []string
	var err error
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, changesFrom+rest+"checkpoint: {storage: STORAGE, interval: 1s}\nrestart: none\n")
		feed := w.Feed("in", 1)
		for _, e := range envelopes {
			feed.Add(0, pipelinetest.Record{Value: e, Null: e == ""})
		}
		feed.End()
		_, err = w.Run()
		for _, r := range w.Target("out").Rows() {
			value := r.Value
			if r.Tombstone {
				value = "-"
			}
			out = append(out, strings.TrimSpace(r.Key+" "+value))
		}
	})
	return out, err
}

// envelope is a change of a row from old to now.
func envelope(op, old, now string) string {
	null := func(s string) string {
		if s == "" {
			return "null"
		}
		return s
	}
	return fmt.Sprintf(`{"before":%s,"after":%s,"op":"%s"}`, null(old), null(now), op)
}

func TestSinksTakeUpdatingStreams(t *testing.T) {
	life := []string{
		envelope("c", "", `{"id":1,"n":1}`), envelope("u", `{"id":1,"n":1}`, `{"id":1,"n":5}`),
		envelope("u", `{"id":1,"n":5}`, `{"id":2,"n":7}`), envelope("d", `{"id":2,"n":7}`, ""), "",
	}
	tests := []struct {
		name, rest string
		want       []string
	}{
		{"a changelog has each row with its operation behind the other fields", "sink: {collect: {name: TARGET-out, changes: changelog}}\n", []string{
			`{"id":1,"n":1,"op":"insert"}`, `{"id":1,"n":1,"op":"update_before"}`, `{"id":1,"n":5,"op":"update_after"}`,
			`{"id":1,"n":5,"op":"update_before"}`, `{"id":2,"n":7,"op":"update_after"}`, `{"id":2,"n":7,"op":"delete"}`,
		}},
		{"a key makes new rows replace old ones, and tombstones of those that are gone", "sink: {collect: {name: TARGET-out, changes: upserts, key: string(id)}}\n", []string{
			`1 {"id":1,"n":1}`, `1 {"id":1,"n":5}`, `1 -`, `2 {"id":2,"n":7}`, `2 -`,
		}},
		{"a row that stops passing a filter is deleted, one that begins to is inserted", "transforms: [{filter: n < 5 || n > 6}]\nsink: {collect: {name: TARGET-out, changes: upserts, key: string(id)}}\n", []string{
			`1 {"id":1,"n":1}`, `1 -`, `2 {"id":2,"n":7}`, `2 -`,
		}},
		{"steps change both rows, and read the operation", "transforms: [{set: {n: n * 10, o: meta.op}}]\nsink: {collect: {name: TARGET-out}}\n", []string{
			`{"id":1,"n":10,"o":"insert"}`, `{"id":1,"n":10,"o":"update_before"}`, `{"id":1,"n":50,"o":"update_after"}`,
			`{"id":1,"n":50,"o":"update_before"}`, `{"id":2,"n":70,"o":"update_after"}`, `{"id":2,"n":70,"o":"delete"}`,
		}},
		{"operations and their order survive the way to another chain", `
transforms:
  - {name: a, set: {n: n + 1}}
  - {name: b, from: [a, source], map: {id: id, n: n}}
sink: {from: b, collect: {name: TARGET-out, changes: changelog}}
`, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := changed(t, tt.rest, life...)
			if err != nil {
				t.Fatal(err)
			}
			if tt.want != nil {
				equal(t, got, tt.want)
				return
			}
			if len(got) != 12 {
				t.Errorf("got %d rows: %s", len(got), got)
			}
			for i, row := range got {
				if strings.Contains(row, "update_after") && (i == 0 || !strings.Contains(got[i-1], "update_before")) {
					t.Errorf("row %d stands alone: %s", i, got)
				}
			}
		})
	}
}

func TestBatchesOfEnvelopesAreTakenApartInParts(t *testing.T) {
	var in, want []string
	for i := range 2500 {
		in = append(in, envelope("u", fmt.Sprintf(`{"id":%d,"n":0}`, i), fmt.Sprintf(`{"id":%d,"n":1}`, i)))
		want = append(want, fmt.Sprintf(`{"id":%d,"n":0}`, i), fmt.Sprintf(`{"id":%d,"n":1}`, i))
	}
	var got []string
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, strings.Replace(changesFrom, "FEED-in,", "FEED-in, batch: 1000,", 1)+
			"transforms: [{filter: id >= 0}]\nsink: {collect: {name: TARGET-out}}\ncheckpoint: {storage: STORAGE, interval: 1s}\nrestart: none\n")
		w.Feed("in", 1).Append(0, in...)
		w.Feed("in", 1).End()
		if _, err := w.Run(); err != nil {
			t.Fatal(err)
		}
		got = w.Target("out").Values()
	})
	equal(t, got, want)
}

func TestThrottledEnvelopesAreTakenOnceAcrossACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, changesFrom+"transforms: [{throttle: {records_per_second: 10}}]\nsink: {collect: {name: TARGET-out}}\n"+
			"checkpoint: {storage: STORAGE, interval: 1s}\nrestart: none\n")
		var want []string
		for i := range 40 {
			w.Feed("in", 1).Append(0, envelope("u", fmt.Sprintf(`{"id":%d,"n":0}`, i), fmt.Sprintf(`{"id":%d,"n":1}`, i)))
			want = append(want, fmt.Sprintf(`{"id":%d,"n":0}`, i), fmt.Sprintf(`{"id":%d,"n":1}`, i))
		}
		w.Feed("in", 1).End()
		p := w.Start()
		if err := w.Target("out").Await(t.Context(), 20); err != nil {
			t.Fatal(err)
		}
		p.Crash()
		if _, err := w.Run(); err != nil {
			t.Fatal(err)
		}
		equal(t, w.Target("out").Values(), want)
	})
}

func TestEnvelopesThatHoldNoRowGoToOnError(t *testing.T) {
	got, err := changed(t, "on_error: {dead_letter: bad}\nsinks: {out: {collect: {name: TARGET-out}}, bad: {collect: {name: TARGET-bad}}}\n",
		envelope("c", "", `{"id":1}`), `{"op":"t"}`, envelope("u", "", `{"id":1}`), envelope("d", `{"id":1}`, ""))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, got, []string{`{"id":1}`, `{"id":1}`})
	if _, err = changed(t, toOut, envelope("u", "", `{"id":1}`)); err == nil || !strings.Contains(err.Error(), "REPLICA IDENTITY FULL") {
		t.Error(err)
	}
}

func TestRowsThatAreRefusedAreRefusedOnce(t *testing.T) {
	got, err := changed(t, `
on_error: {dead_letter: bad}
transforms: [{set: {half: 10 / n}}]
sinks: {left: {collect: {name: TARGET-left}}, bad: {collect: {name: TARGET-out}}}
`, envelope("c", "", `{"id":1,"n":0}`), envelope("u", `{"id":1,"n":0}`, `{"id":1,"n":5}`), envelope("u", `{"id":1,"n":5}`, `{"id":1,"n":0}`), envelope("d", `{"id":1,"n":0}`, ""))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, got, []string{envelope("c", "", `{"id":1,"n":0}`), envelope("u", `{"id":1,"n":5}`, `{"id":1,"n":0}`)})
}

// faultsOf are the faults of a pipeline as they are printed.
func faultsOf(t *testing.T, text string) string {
	t.Helper()
	p, _ := spec.Parse("test.yaml", []byte(text), spec.Options{})
	if !p.Diagnostics().HasErrors() {
		pipeline.NewPlan(p)
	}
	var b strings.Builder
	if err := p.Diagnostics().Print(&b, false); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestUpdatingStreamsAreRefusedWhereTheyCannotBeTaken(t *testing.T) {
	tests := []struct{ name, rest, want string }{
		{"an append-only sink", "sink: {collect: {name: x, changes: append}}\n",
			"collect can only append, and the results of source source change after they were given out"},
		{"both ways out", "sink: {kafka: {brokers: ['b:1'], topic: t}}\n", "add changelog: true, which writes every change as a row with the operation in a field op; or add a key"},
		{"a table", "sink: {postgres: {url: '${DB:-postgres://h/db}', table: t}}\n", "help: set mode: upsert, by which a new row replaces the one of its key\n"},
		{"a table that is kept by key", "sink: {postgres: {url: '${DB:-postgres://h/db}', table: t, mode: upsert}}\n", ""},
		{"a step that counts each record", "transforms: [{unnest: {field: tags}}]\nsink: {collect: {name: x}}\n", "unnest cannot read an updating stream: the results of source source"},
		{"a field that is called op", "transforms: [{set: {op: 1}}]\nsink: {collect: {name: x, changes: changelog}}\n", "the records have a field of that name"},
		{"a key that is too coarse", "sink: {collect: {name: x, changes: upserts, key: string(part)}}\n", "rows are told apart by id, and the key does not read id"},
		{"a fine key", "sink: {collect: {name: x, changes: upserts, key: string(id)}}\n", ""},
		{"a key that changes move between subtasks", "transforms: [{name: t, top: {by: [part], n: 9, order: [n]}}]\nsink: {collect: {name: x, changes: upserts, key: string(id)}}\n",
			"rows come from the subtasks that own their part, which the key does not read"},
		{"one that has what they go by", "transforms: [{name: t, top: {by: [part], n: 9, order: [n]}}, {rename: {part: p}}]\nsink: {collect: {name: x, changes: upserts, key: 'string(id) + string(p)'}}\n", ""},
		{"a single subtask", "parallelism: 1\ntransforms: [{name: t, top: {by: [part], n: 9, order: [n]}}]\nsink: {collect: {name: x, changes: upserts, key: string(id)}}\n", ""},
		{"a join by a field that changes", "transforms: [{name: j, join: {left: source, right: source, on: left.boss == right.id, ttl: forever, select: {id: left.id, boss: right.id}}}]\nsink: {collect: {name: x, changes: upserts, key: string(id)}}\n",
			"rows come from the subtasks that own their boss, which the key does not read"},
		{"whole records of a join", "transforms: [{name: j, join: {left: source, right: source, on: left.boss == right.id, ttl: forever}}]\nsink: {collect: {name: x, changes: upserts, key: string(left.id)}}\n",
			"subtasks that own their left.boss, right.id,"},
		{"an aggregate behind it", "transforms: [{name: t, top: {by: [part], n: 9, order: [n]}}, {name: a, aggregate: {by: [id], select: {n: count()}}}]\nsink: {collect: {name: x, changes: upserts, key: string(id)}}\n", ""},
		{"a key of another name", "transforms: [{map: {nr: id, n: n}}]\nsink: {collect: {name: x, changes: upserts, key: string(nr)}}\n", ""},
		{"a changelog of an append-only stream", "source: {feed: {name: x}}\nsink: {collect: {name: x, changes: changelog}}\n", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			head := strings.Replace(changesFrom, "parallelism: 1\n", "", 1)
			if strings.HasPrefix(tt.rest, "source:") {
				head = "pipeline: changes\n"
			}
			got := faultsOf(t, head+tt.rest+"checkpoint: {storage: \"mem://x\"}\n")
			if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("got:\n%s\nwant %q", got, tt.want)
			}
		})
	}
}

func TestOperationsHaveTheWordsOfTheLanguage(t *testing.T) {
	var got []string
	for op := connectors.Insert; op <= connectors.Delete; op++ {
		got = append(got, op.String())
	}
	if !slices.Equal(got, []string{"insert", "update_before", "update_after", "delete"}) {
		t.Error(got)
	}
}
