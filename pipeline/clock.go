package pipeline

import (
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// eventClock tells how far event time has come in the splits that one task of a
// source reads. All but progress belongs to the task's goroutine.
type eventClock interface {
	// add takes splits over, with the highest event time of the restored ones. Those
	// that come after the first tick were found while the pipeline runs: they hold
	// event time back only from their first record on.
	add(splits []connectors.Split, now time.Time)
	// given tells that the reader gave out a batch of a split up to a position, and the
	// time of its last record, nil where it has none. Until
	// advance comes there the split is not at its end, however long a throttle makes
	// that.
	given(split int, next int64, newest *int64)
	// observe sees rows of one split in order, just before they are handed on. It sets
	// the Mark of each to the watermark of the split before it. A row whose time
	// cannot be is given to refuse and left out of what is returned, in the memory of rows.
	observe(split int, b *connectors.Batch, rows []uint16, now time.Time, refuse func(row uint16, reason string)) []uint16
	// advance tells that a split was read and handed on up to a position.
	advance(split int, next int64)
	// end tells that every split is read to its end for good.
	end()
	// tick tells the time, between batches and a few times a second.
	tick(now time.Time)
	// current is the watermark of all splits together, state.MinTime before there is
	// one. While a split holds it, it is the least of those that do, and never goes
	// back. When none does, idle says so, and it is what event time may move to once
	// all senders are idle: the highest of all splits, or beyond where the clock moves
	// it on. After that it can be less again; receivers keep what they had.
	current() (watermark int64, idle bool)
	// held says that the reader is not to be polled before the next tick: it cannot
	// leave out single splits, and all that are not idle are too far ahead of others.
	held() bool
	// maxTime is the highest event time seen in a split, nil before the first record.
	maxTime(split int) *int64
	// progress tells of each split, for metrics. It is safe for concurrent use.
	progress() []SplitProgress
}

// SplitProgress is how far the reading of one split has come.
type SplitProgress struct {
	Source    string
	Split     string
	Next      int64  // position of the next record to read
	MaxTime   *int64 // highest event time read, milliseconds since 1970; nil before the first record
	Watermark int64  // state.MinTime before the first record
	Idle      bool   // it does not hold event time back
	CaughtUp  bool   // there is nothing more to read now
	Behind    int64  // records that it has and that were not handed on, -1 where that is not known
	Paused    bool   // it waits for splits whose event time is behind
	Ended     bool   // it is read to its end for good
	// Newest is the time of the record that was read last, as the source gave it, in
	// milliseconds since 1970; nil before the first.
	Newest *int64

	current time.Time // when it was seen at its end last; zero for never
}
