//go:build integration

package soak

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// nexmarkDir holds the pipelines, and below testdata the events and results.
var nexmarkDir = filepath.Join("..", "..", "..", "..", "pipelines", "nexmark")

// eventKeys are the kinds of events, each in a topic of its own, and the field
// that is the key of its messages.
var eventKeys = map[string]string{"person": "id", "auction": "id", "bid": "auction"}

// events are topics that all queries read, and what comes to stand in them.
type events struct {
	prefix string // of the topics' names
	client *kgo.Client
	all    map[string][]*kgo.Record
	sent   map[string]int
}

func newEvents(t *testing.T, prefix string) *events {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers(t)...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	e := &events{prefix: prefix, client: cl, all: map[string][]*kgo.Record{}, sent: map[string]int{}}
	javas := kgo.StickyKeyPartitioner(nil)
	for kind, key := range eventKeys {
		topic := prefix + kind
		createTopic(t, topic)
		partitioner := javas.ForTopic(topic)
		for _, line := range readGzip(t, filepath.Join(nexmarkDir, "testdata", "data", kind+".jsonl.gz")) {
			var fields map[string]json.RawMessage
			if err := json.Unmarshal(line, &fields); err != nil {
				t.Fatal(err)
			}
			r := &kgo.Record{Topic: topic, Key: fields[key], Value: line}
			r.Partition = int32(partitioner.Partition(r, partitions))
			e.all[kind] = append(e.all[kind], r)
		}
	}
	return e
}

// send writes all that is not written yet, up to a share of the whole.
func (e *events) send(t *testing.T, share float64) {
	t.Helper()
	var more []*kgo.Record
	for kind, all := range e.all {
		upTo := int(share * float64(len(all)))
		more = append(more, all[e.sent[kind]:upTo]...)
		e.sent[kind] = upTo
	}
	if err := e.client.ProduceSync(t.Context(), more...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// ends are the offsets behind the last event of a kind, as a block of a file.
func (e *events) ends(kind string) string {
	var count [partitions]int
	for _, r := range e.all[kind] {
		count[r.Partition]++
	}
	var ends []string
	for p, n := range count {
		ends = append(ends, fmt.Sprintf("%s%s/%d: %d", e.prefix, kind, p, n))
	}
	return "{offsets: {" + strings.Join(ends, ", ") + "}}"
}

func readGzip(t *testing.T, path string) [][]byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatalf("read %s: %v", path, err)
	}
	var out [][]byte
	lines := bufio.NewScanner(z)
	for lines.Scan() {
		out = append(out, bytes.Clone(lines.Bytes()))
	}
	if err := lines.Err(); err != nil {
		t.Fatalf("read %s: %v", path, err)
	}
	return out
}

// latest is the newest value of each key of a topic, committed records only.
func latest(t *testing.T, topic string) [][]byte {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers(t)...), kgo.ConsumeTopics(topic),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListCommittedOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	left := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	rows := map[string][]byte{}
	for len(left) > 0 {
		fetches := cl.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
			switch {
			case r.Attrs.IsControl():
			case r.Value == nil:
				delete(rows, string(r.Key))
			default:
				rows[string(r.Key)] = r.Value
			}
		})
	}
	return slices.Collect(maps.Values(rows))
}

// readLinesBelow gives the lines of all visible files of a folder.
func readLinesBelow(t *testing.T, dir string) [][]byte {
	t.Helper()
	var out [][]byte
	for _, name := range visibleFiles(t, dir) {
		out = append(out, readFileLines(t, name)...)
	}
	return out
}

func readFileLines(t *testing.T, name string) [][]byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var out [][]byte
	for line := range bytes.Lines(text) {
		out = append(out, bytes.TrimSuffix(line, []byte("\n")))
	}
	return out
}

// sameRows compares two multisets of JSON objects, numbers by value.
func sameRows(got, want [][]byte) error {
	count := map[string]int{}
	for _, line := range want {
		row, err := canonical(line)
		if err != nil {
			return err
		}
		count[row]++
	}
	for _, line := range got {
		row, err := canonical(line)
		if err != nil {
			return err
		}
		count[row]--
	}
	var missing, surplus []string
	for row, n := range count {
		for range n {
			missing = append(missing, row)
		}
		for range -n {
			surplus = append(surplus, row)
		}
	}
	if len(missing)+len(surplus) == 0 {
		return nil
	}
	slices.Sort(missing)
	slices.Sort(surplus)
	return fmt.Errorf("%d rows, want %d: %d missing such as %.3q, %d too many such as %.3q", len(got), len(want),
		len(missing), missing[:min(3, len(missing))], len(surplus), surplus[:min(3, len(surplus))])
}

// canonical writes equal rows with the same text.
func canonical(line []byte) (string, error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	var row map[string]any
	if err := d.Decode(&row); err != nil {
		return "", fmt.Errorf("row %q: %w", line, err)
	}
	for name, v := range row {
		n, ok := v.(json.Number)
		if !ok {
			continue
		}
		r, ok := new(big.Rat).SetString(n.String())
		if !ok {
			return "", fmt.Errorf("row %q: %s is no number", line, strconv.Quote(n.String()))
		}
		row[name] = []string{r.RatString()} // no text is equal to it
	}
	text, err := json.Marshal(row)
	return string(text), err
}

func TestRowsAreComparedAsAMultisetAndNumbersByValue(t *testing.T) {
	rows := func(lines ...string) (out [][]byte) {
		for _, l := range lines {
			out = append(out, []byte(l))
		}
		return out
	}
	for name, tc := range map[string]struct {
		got, want [][]byte
		same      bool
	}{
		"another order and other spellings": {rows(`{"b":"x","a":1.50}`, `{"a":2}`), rows(`{"a":2e0}`, `{"a":1.5,"b":"x"}`), true},
		"one is missing":                    {rows(`{"a":1}`), rows(`{"a":1}`, `{"a":1}`), false},
		"one is there twice":                {rows(`{"a":1}`, `{"a":1}`), rows(`{"a":1}`), false},
		"a text is no number":               {rows(`{"a":"1"}`), rows(`{"a":1}`), false},
		"the last digit of a large number":  {rows(`{"a":9007199254740993}`), rows(`{"a":9007199254740992}`), false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := sameRows(tc.got, tc.want); (err == nil) != tc.same {
				t.Errorf("got %v", err)
			}
		})
	}
}
