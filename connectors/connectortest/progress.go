package connectortest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// tellProgress checks what readers that implement connectors.Progress tell: no split
// is caught up before all of it was given out, and all are at the end.
func tellProgress(ctx context.Context, s *Source) error {
	src, splits, err := s.open(ctx, nil)
	if err != nil {
		return err
	}
	p := newProgress(splits)
	r, err := reader(src, splits)
	if err != nil {
		return fmt.Errorf("make a reader: %w", err)
	}
	told, ok := r.(connectors.Progress)
	if !ok {
		return errors.Join(r.Close(), src.Close())
	}
	early := func() error {
		for i, sp := range splits {
			if told.CaughtUp(i) && len(p.values[sp.ID]) < len(s.Want[sp.ID]) {
				return fmt.Errorf("split %s is told to be caught up after %d of %d records", sp.ID, len(p.values[sp.ID]), len(s.Want[sp.ID]))
			}
		}
		return nil
	}
	err = early()
	if err == nil {
		err = each(ctx, r, func(b *connectors.Batch) (bool, error) {
			defer b.Recycle()
			return false, errors.Join(p.take(r, b, all(len(splits))), early())
		})
	}
	for i, sp := range splits {
		if err == nil && !told.CaughtUp(i) {
			err = fmt.Errorf("split %s is read to its end and told not to be caught up", sp.ID)
		}
	}
	return errors.Join(err, s.compare(p), r.Close(), src.Close())
}

// pauseSplits pauses each split in turn before anything is read, checks that only
// the others come, that the reader does not end meanwhile, and that the rest comes
// once none is paused.
func pauseSplits(ctx context.Context, s *Source) error {
	src, splits, err := s.open(ctx, nil)
	if err != nil {
		return err
	}
	if err := src.Close(); err != nil {
		return fmt.Errorf("close the source: %w", err)
	}
	for i := range splits {
		if err := s.pauseOne(ctx, i); err != nil {
			return fmt.Errorf("split %s paused: %w", splits[i].ID, err)
		}
	}
	return nil
}

func (s *Source) pauseOne(ctx context.Context, paused int) error {
	src, splits, err := s.open(ctx, nil)
	if err != nil {
		return err
	}
	p := newProgress(splits)
	r, err := reader(src, splits)
	if err != nil {
		return fmt.Errorf("make a reader: %w", err)
	}
	pauser, ok := r.(connectors.Pauser)
	if !ok {
		return errors.Join(r.Close(), src.Close())
	}
	pauser.Pause([]int{paused})
	out := splits[paused].ID
	err = s.othersOnly(ctx, r, p, out)
	if err == nil && len(s.Want[out]) > 0 {
		err = waitsForPaused(ctx, r, p)
	}
	pauser.Pause(nil)
	if err == nil {
		err = each(ctx, r, func(b *connectors.Batch) (bool, error) {
			defer b.Recycle()
			return false, p.take(r, b, all(len(splits)))
		})
	}
	return errors.Join(err, s.compare(p), r.Close(), src.Close())
}

// othersOnly reads until every split but one is complete.
func (s *Source) othersOnly(ctx context.Context, r connectors.Reader, p *progress, out string) error {
	complete := func() bool {
		for id, want := range s.Want {
			if id != out && len(p.values[id]) < len(want) {
				return false
			}
		}
		return true
	}
	for !complete() {
		b, err := r.Poll(ctx)
		if err != nil {
			return fmt.Errorf("poll: %w", err)
		}
		err = p.take(r, b, all(len(p.splits)))
		b.Recycle()
		if err != nil {
			return err
		}
		if len(p.values[out]) > 0 {
			return fmt.Errorf("records of %s come", out)
		}
	}
	return nil
}

// waitsForPaused checks that polls wait while all that has records left is paused.
func waitsForPaused(ctx context.Context, r connectors.Reader, p *progress) error {
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	for {
		b, err := r.Poll(short)
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return nil
		case err != nil:
			return fmt.Errorf("a poll while all that is left is paused says %w", err)
		}
		records := len(b.Records) // a position may still move without any
		err = p.take(r, b, all(len(p.splits)))
		b.Recycle()
		if err == nil && records > 0 {
			err = errors.New("records come while all that is left is paused")
		}
		if err != nil {
			return err
		}
	}
}
