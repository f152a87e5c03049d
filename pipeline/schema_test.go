package pipeline_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
)

const typed = `
pipeline: typed
parallelism: 1
source:
  feed: {name: FEED-in}
  schema:
    id: int
    price: decimal
    at: timestamp
    note: string?
    tags?: [string]
    seller: {id: int, name: string?, since: timestamp?}
`

func runTyped(t *testing.T, rest string, in ...string) (out, bad []string, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, typed+rest+"checkpoint: {storage: STORAGE, interval: 1s}\nrestart: none\n")
		w.Feed("in", 1).Append(0, in...)
		w.Feed("in", 1).End()
		_, err = w.Run()
		out = w.Target("out").Values()
		for _, r := range w.Target("bad").Rows() {
			bad = append(bad, r.Headers["dead_letter.kind"]+": "+r.Headers["dead_letter.reason"]+" "+r.Value)
		}
	})
	return out, bad, err
}

func TestDeclaredFieldsHaveTheirTypes(t *testing.T) {
	const bid = `{"id":1,"price":1.10,"at":0,"seller":{"id":5,"since":"2024-01-01T00:00:00+02:00"},"more":1.50}`
	tests := []struct{ name, steps, want string }{
		{"what no step changes leaves as it came", "transforms: [{filter: id == 1}]\n", bid},
		{"a decimal is exact, and has its places", "transforms: [{map: {p: price + price}}]\n", `{"p":2.20}`},
		{"a time can be asked for its parts", "transforms: [{map: {a: at, s: seller.since}}]\n", `{"a":"1970-01-01T00:00:00Z","s":"2024-01-01T00:00:00+02:00"}`},
		{"types go over to other chains", `
transforms:
  - {name: a, set: {x: 1}}
  - {name: b, from: [a], filter: x == 1}
  - {name: c, from: source, filter: id == 2}
  - {name: u, from: [b, c], map: {p: price + price, a: at, s: seller.since, i: seller.id}}
`, `{"p":2.20,"a":"1970-01-01T00:00:00Z","s":"2024-01-01T00:00:00+02:00","i":5}`},
		{"types go over to a keyed step", "transforms: [{name: s, aggregate: {by: [id], select: {p: sum(price), a: max(at), s: last(seller.since)}}}]\n",
			`{"id":1,"p":1.10,"a":"1970-01-01T00:00:00Z","s":"2024-01-01T00:00:00+02:00"}`},
		{"and behind one that gives records on", "transforms: [{name: d, dedup: {by: [id]}}, {map: {p: price + price, a: at, s: seller.since}}]\n",
			`{"p":2.20,"a":"1970-01-01T00:00:00Z","s":"2024-01-01T00:00:00+02:00"}`},
		{"and one that keeps records", "transforms: [{name: d, dedup: {by: [id], keep: last, emit: on_close}}, {map: {p: price + price, a: at, s: seller.since}}]\n",
			`{"p":2.20,"a":"1970-01-01T00:00:00Z","s":"2024-01-01T00:00:00+02:00"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out, _, err := runTyped(t, tt.steps+toOut, bid)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, out, []string{tt.want})
		})
	}
}

func TestRecordsThatViolateTheSchemaGoToOnError(t *testing.T) {
	good := `{"id":1,"price":"1.10","at":"2024-01-01T00:00:00Z","seller":{"id":5}}`
	in := []string{good, `{"id":"1","price":1,"at":0,"seller":{"id":5}}`, `{"id":1,"price":1,"seller":{"id":5}}`, good, `[]`, `{"id":`}
	out, bad, err := runTyped(t, "on_error: {dead_letter: bad}\nsinks: {out: {collect: {name: TARGET-out}}, bad: {collect: {name: TARGET-bad}}}\n", in...)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, out, []string{good, good})
	equal(t, sorted(bad), sorted([]string{
		"schema: field id is string, and the schema has int " + in[1],
		"schema: field at is missing: declare it as timestamp? if it may be " + in[2],
		"schema: the value is no object, and the schema has fields []",
		`decode: invalid value at byte 6: the value ends too early {"id":`,
	}))
	if _, _, err = runTyped(t, toOut, in[2]); err == nil || !strings.Contains(err.Error(), "field at is missing") {
		t.Error(err)
	}
}

func TestWrongNamesAndTypesAreFaultsAtLoad(t *testing.T) {
	tests := []struct{ name, rest, want string }{
		{"an unknown field", "transforms: [{filter: prise > 1}]\n", `unknown field "prise"`},
		{"with the nearest name", "transforms: [{filter: prise > 1}]\n", `did you mean "price"?`},
		{"or all of them", "transforms: [{filter: zzzzzz == 1}]\n", "there are id, price, at, note, tags, seller"},
		{"an unknown field in a map", "transforms: [{filter: seller.naem == note}]\n", `seller has no field "naem"`},
		{"a field of what is no map", "transforms: [{filter: id.x == 1}]\n", "id is int and has no field `x`"},
		{"a condition that is none", "transforms: [{filter: note}]\n", "a condition must be a bool, and note is string or null"},
		{"arithmetic on text", "transforms: [{set: {x: seller.name + 1}}]\n", "seller.name"},
		{"drop of an unknown field", "transforms: [{drop: [nte]}]\n", `did you mean "note"?`},
		{"keep of an unknown field", "transforms: [{keep: [id, nte]}]\n", `did you mean "note"?`},
		{"rename of an unknown field", "transforms: [{rename: {nte: x}}]\n", `did you mean "note"?`},
		{"unnest of no list", "transforms: [{unnest: {field: note}}]\n", "note is string or null, and only a list can be taken apart"},
		{"after keep", "transforms: [{keep: [id, note]}, {filter: price > 1}]\n", "unknown field \"price\""},
		{"after drop", "transforms: [{drop: [price]}, {filter: price > 1}]\n", "is not there any more"},
		{"after map", "transforms: [{map: {n: id + 1}}, {filter: id > 1}]\n", `unknown field "id"`},
		{"types of map", "transforms: [{map: {n: id + 1}}, {filter: n}]\n", "n is int"},
		{"types of rename", "transforms: [{rename: {id: nr}}, {filter: nr}]\n", "nr is int"},
		{"types inside a renamed map", "transforms: [{rename: {seller: s}}, {filter: s.naem == note}]\n", `s has no field "naem"`},
		{"types of unnest", "transforms: [{unnest: {field: tags, as: tag}}, {filter: tag}]\n", "tag is string"},
		{"over a union", "transforms:\n  - {name: a, filter: id > 1}\n  - {name: b, from: source, set: {x: 1}}\n  - {name: u, from: [a, b], filter: prise > 1}\n", `did you mean "price"?`},
		{"types over a union", "transforms:\n  - {name: a, set: {x: '\"a\"'}}\n  - {name: b, from: source, set: {x: 1}}\n  - {name: u, from: [a, b], filter: x}\n", "x is int or string"},
		{"types of an aggregate", "transforms: [{name: s, aggregate: {by: [id], select: {n: count()}}}, {filter: n}]\n", "n is int"},
		{"behind an aggregate", "transforms: [{name: s, aggregate: {by: [id], select: {n: count()}}}, {filter: price > 1}]\n", `unknown field "price"`},
		{"within an aggregate", "transforms: [{name: s, aggregate: {by: [id], select: {n: sum(prise)}}}]\n", `did you mean "price"?`},
		{"in the keys of an aggregate", "transforms: [{name: s, aggregate: {by: [idd], select: {n: count()}}}]\n", `did you mean "id"?`},
		{"of the side of a join", "transforms: [{name: j, join: {left: source, right: source, on: left.id == right.idd, ttl: 1h}}]\n", `did you mean`},
		{"of a sink", "sink: {collect: {name: x, key: nte}}\n", `did you mean "note"?`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := typed + tt.rest + "checkpoint: {storage: \"mem://x\"}\n"
			if !strings.Contains(tt.rest, "sink:") {
				text += "sink: {collect: {name: x}}\n"
			}
			got := faultsOf(t, text)
			if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("got:\n%s\nwant %q", got, tt.want)
			}
		})
	}
}
