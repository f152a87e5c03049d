//go:build integration

package soak

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// nexmarkQuery is one of the pipelines of pipelines/nexmark.
type nexmarkQuery struct {
	name  string
	kinds []string // of events that it reads
	topic bool     // the result is kept up to date in a topic, not appended to files
	both  bool     // with both backends also in the short run
}

var nexmarkQueries = []nexmarkQuery{
	{name: "q0", kinds: []string{"bid"}},
	{name: "q1", kinds: []string{"bid"}},
	{name: "q2", kinds: []string{"bid"}},
	{name: "q3", kinds: []string{"auction", "person"}, both: true},
	{name: "q5", kinds: []string{"bid"}, both: true},
	{name: "q7", kinds: []string{"bid"}},
	{name: "q8", kinds: []string{"auction", "person"}},
	{name: "q11", kinds: []string{"bid"}, both: true},
	{name: "q12", kinds: []string{"bid"}},
	{name: "q13", kinds: []string{"bid"}},
	{name: "q14", kinds: []string{"bid"}},
	{name: "q17", kinds: []string{"bid"}},
	{name: "q19", kinds: []string{"bid"}, topic: true, both: true},
	{name: "q22", kinds: []string{"bid"}},
}

func nexmarkNamed(name string) nexmarkQuery {
	return nexmarkQueries[slices.IndexFunc(nexmarkQueries, func(q nexmarkQuery) bool { return q.name == name })]
}

// nexmarkPatience is for a dozen processes at once on a small machine.
const nexmarkPatience = 4 * time.Minute

// nexmarkJob is a query with a backend, over all the lives of its process.
type nexmarkJob struct {
	job
	query   nexmarkQuery
	backend string
	events  *events
	life    *process
	due     killing
}

func newNexmarkJob(t *testing.T, q nexmarkQuery, backend string, e *events) *nexmarkJob {
	t.Helper()
	n := &nexmarkJob{query: q, backend: backend, events: e, job: job{
		name: "nexmark-" + q.name, dir: t.TempDir(), file: filepath.Join(nexmarkDir, q.name+".yaml"),
	}}
	n.out = filepath.Join(n.dir, "out")
	if q.topic {
		n.out = e.prefix + q.name + "-" + backend
		createTopic(t, n.out)
	}
	return n
}

func (n *nexmarkJob) String() string { return n.query.name + " in " + n.backend }

// begin starts a process at a parallelism. It must not fail, so nothing is restarted.
func (n *nexmarkJob) begin(t *testing.T, parallelism int, args ...string) {
	t.Helper()
	all := []string{
		"KAFKA_BROKERS=" + strings.Join(brokers(t), ","), "OUT_DIR=" + n.out, "OUT_TOPIC=" + n.out,
		"CHECKPOINT_DIR=" + filepath.Join(n.dir, "checkpoints"), "SIDE_INPUT=" + filepath.Join(nexmarkDir, "side_input.jsonl"),
		"--set=parallelism=" + strconv.Itoa(parallelism), "--set=checkpoint.interval=50ms", "--set=restart=none",
		"--set=checkpoint.state.backend=" + n.backend,
	}
	if n.backend == "disk" {
		all = append(all, "--set=checkpoint.state.dir="+filepath.Join(n.dir, "state"), "--set=checkpoint.state.memory=16MiB")
	}
	if n.query.topic {
		// Two pipelines of one name stay apart in the broker.
		all = append(all, "--set=sink.kafka.transactional_id_prefix="+n.out)
	}
	for _, kind := range n.query.kinds {
		source := "source"
		if len(n.query.kinds) > 1 {
			source = "sources." + kind
		}
		all = append(all, fmt.Sprintf("--set=%s.kafka.topics=[%s%s]", source, n.events.prefix, kind),
			fmt.Sprintf("--set=%s.kafka.until=%s", source, n.events.ends(kind)))
	}
	n.life = n.start(t, append(all, args...)...)
}

// verify compares what an independent reader finds with the reference.
func (n *nexmarkJob) verify(t *testing.T) {
	t.Helper()
	var got [][]byte
	if n.query.topic {
		got = latest(t, n.out)
	} else {
		got = readLinesBelow(t, filepath.Join(n.out, n.query.name))
	}
	n.compare(t, got)
}

func (n *nexmarkJob) compare(t *testing.T, got [][]byte) {
	t.Helper()
	want := readGzip(t, filepath.Join(nexmarkDir, "testdata", "expected", n.query.name+".jsonl.gz"))
	if err := sameRows(got, want); err != nil {
		t.Errorf("%v, after %d lives: %v", n, n.lives, err)
	}
}

// killing is when a process is killed: a time after its start, or after so many
// checkpoints of its own.
type killing struct {
	checkpoint int // wait for the one of this number; 0 not to
	delay      time.Duration
	at         time.Time // zero until the checkpoint is there
	dead       bool
}

// doom chooses when the process that has just begun is killed: one of four while it starts.
func (n *nexmarkJob) doom(t *testing.T, rng *rand.Rand) {
	if rng.IntN(4) == 0 {
		n.due = killing{at: time.Now().Add(time.Duration(rng.Int64N(int64(500 * time.Millisecond))))}
		return
	}
	n.due = killing{checkpoint: n.newestCheckpoint(t) + 2 + rng.IntN(6), delay: time.Duration(rng.Int64N(int64(60 * time.Millisecond)))}
}

// reap kills the process if its time has come, and reports whether it is dead.
func (n *nexmarkJob) reap(t *testing.T) bool {
	t.Helper()
	if n.due.dead {
		return true
	}
	if n.due.at.IsZero() && n.newestCheckpoint(t) >= n.due.checkpoint {
		n.due.at = time.Now().Add(n.due.delay)
	}
	select {
	case <-n.life.exited:
		t.Fatalf("%v: life %d ended by itself with exit code %d\n%s", n, n.lives, n.life.code, n.life.tail())
	default:
	}
	if n.due.at.IsZero() || time.Now().Before(n.due.at) {
		return false
	}
	n.life.signal(syscall.SIGKILL)
	<-n.life.exited
	if n.life.code != killed {
		t.Fatalf("%v: life %d ended by itself with exit code %d\n%s", n, n.lives, n.life.code, n.life.tail())
	}
	n.due.dead = true
	return true
}

// TestSoakNexmarkOverRandomKills runs all queries at once over the same topics,
// each in its own process, at another parallelism in each of its lives. Input
// comes while they run; every process dies in every round.
func TestSoakNexmarkOverRandomKills(t *testing.T) {
	rng := random(t)
	e := newEvents(t, "nexmark-"+strconv.FormatInt(time.Now().UnixNano(), 36)+"-")
	var jobs []*nexmarkJob
	for i, q := range nexmarkQueries {
		for b, backend := range []string{"memory", "disk"} {
			if q.both || nexmarkBoth || i%2 == b {
				jobs = append(jobs, newNexmarkJob(t, q, backend, e))
			}
		}
	}
	began := time.Now()
	for round := range nexmarkKills {
		for _, n := range jobs {
			n.begin(t, 1<<rng.IntN(3))
			n.doom(t, rng)
		}
		killAll(t, e, jobs, round)
	}
	e.send(t, 1)
	for _, n := range jobs {
		n.begin(t, 1<<rng.IntN(3))
	}
	for _, n := range jobs {
		n.life.wait(nexmarkPatience, 0)
		n.verify(t)
	}
	t.Logf("%d queries and backends, %d kills each, in %v", len(jobs), nexmarkKills, time.Since(began).Round(time.Second))
}

// killAll writes the events of a round in small pieces, beginning when all
// processes are at work, until all of those are dead.
func killAll(t *testing.T, e *events, jobs []*nexmarkJob, round int) {
	t.Helper()
	const pieces = 40
	from, share := float64(round)/(nexmarkKills+1), 1/float64(nexmarkKills+1)
	piece, begun := 0, false
	eventually(t, nexmarkPatience, "every process was killed", func() bool {
		begun = begun || !slices.ContainsFunc(jobs, func(n *nexmarkJob) bool { return !n.due.dead && !n.life.begun() })
		if begun && piece < pieces {
			piece++
			e.send(t, from+share*float64(piece)/pieces)
		}
		all := true
		for _, n := range jobs {
			all = n.reap(t) && all
		}
		return all && piece == pieces
	})
}

// A process that is asked to stop leaves a checkpoint, from which the next goes
// on at another parallelism; and an older one is the beginning of a new job.
func TestNexmarkGoesOnFromAStopAndFromAnOlderCheckpointAtAnotherParallelism(t *testing.T) {
	e := newEvents(t, "nexmark-stop-"+strconv.FormatInt(time.Now().UnixNano(), 36)+"-")
	var jobs []*nexmarkJob
	for _, name := range []string{"q3", "q5", "q8", "q11", "q19"} {
		for _, backend := range []string{"memory", "disk"} {
			jobs = append(jobs, newNexmarkJob(t, nexmarkNamed(name), backend, e))
		}
	}
	older := make([]string, len(jobs))
	for phase, parallelism := range []int{4, 1, 2} {
		from := make([]int, len(jobs))
		for i, n := range jobs {
			from[i] = n.newestCheckpoint(t)
			// Each checkpoint begins new files, so that their names tell which one published them.
			n.begin(t, parallelism, n.keepAll()...)
		}
		e.send(t, []float64{0.35, 0.7, 1}[phase])
		for i, n := range jobs {
			if phase == 2 {
				n.life.wait(nexmarkPatience, 0)
				continue
			}
			n.life.until(nexmarkPatience, "a few checkpoints", func() bool { return n.newestCheckpoint(t) >= from[i]+6 })
			n.life.signal(syscall.SIGTERM)
			n.life.wait(nexmarkPatience, 0)
			found := n.checkpoints(t)
			older[i] = found[len(found)-3]
		}
	}
	for i, n := range jobs {
		n.verify(t)
		before := n.out
		if !n.query.topic {
			n.out = filepath.Join(n.dir, "again")
		}
		n.begin(t, 3, append(n.keepAll(), "-s", older[i])...)
		n.life.wait(nexmarkPatience, 0)
		if n.query.topic {
			n.verify(t)
			continue
		}
		got := readLinesUntil(t, filepath.Join(before, n.query.name), checkpointNumber(older[i]))
		n.compare(t, append(got, readLinesBelow(t, filepath.Join(n.out, n.query.name))...))
	}
}

// keepAll keeps all checkpoints, each with files of its own.
func (n *nexmarkJob) keepAll() []string {
	args := []string{"--set=checkpoint.retained=1000"}
	if !n.query.topic {
		args = append(args, "--set=sink.file.roll={age: 1ms}")
	}
	return args
}

// readLinesUntil gives the lines of the files that a checkpoint and those before it published.
func readLinesUntil(t *testing.T, dir string, checkpoint int) [][]byte {
	t.Helper()
	var out [][]byte
	for _, name := range visibleFiles(t, dir) {
		if fileOrder(t, name)[1] <= checkpoint {
			out = append(out, readFileLines(t, name)...)
		}
	}
	return out
}
