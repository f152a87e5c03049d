package pipeline

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// TapOptions say what is shown of a step.
type TapOptions struct {
	// Limit ends the tap after so many records; 0 for none.
	Limit int
	// PerSecond is how many are shown at most in a second, the others are left out; 0 for 10.
	PerSecond int
	// Input shows what comes in, not what goes out; of a sink it always does.
	Input bool
}

// Tapped is a record at a step.
type Tapped struct {
	Time     time.Time `json:"time"` // when it passed
	Operator string    `json:"operator"`
	// Branch is the output that it went out by, where the step has several.
	Branch string `json:"branch,omitempty"`
	// Op is what the record does to the row that it is, in an updating stream:
	// update_before, update_after or delete; empty for an insert.
	Op        string            `json:"op,omitempty"`
	Topic     string            `json:"topic,omitempty"`
	Partition int32             `json:"partition"` // -1 where that is not known
	Offset    int64             `json:"offset"`    // likewise
	Key       string            `json:"key,omitempty"`
	Value     string            `json:"value"` // null for a tombstone; bytes that are not UTF-8 as \x and two digits
	Headers   map[string]string `json:"headers,omitempty"`
	EventTime *int64            `json:"event_time,omitempty"` // milliseconds since 1970
	// Left is how many were left out since the one before.
	Left int64 `json:"left"`
	// Cut says that Value is not all of it.
	Cut bool `json:"cut,omitempty"`
}

// Bounds of taps.
const (
	mostTaps      = 16  // of a pipeline, at a time
	tapPerSecond  = 10  // by default
	tapWaits      = 64  // records that wait for being taken
	mostTapRate   = 500 // a second
	mostTapBytes  = 16 << 10
	mostTapHeader = 1 << 10 // bytes of a header's value
	mostTapNamed  = 64      // headers
)

// Tap shows records at an operator until ctx ends, Limit is reached or the pipeline has
// ended, when the channel is closed. It goes on across restarts of the tasks. It never
// holds up the stream: what is not taken in time is left out and counted.
func (c *Control) Tap(ctx context.Context, operator string, o TapOptions) (<-chan Tapped, error) {
	if o.Limit < 0 || o.PerSecond < 0 {
		return nil, fmt.Errorf("tap of %s: limit and per_second cannot be below 0", operator)
	}
	board, err := c.tapped()
	if err != nil {
		return nil, err
	}
	t, err := board.open(operator, o)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { board.end(t) })
	return t.out, nil
}

// tapped are the taps of the pipeline that runs.
func (c *Control) tapped() (*tapBoard, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.taps == nil || c.status.Phase == Ended {
		return nil, c.cannot("be tapped")
	}
	return c.taps, nil
}

// tapBoard is where taps are put up for the tasks to see.
type tapBoard struct {
	pipeline string
	names    []string // of the operators, in the order of Description
	points   map[string]*tapPoint

	mu   sync.Mutex
	taps map[*tap]*tapList
	over bool
}

// tapPoint is one operator.
type tapPoint struct {
	in, out tapList
	sink    bool
}

// tapList is what a place is tapped by; nil for nothing, which is all that the stream
// looks at then.
type tapList struct{ now atomic.Pointer[[]*tap] }

func newTapBoard(p *Plan) *tapBoard {
	b := &tapBoard{pipeline: p.Spec.Name, points: map[string]*tapPoint{}, taps: map[*tap]*tapList{}}
	for i := range p.Spec.Sources {
		b.add(p.Spec.Sources[i].Name, false)
	}
	for _, n := range p.inOrder() {
		b.add(n.name, n.sink != nil)
	}
	return b
}

func (b *tapBoard) add(operator string, sink bool) {
	b.names, b.points[operator] = append(b.names, operator), &tapPoint{sink: sink}
}

func (b *tapBoard) open(operator string, o TapOptions) (*tap, error) {
	at := b.points[operator]
	if at == nil {
		hint := "it has " + strings.Join(b.names, ", ")
		if near := connectors.Nearest(operator, b.names); near != "" {
			hint = "did you mean " + near + "? " + hint
		}
		return nil, fmt.Errorf("pipeline %s has no operator %s: %s", b.pipeline, operator, hint)
	}
	list := &at.out
	if at.sink || o.Input {
		list = &at.in
	}
	t := newTap(operator, o, time.Now())
	t.over = func() { b.end(t) }
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.over:
		t.close()
		return t, nil
	case len(b.taps) >= mostTaps:
		return nil, fmt.Errorf("pipeline %s is tapped %d times, which is the most: end another tap first", b.pipeline, mostTaps)
	}
	b.taps[t] = list
	list.change(func(taps []*tap) []*tap { return append(taps, t) })
	return t, nil
}

// end takes a tap down and closes its channel.
func (b *tapBoard) end(t *tap) {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.taps[t]
	if list == nil {
		return
	}
	delete(b.taps, t)
	list.change(func(taps []*tap) []*tap {
		kept := taps[:0]
		for _, other := range taps {
			if other != t {
				kept = append(kept, other)
			}
		}
		return kept
	})
	t.close()
}

// endAll takes all taps down, for good.
func (b *tapBoard) endAll() {
	b.mu.Lock()
	b.over = true
	var all []*tap
	for t := range b.taps {
		all = append(all, t)
	}
	b.mu.Unlock()
	for _, t := range all {
		b.end(t)
	}
}

// change puts another list in the place of the present one, a copy of which f may
// change. The caller holds the board's lock.
func (l *tapList) change(f func([]*tap) []*tap) {
	var taps []*tap
	if now := l.now.Load(); now != nil {
		taps = append(taps, *now...)
	}
	if taps = f(taps); len(taps) == 0 {
		l.now.Store(nil)
		return
	}
	l.now.Store(&taps)
}

// tap is one look at the records of a place, by all tasks that have it.
type tap struct {
	operator string
	rate     float64 // a second
	out      chan Tapped
	over     func() // takes it down

	mu     sync.Mutex
	tokens float64
	filled time.Time
	rest   int   // records until the limit; -1 for none
	left   int64 // since the last one shown
	closed bool
}

func newTap(operator string, o TapOptions, now time.Time) *tap {
	t := &tap{operator: operator, rate: tapPerSecond, out: make(chan Tapped, tapWaits), filled: now, rest: -1}
	if o.PerSecond > 0 {
		t.rate = float64(min(o.PerSecond, mostTapRate))
	}
	if o.Limit > 0 {
		t.rest = o.Limit
	}
	t.tokens = t.rate
	return t
}

// admit says how many of n records can be shown now.
func (t *tap) admit(n int, now time.Time) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if d := now.Sub(t.filled); d > 0 { // the clock may be set
		t.tokens = min(t.rate, t.tokens+t.rate*d.Seconds())
	}
	t.filled = now
	n = min(n, int(t.tokens), cap(t.out)-len(t.out))
	if t.rest >= 0 {
		n = min(n, t.rest)
	}
	t.tokens -= float64(n)
	return n
}

// leave counts n records that are not shown.
func (t *tap) leave(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.left += int64(n)
}

// offer shows a record, unless nobody has room for it.
func (t *tap) offer(r Tapped) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.rest == 0 {
		return
	}
	r.Left = t.left
	select {
	case t.out <- r:
		t.left = 0
	default:
		t.left++
		return
	}
	if t.rest > 0 {
		if t.rest--; t.rest == 0 {
			go t.over() // the board's lock is not for the stream to wait for
		}
	}
}

func (t *tap) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.closed = true
		close(t.out)
	}
}

// render is a record as it is shown, with the value that it would be written with.
func (t *tap) render(b *connectors.Batch, row uint16, value []byte, branch string) Tapped {
	r := &b.Records[row]
	out := Tapped{Time: time.Now(), Operator: t.operator, Branch: branch, Partition: -1, Offset: -1}
	if r.Op != connectors.Insert {
		out.Op = r.Op.String()
	}
	if r.Origin != nil {
		out.Topic, out.Partition, out.Offset = r.Origin.Topic, r.Origin.Partition, r.Offset
	}
	out.Key, _ = shownText(r.Key, mostTapBytes)
	if out.Value = "null"; value != nil {
		out.Value, out.Cut = shownText(value, mostTapBytes)
	}
	for i, h := range r.Headers {
		if i == mostTapNamed {
			break
		}
		if out.Headers == nil {
			out.Headers = map[string]string{}
		}
		name, _ := shownText([]byte(h.Key), mostTapHeader)
		out.Headers[name], _ = shownText(h.Value, mostTapHeader)
	}
	if at := r.Time; at != 0 && at != math.MinInt64 {
		out.EventTime = &at
	}
	return out
}
