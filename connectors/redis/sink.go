package redis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/columns"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/connectors/immediate"
	"github.com/sluice-etl/sluice/connectors/placeholder"
	"github.com/sluice-etl/sluice/connectors/retry"
)

func init() {
	connectors.RegisterSink(connectors.SinkSpec{
		Name:           "redis",
		Doc:            "Writes to Redis, alone, as a cluster or behind Sentinel: values, hashes and sorted sets by key, or entries of streams, lists and channels.",
		NewConfig:      newSinkConfig,
		New:            func(c any) (connectors.Sink, error) { return newSink(c.(*SinkConfig)) },
		Changes:        func(c any) connectors.Changes { return c.(*SinkConfig).changes() },
		DeadLetterRows: true,
		Example:        "redis:\n  addresses: [localhost:6379]\n  command: hset\n  key: user:{user_id}\n  ttl: 7d\n",
	})
}

// sink implements connectors.Sink.
type sink struct {
	retry.Watch

	cfg    *SinkConfig
	env    connectors.SinkEnv
	client redis.UniversalClient
	hook   redis.Hook // of tests
}

var (
	_ connectors.Sink         = (*sink)(nil)
	_ connectors.OutageTeller = (*sink)(nil)
)

func newSink(c *SinkConfig) (*sink, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &sink{cfg: c}, nil
}

// Guarantee is effectively_once for what is written by key, and at_least_once for entries.
func (s *sink) Guarantee() connectors.Guarantee { return s.cfg.guarantee() }

// Open connects.
func (s *sink) Open(ctx context.Context, env connectors.SinkEnv) (err error) {
	s.env = env
	conns := max(1, env.Subtasks) * s.cfg.Concurrency
	if s.client, err = dial(s.cfg.connection(), conns, time.Duration(s.cfg.Timeout)); err != nil {
		return err
	}
	if s.hook != nil {
		s.client.AddHook(s.hook)
	}
	return classify(s.client.Ping(ctx).Err())
}

// Start has nothing to go on from.
func (s *sink) Start(context.Context, connectors.Restored) error { return nil }

// Writer makes a writer.
func (s *sink) Writer(int) (connectors.Writer, error) { return &writer{sink: s}, nil }

// Close closes all connections.
func (s *sink) Close() error {
	if s.client == nil {
		return nil
	}
	return s.client.Close()
}

func (s *sink) failpoint(name string) {
	if s.env.Failpoint != nil {
		s.env.Failpoint(name)
	}
}

// writer implements connectors.Writer.
type writer struct {
	immediate.Idle
	sink  *sink
	calls [][][]any // the commands of each row of the Write under way
	key   []byte
	arena connectors.Arena
}

// Write sends the rows and waits for all answers.
func (w *writer) Write(ctx context.Context, rows *connectors.Rows) error {
	w.calls = append(w.calls[:0], make([][][]any, rows.Len())...)
	w.arena.Reset()
	items := make([]immediate.Item, 0, rows.Len())
	var refused []connectors.RowError
	for i := range rows.Sel {
		item, kind, err := w.prepare(rows, i)
		if err != nil {
			refused = append(refused, connectors.RowError{Row: i, Kind: kind, Reason: err.Error()})
			continue
		}
		items = append(items, item)
	}
	return immediate.Merge(refused, w.sink.cfg.Batch.Write(ctx, items, w.sink.cfg.Concurrency, w.send))
}

// prepare makes the commands of a row, or says why there are none.
func (w *writer) prepare(rows *connectors.Rows, i int) (item immediate.Item, kind string, err error) {
	cfg := w.sink.cfg
	fixed, isFixed := cfg.Key.Fixed()
	switch {
	case isFixed:
		w.key = append(w.key[:0], fixed...)
	case rows.DeadLetter != nil:
		return item, "key", errors.New("a dead letter names no key: give the sink of dead letters a fixed one, with xadd or rpush")
	default:
		if w.key, err = cfg.Key.Append(w.key[:0], rows, i, immediate.Text); err != nil {
			return item, "key", err
		}
	}
	if len(w.key) == 0 {
		return item, "key", errors.New("the key is empty")
	}
	key := string(w.key)
	calls, err := w.commands(rows, i, key)
	if err != nil {
		return item, "value", err
	}
	size := 0
	for _, call := range calls {
		for _, arg := range call {
			size += argSize(arg)
		}
	}
	w.calls[i] = calls
	return immediate.Item{Row: i, Size: size, Key: key}, "", nil
}

func argSize(arg any) int {
	switch a := arg.(type) {
	case string:
		return len(a)
	case []byte:
		return len(a)
	}
	return 8
}

// commands are those of a row, in their order.
func (w *writer) commands(rows *connectors.Rows, i int, key string) ([][]any, error) {
	cfg := w.sink.cfg
	ttl := time.Duration(cfg.TTL).Milliseconds()
	if rows.Values[i] == nil {
		if !cfg.deletes() {
			return nil, fmt.Errorf("the record has no value (a tombstone), and %s removes nothing", cfg.Command)
		}
		return [][]any{{"DEL", key}}, nil
	}
	if cfg.Command == cmdHSet {
		return w.hash(rows.Values[i], key, ttl)
	}
	value, err := w.value(rows, i)
	if err != nil {
		return nil, err
	}
	var call []any
	switch cfg.Command {
	case cmdSet:
		if call = []any{"SET", key, value}; ttl > 0 {
			call = append(call, "PX", ttl)
		}
		return [][]any{call}, nil
	case cmdZAdd:
		if rows.DeadLetter != nil {
			return nil, errors.New("a dead letter has no score")
		}
		score, err := columns.Float(rows.Slot(i, cfg.Score.Slot), 64)
		if err != nil || math.IsNaN(score) {
			return nil, fmt.Errorf("`%s` gives no score: a number is wanted", cfg.Score.Text)
		}
		call = []any{"ZADD", key, score, value}
	case cmdXAdd:
		call = []any{"XADD", key}
		if cfg.MaxLen > 0 {
			call = append(call, "MAXLEN", "~", cfg.MaxLen)
		}
		call = append(call, "*", "value", value)
	default:
		call = []any{strings.ToUpper(cfg.Command), key, value}
	}
	if ttl > 0 {
		return [][]any{call, {"PEXPIRE", key, ttl}}, nil
	}
	return [][]any{call}, nil
}

// value is what a row writes. It is used until Write returns.
func (w *writer) value(rows *connectors.Rows, i int) ([]byte, error) {
	cfg := w.sink.cfg
	if !cfg.Value.Set() || rows.DeadLetter != nil {
		return rows.Values[i], nil
	}
	v := rows.Slot(i, cfg.Value.Slot)
	if v.Kind() == connectors.Bytes {
		return v.Raw(), nil
	}
	text, err := immediate.Text(nil, v)
	if err != nil {
		return nil, fmt.Errorf("`%s` gives no value: %w", cfg.Value.Text, err)
	}
	return text, nil
}

// hash sets the fields of a record, and removes those that are null.
func (w *writer) hash(value []byte, key string, ttl int64) ([][]any, error) {
	v, err := format.ParseValue(value, &w.arena)
	if err != nil {
		return nil, err
	}
	if v.Kind() != connectors.Map {
		return nil, fmt.Errorf("hset takes objects, not %s", v.Kind())
	}
	var numbers written
	set, del := []any{"HSET", key}, []any{"HDEL", key}
	format.Entries(v.Raw(), &w.arena, func(name string, v connectors.Value) bool {
		if v.IsNull() {
			del = append(del, name)
			return true
		}
		var text string
		if v.Kind() == connectors.Float {
			text = numbers.of(value, name)
		} else if text, err = placeholder.Plain(v); err != nil {
			err = fmt.Errorf("field %s: %w", name, err)
			return false
		}
		set = append(set, name, text)
		return true
	})
	var calls [][]any
	if len(set) > 2 {
		calls = append(calls, set)
	}
	if len(del) > 2 {
		calls = append(calls, del)
	}
	switch {
	case err != nil:
		return nil, err
	case len(calls) == 0:
		return nil, errors.New("the record has no fields, and there is no empty hash")
	case ttl > 0:
		calls = append(calls, []any{"PEXPIRE", key, ttl})
	}
	return calls, nil
}

// written holds the fields of a record as they are written: a number with a point keeps all
// of its digits, and its zeros.
type written map[string]json.RawMessage

func (w *written) of(record []byte, name string) string {
	if *w == nil {
		if err := json.Unmarshal(record, w); err != nil {
			*w = written{}
		}
	}
	return string((*w)[name])
}

// send sends some rows in one round trip, and those again that the server could not take
// at that time.
func (w *writer) send(ctx context.Context, items []immediate.Item) error {
	var refused connectors.RowsError
	pending := items
	policy := retry.Policy{Log: w.sink.env.Log, What: "redis " + w.sink.cfg.Command, Watch: &w.sink.Watch}
	err := policy.Do(ctx, func(ctx context.Context) error {
		again, err := w.trip(ctx, pending, &refused)
		pending = again
		return err
	})
	if err != nil || len(refused.Rows) == 0 {
		return err
	}
	return &refused
}

// trip makes one round trip. It returns what to send again and why. Behind a row that goes
// again, all of its key go again, for the last to win.
func (w *writer) trip(ctx context.Context, items []immediate.Item, refused *connectors.RowsError) (again []immediate.Item, first error) {
	pipe := w.sink.client.Pipeline()
	asked := make([][]redis.Cmder, len(items))
	for k, item := range items {
		for _, call := range w.calls[item.Row] {
			asked[k] = append(asked[k], pipe.Do(ctx, call...))
		}
	}
	w.sink.failpoint("redis.exec.before")
	_, _ = pipe.Exec(ctx) // each command has its own error
	w.sink.failpoint("redis.exec.after")
	waits := map[string]bool{}
	for k, item := range items {
		if waits[item.Key] {
			again = append(again, item)
			continue
		}
		for _, cmd := range asked[k] {
			err := cmd.Err()
			if err == nil || errors.Is(err, redis.Nil) {
				continue
			}
			if answered(err) {
				refused.Rows = append(refused.Rows, connectors.RowError{Row: item.Row, Kind: "refused", Reason: "redis refuses the record: " + err.Error()})
				break
			}
			if first == nil {
				first = fmt.Errorf("redis: %w", err)
			}
			again = append(again, item)
			waits[item.Key] = w.sink.cfg.guarantee() == connectors.EffectivelyOnce
			break
		}
	}
	return again, first
}

// passing are the answers that say nothing of a record: the server, the cluster or the
// user's rights are not as they should be, and will be.
var passing = []string{
	"OOM", "READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "BUSY", "NOREPLICAS", "MISCONF",
	"NOAUTH", "WRONGPASS", "NOPERM", "NOGOODSLAVE", "EXECABORT", "UNBLOCKED", "ERR max number of clients", "ERR max clients",
}

// answered reports whether an error is the server's last word on a command.
func answered(err error) bool {
	var said redis.Error
	if !errors.As(err, &said) {
		return false
	}
	for _, prefix := range passing {
		if redis.HasErrorPrefix(err, prefix) || strings.HasPrefix(err.Error(), prefix) {
			return false
		}
	}
	return true
}
