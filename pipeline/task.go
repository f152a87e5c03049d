package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/state"
	"github.com/sluice-etl/sluice/pipeline/transform"
)

// barrier is what travels through the tasks at a checkpoint.
type barrier struct {
	id        checkpoint.ID
	roll      bool       // nothing may stay unpublished after it
	neutral   bool       // state is written in the form that every backend reads
	drained   bool       // event time is at its end before it
	stop      *stopOrder // sources wait from here on while it stands; nil for none
	triggered time.Time
}

// receiver is what records are handed to within a task.
type receiver func(ctx context.Context, b *connectors.Batch, sel []uint16) error

// task is one subtask of a chain at work. Everything but what is under mu
// belongs to the goroutine in run.
type task struct {
	attempt *attempt
	chain   *chain
	subtask int
	id      checkpoint.TaskID

	decode  format.Decoder // nil where no field is read
	intake  *intake        // nil where a record of the source is a row as it is
	given   *tapPlace      // what a source gives, as it is; nil for other tasks
	starts  []start
	exprs   *expr.Env
	head    receiver
	failAt  failFunc // for records that the head cannot read
	sinks   []*sinkWriter
	out     []exchange
	gates   []transform.Gate
	slice   int // records handed on at once
	sel     []uint16
	refused []refusal
	counts  counters
	ticks   atomic.Uint64
	time    taskTime

	operators []*operatorCounts // of what the task does, and refuses in the name of others
	source    *operatorCounts   // of those, the source's; nil without one
	shown     struct {          // what told is, for others to read
		watermark atomic.Int64
		idle      atomic.Bool
	}

	inbox   *inbox          // of a chain that others feed
	align   *aligner        // likewise
	flow    *flow           // likewise: how far event time has come
	keyed   *keyedTask      // of a chain with a keyed step at its head
	reader  *sourceReader   // of a chain with a source
	told    mark            // what the receivers know of event time
	prepare prepareSequence // runs what writers prepare, in order

	mu      sync.Mutex
	pending []*barrier
	added   []connectors.Split
	wake    context.CancelFunc // interrupts a wait of the source
	wakeCtx context.Context
}

// refusal is a record that the decoder refused, until its turn comes.
type refusal struct {
	row uint16
	err *connectors.RecordError
}

// run works until ctx ends or something fails.
func (t *task) run(ctx context.Context) error {
	t.time.begin()
	err := t.begin(ctx)
	switch {
	case err != nil:
	case t.reader != nil:
		err = t.runSource(ctx)
	default:
		err = t.runReceiver(ctx)
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%s/%d: %w", t.chain.name, t.subtask, err)
	}
	return context.Cause(ctx)
}

// runSource reads batches and takes barriers between them.
func (t *task) runSource(ctx context.Context) error {
	stopTick := t.startTicking()
	defer stopTick()
	t.told = mark{time: state.MinTime}
	for ctx.Err() == nil {
		if err := t.control(ctx); err != nil {
			return err
		}
		wait := t.waitCtx(ctx)
		if t.reader.ended || t.reader.waits() || t.reader.clock.held() {
			t.idleUntil(wait)
			continue
		}
		t.time.wait(idle)
		b, err := t.reader.poll(wait)
		t.time.resume(atHand)
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			t.reader.ended = true
			t.reader.clock.end()
			t.tell(mark{time: state.MaxTime})
			t.attempt.sourceEnded(t)
			continue
		case wait.Err() != nil && errors.Is(err, wait.Err()):
			continue
		default:
			return fmt.Errorf("read: %w", err)
		}
		err = t.processSource(ctx, b)
		b.Recycle()
		if err != nil {
			return err
		}
	}
	return nil
}

// waitCtx ends with ctx or at the next interrupt. It is made anew only after an
// interrupt, so polling allocates nothing.
func (t *task) waitCtx(ctx context.Context) context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.wakeCtx == nil || t.wakeCtx.Err() != nil {
		t.wakeCtx, t.wake = context.WithCancel(ctx)
		if len(t.pending) > 0 || len(t.added) > 0 {
			t.wake()
		}
	}
	return t.wakeCtx
}

func (t *task) interrupt() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.wake != nil {
		t.wake()
	}
}

// trigger asks a source's task for a barrier.
func (t *task) trigger(b *barrier) {
	t.mu.Lock()
	t.pending = append(t.pending, b)
	t.mu.Unlock()
	t.interrupt()
}

// addSplits hands a source's task further splits.
func (t *task) addSplits(s []connectors.Split) {
	t.mu.Lock()
	t.added = append(t.added, s...)
	t.mu.Unlock()
	t.interrupt()
}

// control does what is due between records: barriers, ticks, new splits.
func (t *task) control(ctx context.Context) error {
	now := time.Now()
	if err := t.tick(ctx, now); err != nil {
		return err
	}
	t.reader.clock.tick(now)
	t.tellTime()
	for {
		t.mu.Lock()
		added := t.added
		t.added = nil
		var b *barrier
		if len(t.pending) > 0 {
			b = t.pending[0]
			t.pending = t.pending[1:]
		}
		t.mu.Unlock()
		if len(added) > 0 {
			if t.reader.ended {
				t.attempt.left.Add(1)
			}
			if err := t.reader.add(added, now); err != nil {
				return fmt.Errorf("read new splits: %w", err)
			}
		}
		if b == nil {
			return nil
		}
		if b.drained {
			t.tell(mark{time: state.MaxTime})
		}
		if b.stop != nil {
			t.reader.stop = b.stop
		}
		if err := t.cut(ctx, b, t.reader.state()); err != nil {
			return err
		}
	}
}

func (t *task) tick(ctx context.Context, now time.Time) error {
	if t.keyed != nil {
		if err := t.keyed.tick(ctx, now); err != nil {
			return err
		}
	}
	for _, s := range t.sinks {
		if err := t.tickSink(ctx, s, now); err != nil {
			return err
		}
	}
	t.ticks.Add(1)
	return nil
}

// processSource takes a batch of the source.
func (t *task) processSource(ctx context.Context, b *connectors.Batch) error {
	t.counts.read(b)
	t.given.source(b)
	t.leaveOut(b)
	if t.intake != nil {
		return t.processIntake(ctx, b)
	}
	return t.processRows(ctx, b, b.Next)
}

// processRows hands rows on in slices, so that a barrier can come between them. The
// source goes on at end behind them.
func (t *task) processRows(ctx context.Context, b *connectors.Batch, end int64) error {
	n := len(b.Records)
	rows, err := t.enter(b, nil)
	if err != nil {
		return err
	}
	for lo := 0; lo < n; {
		hi := wholeUpdates(b, min(lo+t.slice, n))
		if err := t.awaitGates(ctx); err != nil {
			return err
		}
		if lo > 0 || len(t.gates) > 0 {
			if err := t.control(ctx); err != nil {
				return err
			}
		}
		if err := t.awaitStop(ctx); err != nil {
			return err
		}
		rows, err = t.handOn(ctx, b, rows, hi)
		if err != nil {
			return err
		}
		next := end
		if hi < n {
			next = b.Records[hi].Offset
		}
		t.reader.advance(b.Split, next)
		lo = hi
	}
	if n == 0 {
		t.reader.advance(b.Split, end)
	}
	t.tellTime()
	return nil
}

// awaitStop waits while a stop stands: what is left of a batch belongs to the next run,
// or to this one where the stop is withdrawn.
func (t *task) awaitStop(ctx context.Context) error {
	for t.reader.waits() {
		t.idleUntil(t.waitCtx(ctx))
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := t.control(ctx); err != nil {
			return err
		}
	}
	return nil
}

// idleUntil waits for the end of ctx, with nothing to do.
func (t *task) idleUntil(ctx context.Context) {
	t.time.wait(idle)
	<-ctx.Done()
	t.time.resume(0)
}

// awaitGates waits until every step that slows the chain down lets records on.
// Barriers are taken meanwhile.
func (t *task) awaitGates(ctx context.Context) error {
	for _, g := range t.gates {
		for {
			d := time.Until(g.Due())
			if d <= 0 || ctx.Err() != nil {
				break
			}
			timer := time.NewTimer(d)
			t.time.wait(backpressured)
			if t.reader == nil {
				select {
				case <-timer.C:
				case <-ctx.Done():
				}
			} else {
				select {
				case <-timer.C:
				case <-t.waitCtx(ctx).Done():
				}
			}
			timer.Stop()
			t.time.resume(0)
			if t.reader != nil {
				if err := t.control(ctx); err != nil {
					return err
				}
			}
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// enter decodes a batch as a whole, of an edge where it came by one. Refused rows
// are kept until their turn.
func (t *task) enter(b *connectors.Batch, e *edge) ([]uint16, error) {
	if len(b.Records) > connectors.MaxBatch {
		return nil, connectors.Permanent(fmt.Errorf("a batch of %d records is larger than allowed", len(b.Records)))
	}
	t.sel = t.sel[:0]
	for i := range b.Records {
		t.sel = append(t.sel, uint16(i))
	}
	if t.inbox == nil {
		b.SetStride(t.chain.base.Stride())
	}
	t.refused = t.refused[:0]
	if e == nil {
		t.leaveRefused(b)
	}
	if t.decode == nil || e != nil && e.keying != nil && !e.keying.rows {
		return t.eventTime(b, t.conforming(b, t.sel)), nil
	}
	rows := t.decode.Decode(b, t.sel, func(row uint16, e *format.SyntaxError) {
		t.refused = append(t.refused, refusal{row, recordError(b, row, t.chain.name, "decode", e.Error())})
	})
	if e == nil {
		return t.eventTime(b, t.conforming(b, rows)), nil
	}
	for _, c := range e.carries {
		for _, row := range rows {
			slots := b.Row(int(row))
			if slots[c.hold].Kind() != connectors.Absent {
				slots[c.to] = slots[c.hold]
			}
		}
	}
	return rows, nil
}

// handOn gives the rows of a source's batch below index end to the chain and
// returns the others.
func (t *task) handOn(ctx context.Context, b *connectors.Batch, rows []uint16, end int) ([]uint16, error) {
	n := 0
	for n < len(rows) && int(rows[n]) < end {
		n++
	}
	now := rows[:n:n]
	if n > 0 {
		now = t.reader.clock.observe(b.Split, b, now, time.Now(), func(row uint16, reason string) {
			e := recordError(b, row, t.chain.name, "future", reason)
			t.refused = append(t.refused, refusal{row, e})
		})
		if _, idle := t.reader.clock.current(); t.told.idle && !idle {
			// Event time must not pass the rows by while they are on their way.
			t.tell(mark{time: state.MinTime})
		}
	}
	if err := t.refuse(ctx, b, end); err != nil {
		return nil, err
	}
	if len(now) == 0 {
		return rows[n:], nil
	}
	t.source.out[0].Add(int64(len(now)))
	return rows[n:], t.head(ctx, b, now)
}

// refuse gives the refused rows below index end to on_error.
func (t *task) refuse(ctx context.Context, b *connectors.Batch, end int) error {
	kept := t.refused[:0]
	for _, r := range t.refused {
		if int(r.row) >= end {
			kept = append(kept, r)
			continue
		}
		if b.Records[r.row].Op.Retracts() {
			continue // the row that it takes back was refused itself
		}
		if err := t.failAt(ctx, b, r.row, r.err); err != nil {
			return err
		}
	}
	t.refused = kept
	return nil
}

// cut is the task's part of a checkpoint: a picture of its state is taken, every
// writer ends its part, the barrier goes on to the receivers, and what was taken is
// made durable beside the stream.
func (t *task) cut(ctx context.Context, b *barrier, ack checkpoint.Ack) (err error) {
	began, handed := time.Now(), false
	ack.Task, ack.StartDelay = t.id, max(0, began.Sub(b.triggered)-ack.Alignment) // the clock may be set
	p := prepared{sinks: make([]preparedSink, 0, len(t.sinks)), neutral: b.neutral}
	if t.keyed != nil {
		if p.snapshot, err = t.keyed.fork(ctx, b.id.Number); err != nil {
			return err
		}
		p.keyed, p.noted = t.keyed, t.keyed.note()
		defer func() {
			if !handed {
				p.snapshot.Release()
			}
		}()
	}
	for _, s := range t.sinks {
		f, err := s.writer.Barrier(ctx, connectors.Barrier{ID: b.id, Roll: b.roll, Watermark: t.told.time})
		if err != nil {
			return fmt.Errorf("sink %s: barrier %d: %w", s.name, b.id.Number, err)
		}
		p.sinks = append(p.sinks, preparedSink{sink: s, prepare: f})
	}
	for _, x := range t.out {
		if err := x.barrier(ctx, b); err != nil {
			return err
		}
	}
	ack.Sync, handed = time.Since(began), true
	t.prepare.add(&t.attempt.beside, func() { t.attempt.prepare(ctx, b, ack, p) })
	return nil
}
