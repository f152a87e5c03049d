package deferred

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// writer is one subtask's way into the sink.
type writer struct {
	sink    *Sink
	subtask int
	encoder RowEncoder
	packer  packer
	spool   *spool // what came since the last barrier

	handed  int64 // mark up to which refused rows were handed over
	settled int64 // the same at the last barrier

	mu      sync.Mutex
	pending []pending // ended by a barrier and not proven, in order
	held    int64     // bytes of kept rows in memory
	closed  bool
	err     error // what broke the writer: the pipeline has to restore
}

// pending is what came before a barrier.
type pending struct {
	id      connectors.CheckpointID
	spool   *spool
	settled int64
}

func newWriter(s *Sink, subtask int, e RowEncoder) *writer {
	w := &writer{sink: s, subtask: subtask, encoder: e}
	w.packer.originals = s.env.OnError == connectors.RowDeadLetter
	w.spool = &spool{}
	return w
}

// Write keeps the rows.
func (w *writer) Write(ctx context.Context, rows *connectors.Rows) error {
	if err := w.broken(); err != nil {
		return err
	}
	if err := w.room(ctx); err != nil {
		return err
	}
	if err := w.encoder.Begin(rows); err != nil {
		return w.fail(err)
	}
	var refused []connectors.RowError
	for i := range rows.Sel {
		if err := w.add(rows, i); err != nil {
			why, ok := errors.AsType[*Refused](err)
			if !ok {
				return w.fail(err)
			}
			refused = append(refused, connectors.RowError{Row: i, Kind: why.Kind, Reason: why.Reason})
		}
	}
	if refused != nil {
		return &connectors.RowsError{Rows: refused}
	}
	return nil
}

// add keeps a row unless the encoder leaves it out or refuses it.
func (w *writer) add(rows *connectors.Rows, i int) error {
	p := &w.packer
	at := len(p.rows)
	grown, err := w.encoder.Append(p.rows, i)
	if err != nil {
		return err
	}
	p.rows = grown
	if len(grown) == at {
		return nil
	}
	p.lens = append(p.lens, len(grown)-at)
	p.record(rows, i)
	w.spool.rows++
	if p.size() >= blockSize {
		return w.seal()
	}
	return nil
}

// room waits where memory is used up and a commit is under way: otherwise rows would
// pile up on the disk while the target is down or slower than the source.
func (w *writer) room(ctx context.Context) error {
	for w.spool.file != nil {
		ends := w.sink.committing()
		if ends == nil {
			return nil
		}
		select {
		case <-ends:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// seal ends the block in the making. What does not fit the memory goes to a file.
func (w *writer) seal() error {
	if len(w.packer.lens) == 0 {
		return nil
	}
	block := w.packer.pack()
	before := w.spool.size
	if err := w.spool.add(block); err != nil {
		return err
	}
	w.mu.Lock()
	w.held += w.spool.size - before
	over := w.held > w.sink.share && w.spool.file == nil
	w.mu.Unlock()
	if !over {
		return nil
	}
	before = w.spool.size
	err := w.spool.spill()
	w.mu.Lock()
	w.held -= before
	w.mu.Unlock()
	return err
}

// Tick hands over rows that commits have refused, by one writer of the sink. It asks the
// target for nothing.
func (w *writer) Tick(_ context.Context, _ time.Time) error {
	if err := w.broken(); err != nil {
		return err
	}
	if w.subtask != 0 {
		return nil
	}
	p := w.sink.nextRefused()
	if len(p.rows) == 0 {
		return nil
	}
	w.handed = p.last
	return &connectors.RejectedError{Rows: p.rows}
}

// Barrier ends what belongs to the checkpoint.
func (w *writer) Barrier(_ context.Context, b connectors.Barrier) (connectors.Prepare, error) {
	if err := w.broken(); err != nil {
		return nil, err
	}
	if err := w.seal(); err != nil {
		return nil, w.fail(err)
	}
	p := pending{id: b.ID, spool: w.spool}
	if w.handed > w.settled {
		p.settled, w.settled = w.handed, w.handed
	}
	w.spool = &spool{}
	w.mu.Lock()
	if p.spool.rows > 0 || p.settled > 0 {
		w.pending = append(w.pending, p)
	}
	w.mu.Unlock()
	return func(ctx context.Context, files connectors.CheckpointFiles) (connectors.Prepared, error) {
		return w.prepare(ctx, b.ID, files)
	}, nil
}

// prepare writes what is not proven into files of the checkpoint: what came before its
// barrier, and what was to be in earlier ones, whose files may be gone with them.
func (w *writer) prepare(ctx context.Context, id connectors.CheckpointID, files connectors.CheckpointFiles) (connectors.Prepared, error) {
	w.mu.Lock()
	todo := slices.Clone(w.pending)
	w.mu.Unlock()
	var pieces []piece
	for _, p := range todo {
		if p.id.Number > id.Number {
			break
		}
		made := piece{subtask: w.subtask, of: p.id, rows: p.spool.rows, settled: p.settled}
		if p.spool.rows > 0 {
			var err error
			if made.file, err = w.keep(ctx, p.spool, files); err != nil {
				if w.sink.isProven(p.id.Number) { // its rows were freed meanwhile
					continue
				}
				return connectors.Prepared{}, fmt.Errorf("keep rows with the checkpoint: %w", err)
			}
		}
		pieces = append(pieces, made)
	}
	coms, err := w.sink.collect(id, pieces)
	return connectors.Prepared{Committables: coms}, err
}

// keep writes rows into a file of the checkpoint.
func (w *writer) keep(ctx context.Context, sp *spool, files connectors.CheckpointFiles) (connectors.StateFile, error) {
	r, err := w.reader(sp)
	if err != nil {
		return connectors.StateFile{}, err
	}
	w.sink.env.Failpoint(w.sink.kind + ".keep.before")
	defer w.sink.env.Failpoint(w.sink.kind + ".keep.after")
	f, err := files.Create(ctx)
	if err != nil {
		return connectors.StateFile{}, err
	}
	return save(f, r)
}

// spoolOf is what came before the barrier of a checkpoint that is not proven; nil where
// nothing did.
func (w *writer) spoolOf(id connectors.CheckpointID) *spool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.pending {
		if p.id == id {
			return p.spool
		}
	}
	return nil
}

// reader reads a spool unless it is freed.
func (w *writer) reader(s *spool) (io.ReadCloser, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || !slices.ContainsFunc(w.pending, func(p pending) bool { return p.spool == s }) {
		return nil, errors.New("the rows are freed")
	}
	return io.NopCloser(s.reader()), nil
}

// done frees what is proven.
func (w *writer) done(n uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending = slices.DeleteFunc(w.pending, func(p pending) bool {
		if p.id.Number > n {
			return false
		}
		w.held -= p.spool.size
		p.spool.free()
		return true
	})
}

func (w *writer) broken() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// fail keeps an error: rows of the stream are missing from then on, so every later call
// reports it until the pipeline has restored a checkpoint.
func (w *writer) fail(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
	return err
}

// Close frees the rows that are not in a checkpoint.
func (w *writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, p := range w.pending {
		p.spool.free()
	}
	w.spool.free()
	w.pending, w.held = nil, 0
	return nil
}
