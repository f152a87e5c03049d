package pipeline_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestBranchesThatMeetKeepTheOrderOfChanges moves rows between branches and looks at the
// last thing that a sink was told of each key.
func TestBranchesThatMeetKeepTheOrderOfChanges(t *testing.T) {
	const out = "sink: {from: %s, collect: {name: TARGET-out, changes: upserts, key: string(id)}}\n"
	route := "{name: r, route: {odd: n % 2 == 1, else: even}}"
	for name, rest := range map[string]string{
		"branches of a route":         "transforms: [" + route + "]\n" + fmt.Sprintf(out, "[r.even, r.odd]"),
		"the other way round":         "transforms: [" + route + "]\n" + fmt.Sprintf(out, "[r.odd, r.even]"),
		"filters":                     "transforms: [{name: a, from: source, filter: n % 2 == 1}, {name: b, from: source, filter: n % 2 == 0}]\n" + fmt.Sprintf(out, "[b, a]"),
		"filters that overlap":        "transforms: [{name: a, from: source, filter: n % 2 == 1}, {name: b, from: source, filter: n >= 0}]\n" + fmt.Sprintf(out, "[b, a]"),
		"with a step behind them":     "transforms: [" + route + ", {name: u, from: [r.even, r.odd], filter: n >= 0}]\n" + fmt.Sprintf(out, "u"),
		"within another":              "transforms: [" + route + ", {name: q, from: r.odd, route: {one: n % 4 == 1, else: three}}, {name: u, from: [q.three, q.one], filter: n >= 0}]\n" + fmt.Sprintf(out, "[u, r.even]"),
		"changed on the way":          "transforms: [" + route + ", {name: a, from: r.even, set: {m: 0}}, {name: b, from: r.odd, set: {m: 1}}]\n" + fmt.Sprintf(out, "[a, b]"),
		"changed on the way, a union": "transforms: [" + route + ", {name: a, from: r.even, set: {m: 0}}, {name: b, from: r.odd, set: {m: 1}}, {name: u, from: [b, a], filter: m >= 0}]\n" + fmt.Sprintf(out, "u"),
		"behind a keyed step":         "transforms: [{name: t, top: {by: [id], n: 1, order: [n]}}, {name: r, route: {odd: n % 2 == 1, else: even}}]\n" + fmt.Sprintf(out, "[r.even, r.odd]"),
	} {
		t.Run(name, func(t *testing.T) {
			var in []string
			row := func(id, n int) string { return fmt.Sprintf(`{"id":%d,"n":%d}`, id, n) }
			for id := range 4 {
				in = append(in, envelope("c", "", row(id, 0)))
			}
			for n := range 7 {
				for id := range 4 {
					in = append(in, envelope("u", row(id, n), row(id, n+1)))
				}
			}
			in = append(in, envelope("d", row(3, 7), ""))
			got, err := changed(t, rest, in...)
			if err != nil {
				t.Fatal(err)
			}
			last := map[string]string{}
			for _, line := range got {
				key, value, _ := strings.Cut(line, " ")
				last[key] = value
			}
			for id := range 3 {
				if want := fmt.Sprintf(`"n":%d`, 7); !strings.Contains(last[fmt.Sprint(id)], want) {
					t.Errorf("of the key %d the last is %q", id, last[fmt.Sprint(id)])
				}
			}
			if last["3"] != "-" {
				t.Errorf("of a row that is gone the last is %q", last["3"])
			}
		})
	}
}

func TestPartsOfAnUpdatingStreamThatComeByDifferentWaysAreRefused(t *testing.T) {
	const head = "pipeline: changes\nsources: {a: {feed: {name: x, format: {debezium: {key: id}}}}, b: {feed: {name: y, format: debezium}}}\n"
	tests := []struct{ name, rest, want string }{
		{"one by a union", `
transforms:
  - {name: odd, from: a, filter: n % 2 == 1}
  - {name: even, from: a, filter: n % 2 == 0}
  - {name: more, from: [even, b], filter: n > 0}
sink: {from: [odd, more], blackhole: {}}
`, "odd and more both have changes of source a, and come by different ways"},
		{"two streams", `
transforms:
  - {name: odd, from: a, filter: n % 2 == 1}
  - {name: more, from: b, filter: n > 0}
sink: {from: [odd, more], blackhole: {}}
`, ""},
		{"what a step counted of one", `
transforms:
  - {name: n, from: a, aggregate: {by: [id], select: {n: count()}}}
sink: {from: [n, b, a], blackhole: {}}
`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := faultsOf(t, head+tt.rest+"checkpoint: {storage: \"mem://x\"}\n")
			if (strings.Contains(got, "error")) != (tt.want != "") || !strings.Contains(got, tt.want) {
				t.Errorf("got:\n%s\nwant %q", got, tt.want)
			}
		})
	}
}
