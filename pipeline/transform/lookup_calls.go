package transform

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// answerBytes bounds what the answers of a round may hold before no further call is
// begun in it.
const answerBytes = 64 << 20

// ask asks for the wanted keys, with calls beside each other, and waits for all of
// them. Once the answers are large, keys at the end are left for the next round; the
// first is always asked for. The first failure ends the others.
func (r *lookupRun) ask(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		calls sync.WaitGroup
		got   atomic.Int64
	)
	size := max(r.live.MaxKeys(), 1)
	for lo := 0; lo < len(r.wanted) && got.Load() < answerBytes; lo += size {
		group := r.wanted[lo:min(lo+size, len(r.wanted))]
		if !r.acquire(ctx) {
			break
		}
		calls.Go(func() {
			defer func() { <-r.calls }()
			n, err := r.call(ctx, group)
			if err != nil {
				cancel(err)
			}
			got.Add(int64(n))
		})
	}
	calls.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// acquire waits for the right to make a call.
func (r *lookupRun) acquire(ctx context.Context) bool {
	select {
	case r.calls <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// call asks for a group of keys until there is an answer or no try is left. It
// returns the bytes of the answers.
func (r *lookupRun) call(ctx context.Context, group []wantedKey) (size int, err error) {
	keys, answers := make([]connectors.LookupKey, len(group)), make([]connectors.Answer, len(group))
	for i := range group {
		if keys[i], err = r.lookupKey(group[i].key); err != nil {
			return 0, connectors.Permanent(r.wrap(err))
		}
	}
	for try := 0; ; try++ {
		err := r.try(ctx, keys, answers)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		if connectors.IsPermanent(err) {
			return 0, r.wrap(err)
		}
		if try == r.config.Retries {
			return 0, r.wrap(fmt.Errorf("no answer in %d tries: %w", try+1, err))
		}
		if err := r.wait(ctx, try, err); err != nil {
			return 0, err
		}
		clear(answers)
	}
	for i := range group {
		answers[i].Row = oneLine(answers[i].Row)
		group[i].asked, group[i].Answer = true, answers[i]
		size += len(answers[i].Row)
	}
	return size, nil
}

// oneLine is a row without raw line breaks, which are allowed between its tokens only:
// a map in a slot is written as it is, also where a record is a line.
func oneLine(row []byte) []byte {
	if bytes.IndexByte(row, '\n') < 0 && bytes.IndexByte(row, '\r') < 0 {
		return row
	}
	row = bytes.Clone(row)
	for i, c := range row {
		if c == '\r' || c == '\n' {
			row[i] = ' '
		}
	}
	return row
}

// lookupKey takes an encoded key apart.
func (r *lookupRun) lookupKey(key string) (connectors.LookupKey, error) {
	k := connectors.LookupKey{Bytes: []byte(key), Values: make([]connectors.Value, 0, len(r.columns))}
	for rest := k.Bytes; len(rest) > 0; {
		v, tail, err := state.ReadKey(rest)
		if err != nil {
			return k, err
		}
		k.Values, rest = append(k.Values, v), tail
	}
	return k, nil
}

// try makes one call.
func (r *lookupRun) try(ctx context.Context, keys []connectors.LookupKey, answers []connectors.Answer) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	call, cancel := context.WithTimeout(ctx, r.config.CallTimeout())
	defer cancel()
	err = r.live.Find(call, keys, answers)
	if err != nil && ctx.Err() == nil && errors.Is(call.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %s (timeout): %w", r.config.CallTimeout(), err)
	}
	return err
}

// wait is the pause after a try that failed: a random part of it, so that subtasks do
// not come back all at once, or what the other side asks for.
func (r *lookupRun) wait(ctx context.Context, try int, failed error) error {
	d := r.config.pause(try)
	d = d/2 + rand.N(d/2+1)
	d = max(d, min(connectors.RetryAfter(failed), r.config.CallTimeout()))
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
