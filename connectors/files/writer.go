package files

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

const (
	// bufferSize is how much a writer collects before it writes: little enough to stay
	// in the processor's cache until the kernel has copied it.
	bufferSize = 256 << 10
	// maxStaging is how many full files a writer may have being staged before it
	// waits for the store.
	maxStaging = 4
)

// writer is one subtask's way into the sink.
type writer struct {
	sink    *Sink
	subtask int

	// life ends staging that is under way when the writer is closed.
	life context.Context //nolint:containedctx // staging outlives the call that began it
	end  context.CancelFunc
	wg   sync.WaitGroup

	buf     []byte
	part    *part   // the file in the making; nil where no record came since the last roll
	rolled  []*part // complete since the last barrier
	waiting []*part // those of rolled that are not being staged yet
	seq     int
	number  uint64 // of the checkpoint that comes next
	staging chan struct{}

	saving sync.Mutex // one Prepare at a time writes segments

	mu      sync.Mutex
	pending []pending
	proven  uint64
	err     error // what broke the writer: the pipeline has to restore
}

// pending is a complete file whose commit is not proven.
type pending struct {
	part *part
	id   connectors.CheckpointID
}

func newWriter(s *Sink, subtask int) *writer {
	w := &writer{
		sink: s, subtask: subtask, number: s.restoredNumber + 1,
		buf:     make([]byte, 0, s.bufferSize()),
		staging: make(chan struct{}, maxStaging),
	}
	w.life, w.end = context.WithCancel(context.Background())
	for i := subtask; i < len(s.restored); i += s.env.Subtasks {
		w.seq = i
		w.adopt(s.restored[i])
	}
	w.seq = len(s.restored) // after all restored files, whoever has them
	return w
}

// adopt makes a file of what a restored checkpoint holds of one. It is staged at
// the first barrier, so that a start does not wait for it.
func (w *writer) adopt(o *openPart) {
	if o == nil || len(o.Segments) == 0 {
		return
	}
	name := w.nextName(o.Ext)
	p := &part{
		name: name, ext: o.Ext, done: make(chan struct{}),
		back: &joined{fs: w.sink.fs, name: name, files: w.sink.files, segments: o.Segments},
	}
	w.rolled = append(w.rolled, p)
	w.waiting = append(w.waiting, p)
}

func (w *writer) nextName(ext string) string {
	w.seq++
	return fileName(w.sink.prefix, w.sink.generation(), w.number, w.subtask, w.seq, w.sink.run, ext)
}

// Write appends each row as a line; the encoder has made sure that it is one.
func (w *writer) Write(ctx context.Context, rows *connectors.Rows) error {
	if err := w.broken(); err != nil {
		return err
	}
	now := w.sink.now()
	for _, v := range rows.Values {
		if err := w.append(ctx, v, now); err != nil {
			return w.fail(err)
		}
	}
	if w.part != nil {
		w.part.last = now
	}
	return nil
}

func (w *writer) append(ctx context.Context, value []byte, now time.Time) error {
	if w.part == nil {
		ext := w.sink.config.ext()
		w.part = &part{name: w.nextName(ext), ext: ext, began: now, last: now, done: make(chan struct{})}
	}
	if len(w.buf)+len(value)+1 > cap(w.buf) {
		if err := w.flush(); err != nil {
			return err
		}
	}
	w.buf = append(append(w.buf, value...), '\n')
	w.part.records++
	if w.full() {
		return w.roll(ctx)
	}
	return nil
}

// full reports whether the file must end by size or record count. The size of
// compressed bytes is known only when they have left the buffer.
func (w *writer) full() bool {
	size := w.part.size
	if w.part.ext == extPlain {
		size += int64(len(w.buf))
	}
	r := &w.sink.config.Roll
	return size >= int64(r.Size) || r.Records > 0 && w.part.records >= r.Records
}

// due reports whether the file must end at a barrier. A file whose age would pass
// the limit before the next barrier ends now.
func (w *writer) due(now time.Time) bool {
	r := &w.sink.config.Roll
	age := now.Sub(w.part.began)
	return w.full() ||
		age >= time.Duration(r.Age) || age+w.sink.env.Interval > time.Duration(r.Age) ||
		r.Inactivity > 0 && now.Sub(w.part.last) >= time.Duration(r.Inactivity)
}

// flush moves the buffer into the file.
func (w *writer) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	if w.part.back == nil {
		back, err := w.sink.newBacking(w.life, w.part.name)
		if err != nil {
			return err
		}
		w.part.back = back
	}
	err := w.part.write(w.buf)
	if cap(w.buf) > 2*bufferSize { // grown by one long value
		w.buf = make([]byte, 0, w.sink.bufferSize())
	}
	w.buf = w.buf[:0]
	return err
}

// seal completes the file in the making.
func (w *writer) seal() (*part, error) {
	p := w.part
	if err := w.flush(); err != nil {
		return nil, err
	}
	if err := p.settle(); err != nil {
		return nil, err
	}
	w.part = nil
	w.rolled = append(w.rolled, p)
	return p, nil
}

// roll completes the file between two barriers and begins to stage it, waiting
// where too many are being staged already.
func (w *writer) roll(ctx context.Context) error {
	p, err := w.seal()
	if err != nil {
		return err
	}
	select {
	case w.staging <- struct{}{}:
	case <-ctx.Done():
		w.waiting = append(w.waiting, p)
		return ctx.Err()
	}
	w.stage(p, func() { <-w.staging })
	return nil
}

func (w *writer) stage(p *part, after func()) {
	w.wg.Go(func() {
		defer after()
		p.stage(w.life, w.sink.failpoint)
		if p.err != nil {
			_ = w.fail(p.err)
		}
		close(p.done)
	})
}

// Tick reports what went wrong beside the stream.
func (w *writer) Tick(context.Context, time.Time) error { return w.broken() }

// Barrier ends the file where it is due, and otherwise makes its bytes readable
// for the Prepare.
func (w *writer) Barrier(_ context.Context, b connectors.Barrier) (connectors.Prepare, error) {
	if err := w.broken(); err != nil {
		return nil, err
	}
	if w.part != nil && (b.Roll || w.due(w.sink.now())) {
		p, err := w.seal()
		if err != nil {
			return nil, w.fail(err)
		}
		w.waiting = append(w.waiting, p)
	}
	for _, p := range w.waiting {
		w.stage(p, func() {})
	}
	w.waiting = w.waiting[:0]
	w.number = b.ID.Number + 1
	w.mu.Lock()
	for _, p := range w.rolled {
		w.pending = append(w.pending, pending{p, b.ID})
	}
	w.mu.Unlock()
	w.rolled = w.rolled[:0]
	return w.cut(b.ID)
}

// cut notes how far the file in the making belongs to the checkpoint.
func (w *writer) cut(id connectors.CheckpointID) (connectors.Prepare, error) {
	p := w.part
	if p == nil {
		return func(ctx context.Context, _ connectors.CheckpointFiles) (connectors.Prepared, error) {
			return w.prepare(ctx, id, nil)
		}, nil
	}
	if err := w.flush(); err != nil {
		return nil, w.fail(err)
	}
	if err := p.settle(); err != nil {
		return nil, w.fail(err)
	}
	through := make(chan struct{})
	p.readers = append(slices.DeleteFunc(p.readers, closed), through)
	size := p.size
	return func(ctx context.Context, files connectors.CheckpointFiles) (connectors.Prepared, error) {
		return w.prepare(ctx, id, func(proven uint64) (*openPart, error) {
			defer close(through)
			w.saving.Lock()
			defer w.saving.Unlock()
			w.sink.failpoint("segment.before")
			segments, err := p.save(ctx, files, size, id.Number, proven)
			w.sink.failpoint("segment.after")
			open := &openPart{Ext: p.ext}
			for _, s := range segments {
				open.Segments = append(open.Segments, s.file)
			}
			return open, err
		})
	}, nil
}

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// prepare hands over the committables of all complete files whose commit is not
// proven, those of failed and pending checkpoints too, and the file in the
// making, which save makes durable; nil where there is none.
func (w *writer) prepare(ctx context.Context, id connectors.CheckpointID, save func(proven uint64) (*openPart, error)) (connectors.Prepared, error) {
	w.mu.Lock()
	parts, proven := slices.Clone(w.pending), w.proven
	w.mu.Unlock()

	var out connectors.Prepared
	st := state{Number: id.Number}
	var err error
	if save != nil {
		if st.Open, err = save(proven); err != nil {
			return out, err
		}
		out.Files = st.Open.Segments
	}
	if out.State, err = json.Marshal(st); err != nil {
		return out, err
	}
	out.Committables, err = w.committables(ctx, id, parts)
	return out, err
}

// committables makes one committable of each checkpoint's files. This one's is
// there also where it has none.
func (w *writer) committables(ctx context.Context, id connectors.CheckpointID, parts []pending) ([]connectors.Committable, error) {
	var out []connectors.Committable
	for len(parts) > 0 && parts[0].id.Number <= id.Number {
		of := parts[0].id
		var data committableData
		records, counted := int64(0), true
		for len(parts) > 0 && parts[0].id == of {
			p := parts[0].part
			select {
			case <-p.done:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			if p.err != nil {
				return nil, p.err
			}
			data.Files = append(data.Files, p.staged)
			counted = counted && p.records > 0 // of one begun by an earlier run nobody knows
			records += p.records
			parts = parts[1:]
		}
		if !counted {
			records = 0
		}
		raw, err := json.Marshal(data)
		if err != nil {
			return nil, err
		}
		out = append(out, connectors.Committable{Committer: w.sink.committerID(), Checkpoint: of, Records: records, Data: raw})
	}
	if len(out) == 0 || out[len(out)-1].Checkpoint != id {
		out = append(out, connectors.Committable{Committer: w.sink.committerID(), Checkpoint: id, Empty: true})
	}
	return out, nil
}

// done forgets what is published.
func (w *writer) done(n connectors.CheckpointID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.proven = max(w.proven, n.Number)
	w.pending = slices.DeleteFunc(w.pending, func(p pending) bool { return p.id.Number <= n.Number })
}

func (w *writer) broken() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// fail keeps the first error: bytes of the stream are missing from then on, so
// every later call reports it until the pipeline has restored a checkpoint.
func (w *writer) fail(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	return w.err
}

// Close drops what is not staged. What is staged stays: a checkpoint may hold it.
func (w *writer) Close() error {
	w.end()
	w.wg.Wait()
	for _, p := range append(w.waiting, w.part) {
		if p != nil && p.back != nil {
			p.back.drop()
		}
	}
	w.part, w.waiting, w.rolled = nil, nil, nil
	return nil
}
