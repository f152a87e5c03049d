package accumulate

import (
	"encoding/hex"
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

var update = flag.Bool("update", false, "write the states of now into testdata")

// goldenRows are what the states in testdata are of.
func goldenRows(kind connectors.Kind, n int) []row {
	b := &connectors.Origin{Topic: "bids", Partition: 2}
	list := []row{
		{[2]connectors.Value{integer(3), integer(1)}, connectors.Record{Time: -7, Origin: b, Offset: 11}},
		{[2]connectors.Value{float(0.1), integer(9)}, connectors.Record{Time: 1_700_000_000_000, Origin: b, Offset: 12}},
		{[2]connectors.Value{dec("-12.50"), float(2.5)}, connectors.Record{Time: 1_700_000_000_000, Origin: b, Offset: 13}},
		{[2]connectors.Value{float(1e300), dec("1.0")}, connectors.Record{Time: 5}},
		{[2]connectors.Value{null(), null()}, connectors.Record{Time: 6}},
	}
	switch kind {
	case connectors.Int:
		list = nil
		for i := range n {
			list = append(list, row{[2]connectors.Value{integer(int64(i*i) - 5), integer(int64(i))}, connectors.Record{Time: int64(i), Origin: b, Offset: int64(i)}})
		}
	case connectors.String:
		list = []row{
			{[2]connectors.Value{text("pear"), text("b")}, connectors.Record{Time: 1, Origin: b, Offset: 1}},
			{[2]connectors.Value{text("äpple"), text("a")}, connectors.Record{Time: 2, Origin: b, Offset: 2}},
		}
	case connectors.Timestamp:
		list = rows(connectors.TimestampValue(time.Unix(1_700_000_000, 5).In(time.FixedZone("", 7200))))
		list[0].values[1] = list[0].values[0]
	case connectors.Float:
		list = rows(float(0.1), float(-12.5), float(3))
	case connectors.Decimal:
		list = rows(dec("1.10"), dec("-3"))
	case connectors.Duration:
		list = rows(connectors.DurationValue(time.Second), connectors.DurationValue(-3))
	default:
	}
	return list
}

// goldens are the states that testdata holds.
func goldens(t *testing.T) string {
	var out strings.Builder
	write := func(s subject, n int) {
		f := s.make(t)
		b := add(t, f, empty(f), goldenRows(s.in, n))
		fmt.Fprintf(&out, "%s\t%d\t%s\t%s\n", s.name(), n, hexed(b), result(f, b))
	}
	for _, s := range subjects() {
		if s.in == connectors.Absent && strings.HasPrefix(s.call, "stddev") {
			continue // the values beyond the window are not exact
		}
		write(s, 3)
	}
	for _, call := range []string{"min(x)", "first(x)", "arg_max(x, y)", "collect(x)"} {
		write(subject{call, connectors.Timestamp, Options{}}, 1)
	}
	for _, kind := range []connectors.Kind{connectors.Float, connectors.Decimal, connectors.Duration} {
		for _, call := range []string{"sum(x)", "avg(x)", "min(x)", "stddev(x)"} {
			if kind != connectors.Duration || call != "stddev(x)" {
				write(subject{call, kind, Options{}}, 1)
			}
		}
	}
	for _, call := range []string{"count_distinct(x)", "quantile(x, 0.3)", "approx_distinct(x)"} {
		write(subject{call, connectors.Int, Options{}}, 80)
	}
	write(subject{"max(x)", connectors.Int, Options{Updating: true}}, 30)
	return out.String()
}

// The states are in checkpoints: what was written once must be read for ever, and
// the same records must make the same state.
func TestStatesKeepTheirForm(t *testing.T) {
	const file = "testdata/states.txt"
	got := goldens(t)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	now, then := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	if len(now) != len(then) {
		t.Fatalf("there are %d states, and %d in %s", len(now), len(then), file)
	}
	for i := range then {
		if now[i] != then[i] {
			t.Errorf("got  %s\nwant %s", now[i], then[i])
		}
	}
}

func TestStatesOfCheckpointsAreRead(t *testing.T) {
	data, err := os.ReadFile("testdata/states.txt")
	if err != nil {
		t.Fatal(err)
	}
	made := map[string]Function{}
	for _, s := range subjects() {
		made[s.name()] = s.make(t)
	}
	for line := range strings.Lines(string(data)) {
		part := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		f := made[part[0]]
		if f == nil {
			continue
		}
		b, err := hex.DecodeString(part[2])
		if err != nil {
			t.Fatal(err)
		}
		if got := result(f, b); got != part[3] {
			t.Errorf("%s: got %s, want %s", part[0], got, part[3])
		}
	}
}

// FuzzStates gives functions states that they did not make: they may refuse them, and
// must not panic.
func FuzzStates(f *testing.F) {
	list := subjects()
	all := make([]Function, len(list))
	for i, s := range list {
		all[i] = s.make(f)
		b := add(f, all[i], empty(all[i]), goldenRows(s.in, 30))
		f.Add(uint8(i), b, b, int64(3))
	}
	f.Fuzz(func(t *testing.T, i uint8, b, other []byte, x int64) {
		fn := all[int(i)%len(all)]
		in := rows(integer(x))[0].input()
		in.Args[1] = float(math.Float64frombits(uint64(x)))
		var a connectors.Arena
		_, _ = fn.Result(b, &a)
		if got, err := fn.Add(append([]byte(nil), b...), in); err == nil {
			_, _ = fn.Result(got, &a)
			if fn.Retracts() {
				got, _ = fn.Retract(got, in)
				_, _ = fn.Result(got, &a)
			}
		}
		if got, err := fn.Merge(append([]byte(nil), b...), other); err == nil {
			_, _ = fn.Result(got, &a)
			_, _ = fn.Add(got, in)
		}
	})
}
