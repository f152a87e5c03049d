package connectortest

import (
	"context"
	"fmt"

	"github.com/sluice-etl/sluice/connectors"
)

// olderCheckpoint restores the checkpoint before the last proven one, as a user can ask for.
func olderCheckpoint(ctx context.Context, w *world) error {
	return older(ctx, w, 1, false)
}

// oldSavepoint restores a savepoint that many checkpoints came after.
func oldSavepoint(ctx context.Context, w *world) error {
	return older(ctx, w, 12, true)
}

// older restores a checkpoint that others came after: what they published comes again,
// what was published before stays as it is, and numbers are given a second time, by a
// later generation.
func older(ctx context.Context, w *world, after int, savepoint bool) error {
	p, _, err := fed(ctx, w)
	if err != nil {
		return err
	}
	if err := p.feed(ctx, 30, whole); err != nil {
		return err
	}
	from, err := p.checkpoint(ctx, true)
	if err != nil {
		return err
	}
	w.pinned = append(w.pinned, from)
	for range after {
		if err := p.feed(ctx, 5, whole); err != nil {
			return err
		}
		if _, err := p.checkpoint(ctx, false); err != nil {
			return err
		}
	}
	if _, err := p.checkpoint(ctx, true); err != nil {
		return err
	}
	if err := p.stop(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	if savepoint {
		from.Committables = nil
		w.disown(from)
	}
	w.number.Store(from.ID.Number)
	w.repeated = &repetition{from.Next, p.next}
	if p, err = w.start(ctx, from, 2); err != nil {
		return fmt.Errorf("restore what others came after: %w", err)
	}
	if err := p.feed(ctx, 100, whole); err != nil {
		return err
	}
	return p.finish(ctx)
}

// disown makes the files of a checkpoint those of another job.
func (w *world) disown(from *snapshot) {
	w.foreign = map[string]bool{}
	for _, p := range from.Prepared {
		for _, f := range p.Files {
			w.foreign[f.Path] = true
		}
	}
}

// anotherJob goes on from the last checkpoint of a job that has ended, as a new one,
// whose checkpoints must not need the files of the old.
func anotherJob(ctx context.Context, w *world) error {
	p, last, err := fed(ctx, w)
	if err != nil {
		return err
	}
	if err := p.stop(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	w.disown(last)
	for range 3 {
		if p, err = w.start(ctx, last, 2); err != nil {
			return fmt.Errorf("start a new job: %w", err)
		}
		if _, err := p.checkpoint(ctx, false); err != nil {
			return err
		}
		if err := p.feed(ctx, 10, whole); err != nil {
			return err
		}
		if last, err = p.checkpoint(ctx, false); err != nil {
			return err
		}
		if err := p.stop(); err != nil {
			return fmt.Errorf("close: %w", err)
		}
		w.foreign = nil // from here on it is the job's own
	}
	if p, err = w.start(ctx, last, 2); err != nil {
		return err
	}
	return p.finish(ctx)
}

// updates writes an updating stream, of which the newest row of each group stays, also
// where a process ends and its changes since the checkpoint come again, older ones first.
func updates(ctx context.Context, w *world) error {
	w.target.New, w.target.Read = w.target.Updating.New, w.target.Updating.Read
	p, err := w.start(ctx, nil, 2)
	if err != nil {
		return err
	}
	var last *snapshot
	for i := range 3 {
		if err := p.changes(ctx, false); err != nil {
			return err
		}
		if i == 1 {
			continue
		}
		if last, err = p.checkpoint(ctx, false); err != nil {
			return err
		}
	}
	for again := range 2 {
		for i := range 2 {
			if err := p.changes(ctx, i == 1); err != nil {
				return err
			}
		}
		if again == 1 {
			break
		}
		if err := p.stop(); err != nil {
			return fmt.Errorf("close: %w", err)
		}
		if p, err = w.start(ctx, last, 2); err != nil {
			return err
		}
	}
	if _, err := p.checkpoint(ctx, true); err != nil {
		return err
	}
	if err := p.stop(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	return w.newest(ctx, p.next)
}

// newest checks that there is one row of each group, the newest, and none of the last
// group, which is deleted.
func (w *world) newest(ctx context.Context, next [partitions]int) error {
	got, err := w.read(ctx)
	if err != nil {
		return err
	}
	for part := range partitions - 1 {
		if v := value(part, next[part]-1); got[v] != 1 {
			return fmt.Errorf("the newest row of a group, %s, is there %d times", v, got[v])
		}
	}
	if len(got) != partitions-1 {
		return fmt.Errorf("there are %d rows for %d groups of which one is deleted: %v", len(got), partitions, got)
	}
	return nil
}

// changes changes the row of each group, or deletes that of the last one.
func (p *process) changes(ctx context.Context, remove bool) error {
	for part := range partitions {
		if err := p.change(ctx, part, remove && part == partitions-1); err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
	return nil
}

// change replaces the row of a group, or deletes it.
func (p *process) change(ctx context.Context, part int, remove bool) error {
	first := p.next[part] == 0
	rows := p.rows(part, 1)
	rec := rows.Record(0)
	all := p.world.target.Updating.Mode == connectors.AllChanges
	switch {
	case remove:
		rec.Op = connectors.Delete
		p.next[part]--
		rec.Value = []byte(value(part, p.next[part]-1))
		rows.Values[0] = rec.Value
		if !all {
			rows.Values[0] = nil
		}
	case !first:
		rec.Op = connectors.UpdateAfter
		if all {
			before := p.rows(part, 1)
			p.next[part]--
			old := before.Record(0)
			old.Op, old.Value = connectors.UpdateBefore, []byte(value(part, p.next[part]-2))
			before.Values[0] = old.Value
			if err := p.writers[part%len(p.writers)].Write(ctx, before); err != nil {
				return err
			}
		}
	}
	return p.writers[part%len(p.writers)].Write(ctx, rows)
}
