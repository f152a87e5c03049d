package iceberg

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/retry"
)

// writer is one subtask's way into the table. It holds rows until they are many or a
// barrier comes, and writes them into files then, again and again where that fails: so
// a storage that is down for a while costs no row and no restart.
type writer struct {
	sink  *Sink
	rows  *rowBuilder
	limit int64

	bytes int64 // of the rows that are held
	full  []*fileSet

	mu    sync.Mutex
	parts []*part
}

// part is what a writer took between two barriers.
type part struct {
	number uint64
	batch  *rowBatch // not in files yet; nil for none
	files  []*fileSet
}

// patience is how long rows are tried to be written before the run ends with the error,
// and begins anew.
const patience = 10 * time.Minute

// Write takes rows.
func (w *writer) Write(ctx context.Context, rows *connectors.Rows) error {
	if rows.Len() == 0 {
		return nil
	}
	refused := w.rows.append(rows)
	for i, v := range rows.Values {
		if v == nil {
			v = rows.Record(i).Key
		}
		w.bytes += max(int64(len(v)), w.rows.width)
	}
	if w.bytes >= w.limit {
		batch, err := w.take(ctx)
		if err != nil {
			return err
		}
		if batch.changes > 0 {
			files, err := w.store(ctx, batch)
			if err != nil {
				return err
			}
			w.full = append(w.full, files)
		}
	}
	if len(refused) > 0 {
		return &connectors.RowsError{Rows: refused}
	}
	return nil
}

// take gives the rows that are held.
func (w *writer) take(ctx context.Context) (*rowBatch, error) {
	w.bytes = 0
	batch, err := w.rows.take(ctx)
	if err != nil {
		return nil, fmt.Errorf("put the rows of table %s together: %w", w.sink.cfg.Table, err)
	}
	return batch, nil
}

// store writes a batch into files and frees it.
func (w *writer) store(ctx context.Context, batch *rowBatch) (*fileSet, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s := w.sink
	var out *fileSet
	p := retry.Policy{Log: s.env.Log, What: "write files of table " + s.cfg.Table}
	err := p.Do(ctx, func(ctx context.Context) (err error) {
		s.env.Failpoint("iceberg.write.before")
		out, err = s.view.write(ctx, s.schema, s.key, batch)
		s.env.Failpoint("iceberg.write.after")
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("write files of table %s: %w", s.cfg.Table, err)
	}
	batch.release()
	return out, nil
}

// Tick has nothing to do: files end at barriers.
func (w *writer) Tick(context.Context, time.Time) error { return nil }

// Barrier ends what belongs to the checkpoint.
func (w *writer) Barrier(ctx context.Context, b connectors.Barrier) (connectors.Prepare, error) {
	p := &part{number: b.ID.Number, files: w.full}
	w.full = nil
	if len(w.rows.op) > 0 {
		batch, err := w.take(ctx)
		if err != nil {
			return nil, err
		}
		if batch.changes > 0 {
			p.batch = batch
		}
	}
	w.mu.Lock()
	w.parts = append(w.parts, p)
	w.mu.Unlock()
	return func(ctx context.Context, _ connectors.CheckpointFiles) (connectors.Prepared, error) {
		if err := w.prepare(ctx, b.ID.Number); err != nil {
			return connectors.Prepared{}, err
		}
		coms, err := w.sink.collect(b.ID)
		return connectors.Prepared{Committables: coms}, err
	}, nil
}

// prepare writes what is not in files yet, of earlier checkpoints that failed too.
func (w *writer) prepare(ctx context.Context, n uint64) error {
	w.mu.Lock()
	parts := w.parts
	w.mu.Unlock()
	for _, p := range parts {
		if p.number > n || p.batch == nil {
			continue
		}
		files, err := w.store(ctx, p.batch)
		if err != nil {
			return err
		}
		p.batch, p.files = nil, append(p.files, files)
	}
	return ctx.Err()
}

// written hands over the files up to a checkpoint, which all subtasks have prepared.
func (w *writer) written(n uint64) []*fileSet {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []*fileSet
	for len(w.parts) > 0 && w.parts[0].number <= n {
		out = append(out, w.parts[0].files...)
		w.parts = w.parts[1:]
	}
	return out
}

// Close drops what no checkpoint holds.
func (w *writer) Close() error {
	w.rows.build.Release()
	return nil
}
