package state

import (
	"encoding/binary"
	"time"
)

// StampSize is the length of the stamp that TTL keeps in a value.
const StampSize = 8

// ttlGrains is into how many parts a time to live is cut: timers stand at the ends of
// those, so that the timers of many keys share few buckets.
const ttlGrains = 64

// TTL removes state that was not touched for a time. Whether that is event time or
// processing time is decided by the caller, by the times it gives.
//
// The value of a key holds a stamp, the time of its last touch, wherever the caller
// puts it. A key has one timer, however often it is touched: when it fires, the stamp
// tells whether the key has expired or the timer is set anew. Timers fire up to 1/64 of
// the time to live late, so that what must be exact asks Expired.
type TTL struct {
	timers *Timers
	ttl    int64 // milliseconds
	grain  int64
	tag    []byte
}

// NewTTL makes the time to live of the keys whose timers have that tag. ttl is rounded
// up to milliseconds, at least one.
func NewTTL(timers *Timers, ttl time.Duration, tag []byte) *TTL {
	ms := max(int64((ttl+time.Millisecond-1)/time.Millisecond), 1)
	return &TTL{timers: timers, ttl: ms, grain: max(ms/ttlGrains, 1), tag: tag}
}

// Touch notes in the stamp, within the value of k, that the key was used at a time.
// The stamp never goes back. fresh says that the value is new. The stamp may be borrowed
// from a table: nothing else of the value is valid after a fresh Touch.
func (t *TTL) Touch(k Key, stamp []byte, fresh bool, now int64) {
	if !fresh && now <= Stamp(stamp) {
		return
	}
	binary.LittleEndian.PutUint64(stamp, uint64(now))
	if fresh {
		t.timers.Set(t.round(addTime(now, t.ttl)), k, t.tag)
	}
}

// Stamp is the time of the last touch.
func Stamp(stamp []byte) int64 { return int64(binary.LittleEndian.Uint64(stamp)) }

// Expired reports whether state with that stamp has expired at a time: ttl has passed
// since the last touch.
func (t *TTL) Expired(stamp []byte, now int64) bool { return now >= t.Expires(stamp) }

// Expires is when state with that stamp expires.
func (t *TTL) Expires(stamp []byte) int64 { return addTime(Stamp(stamp), t.ttl) }

// Fire handles a timer with the TTL's tag that has fired at a time: it reports whether
// the key has expired, so that the caller deletes its value, and otherwise sets the
// timer anew. stamp is empty where the key is gone already.
func (t *TTL) Fire(at int64, k Key, stamp []byte) (expired bool) {
	if len(stamp) < StampSize {
		return false
	}
	if t.Expired(stamp, at) {
		return true
	}
	t.timers.Set(t.round(t.Expires(stamp)), k, t.tag)
	return false
}

// round is the next end of a grain.
func (t *TTL) round(at int64) int64 {
	rest := at % t.grain
	if rest < 0 {
		rest += t.grain
	}
	if rest == 0 || at > MaxTime-t.grain {
		return at
	}
	return at + t.grain - rest
}

// addTime adds without going beyond the end of time.
func addTime(at, d int64) int64 {
	if at > MaxTime-d {
		return MaxTime
	}
	return at + d
}
