package connectortest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// refusedRow is a row that a target refused.
type refusedRow struct {
	offset int64
	reason string
}

// poisoned has the target refuse one row among others: that one is told, by the write or
// by a tick after its commit, and the others land.
func poisoned(ctx context.Context, w *world) error {
	p, _, err := fed(ctx, w)
	if err != nil {
		return err
	}
	at, early, err := p.feedPoison(ctx)
	if err != nil {
		return err
	}
	last, err := p.checkpoint(ctx, true)
	if err != nil {
		return err
	}
	if early {
		return p.finish(ctx)
	}
	// The row is handed over again until a checkpoint that came behind it is committed.
	for range 2 {
		if err := p.refusedLate(ctx, at, true); err != nil {
			return err
		}
		if err := p.stop(); err != nil {
			return fmt.Errorf("close: %w", err)
		}
		if p, err = w.start(ctx, last, 2); err != nil {
			return err
		}
	}
	if err := p.refusedLate(ctx, at, true); err != nil {
		return err
	}
	if last, err = p.checkpoint(ctx, true); err != nil {
		return err
	}
	if err := p.stop(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	if p, err = w.start(ctx, last, 2); err != nil {
		return err
	}
	if err := p.refusedLate(ctx, at, false); err != nil {
		return err
	}
	return p.finish(ctx)
}

// feedPoison writes seven rows of which the target refuses the fourth. early says that
// the write told of it.
func (p *process) feedPoison(ctx context.Context) (at int64, early bool, err error) {
	at = int64(p.next[0] + 3)
	rows := p.rows(0, 7)
	bad := []byte(p.world.target.Poison(0, int(at)))
	rows.Values[3], rows.Batch.Records[rows.Sel[3]].Value = bad, bad
	p.world.missing[value(0, int(at))] = true
	err = p.writers[0].Write(ctx, rows)
	var refused *connectors.RowsError
	switch {
	case err == nil:
		return at, false, nil
	case !errors.As(err, &refused):
		return at, false, fmt.Errorf("a row that the target refuses fails the write as a whole: %w", err)
	case len(refused.Rows) != 1 || refused.Rows[0].Row != 3:
		return at, false, fmt.Errorf("the target refuses row 3, and the sink tells of %+v", refused.Rows)
	case refused.Rows[0].Reason == "" || refused.Rows[0].Kind == "":
		return at, false, fmt.Errorf("a refused row has no reason or no kind: %+v", refused.Rows[0])
	}
	return at, true, nil
}

// refusedLate looks for the row in the ticks of all writers.
func (p *process) refusedLate(ctx context.Context, at int64, want bool) error {
	var got []refusedRow
	for range 3 {
		for _, w := range p.writers {
			err := w.Tick(ctx, time.Now())
			var refused *connectors.RejectedError
			if err != nil && !errors.As(err, &refused) {
				return fmt.Errorf("tick: %w", err)
			}
			if refused == nil {
				continue
			}
			for _, r := range refused.Rows {
				if r.Record.Origin == nil || r.Record.Origin.Topic != "input" || r.Record.Origin.Partition != 0 || string(r.Record.Key) != "0" {
					return fmt.Errorf("a refused row has lost where it is from or its key: %+v", r.Record)
				}
				if string(r.Record.Value) != p.world.target.Poison(0, int(at)) {
					return fmt.Errorf("a refused row has the value %q", r.Record.Value)
				}
				got = append(got, refusedRow{r.Record.Offset, r.Reason})
			}
		}
	}
	switch {
	case !want && len(got) > 0:
		return fmt.Errorf("a refused row is handed over again behind a checkpoint that says it is: %+v", got)
	case want && (len(got) != 1 || got[0].offset != at || got[0].reason == ""):
		return fmt.Errorf("the target refuses offset %d, and after the commit the sink tells of %+v", at, got)
	}
	return nil
}
