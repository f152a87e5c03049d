package pipeline

import (
	"math"
	"sync"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/spec"
	"github.com/sluice-etl/sluice/pipeline/state"
)

const (
	// judgeEvery is how often it is looked what is idle and what is too far ahead.
	judgeEvery = 20 * time.Millisecond
	// unknownFor is patience where partitions are never idle.
	unknownFor = 30 * time.Second
	// shownEvery is how old what progress tells may be, and staleAfter when the task that
	// tells it must be held up.
	shownEvery = 100 * time.Millisecond
	staleAfter = time.Second
)

// untimed is the MaxFuture of a source that nothing goes by the event time of. Any
// time will do then, and brokers are asked for the ends of quiet partitions seldom.
const untimed = time.Duration(math.MaxInt64)

// sourceClock is the event time of one source's task, see eventClock.
//
// The watermark of a split is the highest event time in it less the delay; that of
// the task is the least of the splits that hold it. A split does not hold while it
// is idle: its reader was at its end, and nothing came, for as long as idle_after
// says, without a break. So a split that was not read to its end since the start
// always holds, and so do one that is paused and one whose broker does not answer.
type sourceClock struct {
	source    string
	delay     int64 // milliseconds, as is all but idleAfter
	maxFuture int64
	maxDrift  int64
	idleAfter time.Duration
	patience  time.Duration // with a split whose reader does not tell whether it is empty

	reader     connectors.Reader
	progressOf connectors.Progress // nil where the reader is none
	endsOf     connectors.Ends     // likewise
	pauser     connectors.Pauser   // likewise
	group      *clockGroup
	share      clockShare

	splits  []splitTime
	started bool      // the first tick has been
	at      time.Time // the time that was told last
	judged  time.Time // when all splits were looked at

	least    int64 // least watermark of the splits that hold, state.MaxTime where none does
	reported int64 // highest watermark told while a split held it
	now      int64 // what current tells
	idle     bool
	wait     bool  // see held
	pausing  []int // scratch

	mu      sync.Mutex
	shown   []splitTime
	shownAt time.Time // of the task's goroutine
}

// newSourceClock makes the clock of a source's task. Sources of one scope feed the
// same steps: only when all of them are idle does the clock move event time on.
func newSourceClock(source string, w spec.Watermark, r connectors.Reader, group *clockGroup, scope int) *sourceClock {
	c := &sourceClock{
		source: source, reader: r, delay: w.Delay.Milliseconds(), maxFuture: w.MaxFuture.Milliseconds(),
		maxDrift: w.MaxDrift.Milliseconds(), idleAfter: w.IdleAfter, group: group,
		least: state.MaxTime, reported: state.MinTime, now: state.MinTime, idle: true,
		share: clockShare{scope: scope, aligned: w.MaxDrift > 0, moves: w.AdvanceWhenIdle, delay: w.Delay.Milliseconds()},
	}
	if c.patience = w.IdleAfter; w.IdleAfter == 0 {
		c.patience = unknownFor
	}
	if w.MaxFuture == untimed {
		c.maxFuture = math.MaxInt64
	} else {
		c.progressOf, _ = r.(connectors.Progress)
	}
	c.endsOf, _ = r.(connectors.Ends)
	c.pauser, _ = r.(connectors.Pauser)
	c.share.idle.Store(true)
	group.join(&c.share)
	return c
}

func (c *sourceClock) add(splits []connectors.Split, now time.Time) {
	for _, sp := range splits {
		s := splitTime{id: sp.ID, next: sp.Offset, until: sp.Until, mark: state.MinTime, since: now, joining: c.started, behind: -1}
		s.ended = s.until >= 0 && s.next >= s.until
		if sp.MaxTime != nil {
			s.high, s.seen = *sp.MaxTime, true
			s.mark = minus(s.high, c.delay)
		}
		c.splits = append(c.splits, s)
	}
	c.at = now
	c.settle()
	c.show()
}

func (c *sourceClock) given(split int, next int64, newest *int64) {
	s := &c.splits[split]
	s.given = next
	if newest == nil {
		return
	}
	first := !s.read
	if s.newest, s.read = *newest, true; first {
		c.show() // what takes the records may hold the task up from the first one on
	}
}

func (c *sourceClock) observe(split int, b *connectors.Batch, rows []uint16, now time.Time, refuse func(row uint16, reason string)) []uint16 {
	s := &c.splits[split]
	before, held := s.mark, s.holds()
	kept, counted := s.observe(b, rows, c.delay, plus(now.UnixMilli(), c.maxFuture), refuse)
	if !counted {
		return kept
	}
	c.at = now
	// Most batches are of a split that event time does not wait for.
	others := held && before > c.least
	if !others || c.share.aligned && !s.paused && s.mark > c.limit() {
		c.settle()
	}
	return kept
}

func (c *sourceClock) advance(split int, next int64) {
	s := &c.splits[split]
	s.next = max(s.next, next)
	if s.until >= 0 && s.next >= s.until && !s.ended {
		s.finish()
		c.settle()
	}
}

func (c *sourceClock) end() {
	for i := range c.splits {
		c.splits[i].finish()
	}
	c.settle()
	c.show()
}

func (c *sourceClock) tick(now time.Time) {
	if c.started && now.Sub(c.judged) < judgeEvery {
		return
	}
	c.started, c.at, c.judged = true, now, now
	for i := range c.splits {
		c.look(i)
	}
	c.settle()
	if now.Sub(c.shownAt) >= shownEvery {
		c.show()
	}
}

// look sees whether a split has more to read now.
func (c *sourceClock) look(i int) {
	s := &c.splits[i]
	if s.ended {
		s.behind = 0
		return
	}
	s.behind = -1
	if c.endsOf != nil {
		if end, known := c.endsOf.End(i); known {
			s.behind = max(0, end-s.next)
		}
	}
	before := s.caughtUp
	s.caughtUp = c.progressOf != nil && s.next >= s.given && c.progressOf.CaughtUp(i)
	if s.caughtUp || s.behind == 0 {
		s.current = c.at
	}
	if s.caughtUp && !before && s.until < 0 {
		// Where a split ends may be known only now.
		if s.until = c.reader.Position(i, s.next).Until; s.until >= 0 && s.next >= s.until {
			s.finish()
		}
	}
	s.judge(c.at, c.idleAfter)
}

// settle works out what the splits come to together.
func (c *sourceClock) settle() {
	least, leads, top := int64(state.MaxTime), int64(state.MaxTime), int64(state.MinTime)
	holding, ended := false, true
	for i := range c.splits {
		s := &c.splits[i]
		top = max(top, s.mark)
		ended = ended && s.ended
		if s.holds() {
			holding, least = true, min(least, s.mark)
			leads = min(leads, s.leads(c.at, c.progressOf != nil, c.patience))
		}
	}
	c.least = least
	c.share.leads.Store(leads)
	c.share.top.Store(top)
	c.share.ended.Store(ended && len(c.splits) > 0)
	woke := holding && c.idle
	c.idle = !holding
	c.share.idle.Store(c.idle)
	if woke {
		c.group.woke(c.share.scope)
	}
	if holding {
		c.reported = max(c.reported, least)
		c.now = c.reported
	} else {
		c.now = max(c.reported, top)
		if c.share.moves {
			c.now = max(c.now, c.group.moved(c.share.scope, c.at))
		}
	}
	if c.share.aligned {
		c.align()
	}
}

// align pauses the splits that are too far ahead of the slowest one and lets the
// others go on. The slowest is never ahead of itself, so one always goes on.
func (c *sourceClock) align() {
	limit := c.limit()
	changed, wait := false, len(c.splits) > 0
	c.pausing = c.pausing[:0]
	for i := range c.splits {
		s := &c.splits[i]
		ahead := s.holds() && s.mark > limit
		changed = changed || ahead != s.paused
		if s.paused = ahead; ahead {
			c.pausing = append(c.pausing, i)
		} else if s.holds() {
			wait = false
		}
	}
	if c.pauser == nil {
		c.wait = wait && len(c.pausing) > 0
	} else if changed {
		c.pauser.Pause(c.pausing)
	}
}

// limit is the watermark beyond which a split waits.
func (c *sourceClock) limit() int64 { return plus(c.group.slowest(), c.maxDrift) }

func (c *sourceClock) held() bool { return c.wait }

func (c *sourceClock) current() (watermark int64, idle bool) { return c.now, c.idle }

func (c *sourceClock) maxTime(split int) *int64 {
	if s := &c.splits[split]; s.seen {
		t := s.high
		return &t
	}
	return nil
}

// show makes what progress tells.
func (c *sourceClock) show() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shown, c.shownAt = append(c.shown[:0], c.splits...), c.at
}

func (c *sourceClock) progress() []SplitProgress {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]SplitProgress, len(c.shown))
	stale := time.Since(c.shownAt) > staleAfter
	for i, s := range c.shown {
		if stale && c.endsOf != nil && !s.ended {
			// Nobody else looks while the task is held up, such as by a sink that is down.
			if end, known := c.endsOf.End(i); known {
				s.behind = max(0, end-s.next)
				s.caughtUp = s.caughtUp && s.behind == 0
			}
		}
		out[i] = SplitProgress{
			Source: c.source, Split: s.id, Next: s.next, Watermark: s.mark,
			Idle: s.idle || s.joining, CaughtUp: s.caughtUp, Paused: s.paused, Ended: s.ended, Behind: s.behind,
			current: s.current,
		}
		if s.read {
			t := s.newest
			out[i].Newest = &t
		}
		if s.seen {
			t := s.high
			out[i].MaxTime = &t
		}
	}
	return out
}

var _ eventClock = (*sourceClock)(nil)
