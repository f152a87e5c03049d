package transform

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"time"

	"github.com/sluice-etl/sluice/pipeline/state"
)

// version is a right record that is the value of its key from its beginning on, or that
// ends it. Its layout is that of a kept row, whose count says that the value has ended,
// with the partition and the offset as its bounds, which decide between versions of one
// time. Those of a key stand in the order of their beginnings, each with one that counts
// in place of all before it. In front of them is where the last begins.
type version struct{ joinEntry }

const versionsHead = 4

// begin is from when on the version counts: its time, or the mark that it came behind.
func (v version) begin() int64 { return max(v.time(), v.mark()) }

// ends reports whether the key has no value from then on.
func (v version) ends() bool { return v.count() == 1 }

// endsHold is how long in milliseconds of event time an end hides older versions that
// come after it, where no ttl says how old they may be.
const endsHold = int64(time.Hour / time.Millisecond)

// until is when a version that ends the value hides older ones no longer, and can be
// forgotten. Changes of an updating stream come in order, so that none of an older row
// comes behind.
func (j *latestJoin) until(v version) int64 {
	switch {
	case j.updating[rightSide]:
		return v.begin()
	case j.ttl > 0:
		return plusTime(plusTime(v.time(), j.ttl), 1) // older ones have outlived it too
	}
	return plusTime(v.begin(), endsHold)
}

// ends reports whether a right record says that its key has no value any more.
func (j *latestJoin) ends(x joinRow) bool {
	return x.rec.Op.Retracts() || j.tombstone >= 0 && x.slots[j.tombstone].Bool()
}

// keep keeps a right record as the value of its key.
func (j *latestJoin) keep(x joinRow, k state.Key) error {
	ended := uint32(0)
	if j.ends(x) {
		ended = 1
	}
	place := [2]int64{-1, x.rec.Offset}
	if x.rec.Origin != nil {
		place[0] = int64(x.rec.Origin.Partition)
	}
	j.kept = appendEntry(j.kept[:0], ended, x.rec.Time, &place, x.mark)
	if ended == 0 {
		j.kept = j.encode(j.kept, rightSide, x)
	}
	seal(j.kept, 0)
	came := version{j.kept}
	list, ok := j.versions.Get(0, k)
	if !ok {
		// One that ends the value may come before what it ends.
		j.first(came, k)
		return nil
	}
	last, err := lastVersion(list)
	if err != nil {
		return err
	}
	if last.begin() >= came.begin() || j.hides(last, came) {
		return j.insert(came, k, list)
	}
	n := len(list)
	head, _ := j.versions.Upsert(0, k, n)
	binary.LittleEndian.PutUint32(head, uint32(n))
	j.versions.Append(0, k, j.kept)
	j.pruneAt(k, came.begin())
	return nil
}

// first keeps the only version of a key.
func (j *latestJoin) first(came version, k state.Key) {
	j.list = binary.LittleEndian.AppendUint32(j.list[:0], versionsHead)
	j.list = append(j.list, j.kept...)
	j.versions.Put(0, k, j.list)
	if came.ends() {
		j.pruneAt(k, came.begin())
	}
	if j.ttl > 0 {
		j.expireAt(k, came.begin())
	}
}

func lastVersion(list []byte) (version, error) {
	if len(list) <= versionsHead {
		return version{}, state.ErrCorrupt
	}
	last := int(binary.LittleEndian.Uint32(list))
	if last < versionsHead || last >= len(list) {
		return version{}, state.ErrCorrupt
	}
	e, _, err := nextEntry(list[last:])
	return version{e}, err
}

// newer reports whether the one that came takes the place of another: by their times,
// and of one time by where they come from. Rows that have no place go by what they hold,
// so that it hangs on no order of arrival; the changes of an updating stream come in order.
func (j *latestJoin) newer(came, there version) bool {
	p, o := came.bounds()
	q, r := there.bounds()
	c := cmp.Or(cmp.Compare(came.time(), there.time()), cmp.Compare(p, q), cmp.Compare(o, r))
	if c == 0 && !j.updating[rightSide] {
		c = bytes.Compare(came.record().kept, there.record().kept)
	}
	return c >= 0
}

// hides reports whether a version that is there goes on counting where one that came
// begins, because that is the older one.
func (j *latestJoin) hides(there, came version) bool {
	if there.ends() && j.until(there) <= came.begin() {
		return false // it would be forgotten by then
	}
	return !j.newer(came, there)
}

// insert puts a version between those that there are, unless one hides it, and removes
// those that it hides. A late one that is hidden can match nothing, and is counted.
func (j *latestJoin) insert(came version, k state.Key, list []byte) error {
	j.list = append(j.list[:0], 0, 0, 0, 0)
	placed, settled, last := false, false, versionsHead
	put := func(v version) {
		last = len(j.list)
		j.list = append(j.list, v.joinEntry...)
	}
	var before version // the last one that begins no later
	for rest := list[versionsHead:]; len(rest) > 0; {
		e, tail, err := nextEntry(rest)
		if err != nil {
			return err
		}
		rest = tail
		v := version{e}
		if v.begin() < came.begin() {
			put(v)
			before = v
			continue
		}
		if !placed {
			if v.begin() == came.begin() && j.hides(v, came) || before.joinEntry != nil && j.hides(before, came) {
				j.late(came)
				return nil
			}
			put(came)
			placed = true
		}
		if !settled && (v.begin() == came.begin() || j.hides(came, v)) {
			j.late(v)
			continue
		}
		put(v)
		settled = true
	}
	if !placed {
		if j.hides(before, came) {
			j.late(came)
			return nil
		}
		put(came)
	}
	binary.LittleEndian.PutUint32(j.list, uint32(last))
	j.versions.Put(0, k, j.list)
	j.pruneAt(k, came.begin())
	return nil
}

// late counts a late version that goes.
func (j *latestJoin) late(v version) {
	if v.marked() {
		j.run.Late(1)
	}
}

// pruneAt has older versions go once the watermark has come to a time. It does so for
// all of a second or so at once.
func (j *latestJoin) pruneAt(k state.Key, t int64) {
	const grain = 1024
	j.timers.Set(plusTime(t-t%grain, grain), k, pruneTag)
}

// expireAt looks at a key again when the value that begins at a time has outlived the ttl.
func (j *latestJoin) expireAt(k state.Key, t int64) {
	grain := max(j.ttl/16, 1)
	at := plusTime(plusTime(t, j.ttl), 1)
	j.timers.Set(plusTime(at-at%grain, grain), k, expireTag)
}

// prune removes the versions of a key that no left record to come asks for.
func (j *latestJoin) prune(k state.Key, wm int64, tag []byte) error {
	list, ok := j.versions.Get(0, k)
	if !ok || len(list) <= versionsHead {
		return nil
	}
	var newest version // as of wm
	last := int64(math.MinInt64)
	from := versionsHead
	for at := versionsHead; at < len(list); {
		e, _, err := nextEntry(list[at:])
		if err != nil {
			return err
		}
		v := version{e}
		if v.begin() <= wm {
			newest, from = v, at
		}
		last = v.begin()
		at += len(e)
	}
	if newest.joinEntry != nil {
		over := j.ttl > 0 && plusTime(newest.time(), j.ttl) < wm
		switch {
		case over || newest.ends() && j.until(newest) <= wm:
			from += len(newest.joinEntry)
		case newest.ends():
			j.pruneAt(k, j.until(newest))
		}
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
