// Package immediate is the shared half of sinks that send their rows before Write
// returns: it splits rows into requests, has several of them under way at a time, and
// keeps the order of rows that belong together.
package immediate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-etl/sluice/connectors"
)

// Batch is the block of a sink that says how many rows make a request.
type Batch struct {
	Records int                 `key:"records" doc:"Records in a request at most."`
	Bytes   connectors.ByteSize `key:"bytes" doc:"Bytes of a request at most; a larger record goes alone."`
}

// mostConcurrency bounds requests at a time, of one writer.
const mostConcurrency = 256

// Check reports what is out of its range, with the number of requests at a time.
func (b *Batch) Check(concurrency int) error {
	var faults []error
	fault := func(key, msg string) { faults = append(faults, &connectors.FieldError{Key: key, Msg: msg}) }
	if b.Records < 1 || b.Records > 100_000 {
		fault("batch.records", "must be from 1 to 100000")
	}
	if b.Bytes < 1<<10 || b.Bytes > 1<<30 {
		fault("batch.bytes", "must be from 1KiB to 1GiB")
	}
	if concurrency < 1 || concurrency > mostConcurrency {
		fault("concurrency", fmt.Sprintf("must be from 1 to %d", mostConcurrency))
	}
	return errors.Join(faults...)
}

// Item is a row to be sent.
type Item struct {
	Row  int    // position in Rows.Sel
	Size int    // bytes that it adds to a request
	Key  string // rows of one key keep their order; empty for a row that needs none
	// Group is what the rows of a request must have in common, such as their address.
	Group string
}

// Send is a function that sends the rows of one request and waits for the answer. It
// returns a *connectors.RowsError for rows that the target refused, numbered as Item.Row.
type Send func(ctx context.Context, items []Item) error

var seed = maphash.MakeSeed()

// Write sends items in requests of the batch's size, up to concurrency at a time.
//
// All rows of a key go into one lane, and the requests of a lane are sent one after
// another, each when the one before it is answered: so a row never overtakes one of its
// key. Refused rows come back together, in their order. Any other error ends all lanes.
func (b Batch) Write(ctx context.Context, items []Item, concurrency int, send Send) error {
	if len(items) == 0 {
		return nil
	}
	var (
		mu      sync.Mutex
		refused connectors.RowsError
	)
	group, ctx := errgroup.WithContext(ctx)
	for _, lane := range b.lanes(items, concurrency) {
		group.Go(func() (err error) {
			defer connectors.Recovered(&err)
			for _, chunk := range b.chunks(lane) {
				err := send(ctx, chunk)
				var rows *connectors.RowsError
				switch {
				case errors.As(err, &rows):
					mu.Lock()
					refused.Rows = append(refused.Rows, rows.Rows...)
					mu.Unlock()
				case err != nil:
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if len(refused.Rows) == 0 {
		return nil
	}
	slices.SortFunc(refused.Rows, func(x, y connectors.RowError) int { return cmp.Compare(x.Row, y.Row) })
	return &refused
}

// lanes deals items out: those of a key into one lane, others in equal runs. There are no
// more lanes than requests are needed.
func (b Batch) lanes(items []Item, concurrency int) [][]Item {
	bytes := 0
	for i := range items {
		bytes += items[i].Size
	}
	need := max((len(items)+b.Records-1)/b.Records, (bytes+int(b.Bytes)-1)/int(b.Bytes))
	n := min(concurrency, need)
	if n <= 1 {
		return [][]Item{items}
	}
	lanes := make([][]Item, n)
	for i, item := range items {
		lane := i * n / len(items)
		if item.Key != "" {
			lane = int(maphash.String(seed, item.Key) % uint64(n))
		}
		lanes[lane] = append(lanes[lane], item)
	}
	return slices.DeleteFunc(lanes, func(lane []Item) bool { return len(lane) == 0 })
}

// chunks cuts a lane into requests of one group each.
func (b Batch) chunks(lane []Item) [][]Item {
	slices.SortStableFunc(lane, func(x, y Item) int { return cmp.Compare(x.Group, y.Group) })
	var out [][]Item
	from, size := 0, 0
	for i := range lane {
		full := i-from == b.Records || size+lane[i].Size > int(b.Bytes)
		if i > from && (full || lane[i].Group != lane[from].Group) {
			out = append(out, lane[from:i:i])
			from, size = i, 0
		}
		size += lane[i].Size
	}
	return append(out, lane[from:])
}

// RefusedError says that the target refused a request as a whole, for what is in it.
type RefusedError struct {
	Reason string
	Kind   string // short constant name for counters
}

func (e *RefusedError) Error() string { return e.Reason }

// Halve sends items, and those of a request that is refused as a whole in halves, down to
// the single rows that the target does not take.
func Halve(ctx context.Context, items []Item, send Send) error {
	err := send(ctx, items)
	var refused *RefusedError
	if !errors.As(err, &refused) {
		return err
	}
	if len(items) == 1 {
		return &connectors.RowsError{Rows: []connectors.RowError{{Row: items[0].Row, Reason: refused.Reason, Kind: refused.Kind}}}
	}
	var out connectors.RowsError
	for _, half := range [][]Item{items[:len(items)/2], items[len(items)/2:]} {
		err := Halve(ctx, half, send)
		var rows *connectors.RowsError
		if errors.As(err, &rows) {
			out.Rows = append(out.Rows, rows.Rows...)
		} else if err != nil {
			return err
		}
	}
	if len(out.Rows) == 0 {
		return nil
	}
	return &out
}

// Final ends the tries of a retry.Policy at a RefusedError, which stays to be found in the
// error that comes back.
func Final(err error) error {
	var refused *RefusedError
	if errors.As(err, &refused) {
		return connectors.Permanent(err)
	}
	return err
}

// Merge adds refused rows that were found before anything was sent to what a write returned.
func Merge(found []connectors.RowError, err error) error {
	if len(found) == 0 {
		return err
	}
	var rows *connectors.RowsError
	switch {
	case errors.As(err, &rows):
		found = append(found, rows.Rows...)
	case err != nil:
		return err
	}
	slices.SortFunc(found, func(x, y connectors.RowError) int { return cmp.Compare(x.Row, y.Row) })
	return &connectors.RowsError{Rows: found}
}

// Idle is the part of a writer that has nothing to do, since nothing is under way between
// two calls of Write.
type Idle struct{}

// Tick does nothing.
func (Idle) Tick(context.Context, time.Time) error { return nil }

// Barrier has nothing to make durable.
func (Idle) Barrier(context.Context, connectors.Barrier) (connectors.Prepare, error) {
	return func(context.Context, connectors.CheckpointFiles) (connectors.Prepared, error) {
		return connectors.Prepared{}, nil
	}, nil
}

// Close does nothing.
func (Idle) Close() error { return nil }
