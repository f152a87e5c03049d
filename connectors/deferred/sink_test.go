package deferred

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/connectortest"
	"github.com/sluice-etl/sluice/connectors/deferred/deferredtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSinkContract(t *testing.T) {
	connectortest.TestSink(t, func(*testing.T) connectortest.Sink {
		target := &table{}
		return connectortest.Sink{
			New:     func() (connectors.Sink, error) { return target.sink(), nil },
			Read:    func(context.Context) ([]string, error) { return target.read(), nil },
			Ordered: true,
		}
	})
}

func TestSinkChaos(t *testing.T) {
	connectortest.TestSinkChaos(t, 20, func(_ *testing.T, seed uint64) connectortest.Chaos {
		target := &table{}
		r := rand.New(rand.NewPCG(seed, 7))
		var on atomic.Bool
		return connectortest.Chaos{
			Sink: connectortest.Sink{
				New: func() (connectors.Sink, error) {
					m := &memory{table: target}
					m.apply = func(Commit) {
						target.mu.Lock()
						defer target.mu.Unlock()
						target.down, target.lost = nil, 0
						switch {
						case !on.Load():
						case r.IntN(4) == 0:
							target.lost = 1
						}
					}
					return NewSink(m, Options{Kind: "memory"}), nil
				},
				Read: func(context.Context) ([]string, error) { return target.read(), nil },
			},
			Faults: on.Store,
		}
	})
}

// run is one process over a table, of one subtask or more.
type run struct {
	t       *testing.T
	sink    *Sink
	files   *connectortest.Files
	writers []connectors.Writer
	id      connectors.CheckpointID
}

func start(t *testing.T, sink *Sink, files *connectortest.Files, generation uint64, change func(*connectors.SinkEnv), restored ...connectors.Committable) *run {
	t.Helper()
	env := connectors.SinkEnv{
		Pipeline: "p", Name: "s", Subtasks: 1, Budget: 16 << 20, OnError: connectors.RowDeadLetter,
		Generation: func() uint64 { return generation }, Restored: func() connectors.CheckpointFiles { return files },
	}
	if change != nil {
		change(&env)
	}
	r := &run{t: t, sink: sink, files: files, id: connectors.CheckpointID{Generation: generation}}
	r.must(sink.Open(t.Context(), env))
	t.Cleanup(func() { r.stop() })
	r.commit(restored, true)
	for i := range env.Subtasks {
		w, err := sink.Writer(i)
		r.must(err)
		r.writers = append(r.writers, w)
	}
	r.must(sink.Start(t.Context(), connectors.Restored{Files: files}))
	return r
}

func (r *run) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *run) stop() {
	for _, w := range r.writers {
		r.must(w.Close())
	}
	r.writers = nil
	r.must(r.sink.Close())
}

// write writes rows of topic in, partition 1, at offsets from 0 on.
func (r *run) write(subtask int, values ...string) error {
	b := new(connectors.Batch)
	b.Size(len(values), 0)
	rows := &connectors.Rows{Batch: b, Layout: &connectors.Layout{}}
	for i, v := range values {
		b.Records[i] = connectors.Record{
			Value: []byte("raw " + v), Key: []byte("k"), Origin: &connectors.Origin{Topic: "in", Partition: 1}, Offset: int64(i), Time: 5,
			Headers: []connectors.Header{{Key: "h", Value: nil}, {Key: "h", Value: []byte{}}},
		}
		rows.Sel, rows.Values = append(rows.Sel, uint16(i)), append(rows.Values, []byte(v))
	}
	return r.writers[subtask].Write(r.t.Context(), rows)
}

// barrier begins the next checkpoint. What it returns prepares it.
func (r *run) barrier() (prepare func() []connectors.Committable) {
	r.t.Helper()
	r.id.Number++
	var prepares []connectors.Prepare
	for _, w := range r.writers {
		p, err := w.Barrier(r.t.Context(), connectors.Barrier{ID: r.id})
		r.must(err)
		prepares = append(prepares, p)
	}
	return func() (out []connectors.Committable) {
		r.t.Helper()
		for _, p := range prepares {
			got, err := p(r.t.Context(), r.files)
			r.must(err)
			out = append(out, got.Committables...)
		}
		return out
	}
}

// prepare takes the next checkpoint up to its committables.
func (r *run) prepare() []connectors.Committable {
	r.t.Helper()
	return r.barrier()()
}

func (r *run) commit(coms []connectors.Committable, restored bool) {
	r.t.Helper()
	for _, c := range coms {
		r.must(r.sink.Committer().Commit(r.t.Context(), c, restored))
	}
	r.sink.Committer().Done(r.id)
}

// tick gives the rows that a tick hands over.
func (r *run) tick() []connectors.Rejected {
	r.t.Helper()
	err := r.writers[0].Tick(r.t.Context(), time.Now())
	var rejected *connectors.RejectedError
	if errors.As(err, &rejected) {
		return rejected.Rows
	}
	r.must(err)
	return nil
}

func TestRowsThatTheTargetCannotTakeAreNamed(t *testing.T) {
	target := &table{}
	r := start(t, target.sink(), &connectortest.Files{}, 1, nil)
	err := r.write(0, "a", "bad", "skip", "b", "bad")
	var refused *connectors.RowsError
	if !errors.As(err, &refused) || len(refused.Rows) != 2 || refused.Rows[0].Row != 1 || refused.Rows[1].Row != 4 || refused.Rows[0].Kind != "type" {
		t.Fatalf("error %v", err)
	}
	r.commit(r.prepare(), false)
	if got := target.read(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("rows %q", got)
	}
}

func TestRowsOfFailedCheckpointsComeWithTheNextUnderTheirOwnNumber(t *testing.T) {
	target, files := &table{}, &connectortest.Files{}
	r := start(t, target.sink(), files, 1, func(e *connectors.SinkEnv) { e.Subtasks = 2 })
	r.must(r.write(0, "a"))
	r.must(r.write(1, "b"))
	first := r.prepare()
	files.Retain(nil) // the checkpoint failed
	r.must(r.write(1, "c"))
	second := r.prepare()
	if len(first) != 1 || len(second) != 2 || second[0].Checkpoint != first[0].Checkpoint || second[1].Checkpoint.Number != 2 {
		t.Fatalf("committables %+v, then %+v", first, second)
	}
	// Another process publishes them, from the files alone.
	next := target.sink()
	n := start(t, next, files, 2, nil)
	n.id.Number = 2
	n.commit(second, true)
	if got := target.read(); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("rows %q", got)
	}
	if c := n.prepare(); len(c) != 1 || !c[0].Empty {
		t.Errorf("a checkpoint without rows has committables %+v", c)
	}
}

func TestCheckpointsLargerThanMemory(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	target, files := &table{}, &connectortest.Files{}
	r := start(t, target.sink(), files, 1, func(e *connectors.SinkEnv) { e.Budget = 1 })
	var want []string
	random := rand.New(rand.NewPCG(1, 1))
	for range 40 {
		var values []string
		for range 100 {
			b := make([]byte, 1000) // that no codec makes smaller
			for i := range b {
				b[i] = byte(random.UintN(256))
			}
			values = append(values, string(b))
		}
		want = append(want, values...)
		r.must(r.write(0, values...))
	}
	w := r.writers[0].(*writer)
	if w.spool.file == nil || w.held > w.sink.share {
		t.Errorf("%d bytes are in memory", w.held)
	}
	coms := r.prepare()
	long := strings.Repeat("long", 3*blockSize)
	r.must(r.write(0, long))
	r.commit(coms, false)
	r.commit(r.prepare(), false)
	if got := target.read(); !slices.Equal(got, append(want, long)) {
		t.Errorf("%d rows, want %d", len(got), len(want)+1)
	}
	if w.held != 0 {
		t.Errorf("%d bytes are held", w.held)
	}
	left, err := os.ReadDir(os.TempDir())
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestWritersWaitForACommitOnlyWhereMemoryIsUsedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := &table{}
		m := &memory{table: target}
		r := start(t, NewSink(m, Options{Kind: "memory"}), &connectortest.Files{}, 1, func(e *connectors.SinkEnv) { e.Budget = 1 })
		r.must(r.write(0, "a"))
		coms := r.prepare()
		target.down = errors.New("down")
		if err := r.sink.Committer().Commit(t.Context(), coms[0], false); err == nil {
			t.Fatal("no error")
		}
		r.must(r.write(0, "b")) // there is room
		noise := make([]byte, 2*blockSize)
		random := rand.New(rand.NewPCG(1, 1))
		for i := range noise {
			noise[i] = byte(random.UintN(256))
		}
		r.must(r.write(0, string(noise)))
		var through atomic.Bool
		go func() {
			_ = r.write(0, "c")
			through.Store(true)
		}()
		synctest.Wait()
		if through.Load() {
			t.Error("rows are taken without end while the target is down")
		}
		target.down = nil
		r.commit(coms, false)
		synctest.Wait()
		if !through.Load() {
			t.Error("the writer goes on waiting")
		}
		r.commit(r.prepare(), false)
		if got := target.read(); len(got) != 4 || got[3] != "c" {
			t.Errorf("%d rows", len(got))
		}
	})
}

func TestDamagedRowsAreNotApplied(t *testing.T) {
	target, files := &table{}, &connectortest.Files{}
	r := start(t, target.sink(), files, 1, nil)
	r.must(r.write(0, "a", "b", strings.Repeat("c", 100)))
	w := r.writers[0].(*writer)
	r.must(w.seal())
	var whole bytes.Buffer
	_, err := whole.ReadFrom(w.spool.reader())
	r.must(err)
	try := func(data []byte, what string) {
		rows := &Rows{parts: []part{{what: what, rows: 3, open: opener(data)}}}
		defer rows.close()
		var got []string
		for {
			b, err := rows.Next(t.Context())
			if err != nil {
				if !connectors.IsPermanent(err) {
					t.Fatalf("%s: %d rows, error %v", what, len(got), err)
				}
				return
			}
			for _, r := range b.Rows {
				got = append(got, string(r))
			}
		}
	}
	for i := range whole.Len() {
		flipped := bytes.Clone(whole.Bytes())
		flipped[i] ^= 1
		try(flipped, fmt.Sprintf("byte %d flipped", i))
		try(whole.Bytes()[:i], fmt.Sprintf("cut off at %d", i))
	}
}

func TestCrashesAtEachStep(t *testing.T) {
	deferredtest.Crashes(t, func(*testing.T) deferredtest.Target {
		target := &table{refuses: "2}"}
		return deferredtest.Target{
			New: func() connectors.TwoPhaseSink { return target.sink() },
			Read: func() (ids []string) {
				for _, r := range target.read() {
					ids = append(ids, strings.TrimSuffix(strings.TrimPrefix(r, `{"id": `), "}"))
				}
				slices.SortFunc(ids, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
				return ids
			},
		}
	})
}
