//go:build integration

package soak

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// churn makes up records whose keys come and go, eight seconds of event time in one
// of the clock's. All steps forget within 25 s of event time.
const churn = `pipeline: churn
source:
  generate: {kind: sequence, rate: 500, partitions: 4}
  timestamp: seq * 16
  watermark: {delay: 1s, max_drift: 2s}
transforms:
  - {name: running, from: source, aggregate: {by: {k: int(seq / 4)}, select: {n: count(), who: count_distinct(partition)}, ttl: 20s}}
  - {name: once, from: source, dedup: {by: [seq], within: 20s}}
  - {name: last, from: source, dedup: {by: {k: int(seq / 4)}, keep: last, within: 20s, emit: on_close}}
  - {name: sessions, from: source, aggregate: {by: {k: int(seq / 4)}, window: {session: {gap: 20s}}, select: {n: count()}}}
  - {name: sliding, from: source, aggregate: {by: {k: int(seq / 4)}, window: {sliding: {size: 20s, every: 5s}}, select: {n: count()}}}
  - {name: fold, from: source, reduce: {by: {k: int(seq / 4)}, init: {n: 0}, update: {n: state.n + 1}, ttl: 20s}}
  - {name: pairs, join: {left: source, right: source, on: left.seq == right.seq, ttl: 20s, type: left, select: {a: left.seq, b: right.seq}}}
  - {name: newest, join: {left: source, right: source, on: left.seq == right.seq, latest: true, ttl: 20s, select: {a: left.seq, b: right.seq}}}
  - {name: near, join: {left: source, right: source, on: left.seq == right.seq, within: {before: 10s, after: 10s}, select: {a: left.seq, b: right.seq}}}
sink: {from: [running, once, last, sessions, sliding, fold, pairs, newest, near], blackhole: {}}
checkpoint: {storage: "file://%[1]s/checkpoints", interval: 250ms, state: {backend: %[2]s%[3]s}}
restart: none
`

// room is what a process takes up, in bytes.
type room struct{ memory, checkpoints, state int64 }

func (r *room) add(o room) {
	r.memory, r.checkpoints, r.state = r.memory+o.memory, r.checkpoints+o.checkpoints, r.state+o.state
}

func (r room) over(n int64) room { return room{r.memory / n, r.checkpoints / n, r.state / n} }

func (r room) String() string {
	return fmt.Sprintf("%d KiB of memory, %d of checkpoints, %d of state on disk", r.memory>>10, r.checkpoints>>10, r.state>>10)
}

// TestSoakStateOfKeysThatAreGoneGoes compares what a process takes up in the
// middle of its life with what it takes up at the end of it: keys are new all the
// time, and a few times as many as there are at once are gone by then.
func TestSoakStateOfKeysThatAreGoneGoes(t *testing.T) {
	for _, backend := range []string{"memory", "disk"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			j := &job{name: "churn", dir: t.TempDir()}
			j.file = filepath.Join(j.dir, "pipeline.yaml")
			settings := ""
			if backend == "disk" {
				settings = fmt.Sprintf(", dir: %q, memory: 64MiB", filepath.Join(j.dir, "state"))
			}
			if err := os.WriteFile(j.file, fmt.Appendf(nil, churn, j.dir, backend, settings), 0o644); err != nil {
				t.Fatal(err)
			}
			p := j.start(t)
			warm, middle, end := churnCheckpoints/3, 2*churnCheckpoints/3, churnCheckpoints
			j.roomUntil(t, p, warm)
			before := j.roomUntil(t, p, middle)
			after := j.roomUntil(t, p, end)
			p.signal(syscall.SIGTERM)
			p.wait(patience, 0)
			t.Logf("in the middle %v; at the end %v", before, after)
			grown := func(what string, before, after, slack int64) {
				if after > before+before/4+slack {
					t.Errorf("%s grew from %d to %d bytes", what, before, after)
				}
			}
			grown("memory", before.memory, after.memory, 16<<20)
			slack := int64(1 << 20)
			if backend == "disk" {
				// Small files pile up for some hundred checkpoints before they are merged.
				slack = 8 << 20
			}
			grown("checkpoints", before.checkpoints, after.checkpoints, slack)
			grown("state on disk", before.state, after.state, slack)
		})
	}
}

// roomUntil is what the process takes up on average until it completes the checkpoint of a number.
func (j *job) roomUntil(t *testing.T, p *process, number int) room {
	t.Helper()
	var sum room
	n := int64(0)
	p.until(patience+time.Duration(number)*time.Second, "checkpoint "+strconv.Itoa(number), func() bool {
		sum.add(room{memory: p.memory(t), checkpoints: size(t, filepath.Join(j.dir, "checkpoints")), state: size(t, filepath.Join(j.dir, "state"))})
		n++
		return j.newestCheckpoint(t) >= number
	})
	return sum.over(n)
}

// memory is what of the process is in memory now; 0 once it has ended.
func (p *process) memory(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(text, []byte("VmRSS:"))
	fields := bytes.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kib, err := strconv.ParseInt(string(fields[0]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// size is how much the files below a folder hold, while some come and go.
func size(t *testing.T, dir string) int64 {
	t.Helper()
	total := int64(0)
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil //nolint:nilerr // it is gone by now
		}
		if info, err := d.Info(); err == nil {
			total += info.Size()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return total
}
