package pipeline_test

import (
	"fmt"
	"maps"
	"testing"
	"testing/synctest"

	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
)

// TestRunningResultsUpsertToTheRightTable checks counts over a table that changes,
// as a reader of the compacted topic would see them.
func TestRunningResultsUpsertToTheRightTable(t *testing.T) {
	var in []string
	table := map[int]string{}
	country := func(i int) string { return []string{"de", "fr", "it"}[i%3] }
	row := func(id int, c string) string { return fmt.Sprintf(`{"id":%d,"country":"%s"}`, id, c) }
	for i := range 300 {
		id, c := i*7%40, country(i*i%7)
		switch old, there := table[id]; {
		case there && i%5 == 0:
			in = append(in, envelope("d", row(id, old), ""))
			delete(table, id)
		case there:
			in = append(in, envelope("u", row(id, old), row(id, c)))
			table[id] = c
		default:
			in = append(in, envelope("c", "", row(id, c)))
			table[id] = c
		}
	}
	want := map[string]string{}
	counts := map[string]int{}
	for _, c := range table {
		counts[c]++
	}
	for c, n := range counts {
		want[c] = fmt.Sprintf(`{"country":"%s","n":%d}`, c, n)
	}
	for _, parallelism := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			w := pipelinetest.New(t, fmt.Sprintf(`
pipeline: countries
parallelism: %d
source: {feed: {name: FEED-in, format: {debezium: {key: id}}}, schema: {id: int, country: string}}
transforms:
  - name: n
    aggregate: {by: [country], select: {n: count()}}
sink: {collect: {name: TARGET-out, changes: upserts, key: country}}
checkpoint: {storage: STORAGE, interval: 1s}
restart: none
`, parallelism))
			w.Feed("in", 1).Append(0, in...)
			w.Feed("in", 1).End()
			if _, err := w.Run(); err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, r := range w.Target("out").Rows() {
				if got[r.Key] = r.Value; r.Tombstone {
					delete(got, r.Key)
				}
			}
			if !maps.Equal(got, want) {
				t.Errorf("parallelism %d: got %v, want %v", parallelism, got, want)
			}
		})
	}
}
