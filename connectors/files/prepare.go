package files

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-etl/sluice/connectors"
)

var errNoTime = errors.New("roll.watermark is no point in time")

// maxSaving is how many segments a writer writes into a checkpoint at once.
const maxSaving = 8

// Barrier ends the files that are due, and otherwise makes their bytes readable
// for the Prepare.
func (w *writer) Barrier(_ context.Context, b connectors.Barrier) (connectors.Prepare, error) {
	w.calls.Lock()
	defer w.calls.Unlock()
	if err := w.broken(); err != nil {
		return nil, err
	}
	now := w.sink.now()
	for _, folder := range slices.Sorted(maps.Keys(w.open)) {
		if p := w.open[folder]; b.Roll || w.due(p, now, b.Watermark) {
			if err := w.seal(p); err != nil {
				return nil, w.fail(err)
			}
			if p.size > 0 {
				w.waiting = append(w.waiting, p)
			}
		}
	}
	for _, p := range w.waiting {
		w.stageLater(p)
	}
	w.waiting = w.waiting[:0]
	w.number = b.ID.Number + 1
	w.mu.Lock()
	if len(w.rolled) == 0 && w.sink.notes() {
		// The files of others that belong to the checkpoint may be published with a later one,
		// and are listed when all writers have spoken.
		w.pending = append(w.pending, pending{nil, b.ID})
	}
	for _, p := range w.rolled {
		w.pending = append(w.pending, pending{p, b.ID})
	}
	w.mu.Unlock()
	w.rolled = w.rolled[:0]
	return w.cut(b)
}

// cut notes how far the files in the making belong to the checkpoint.
func (w *writer) cut(b connectors.Barrier) (connectors.Prepare, error) {
	through := make(chan struct{})
	var parts []snapshot
	for _, p := range w.open {
		if err := w.flush(p); err != nil {
			return nil, w.fail(err)
		}
		if p.size == 0 {
			continue // each row was refused
		}
		if p.foreign && p.back == nil {
			back, err := w.sink.newBacking(w.life, p)
			if err != nil {
				return nil, w.fail(err)
			}
			p.back = back
		}
		if p.back != nil {
			p.readers = append(slices.DeleteFunc(p.readers, closed), through)
		}
		parts = append(parts, p.snapshot())
	}
	slices.SortFunc(parts, func(a, b snapshot) int { return cmp.Compare(a.part.path, b.part.path) })
	return func(ctx context.Context, files connectors.CheckpointFiles) (connectors.Prepared, error) {
		defer close(through)
		return w.prepare(ctx, b, parts, files)
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
// proven, those of failed and pending checkpoints too, and the files in the
// making, of which it makes durable what is not.
func (w *writer) prepare(ctx context.Context, b connectors.Barrier, open []snapshot, files connectors.CheckpointFiles) (connectors.Prepared, error) {
	w.mu.Lock()
	parts, proven := slices.Clone(w.pending), w.proven
	w.mu.Unlock()

	var out connectors.Prepared
	st := state{Number: b.ID.Number, Ratio: w.sink.ratio()}
	var err error
	if st.Parts, err = w.save(ctx, b.ID.Number, proven, open, files); err != nil {
		return out, err
	}
	for _, o := range st.Parts {
		out.Files = append(out.Files, o.Segments...)
	}
	if out.State, err = json.Marshal(st); err != nil {
		return out, err
	}
	out.Committables, err = w.committables(ctx, b, parts)
	return out, err
}

// save makes the files in the making durable in a checkpoint.
func (w *writer) save(ctx context.Context, number, proven uint64, open []snapshot, files connectors.CheckpointFiles) ([]*openPart, error) {
	if len(open) == 0 {
		return nil, nil
	}
	w.saving.Lock()
	defer w.saving.Unlock()
	if err := w.life.Err(); err != nil {
		return nil, fmt.Errorf("write segments into the checkpoint: the writer is closed: %w", err)
	}
	w.sink.failpoint("segment.before")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.life, cancel)() //nolint:contextcheck // the writer's end is the end of this too
	out := make([]*openPart, len(open))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxSaving)
	for i, s := range open {
		g.Go(func() (err error) {
			defer connectors.Recovered(&err)
			segments, err := s.part.save(ctx, files, s, number, proven)
			out[i] = s.part.saved(segments, s)
			return err
		})
	}
	err := g.Wait()
	w.sink.failpoint("segment.after")
	return out, err
}

// committables makes one committable of each checkpoint's files. This one's is
// there also where it has none.
func (w *writer) committables(ctx context.Context, b connectors.Barrier, parts []pending) ([]connectors.Committable, error) {
	var out []connectors.Committable
	for len(parts) > 0 && parts[0].id.Number <= b.ID.Number {
		of := parts[0].id
		var data committableData
		records, counted := int64(0), true
		for len(parts) > 0 && parts[0].id == of {
			p := parts[0].part
			parts = parts[1:]
			if p == nil {
				continue
			}
			select {
			case <-p.done:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			if p.err != nil {
				return nil, p.err
			}
			data.Files = append(data.Files, publishedFile{Staged: p.staged, Records: p.records})
			counted = counted && p.records > 0 // of one begun by an earlier version nobody knows
			records += p.records
		}
		if !counted {
			records = 0
		}
		c, err := w.committable(of, data, b)
		if err != nil {
			return nil, err
		}
		c.Records = records
		out = append(out, c)
	}
	if len(out) == 0 || out[len(out)-1].Checkpoint != b.ID {
		c, err := w.committable(b.ID, committableData{}, b)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// committable is what a checkpoint publishes of the writer. Where the committer writes
// more than the files, it has to know of each writer.
func (w *writer) committable(of connectors.CheckpointID, data committableData, b connectors.Barrier) (connectors.Committable, error) {
	c := connectors.Committable{Committer: w.sink.committerID(), Checkpoint: of}
	if w.sink.notes() {
		data.Subtask, data.Subtasks = w.subtask, w.sink.env.Subtasks
		data.End = of == b.ID && b.Watermark == math.MaxInt64
	} else if len(data.Files) == 0 {
		c.Empty = true
		return c, nil
	}
	var err error
	c.Data, err = json.Marshal(data)
	return c, err
}

// done forgets what is published.
func (w *writer) done(n connectors.CheckpointID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.proven = max(w.proven, n.Number)
	w.pending = slices.DeleteFunc(w.pending, func(p pending) bool { return p.id.Number <= n.Number })
}
