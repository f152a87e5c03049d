package transform

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// The kinds of failures of a record's lookup, for counters.
const (
	kindLookup  = "lookup"  // the other side has no answer for this key
	kindMissing = "missing" // there is no row, and missing is fail
)

// Open connects the lookup. It implements Opener.
func (s *lookup) Open(ctx context.Context, log *slog.Logger) error {
	if err := s.Close(); err != nil {
		log.Debug("closing failed", "what", "lookup", "err", err)
	}
	l, err := s.config.block.Spec.New(s.config.block.Config, s.columns)
	if err != nil {
		return connectors.Permanent(s.wrap(err))
	}
	s.live = l
	s.local, _ = l.(connectors.LocalLookup)
	env := connectors.LookupEnv{
		Log: log.With("step", s.name), Columns: s.columns, AppendKey: state.AppendKey,
		Concurrency: s.concurrency(), Timeout: s.config.CallTimeout(),
	}
	if err := l.Open(ctx, env); err != nil {
		return s.wrap(fmt.Errorf("open: %w", err))
	}
	return nil
}

// Close frees what Open made. It implements Opener.
func (s *lookup) Close() error {
	l := s.live
	s.live, s.local = nil, nil
	if l == nil {
		return nil
	}
	return l.Close()
}

// Start makes the instance of one subtask.
func (s *lookup) Start(env RunEnv) Instance {
	return &lookupRun{lookup: s, env: env, distinct: map[string]int{}}
}

// lookupRun works through a batch in rounds: the keys of its rows, the answers that
// are there, calls for the others, and the rows go on in their order once all calls
// are back. So a barrier finds no call under way. One round does for a batch, unless
// its keys or answers are very large.
type lookupRun struct {
	*lookup
	env RunEnv

	items    []lookupItem   // one for each row of the round, in their order
	keys     []byte         // of those rows, encoded, one behind the other
	distinct map[string]int // index in wanted
	wanted   []wantedKey
}

// lookupItem is one row of a round.
type lookupItem struct {
	state    itemState
	from, to int             // its key within keys
	want     int             // index in wanted, of an itemAsked
	row      []byte          // of an itemFound: what there is, nil for nothing
	column   int             // of an itemFailed and an itemNull
	fault    *expr.EvalError // of an itemFailed
}

// itemState says how far a row of a round has come.
type itemState uint8

const (
	itemPasses itemState = iota // a tombstone
	itemFailed                  // its key has no value
	itemNull                    // a part of its key is null
	itemKeyed
	itemFound
	itemAsked
)

// wantedKey is one key that the round asks for.
type wantedKey struct {
	key   string
	asked bool
	connectors.Answer
}

// Process looks the rows up and gives them on.
func (r *lookupRun) Process(ctx context.Context, b *connectors.Batch, sel []uint16) error {
	if r.objects {
		var err error
		if sel, err = objectsOnly(ctx, &r.env, r.name, b, sel); err != nil {
			return err
		}
	}
	for len(sel) > 0 {
		r.gather(b, sel)
		if err := r.resolve(ctx); err != nil {
			return err
		}
		done := r.answered()
		out, err := r.finish(ctx, b, sel[:done:done])
		if err != nil {
			return err
		}
		if len(out) > 0 {
			if err := r.env.Emit(ctx, 0, b, out); err != nil {
				return err
			}
		}
		if done < len(sel) {
			r.forget(b, out)
		}
		sel = sel[done:]
	}
	return nil
}

// gather makes the keys of the rows, up to a bound of bytes.
func (r *lookupRun) gather(b *connectors.Batch, sel []uint16) {
	clear(r.items)
	r.items, r.keys = r.items[:0], r.keys[:0]
	for _, row := range sel {
		if len(r.keys) > roundBytes {
			return
		}
		it := lookupItem{from: len(r.keys)}
		if !b.Records[row].Tombstone() {
			r.key(b, row, &it)
		}
		r.items = append(r.items, it)
	}
}

// key makes the key of one row.
func (r *lookupRun) key(b *connectors.Batch, row uint16, it *lookupItem) {
	it.state = itemKeyed
	for i := range r.lookup.keys {
		v, fault := r.lookup.keys[i].prog.Eval(r.env.Exprs, b, int(row))
		switch {
		case fault != nil:
			it.state, it.column, it.fault = itemFailed, i, fault
			return
		case v.IsNull():
			it.state, it.column = itemNull, i
			return
		}
		r.keys = state.AppendKey(r.keys, v)
	}
	it.to = len(r.keys)
}

// resolve finds the answers: in memory, in the cache, or by calls.
func (r *lookupRun) resolve(ctx context.Context) error {
	if r.local != nil {
		table := r.local.Table()
		for i := range r.items {
			if it := &r.items[i]; it.state == itemKeyed {
				it.state, it.row = itemFound, table.Row(r.keys[it.from:it.to])
			}
		}
		return nil
	}
	now := r.now()
	r.fromCache(now)
	r.want()
	if len(r.wanted) == 0 {
		return nil
	}
	if err := r.ask(ctx); err != nil {
		return err
	}
	r.toCache(r.now())
	return nil
}

func (r *lookupRun) now() time.Time {
	if r.env.Exprs != nil && r.env.Exprs.Now != nil {
		return r.env.Exprs.Now()
	}
	return time.Now()
}

func (r *lookupRun) fromCache(now time.Time) {
	c := r.cache
	if c == nil {
		return
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	for i := range r.items {
		it := &r.items[i]
		if it.state != itemKeyed {
			continue
		}
		if row, ok := c.get(r.keys[it.from:it.to], now); ok {
			it.state, it.row = itemFound, row
		}
	}
}

// want lists the keys that are left, each once, in the order of the rows.
func (r *lookupRun) want() {
	clear(r.wanted)
	r.wanted = r.wanted[:0]
	for i := range r.items {
		it := &r.items[i]
		if it.state != itemKeyed {
			continue
		}
		key := r.keys[it.from:it.to]
		at, known := r.distinct[string(key)]
		if !known {
			at = len(r.wanted)
			r.wanted = append(r.wanted, wantedKey{key: string(key)})
			r.distinct[r.wanted[at].key] = at
		}
		it.state, it.want = itemAsked, at
	}
	clear(r.distinct)
}

func (r *lookupRun) toCache(now time.Time) {
	c := r.cache
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range r.wanted {
		if w := &r.wanted[i]; w.asked && w.Err == nil {
			c.put(w.key, w.Row, now)
		}
	}
}

// answered is how many rows, from the first on, have an answer.
func (r *lookupRun) answered() int {
	for i := range r.items {
		if it := &r.items[i]; it.state == itemAsked && !r.wanted[it.want].asked {
			return i
		}
	}
	return len(r.items)
}

// finish puts what was found into the rows, and leaves those out that do not go on.
func (r *lookupRun) finish(ctx context.Context, b *connectors.Batch, rows []uint16) ([]uint16, error) {
	out, dropped := rows[:0], 0
	for i, row := range rows {
		it := &r.items[i]
		found := it.row
		var failed *connectors.RecordError
		switch it.state {
		case itemPasses:
			out = append(out, row)
			continue
		case itemFailed:
			failed = failure(r.name, r.lookup.keys[it.column].text, b, row, it.fault)
		case itemAsked:
			w := &r.wanted[it.want]
			if found = w.Row; w.Err != nil {
				failed = failure(r.name, "", b, row, &expr.EvalError{Reason: w.Err.Error(), Kind: kindLookup})
			}
		default:
		}
		switch {
		case failed != nil:
		case found != nil:
			b.Row(int(row))[r.slot] = connectors.MapValue(found)
			out = append(out, row)
			continue
		case r.config.Missing == MissingNull:
			b.Row(int(row))[r.slot] = connectors.NullValue()
			out = append(out, row)
			continue
		case r.config.Missing == MissingDrop:
			dropped++
			continue
		default:
			failed = failure(r.name, "", b, row, &expr.EvalError{Reason: r.whyMissing(it), Kind: kindMissing})
		}
		if b.Records[row].Op.Retracts() {
			continue // the row that it takes back was handed over itself
		}
		if err := r.env.Fail(ctx, b, row, failed); err != nil {
			return nil, err
		}
	}
	if dropped > 0 {
		r.env.Dropped(dropped)
	}
	return out, nil
}

func (r *lookupRun) whyMissing(it *lookupItem) string {
	if it.state == itemNull {
		return r.columns[it.column] + " is null, which matches no row"
	}
	return "there is no row for its key"
}

// forget lets go of what was found for rows that have gone on, so that the rows of
// the next round can take as much.
func (r *lookupRun) forget(b *connectors.Batch, rows []uint16) {
	for _, row := range rows {
		b.Row(int(row))[r.slot] = connectors.Value{}
	}
}
