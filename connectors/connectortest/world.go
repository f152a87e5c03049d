package connectortest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// partitions is how many partitions the records of the suite come from.
const partitions = 4

// world is what outlives the processes of one pipeline: its input, its
// checkpoints and their files.
type world struct {
	target     Sink
	files      Files
	generation uint64
	number     atomic.Uint64 // of the last checkpoint; what a killed process still runs may take one too
	retained   []*snapshot
	// foreign are the files of a savepoint that is restored: only read by the new job.
	foreign  map[string]bool
	pinned   []*snapshot     // savepoints, whose files are never removed
	missing  map[string]bool // values that the target has refused
	repeated *repetition     // nil where nothing is published again
}

// repetition are the offsets, by partition, that are published twice: from where a
// restored checkpoint is to where the process before it came.
type repetition struct{ from, to [partitions]int }

func newWorld(target Sink) *world { return &world{target: target, missing: map[string]bool{}} }

// exactlyOnce reports whether the sink promises that.
func (w *world) exactlyOnce() bool {
	s, err := w.target.New()
	return err == nil && s.Guarantee() == connectors.ExactlyOnce
}

// snapshot is a checkpoint.
type snapshot struct {
	ID           connectors.CheckpointID
	Prepared     []connectors.Prepared
	Committables []connectors.Committable
	Next         [partitions]int
}

// process is one run of the pipeline.
type process struct {
	world     *world
	id        uint64 // generation
	sink      connectors.Sink
	committer connectors.Committer // nil where the sink is not two-phase
	writers   []connectors.Writer
	next      [partitions]int
	shared    map[string]any
	crash     *crashPlan // nil for none
}

// start begins a process as the engine does: open, resolve the restored
// committables, revoke, start, make writers.
func (w *world) start(ctx context.Context, from *snapshot, subtasks int) (*process, error) {
	return w.startWith(ctx, from, subtasks, nil)
}

// startWith begins a process that may crash.
func (w *world) startWith(ctx context.Context, from *snapshot, subtasks int, crash *crashPlan) (*process, error) {
	w.generation++
	sink, err := w.target.New()
	if err != nil {
		return nil, fmt.Errorf("make the sink: %w", err)
	}
	p := &process{world: w, id: w.generation, sink: sink, shared: map[string]any{}, crash: crash}
	if crash != nil {
		crash.process = p
	}
	if two, ok := sink.(connectors.TwoPhaseSink); ok {
		p.committer = two.Committer()
	}
	restored := connectors.Restored{Files: &w.files, Own: w.foreign == nil}
	if from != nil {
		restored.Subtasks, p.next = from.Prepared, from.Next
	}
	if err := p.open(ctx, from, restored, subtasks); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

func (p *process) open(ctx context.Context, from *snapshot, restored connectors.Restored, subtasks int) error {
	if err := p.sink.Open(ctx, p.env(subtasks)); err != nil {
		return fmt.Errorf("open: %w", err)
	}
	if err := p.resolve(ctx, from); err != nil {
		return err
	}
	if err := p.sink.Start(ctx, restored); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	for i := range subtasks {
		w, err := p.sink.Writer(i)
		if err != nil {
			return fmt.Errorf("make writer %d: %w", i, err)
		}
		p.writers = append(p.writers, w)
	}
	return nil
}

func (p *process) env(subtasks int) connectors.SinkEnv {
	var mu sync.Mutex
	return connectors.SinkEnv{
		Pipeline: "suite", Name: "sink", Subtasks: subtasks,
		Generation: func() uint64 { return p.id },
		Slots:      8,
		Shared: func(key string, first func() any) any {
			mu.Lock()
			defer mu.Unlock()
			if p.shared[key] == nil {
				p.shared[key] = first()
			}
			return p.shared[key]
		},
		Encoding: "json", Budget: 16 << 20, Interval: time.Second,
		Restored: func() connectors.CheckpointFiles { return &p.world.files }, Origin: func() string { return "suite" },
		OnError: connectors.RowDeadLetter, Failpoint: p.failpoint, Columns: columns, Log: slog.New(slog.DiscardHandler),
	}
}

// columns are those of the suite's rows.
var columns = []connectors.Column{
	{Name: "partition", Type: connectors.Type{Base: connectors.Integer}}, {Name: "offset", Type: connectors.Type{Base: connectors.Integer}},
}

func (p *process) failpoint(name string) {
	if p.crash != nil {
		p.crash.failpoint(name)
	}
}

func (p *process) resolve(ctx context.Context, from *snapshot) error {
	if p.committer == nil {
		return nil
	}
	var keep []connectors.Committable
	if from != nil {
		for _, c := range from.Committables {
			if err := p.committer.Commit(ctx, c, true); err != nil {
				return fmt.Errorf("commit a restored committable: %w", err)
			}
		}
		keep = from.Committables
		p.committer.Done(from.ID)
	}
	for range 2 { // a start that is interrupted revokes again
		if err := p.committer.Revoke(ctx, keep); err != nil {
			return fmt.Errorf("revoke: %w", err)
		}
	}
	return nil
}

// value is the record of a partition and offset.
func value(partition, offset int) string {
	return fmt.Sprintf(`{"partition":%d,"offset":%d}`, partition, offset)
}

// feed writes n records of each partition, each to its writer, in batches of
// the given shape.
func (p *process) feed(ctx context.Context, n int, shape func(left int) int) error {
	for part := range partitions {
		w := p.writers[part%len(p.writers)]
		for left := n; ; {
			size := min(shape(left), left, connectors.MaxBatch)
			rows := p.rows(part, size)
			if err := w.Write(ctx, rows); err != nil {
				return fmt.Errorf("write: %w", err)
			}
			poison(rows)
			left -= size
			if left == 0 {
				break
			}
		}
		if err := w.Tick(ctx, time.Now()); err != nil {
			return fmt.Errorf("tick: %w", err)
		}
	}
	return nil
}

// rows makes the next n records of a partition, with others between them that a
// filter has dropped.
func (p *process) rows(part, n int) *connectors.Rows {
	b := new(connectors.Batch)
	b.Size(min(2*n, connectors.MaxBatch), slots)
	rows := &connectors.Rows{Batch: b, Layout: new(connectors.Layout)}
	origin := &connectors.Origin{Topic: "input", Partition: int32(part)}
	step := max(1, len(b.Records)/max(1, n))
	for i := range n {
		v := []byte(value(part, p.next[part]))
		b.Records[i*step] = connectors.Record{
			Value: v, Key: []byte(strconv.Itoa(part)), Origin: origin,
			Offset: int64(p.next[part]), Time: 1700000000000 + int64(p.next[part]),
		}
		slots := b.Row(i * step)
		slots[SlotKey] = connectors.StringValue(fmt.Sprintf("%d-%d", part, p.next[part]))
		slots[SlotPartition], slots[SlotOffset] = connectors.IntValue(int64(part)), connectors.IntValue(int64(p.next[part]))
		slots[SlotGroup] = connectors.StringValue(strconv.Itoa(part))
		rows.Sel = append(rows.Sel, uint16(i*step))
		rows.Values = append(rows.Values, v)
		p.next[part]++
	}
	return rows
}

// poison overwrites what a sink was lent.
func poison(rows *connectors.Rows) {
	for i, v := range rows.Values {
		for k := range v {
			v[k] = '!'
		}
		rows.Values[i] = nil
	}
	clear(rows.Batch.Records)
}

// prepare runs a checkpoint up to the point where all is acknowledged.
func (p *process) prepare(ctx context.Context, roll bool) (*snapshot, error) {
	s := &snapshot{ID: connectors.CheckpointID{Generation: p.id, Number: p.world.number.Add(1)}, Next: p.next}
	prepares := make([]connectors.Prepare, len(p.writers))
	for i, w := range p.writers {
		var err error
		if prepares[i], err = w.Barrier(ctx, connectors.Barrier{ID: s.ID, Roll: roll}); err != nil {
			return nil, fmt.Errorf("barrier: %w", err)
		}
	}
	s.Prepared = make([]connectors.Prepared, len(p.writers))
	errs := make([]error, len(p.writers))
	var wg sync.WaitGroup
	for i, prepare := range prepares {
		wg.Go(func() { s.Prepared[i], errs[i] = prepare(ctx, &p.world.files) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	return s, p.check(s)
}

// check finds faults of what the writers handed over.
func (p *process) check(s *snapshot) error {
	own := false
	for i := range s.Prepared {
		for _, c := range s.Prepared[i].Committables {
			if p.committer == nil {
				return errors.New("a sink that is not two-phase handed over a committable")
			}
			if c.Committer != p.committer.ID() {
				return fmt.Errorf("a committable names the committer %q, it is %q", c.Committer, p.committer.ID())
			}
			if c.Checkpoint.Number > s.ID.Number {
				return fmt.Errorf("checkpoint %d got a committable of checkpoint %d", s.ID.Number, c.Checkpoint.Number)
			}
			own = own || c.Checkpoint == s.ID
			s.Committables = append(s.Committables, c)
		}
		s.Prepared[i].Committables = nil
	}
	if p.committer != nil && !own {
		return fmt.Errorf("checkpoint %d has no committable of its own, not even an empty one", s.ID.Number)
	}
	return nil
}

// complete makes a checkpoint's metadata durable: from now on it can be
// restored, from its JSON.
func (w *world) complete(s *snapshot) (*snapshot, error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("write metadata: %w", err)
	}
	out := new(snapshot)
	if err := json.Unmarshal(raw, out); err != nil {
		return nil, fmt.Errorf("read metadata: %w", err)
	}
	for _, p := range out.Prepared {
		for _, f := range p.Files {
			if w.foreign[f.Path] {
				return nil, fmt.Errorf("checkpoint %d lists %s, a file of the savepoint that was restored, which can be removed", out.ID.Number, f.Path)
			}
		}
	}
	w.retained = append(w.retained, out)
	return out, nil
}

// retain removes files that no retained checkpoint refers to: at a moment when
// none is pending, all those of failed ones.
func (w *world) retain() {
	w.retained = w.retained[max(0, len(w.retained)-2):]
	var refs []connectors.StateFile
	for _, s := range slices.Concat(w.pinned, w.retained) {
		for _, p := range s.Prepared {
			refs = append(refs, p.Files...)
		}
		for _, c := range s.Committables {
			refs = append(refs, c.Files...)
		}
	}
	w.files.Retain(refs)
}

// commit publishes a complete checkpoint, and repeats it as an engine does that
// got no answer.
func (p *process) commit(ctx context.Context, s *snapshot) error {
	if p.committer == nil {
		return nil
	}
	for range 2 {
		for _, c := range s.Committables {
			if err := p.committer.Commit(ctx, c, false); err != nil {
				return fmt.Errorf("commit: %w", err)
			}
		}
	}
	p.committer.Done(s.ID)
	return p.witness(ctx, s)
}

// witness checks the mark that a target keeps by itself.
func (p *process) witness(ctx context.Context, s *snapshot) error {
	w, ok, err := p.committer.Witness(ctx)
	if errors.Is(err, connectors.ErrNoWitness) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("witness: %w", err)
	}
	for _, c := range s.Committables {
		if !c.Empty && (!ok || w.Generation < c.Checkpoint.Generation || w.Number < c.Checkpoint.Number) {
			return fmt.Errorf("the witness is %+v (found: %v) after %+v was committed", w, ok, c.Checkpoint)
		}
	}
	return nil
}

// checkpoint takes a checkpoint from barrier to proof.
func (p *process) checkpoint(ctx context.Context, roll bool) (*snapshot, error) {
	s, err := p.prepare(ctx, roll)
	if err != nil {
		return nil, err
	}
	if s, err = p.world.complete(s); err != nil {
		return nil, err
	}
	if err := p.commit(ctx, s); err != nil {
		return nil, err
	}
	p.world.retain()
	return s, nil
}

// stop ends the process without publishing anything more. What a killed process
// leaves behind is the same.
func (p *process) stop() error {
	var errs []error
	for _, w := range p.writers {
		errs = append(errs, w.Close())
	}
	return errors.Join(append(errs, p.sink.Close())...)
}

// finish takes the last checkpoint of a bounded input and ends the process.
func (p *process) finish(ctx context.Context) error {
	if _, err := p.checkpoint(ctx, true); err != nil {
		return err
	}
	if err := p.stop(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return p.world.verify(ctx, p.next, p.sink.Guarantee())
}

// verify compares the target with the first next records of each partition.
func (w *world) verify(ctx context.Context, next [partitions]int, g connectors.Guarantee) error {
	seen, err := w.read(ctx)
	if err != nil {
		return err
	}
	total := 0
	for part, n := range next {
		for offset := range n {
			v := value(part, offset)
			if w.missing[v] {
				continue
			}
			most := 1
			if w.repeated != nil && offset >= w.repeated.from[part] && offset < w.repeated.to[part] {
				most = 2
			}
			switch {
			case seen[v] == 0:
				return fmt.Errorf("record %s is lost", v)
			case seen[v] > most && g == connectors.ExactlyOnce:
				return fmt.Errorf("record %s is there %d times", v, seen[v])
			}
			total++
		}
	}
	if len(seen) != total {
		return fmt.Errorf("the target holds %d different records, %d were written", len(seen), total)
	}
	return nil
}

// read counts the records of the target and checks their order, which must be
// that of each partition where the target has one.
func (w *world) read(ctx context.Context) (map[string]int, error) {
	values, err := w.target.Read(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the target: %w", err)
	}
	seen := map[string]int{}
	var last [partitions]int
	for _, v := range values {
		seen[v]++
		var rec struct{ Partition, Offset int }
		if err := json.Unmarshal([]byte(v), &rec); err != nil || rec.Partition < 0 || rec.Partition >= partitions {
			return nil, fmt.Errorf("the target holds %q, which nobody wrote", v)
		}
		if w.target.Ordered && w.repeated == nil && rec.Offset < last[rec.Partition] {
			return nil, fmt.Errorf("record %s comes after offset %d", v, last[rec.Partition])
		}
		last[rec.Partition] = rec.Offset
	}
	return seen, nil
}
