package files

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

const (
	// bufferSize is how much a writer collects before it writes: little enough to stay
	// in the processor's cache until the kernel has copied it.
	bufferSize = 256 << 10
	// minBufferSize is that of each file where there are many.
	minBufferSize = 32 << 10
	// maxStaging is how many full files a writer may have being staged before it
	// waits for the store.
	maxStaging = 4
)

// writer is one subtask's way into the sink.
type writer struct {
	sink    *Sink
	subtask int
	form    *form
	encode  rowEncoder
	pack    packer // nil where rows stand in a file as they are
	packed  []byte // scratch of pack

	// life ends staging that is under way when the writer is closed.
	life context.Context //nolint:containedctx // staging outlives the call that began it
	end  context.CancelFunc
	wg   sync.WaitGroup

	// calls lets Close come while another call is under way, as it does where a goroutine
	// of the process is given up.
	calls   sync.Mutex
	bufSize int
	free    [][]byte // buffers of files that are complete
	single  *part    // the file in the making, where there are no partitions
	open    map[string]*part
	folder  []byte // scratch
	batches uint64
	refused []connectors.RowError

	rolled  []*part // complete since the last barrier
	waiting []*part // those of rolled that are not being staged yet
	seq     int
	number  uint64 // of the checkpoint that comes next
	staging chan struct{}

	// saving is held while a Prepare reads open files: by one at a time, and Close waits
	// for it before it drops them.
	saving sync.Mutex

	mu      sync.Mutex
	pending []pending
	proven  uint64
	err     error // what broke the writer: the pipeline has to restore
}

// pending is a complete file whose commit is not proven.
type pending struct {
	part *part // nil where the checkpoint has no file, and that is told
	id   connectors.CheckpointID
}

func newWriter(s *Sink, subtask int) (*writer, error) {
	w := &writer{
		sink: s, subtask: subtask, form: s.form, number: s.restoredNumber + 1,
		bufSize: s.bufferSize(), open: map[string]*part{},
		staging: make(chan struct{}, maxStaging),
	}
	var err error
	if w.encode, err = s.form.encoder(); err != nil {
		return nil, err
	}
	if s.form.packer != nil {
		w.pack = s.form.packer()
	}
	w.life, w.end = context.WithCancel(context.Background())
	w.restore()
	return w, nil
}

// restore takes over the files in the making of the restored subtasks that are dealt to
// the writer. At the parallelism that they were written at it goes on with them, as their
// records and those to come are of the same partitions. At another one they are complete.
func (w *writer) restore() {
	all := w.sink.restored
	for i := w.subtask; i < len(all); i += w.sink.env.Subtasks {
		w.seq = i
		for _, o := range all[i] {
			w.adopt(o, len(all) == w.sink.env.Subtasks)
		}
	}
	w.seq = max(w.seq, len(all)) // after all restored files, whoever has them
}

// adopt makes a file of what a restored checkpoint holds of one. One that is complete is
// staged at the first barrier, so that a start does not wait for it.
func (w *writer) adopt(o *openPart, goOn bool) {
	if len(o.Segments) == 0 {
		return
	}
	f, _ := restoredForm(o) // Start has tried it
	goOn = goOn && o.Form == w.form.id && w.open[o.Path] == nil && len(w.open) < w.sink.config.MaxOpenFiles &&
		(o.Path == "") != w.sink.config.PartitionBy.Set()
	if goOn {
		f = w.form
	}
	p := &part{
		path: o.Path, name: w.nextName(o.Path, f.ext), form: f, records: o.Records, raw: o.Raw,
		began: time.UnixMilli(o.Began), last: time.UnixMilli(o.Last), done: make(chan struct{}),
	}
	if o.Until != nil {
		p.expire(*o.Until)
	}
	p.adopt(&joined{fs: w.sink.fs, name: p.name, files: w.sink.files, segments: o.Segments, convert: f.convert}, w.sink.own)
	if goOn {
		w.keep(p)
		return
	}
	w.rolled = append(w.rolled, p)
	w.waiting = append(w.waiting, p)
}

// keep notes a file in the making.
func (w *writer) keep(p *part) {
	w.open[p.path] = p
	if !w.sink.config.PartitionBy.Set() {
		w.single = p
	}
}

func (w *writer) nextName(folder, ext string) string {
	w.seq++
	return folder + fileName(w.sink.prefix, w.sink.generation(), w.number, w.subtask, w.seq, w.sink.run, ext)
}

// Write adds each row to the file that it belongs into.
func (w *writer) Write(ctx context.Context, rows *connectors.Rows) error {
	w.calls.Lock()
	defer w.calls.Unlock()
	if err := w.broken(); err != nil {
		return err
	}
	now := w.sink.now()
	w.batches++
	w.refused = w.refused[:0]
	w.encode.Begin(rows.Values)
	for i := range rows.Values {
		p, err := w.partOf(ctx, rows, i, now)
		if err != nil {
			return w.fail(err)
		}
		if p == nil {
			continue // refused
		}
		if err := w.append(ctx, p, rows, i, now); err != nil {
			return w.fail(err)
		}
	}
	if len(w.refused) > 0 {
		return &connectors.RowsError{Rows: slices.Clone(w.refused)}
	}
	return nil
}

func (w *writer) refuse(i int, kind string, err error) {
	w.refused = append(w.refused, connectors.RowError{Row: i, Reason: err.Error(), Kind: kind})
}

// partOf is the file that row i belongs into; nil where the row has no place.
func (w *writer) partOf(ctx context.Context, rows *connectors.Rows, i int, now time.Time) (*part, error) {
	by := &w.sink.config.PartitionBy
	if !by.Set() {
		if w.single == nil {
			w.keep(w.begin("", now))
		}
		return w.single, nil
	}
	var err error
	if w.folder, err = appendFolder(w.folder[:0], by, rows, i); err != nil {
		w.refuse(i, "partition", err)
		return nil, nil
	}
	if p := w.open[string(w.folder)]; p != nil {
		return p, nil
	}
	if len(w.open) >= w.sink.config.MaxOpenFiles {
		if err := w.rollColdest(ctx); err != nil {
			return nil, err
		}
	}
	p := w.begin(string(w.folder), now)
	w.keep(p)
	return p, nil
}

func (w *writer) begin(folder string, now time.Time) *part {
	return &part{path: folder, name: w.nextName(folder, w.form.ext), form: w.form, began: now, last: now, done: make(chan struct{})}
}

func (w *writer) rollColdest(ctx context.Context) error {
	var coldest *part
	for _, p := range w.open {
		if coldest == nil || p.touched < coldest.touched || p.touched == coldest.touched && p.path < coldest.path {
			coldest = p
		}
	}
	return w.roll(ctx, coldest)
}

func (w *writer) append(ctx context.Context, p *part, rows *connectors.Rows, i int, now time.Time) error {
	if len(p.buf)+len(rows.Values[i])+1 > cap(p.buf) {
		if err := w.makeRoom(p); err != nil {
			return err
		}
	}
	b, err := w.encode.Append(p.buf, i)
	if err != nil {
		w.refuse(i, "encode", err)
		return nil
	}
	if on := &w.sink.config.Roll.Watermark; on.Set() {
		if v := rows.Slot(i, on.Slot); v.Kind() == connectors.Timestamp {
			p.expire(v.Time().UnixMilli())
		} else if !v.IsNull() {
			w.refuse(i, "expression", errNoTime)
			return nil
		}
	}
	p.raw += int64(len(b) - len(p.buf))
	p.buf = b
	p.rows++
	p.records++
	p.last, p.touched = now, w.batches
	if w.full(p) {
		return w.roll(ctx, p)
	}
	return nil
}

// makeRoom gives a file a buffer, or empties the one that it has.
func (w *writer) makeRoom(p *part) error {
	if len(p.buf) > 0 {
		return w.flush(p)
	}
	if p.buf != nil {
		return nil // for one row that is longer
	}
	if n := len(w.free); n > 0 {
		p.buf, w.free = w.free[n-1], w.free[:n-1]
	} else {
		p.buf = make([]byte, 0, w.bufSize)
	}
	return nil
}

// full reports whether the file must end by size or record count. The size of
// packed bytes is known only when they have left the buffer.
func (w *writer) full(p *part) bool {
	size := w.sink.estimate(p)
	if w.pack == nil {
		size += int64(len(p.buf))
	}
	r := &w.sink.config.Roll
	return size >= int64(r.Size) || r.Records > 0 && p.records >= r.Records
}

// due reports whether the file must end at a barrier. A file whose age would pass
// the limit before the next barrier ends now.
func (w *writer) due(p *part, now time.Time, watermark int64) bool {
	r := &w.sink.config.Roll
	age := now.Sub(p.began)
	limit, limited := r.maxAge()
	return w.full(p) ||
		limited && (age >= limit || age+w.sink.env.Interval > limit) ||
		r.Inactivity > 0 && now.Sub(p.last) >= time.Duration(r.Inactivity) ||
		p.ends && watermark >= p.until
}

// flush moves the buffer into the file.
func (w *writer) flush(p *part) error {
	if len(p.buf) == 0 {
		return nil
	}
	if p.back == nil {
		back, err := w.sink.newBacking(w.life, p)
		if err != nil {
			return err
		}
		p.back = back
		if p.size == 0 && len(p.form.head) > 0 {
			if err := p.write(p.form.head); err != nil {
				return err
			}
		}
	}
	bytes := p.buf
	if w.pack != nil {
		var err error
		if w.packed, err = w.pack.Pack(w.packed[:0], p.buf, p.rows); err != nil {
			return err
		}
		bytes = w.packed
	}
	err := p.write(bytes)
	p.rows, p.buf = 0, p.buf[:0]
	if cap(p.buf) > 2*w.bufSize { // grown by one long value
		p.buf = make([]byte, 0, w.bufSize)
	}
	return err
}

// seal completes a file in the making. One of which each row was refused is none.
func (w *writer) seal(p *part) error {
	if err := w.flush(p); err != nil {
		return err
	}
	if p.buf != nil {
		w.free = append(w.free, p.buf)
		p.buf = nil
	}
	delete(w.open, p.path)
	if w.single == p {
		w.single = nil
	}
	if p.size > 0 {
		w.rolled = append(w.rolled, p)
	}
	return nil
}

// roll completes a file between two barriers and begins to stage it, waiting
// where too many are being staged already.
func (w *writer) roll(ctx context.Context, p *part) error {
	if err := w.seal(p); err != nil || p.size == 0 {
		return err
	}
	select {
	case w.staging <- struct{}{}:
	case <-w.life.Done():
		w.waiting = append(w.waiting, p)
		return w.life.Err()
	case <-ctx.Done():
		w.waiting = append(w.waiting, p)
		return ctx.Err()
	}
	w.wg.Go(func() { w.stage(p) })
	return nil
}

// stage makes a file durable, and gives the place in staging back.
func (w *writer) stage(p *part) {
	defer func() { <-w.staging }()
	func() {
		defer connectors.Recovered(&p.err)
		p.stage(w.life, w.sink.failpoint)
	}()
	if p.err != nil {
		_ = w.fail(p.err)
	} else {
		w.sink.learn(p)
	}
	close(p.done)
}

// stageLater makes a file durable once there is a place.
func (w *writer) stageLater(p *part) {
	w.wg.Go(func() {
		w.staging <- struct{}{} // others give theirs back, at the latest when the writer is closed
		w.stage(p)
	})
}

// Tick reports what went wrong beside the stream.
func (w *writer) Tick(context.Context, time.Time) error { return w.broken() }

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
	w.calls.Lock()
	defer w.calls.Unlock()
	_ = w.fail(context.Canceled) // for calls that come late
	w.wg.Wait()
	w.saving.Lock()
	defer w.saving.Unlock()
	for _, p := range w.open {
		w.waiting = append(w.waiting, p)
	}
	for _, p := range w.waiting {
		if p.back != nil {
			p.back.drop()
		}
	}
	w.single, w.open, w.waiting, w.rolled = nil, nil, nil, nil
	return nil
}
