package transform

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"math"
	"slices"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// latestJoin joins each left record with the newest right value of its key as of its
// event time. Left records wait until the watermark has passed their time. Of each key
// the versions are kept that they may still ask for.
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
		return j.version(x, k)
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

// The layout of a version: that of a kept row, whose count says that the value has
// ended, with the partition and the offset as its bounds, which decide between
// versions of one time. In front of all versions of a key is where the last begins.
const versionsHead = 4

// ends reports whether a right record says that its key has no value any more.
func (j *latestJoin) ends(x joinRow) bool {
	return x.rec.Op.Retracts() || j.tombstone >= 0 && x.slots[j.tombstone].Bool()
}

// version keeps a right record as the value of its key from its time on.
func (j *latestJoin) version(x joinRow, k state.Key) error {
	ended := uint32(0)
	if j.ends(x) {
		ended = 1
	}
	place := [2]int64{-1, x.rec.Offset}
	if x.rec.Origin != nil {
		place[0] = int64(x.rec.Origin.Partition)
	}
	j.kept = appendEntry(j.kept[:0], ended, x.rec.Time, &place, connectors.NoMark)
	if ended == 0 {
		j.kept = j.encode(j.kept, rightSide, x)
	}
	seal(j.kept, 0)
	list, ok := j.versions.Get(0, k)
	if !ok {
		// One that ends the value may come before what it ends.
		j.first(x, k, ended == 1)
		return nil
	}
	e, err := lastVersion(list)
	if err != nil {
		return err
	}
	if e.time() >= x.rec.Time {
		return j.insert(x, k, list)
	}
	n := len(list)
	head, _ := j.versions.Upsert(0, k, n)
	binary.LittleEndian.PutUint32(head, uint32(n))
	j.versions.Append(0, k, j.kept)
	j.pruneAt(k, x.rec.Time)
	return nil
}

// first keeps the only version of a key.
func (j *latestJoin) first(x joinRow, k state.Key, ended bool) {
	j.list = binary.LittleEndian.AppendUint32(j.list[:0], versionsHead)
	j.list = append(j.list, j.kept...)
	j.versions.Put(0, k, j.list)
	if ended {
		j.pruneAt(k, x.rec.Time)
	}
	if j.ttl > 0 {
		j.expireAt(k, x.rec.Time)
	}
}

func lastVersion(list []byte) (joinEntry, error) {
	if len(list) <= versionsHead {
		return nil, state.ErrCorrupt
	}
	last := int(binary.LittleEndian.Uint32(list))
	if last < versionsHead || last >= len(list) {
		return nil, state.ErrCorrupt
	}
	e, _, err := nextEntry(list[last:])
	return e, err
}

// newer reports whether the version that comes last of two of one time takes the other
// one's place: by where they come from. Rows that have no place go by what they hold, so
// that it hangs on no order of arrival; the changes of an updating stream come in order.
func (j *latestJoin) newer(came, there joinEntry) bool {
	p, o := came.bounds()
	q, r := there.bounds()
	c := cmp.Or(cmp.Compare(p, q), cmp.Compare(o, r))
	if c == 0 && !j.updating[rightSide] {
		c = bytes.Compare(came.record().kept, there.record().kept)
	}
	return c >= 0
}

// insert puts a version between those that there are. One of the same time is
// replaced by the newer of both.
func (j *latestJoin) insert(x joinRow, k state.Key, list []byte) error {
	wm := j.run.Watermark(k.Group)
	j.list = append(j.list[:0], 0, 0, 0, 0)
	placed, last := false, versionsHead
	put := func(e joinEntry) {
		last = len(j.list)
		j.list = append(j.list, e...)
	}
	for rest := list[versionsHead:]; len(rest) > 0; {
		e, tail, err := nextEntry(rest)
		if err != nil {
			return err
		}
		rest = tail
		switch {
		case placed || e.time() < x.rec.Time:
			put(e)
		case e.time() == x.rec.Time:
			placed = true
			if j.newer(j.kept, e) {
				put(j.kept)
			} else {
				put(e)
			}
		default:
			placed = true
			if e.time() <= wm {
				// No left record to come is older than the version that follows.
				j.run.Late(1)
				return nil
			}
			put(j.kept)
			put(e)
		}
	}
	if !placed {
		put(j.kept)
	}
	binary.LittleEndian.PutUint32(j.list, uint32(last))
	j.versions.Put(0, k, j.list)
	j.pruneAt(k, x.rec.Time)
	return nil
}

// pruneAt has older versions go once the watermark has come to a time. It does so for
// all of a second or so at once.
func (j *latestJoin) pruneAt(k state.Key, t int64) {
	const grain = 1024
	j.timers.Set(plusTime(t-t%grain, grain), k, pruneTag)
}

// expireAt looks at a key again when the value of a time has outlived the ttl.
func (j *latestJoin) expireAt(k state.Key, t int64) {
	grain := max(j.ttl/16, 1)
	at := plusTime(plusTime(t, j.ttl), 1)
	j.timers.Set(plusTime(at-at%grain, grain), k, expireTag)
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
	var current, next joinEntry
	var err error
	for _, l := range j.order {
		for {
			if next == nil && len(versions) > 0 {
				if next, versions, err = nextEntry(versions); err != nil {
					return err
				}
			}
			if next == nil || next.time() > l.time() {
				break
			}
			current, next = next, nil
		}
		if err := j.give(ctx, l, current); err != nil {
			return err
		}
	}
	return nil
}

// give gives out a left record with a version, nil for none.
func (j *latestJoin) give(ctx context.Context, l, version joinEntry) error {
	if version != nil && version.count() == 0 && (j.ttl == 0 || plusTime(version.time(), j.ttl) >= l.time()) {
		ok, err := j.matched(ctx, l.record(), version.record(), l.time())
		if ok || err != nil {
			return err
		}
	}
	if j.config.Type == joinInner {
		return nil
	}
	return j.unmatched(ctx, leftSide, l.record(), l.time(), connectors.Insert)
}

// prune removes the versions of a key that no left record to come asks for.
func (j *latestJoin) prune(k state.Key, wm int64, tag []byte) error {
	list, ok := j.versions.Get(0, k)
	if !ok || len(list) <= versionsHead {
		return nil
	}
	var newest joinEntry // as of wm
	last := int64(math.MinInt64)
	from := versionsHead
	for at := versionsHead; at < len(list); {
		e, _, err := nextEntry(list[at:])
		if err != nil {
			return err
		}
		if e.time() <= wm {
			newest, from = e, at
		}
		last = e.time()
		at += len(e)
	}
	if newest != nil && (newest.count() == 1 || j.ttl > 0 && plusTime(newest.time(), j.ttl) < wm) {
		from += len(newest)
	}
	switch {
	case from == len(list):
		j.versions.Delete(0, k)
		return nil
	case from > versionsHead:
		head := int(binary.LittleEndian.Uint32(list)) - (from - versionsHead)
		j.list = append(j.list[:0], 0, 0, 0, 0)
		j.list = append(j.list, list[from:]...)
		binary.LittleEndian.PutUint32(j.list, uint32(head))
		j.versions.Put(0, k, j.list)
	}
	if bytes.Equal(tag, expireTag) {
		j.expireAt(k, last)
	}
	return nil
}
