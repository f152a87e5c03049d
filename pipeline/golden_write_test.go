package pipeline_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/pipeline"
	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
	"github.com/sluice-etl/sluice/storage"
)

// The checkpoints in testdata/checkpoints/vN are what a version of the program has
// written. They are never written again: a version whose format differs writes another
// folder, by `go test ./pipeline -run TestWriteCheckpoints -write-checkpoints v2`.
var writeCheckpoints = flag.String("write-checkpoints", "", "write checkpoints into this new folder of testdata/checkpoints")

// keptSteps are steps whose results are final, each with a state of its own form.
var keptSteps = map[string]string{
	"tumbling":   "from: left, aggregate: {by: [k], window: {tumbling: 10s}, select: {n: count(), l: collect(v), d: count_distinct(v % 3), f: first(v), z: last(v)}, lateness: 500ms}",
	"sliding":    "from: left, aggregate: {by: [k], window: {sliding: {size: 9s, every: 3s}}, select: {n: count(), best: 'arg_max(v, v % 7)', worst: 'arg_min(v, v % 7)', lo: min(v), hi: max(v)}}",
	"sessions":   "from: left, aggregate: {by: [k], window: {session: {gap: 1500ms, max: 20s}}, select: {n: count(), s: sum(v)}, lateness: 1s}",
	"counted":    "from: left, aggregate: {by: [p], window: {count: 7}, select: {n: count(), s: sum(v)}}",
	"totals":     "from: left, aggregate: {by: [k], select: {n: count(), a: avg(v), sd: stddev(v), q: 'quantile(v, 0.5)', u: approx_distinct(v)}, emit: on_close, ttl: forever}",
	"firsts":     "from: left, map: {k: k, v: v % 20}",
	"unique":     "from: firsts, dedup: {by: [k, v]}",
	"lasts":      "from: left, dedup: {by: [k], keep: last, emit: on_close}",
	"best":       "from: left, top: {by: [k], n: 3, order: [{v: desc}], rank: r, emit: on_close}",
	"best-of":    "from: left, top: {by: [k], n: 2, order: [{v: desc}], window: {tumbling: 6s}}",
	"folded":     "from: left, reduce: {by: [k], init: {n: 0, s: 0}, update: {n: state.n + 1, s: state.s + v}, emit: on_close}",
	"joined":     "join: {left: left, right: right, on: left.k == right.k && left.v % 50 == right.v % 50, select: {a: left.v, b: right.v}, ttl: forever}",
	"windowed":   "join: {left: left, right: right, on: left.k == right.k, window: {tumbling: 3s}, type: full, select: {a: left.v, b: right.v}}",
	"within":     "join: {left: left, right: right, on: left.k == right.k, within: {before: 1s, after: 500ms}, type: left, select: {a: left.v, b: right.v}}",
	"latest":     "join: {left: left, right: right, on: left.k == right.k, latest: true, type: left, select: {a: left.v, b: right.v}}",
	"of-windows": "from: tumbling, aggregate: {by: {odd: k % 2}, window: {tumbling: 20s}, select: {n: sum(n), w: count()}}",
}

func keptDefinition(parallelism int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "pipeline: kept\nparallelism: %d\nmax_parallelism: 16\nsources:\n", parallelism)
	for _, name := range []string{"left", "right"} {
		fmt.Fprintf(&b, "  %[1]s: {feed: {name: FEED-%[1]s, batch: 9}, timestamp: t, watermark: {delay: 1s, idle_after: never}}\n", name)
	}
	b.WriteString("transforms:\n")
	names := slices.Sorted(maps.Keys(keptSteps))
	for _, name := range names {
		fmt.Fprintf(&b, "  - {name: %s, %s}\n", name, keptSteps[name])
	}
	b.WriteString("sinks:\n")
	for _, name := range names {
		fmt.Fprintf(&b, "  out-%[1]s: {from: %[1]s, collect: {name: TARGET-%[1]s}}\n", name)
	}
	b.WriteString("  out-files: {from: left, file: {path: \"OUT\", roll: {age: 1h}}}\n")
	b.WriteString("checkpoint: {storage: STORAGE, interval: 1s, retained: 2STATE}\nrestart: none\n")
	return b.String()
}

func TestWriteCheckpoints(t *testing.T) {
	if *writeCheckpoints == "" {
		return
	}
	dir := filepath.Join("testdata", "checkpoints", *writeCheckpoints)
	if _, err := os.Stat(dir); err == nil {
		t.Fatalf("%s is there: checkpoints that are kept are never written again, take another name", dir)
	}
	for _, c := range []struct {
		name, backend string
		parallelism   int
	}{{"memory", "in memory", 2}, {"disk", "on disk", 1}, {"savepoint", "on disk", 2}} {
		synctest.Test(t, func(t *testing.T) {
			writeKept(t, filepath.Join(dir, c.name), keptDefinition(c.parallelism), backends(t)[c.backend])
		})
	}
	writeKeptKafka(t, filepath.Join(dir, "kafka"))
}

// writeKept runs a pipeline over half of its input and some checkpoints, and keeps
// what is on its storage then, or a savepoint.
func writeKept(t *testing.T, dir, definition, state string) {
	k := &kept{dir: dir, yaml: definition, input: keptInput()}
	targets := append(slices.Sorted(maps.Keys(keptSteps)), "files")
	out := "mem://" + filepath.Base(dir) + "-kept-whole"
	w := world(t, k.yaml, out, state)
	feedOn(w, k.input)
	w.Feed("left", 3).End()
	w.Feed("right", 3).End()
	if _, err := w.Run(); err != nil {
		t.Fatal(err)
	}
	whole := published(t, w, targets, out)

	out = "mem://" + filepath.Base(dir) + "-kept-part"
	w = world(t, k.yaml, out, state)
	w.Options.Control = &pipeline.Control{}
	run := w.Start()
	n := len(k.input)
	for i := range 3 { // each with its checkpoint, but for the last
		feedOn(w, k.input[i*n/5:(i+1)*n/5])
		time.Sleep(time.Second - 50*time.Millisecond)
	}
	if filepath.Base(dir) == "savepoint" {
		keepSavepoint(t, w, dir)
	} else {
		copyOut(t, w.Storage(), "", filepath.Join(dir, "storage"))
	}
	run.Crash()
	before := published(t, w, targets, out)
	after := map[string][]string{}
	for _, name := range targets {
		var err error
		if after[name], err = without(whole[name], before[name]); err != nil {
			t.Fatalf("target %s: %v", name, err)
		}
	}
	k.write(t, after)
}

// keepSavepoint takes a savepoint.
func keepSavepoint(t *testing.T, w *pipelinetest.World, dir string) {
	t.Helper()
	to := "mem://kept-savepoints"
	if _, err := w.Options.Control.Savepoint(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	f, err := storage.Open(to)
	if err != nil {
		t.Fatal(err)
	}
	copyOut(t, f, "", filepath.Join(dir, "savepoints"))
}

func (k *kept) write(t *testing.T, after map[string][]string) {
	t.Helper()
	var input bytes.Buffer
	enc := json.NewEncoder(&input)
	for _, f := range k.input {
		if err := enc.Encode(f); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.MarshalIndent(after, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"pipeline.yaml": []byte(k.yaml), "input.jsonl": input.Bytes(), "after.json": append(text, '\n')} {
		if err := os.WriteFile(filepath.Join(k.dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// keptInput are records out of order, mixed, as a real stream has them.
func keptInput() []fed {
	r := rand.New(rand.NewPCG(5, 8))
	lists := make([][]feeding, 6)
	for i := range lists {
		now := r.Int64N(2000) - 5000
		for n := range 30 + r.IntN(10) {
			now += r.Int64N(900)
			value := fmt.Sprintf(`{"k":%d,"v":%d,"p":%d,"t":%d}`, r.IntN(5), 1000*i+n, i/2, now-r.Int64N(900))
			lists[i] = append(lists[i], feeding{[]string{"left", "right"}[i%2], i / 2, value})
		}
	}
	var out []fed
	for _, f := range mix(r, lists) {
		out = append(out, fed{Feed: f.feed, Partition: f.partition, Value: json.RawMessage(f.value)})
	}
	return out
}
