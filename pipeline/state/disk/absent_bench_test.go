//go:build unix

package disk

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-etl/sluice/pipeline/state"
)

// cpu is what the process has used, in nanoseconds.
func cpu(b *testing.B) int64 {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// BenchmarkNewKeys is a join whose keys come once: each is looked for on the other
// side and added to its own, with a checkpoint after every 50,000.
func BenchmarkNewKeys(b *testing.B) {
	const keys, every = 300_000, 50_000
	for b.Loop() {
		c := newCounter(b, 16<<20)
		left, right := c.s.Table("left"), c.s.Table("right")
		row := make([]byte, 100)
		before := cpu(b)
		for i := range keys {
			k := state.MakeKey(keyOf(i).Bytes, 128)
			if i%2 == 1 {
				left, right = right, left
			}
			right.Get(0, k)
			left.Append(0, k, row)
			if i%every == every-1 {
				c.checkpoint(b, uint64(i))
			}
		}
		b.ReportMetric(float64(cpu(b)-before)/keys, "cpu-ns/record")
		if err := c.s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
