package transform

import (
	"context"
	"encoding/binary"
	"math"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
	"github.com/sluice-etl/sluice/pipeline/transform/window"
)

// windowJoin joins the records of the same window once it closes. Namespaces are the
// ends of windows, and a row stands in each of its windows: as uvarint length and what
// is kept of the record.
type windowJoin struct {
	*joinRun
	tables  [2]state.Table
	cursor  *window.Cursor // of tumbling windows
	ends    []int64
	row     []byte
	matcher windowMatcher
}

func newWindowJoin(r *joinRun) *windowJoin {
	w := &windowJoin{joinRun: r, tables: [2]state.Table{r.run.Store.Table(sideNames[leftSide]), r.run.Store.Table(sideNames[rightSide])}}
	if r.config.Window.Kind == TumblingWindow {
		w.cursor = window.NewCursor(r.config.Window.Grid())
	}
	w.matcher.joinRun = r
	return w
}

// Process keeps rows until their windows close.
func (w *windowJoin) Process(ctx context.Context, input int, b *connectors.Batch, sel []uint16) error {
	now := w.run.Now().UnixMilli()
	return w.eachRow(ctx, b, sel, func(row uint16, k state.Key) error {
		rec := &b.Records[row]
		at, horizon := now, int64(math.MinInt64)
		if !w.processing {
			at, horizon = rec.Time, w.horizon(rec, k)
		}
		if !w.assign(at, horizon) {
			w.run.Late(1)
			return nil
		}
		if nullKey(k) && !w.config.outer(input) {
			return nil
		}
		w.kept = w.encode(w.kept[:0], input, batchRow(b, row))
		w.row = appendBytes(w.row[:0], w.kept)
		for _, end := range w.ends {
			w.tables[input].Append(end, k, w.row)
		}
		return nil
	})
}

// assign finds the ends of the windows of a time that have not closed yet.
func (w *windowJoin) assign(at, horizon int64) bool {
	w.ends = w.ends[:0]
	if w.cursor != nil {
		if _, end := w.cursor.At(at); end > horizon {
			w.ends = append(w.ends, end)
		}
		return len(w.ends) > 0
	}
	c := &w.config.Window
	at = window.Clamp(at)
	for start := at - window.FloorMod(at-c.Offset, c.Every); start > at-c.Size; start -= c.Every {
		if start+c.Size > horizon {
			w.ends = append(w.ends, start+c.Size)
		}
	}
	return len(w.ends) > 0
}

// Watermark closes windows by event time.
func (w *windowJoin) Watermark(ctx context.Context, wm int64) error {
	if w.processing && wm != state.MaxTime {
		return nil
	}
	return w.wrap(w.advance(ctx, wm))
}

// Tick closes windows by processing time.
func (w *windowJoin) Tick(ctx context.Context, now time.Time) error {
	if !w.processing {
		return nil
	}
	return w.wrap(w.advance(ctx, now.UnixMilli()))
}

// advance closes the windows that end by now.
func (w *windowJoin) advance(ctx context.Context, now int64) error {
	var ends []int64
	for _, t := range w.tables {
		ends = t.Namespaces(ends, math.MinInt64, now)
	}
	for len(ends) > 0 {
		end := ends[0]
		for _, e := range ends {
			end = min(end, e)
		}
		n := 0
		for _, e := range ends {
			if e != end {
				ends[n] = e
				n++
			}
		}
		ends = ends[:n]
		if err := w.close(ctx, end); err != nil {
			return err
		}
	}
	return w.rows.Flush(ctx)
}

// close gives out the results of one window and forgets it.
func (w *windowJoin) close(ctx context.Context, end int64) (err error) {
	l, rt := w.tables[leftSide], w.tables[rightSide]
	w.window = [2]int64{end - w.config.Window.Size, end}
	if w.cursor != nil {
		w.window[0], _ = w.cursor.At(end - 1)
	}
	l.Scan(end, func(k state.Key, value []byte) bool {
		k = ownKey(k, &w.key)
		w.matcher.left = append(w.matcher.left[:0], value...)
		var other []byte
		if !nullKey(k) {
			other, _ = rt.Get(end, k)
		}
		err = w.matcher.key(ctx, other, end-1)
		return err == nil
	})
	if err == nil && w.config.outer(rightSide) {
		rt.Scan(end, func(k state.Key, value []byte) bool {
			w.matcher.right = append(w.matcher.right[:0], value...)
			k = ownKey(k, &w.key)
			if !nullKey(k) {
				if _, both := l.Get(end, k); both {
					return true
				}
			}
			w.matcher.left = w.matcher.left[:0]
			err = w.matcher.key(ctx, w.matcher.right, end-1)
			return err == nil
		})
	}
	l.Drop(end)
	rt.Drop(end)
	return err
}

// windowMatcher joins the rows of a key in a window that has closed.
type windowMatcher struct {
	*joinRun
	left, right []byte // copies of what tables hold
	hit         []bool // by right row
}

// key gives out the results of a key at a time.
func (m *windowMatcher) key(ctx context.Context, right []byte, at int64) error {
	m.hit = m.hit[:0]
	for left := m.left; len(left) > 0; {
		var l joinRow
		var err error
		if l, left, err = nextWindowRow(left); err != nil {
			return err
		}
		matched, err := m.row(ctx, l, right, at)
		if err != nil {
			return err
		}
		switch {
		case m.config.Type == joinSemi && matched:
			err = m.leftRecord(ctx, l, at, connectors.Insert)
		case !matched && m.config.outer(leftSide):
			err = m.unmatched(ctx, leftSide, l, at, connectors.Insert)
		}
		if err != nil {
			return err
		}
	}
	if !m.config.outer(rightSide) {
		return nil
	}
	for i := 0; len(right) > 0; i++ {
		var rt joinRow
		var err error
		if rt, right, err = nextWindowRow(right); err != nil {
			return err
		}
		if i < len(m.hit) && m.hit[i] {
			continue
		}
		if err := m.unmatched(ctx, rightSide, rt, at, connectors.Insert); err != nil {
			return err
		}
	}
	return nil
}

// row gives out the pairs of one left row, and reports whether it has a match.
func (m *windowMatcher) row(ctx context.Context, l joinRow, right []byte, at int64) (matched bool, err error) {
	for i := 0; len(right) > 0; i++ {
		var rt joinRow
		if rt, right, err = nextWindowRow(right); err != nil {
			return false, err
		}
		if i == len(m.hit) {
			m.hit = append(m.hit, false)
		}
		var ok bool
		if m.config.leftOnly() {
			ok, err = m.matches(ctx, l, rt, false)
		} else {
			ok, err = m.matched(ctx, l, rt, at)
		}
		if err != nil {
			return false, err
		}
		if !ok {
			continue
		}
		if m.config.leftOnly() {
			return true, nil
		}
		m.hit[i], matched = true, true
	}
	return matched, nil
}

// nextWindowRow takes the first row off.
func nextWindowRow(rows []byte) (x joinRow, rest []byte, err error) {
	size, n := binary.Uvarint(rows)
	if n <= 0 || size > uint64(len(rows)-n) {
		return x, nil, state.ErrCorrupt
	}
	end := n + int(size)
	return joinRow{kept: rows[n:end:end], mark: connectors.NoMark}, rows[end:], nil
}
