package transform

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// latestJoin joins each left record with the newest right value of its key as of its
// event time. Left records wait until the watermark has passed their time. Of each key
// the versions are kept that they may still ask for.
//
// A version counts from its time on, and a late one from its mark on: a left record
// that is given out already has a time before that mark, so that none is answered one
// way or the other by whether the version was there in time.
type latestJoin struct {
	*joinRun
	versions state.Table // versions of a key, in the order of their time
	waiting  *joinRows
	timers   *state.Timers
	ttl      int64 // 0 for ever
	list     []byte
	left     []byte
	order    []joinEntry
	changed  []changedRows
}

// changedRows is what is left of the waiting rows of a key.
type changedRows struct {
	key  state.Key
	rows []byte
}

// waitingWidth is the span in milliseconds of the buckets in which left records wait.
const waitingWidth = 128

// Tags of timers: a key has versions that nothing asks for any more, and it may have
// outlived its ttl.
var (
	pruneTag  = []byte{0}
	expireTag = []byte{1}
)

func newLatestJoin(r *joinRun) *latestJoin {
	return &latestJoin{
		joinRun: r, versions: r.run.Store.Table("versions"), ttl: r.config.TTL.millis(),
		waiting: newJoinRows(r.run.Store.Table("waiting"), waitingWidth, 0),
		timers:  state.NewTimers(r.run.Store.Table("timers")),
	}
}

// Process keeps left records until they are due, and right ones as versions.
func (j *latestJoin) Process(ctx context.Context, input int, b *connectors.Batch, sel []uint16) error {
	if input == leftSide || j.tombstone < 0 {
		sel = dropKeyedTombstones(&j.run, b, sel)
	}
	at := 0
	return j.eachRow(ctx, b, sel, func(row uint16, k state.Key) error {
		at++
		if input == leftSide {
			return j.wait(ctx, batchRow(b, row), k)
		}
		x := batchRow(b, row)
		switch {
		case nullKey(k):
			if j.ends(x) {
				j.run.Dropped(1)
			}
			return nil
		case replacedNext(b, sel[at-1:]):
			return nil
		}
		return j.keep(j.marked(b, row, k), k)
	})
}

// replacedNext reports whether the first of some rows is the old one of an update
// whose new one follows under the same key.
func replacedNext(b *connectors.Batch, sel []uint16) bool {
	if b.Records[sel[0]].Op != connectors.UpdateBefore || len(sel) < 2 || b.Records[sel[1]].Op != connectors.UpdateAfter {
		return false
	}
	return bytes.Equal(b.Row(int(sel[0]))[KeySlot].Raw(), b.Row(int(sel[1]))[KeySlot].Raw())
}

// wait keeps a left record.
func (j *latestJoin) wait(ctx context.Context, x joinRow, k state.Key) error {
	switch {
	case x.rec.Time < j.horizon(x.rec, k):
		j.run.Late(1)
		return nil
	case nullKey(k) && j.config.Type == joinInner:
		return nil
	case nullKey(k):
		return j.unmatched(ctx, leftSide, x, x.rec.Time, connectors.Insert)
	}
	ns := j.waiting.bucket(x.rec.Time)
	j.kept = appendEntry(j.kept[:0], 0, x.rec.Time, nil, connectors.NoMark)
	j.kept = j.encode(j.kept, leftSide, x)
	seal(j.kept, 0)
	j.waiting.table.Append(ns, k, j.kept)
	j.waiting.open(ns)
	return nil
}

// Watermark gives out the left records of the time that has passed.
func (j *latestJoin) Watermark(ctx context.Context, wm int64) error {
	for len(j.waiting.live) > 0 && j.waiting.live[0] < wm {
		ns := j.waiting.live[0]
		whole := ns+waitingWidth <= wm
		if err := j.drain(ctx, ns, wm, whole); err != nil {
			return j.wrap(err)
		}
		if !whole {
			break
		}
		j.waiting.table.Drop(ns)
		j.waiting.live = slices.Delete(j.waiting.live, 0, 1)
	}
	if err := j.rows.Flush(ctx); err != nil {
		return err
	}
	return j.wrap(j.timers.Due(wm, func(_ int64, k state.Key, tag []byte) error { return j.prune(k, wm, tag) }))
}

// drain gives out the left records of a bucket that are due.
func (j *latestJoin) drain(ctx context.Context, ns, wm int64, whole bool) (err error) {
	j.changed = j.changed[:0]
	j.waiting.table.Scan(ns, func(k state.Key, value []byte) bool {
		k = ownKey(k, &j.key)
		j.left = append(j.left[:0], value...)
		var left []byte
		if left, err = j.due(ctx, k, wm); err == nil && !whole && len(left) < len(j.left) {
			own := k
			own.Bytes = bytes.Clone(k.Bytes)
			j.changed = append(j.changed, changedRows{own, bytes.Clone(left)})
		}
		return err == nil
	})
	for _, c := range j.changed {
		if len(c.rows) == 0 {
			j.waiting.table.Delete(ns, c.key)
		} else {
			j.waiting.table.Put(ns, c.key, c.rows)
		}
	}
	clear(j.changed)
	return err
}

// due gives out those of a key's rows, in j.left, that lie before wm, in the order of
// their time, and returns the others.
func (j *latestJoin) due(ctx context.Context, k state.Key, wm int64) (rest []byte, err error) {
	j.order = j.order[:0]
	kept := 0
	for left := j.left; len(left) > 0; {
		var e joinEntry
		if e, left, err = nextEntry(left); err != nil {
			return nil, err
		}
		if e.time() < wm {
			j.order = append(j.order, e)
		} else {
			kept += len(e)
		}
	}
	slices.SortStableFunc(j.order, func(a, b joinEntry) int { return cmp.Compare(a.time(), b.time()) })
	versions, _ := j.versions.Get(0, k)
	if len(versions) > versionsHead {
		versions = versions[versionsHead:]
	} else {
		versions = nil
	}
	if err := j.match(ctx, versions); err != nil {
		return nil, err
	}
	if kept == 0 {
		return nil, nil
	}
	for left := j.left; len(left) > 0; {
		e, tail, _ := nextEntry(left)
		if left = tail; e.time() >= wm {
			rest = append(rest, e...)
		}
	}
	return rest, nil
}

// match gives out the rows in j.order, each with the newest version as of its time.
func (j *latestJoin) match(ctx context.Context, versions []byte) error {
	var current, next version
	var err error
	for _, l := range j.order {
		for {
			if next.joinEntry == nil && len(versions) > 0 {
				if next.joinEntry, versions, err = nextEntry(versions); err != nil {
					return err
				}
			}
			if next.joinEntry == nil || next.begin() > l.time() {
				break
			}
			current, next = next, version{}
		}
		if err := j.give(ctx, l, current); err != nil {
			return err
		}
	}
	return nil
}

// give gives out a left record with a version, or the zero one for none.
func (j *latestJoin) give(ctx context.Context, l joinEntry, v version) error {
	if v.joinEntry != nil && !v.ends() && (j.ttl == 0 || plusTime(v.time(), j.ttl) >= l.time()) {
		rt := v.record()
		rt.mark = connectors.NoMark // the left record waited for it
		ok, err := j.matched(ctx, l.record(), rt, l.time())
		if ok || err != nil {
			return err
		}
	}
	if j.config.Type == joinInner {
		return nil
	}
	return j.unmatched(ctx, leftSide, l.record(), l.time(), connectors.Insert)
}
