package redis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/connectortest"
)

// template is a text whose expressions have the slots 0, 1 and so on.
func template(text string) (t connectors.Template) {
	if err := t.UnmarshalConfig(text); err != nil {
		panic(err)
	}
	slot := 0
	for i := range t.Parts {
		if t.Parts[i].Expr.Set() {
			t.Parts[i].Expr.Slot = slot
			slot++
		}
	}
	return t
}

func sinkConfig(address string, change func(*SinkConfig)) *SinkConfig {
	c := newSinkConfig().(*SinkConfig)
	c.Addresses, c.Key = []string{address}, template("k:{a}")
	if change != nil {
		change(c)
	}
	return c
}

func sending(t *testing.T, address string, hook redis.Hook, change func(*SinkConfig)) connectors.Writer {
	t.Helper()
	s, err := newSink(sinkConfig(address, change))
	if err != nil {
		t.Fatal(err)
	}
	s.hook = hook
	t.Cleanup(func() { _ = s.Close() })
	if err := s.Open(t.Context(), connectors.SinkEnv{Log: slog.New(slog.DiscardHandler), Subtasks: 1}); err != nil {
		t.Fatal(err)
	}
	w, err := s.Writer(0)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

type row struct {
	value string
	slots [2]connectors.Value
}

func rows(list ...row) *connectors.Rows {
	r := &connectors.Rows{Batch: new(connectors.Batch)}
	r.Batch.Size(len(list), 2)
	origin := &connectors.Origin{Topic: "in"}
	for i, x := range list {
		r.Batch.Records[i] = connectors.Record{Origin: origin, Offset: int64(i)}
		var b []byte
		if x.value != "" {
			b = []byte(x.value)
		}
		r.Sel, r.Values = append(r.Sel, uint16(i)), append(r.Values, b)
		copy(r.Batch.Row(i), x.slots[:])
	}
	return r
}

func refusedRows(err error) (out []int) {
	var r *connectors.RowsError
	if errors.As(err, &r) {
		for _, row := range r.Rows {
			out = append(out, row.Row)
		}
	}
	return out
}

// suite is the contract at a server, with a proxy before it for outages and lost replies. Of
// commands that add to a key, it is fixed.
func suite(t *testing.T, address func(t *testing.T) string) {
	for _, command := range []string{cmdSet, cmdZAdd, cmdXAdd, cmdRPush} {
		t.Run(command, func(t *testing.T) {
			connectortest.TestSink(t, func(t *testing.T) connectortest.Sink {
				at := &shared{command: command, key: fmt.Sprintf("suite:%s:%d", command, time.Now().UnixNano())}
				direct := address(t)
				at.client = redis.NewClient(&redis.Options{Addr: direct})
				t.Cleanup(func() { _ = at.remove(); _ = at.client.Close() })
				proxy, full := connectortest.NewProxy(t, direct), &fullServer{}
				dial := func(slot int) func() (connectors.Sink, error) {
					return func() (connectors.Sink, error) { return at.sink(proxy.Addr, slot, full) }
				}
				sink := connectortest.Sink{
					New: dial(connectortest.SlotKey), Read: at.read, Network: proxy.Network(), Timeout: 2 * time.Minute,
					Without: map[string]string{connectortest.WithoutPoison: "it takes any value"},
				}
				sink.Network.Throttle = full.putOff
				if command == cmdSet {
					sink.Updating = &connectortest.Updating{Mode: connectors.Upserts, New: dial(connectortest.SlotGroup), Read: at.read}
				}
				return sink
			})
		})
	}
}

// shared is what the sinks of one check write into.
type shared struct {
	command, key string
	client       *redis.Client
}

func (s *shared) sink(address string, slot int, hook redis.Hook) (connectors.Sink, error) {
	c := sinkConfig(address, func(c *SinkConfig) { c.Command, c.Key = s.command, template(s.key) })
	switch s.command {
	case cmdSet:
		c.Key = template(s.key + ":{id}")
		c.Key.Parts[len(c.Key.Parts)-1].Expr.Slot = slot
	case cmdZAdd:
		c.Score = connectors.Expr{Text: "offset", Slot: connectortest.SlotOffset}
	}
	made, err := newSink(c)
	if err == nil {
		made.hook = hook
	}
	return made, err
}

func (s *shared) read(ctx context.Context) (out []string, err error) {
	switch s.command {
	case cmdZAdd:
		return s.client.ZRange(ctx, s.key, 0, -1).Result()
	case cmdRPush:
		return s.client.LRange(ctx, s.key, 0, -1).Result()
	case cmdSet:
		keys := s.client.Scan(ctx, 0, s.key+":*", 1000).Iterator()
		for keys.Next(ctx) {
			value, err := s.client.Get(ctx, keys.Val()).Result()
			if err != nil {
				return nil, err
			}
			out = append(out, value)
		}
		return out, keys.Err()
	}
	entries, err := s.client.XRange(ctx, s.key, "-", "+").Result()
	for _, e := range entries {
		out = append(out, e.Values["value"].(string))
	}
	return out, err
}

func (s *shared) remove() error {
	ctx := context.Background()
	keys, err := s.client.Keys(ctx, s.key+"*").Result()
	if err != nil || len(keys) == 0 {
		return err
	}
	return s.client.Del(ctx, keys...).Err()
}

// fullServer answers the next round trips as a server does that has no memory left.
type fullServer struct{ trips atomic.Int64 }

func (f *fullServer) putOff(n int) { f.trips.Store(int64(n)) }

func (f *fullServer) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *fullServer) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (f *fullServer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if f.trips.Add(-1) < 0 {
			return next(ctx, cmds)
		}
		for _, c := range cmds {
			c.SetErr(outOfMemory("OOM command not allowed when used memory > 'maxmemory'."))
		}
		return cmds[0].Err()
	}
}

// outOfMemory is an error that the server answers with.
type outOfMemory string

func (e outOfMemory) Error() string { return string(e) }
func (e outOfMemory) RedisError()   {}

func TestSinkKeepsTheContract(t *testing.T) {
	suite(t, func(t *testing.T) string { return miniredis.RunT(t).Addr() })
}

func TestWhatRecordsDo(t *testing.T) { whatRecordsDo(t, miniredis.RunT(t).Addr()) }

func whatRecordsDo(t *testing.T, address string) {
	s, i, null := connectors.StringValue, connectors.IntValue, connectors.NullValue()
	a, b := [2]connectors.Value{s("a"), i(3)}, [2]connectors.Value{s("b"), i(4)}
	bare := func(key string) func(*SinkConfig) { return func(c *SinkConfig) { c.Key = template(key) } }
	tests := []struct {
		name   string
		change func(*SinkConfig)
		rows   []row
		ask    []string // commands
		want   []any
		refuse []int
	}{
		{"set, the last of a key", nil, []row{{"1", a}, {"2", b}, {"3", a}}, []string{"GET k:a", "GET k:b"}, []any{"3", "2"}, nil},
		{"set a value", func(c *SinkConfig) { c.Value = connectors.Expr{Text: "v", Slot: 1} }, []row{{"1", a}}, []string{"GET k:a"}, []any{"3"}, nil},
		{"a tombstone removes", nil, []row{{"1", a}, {"", a}, {"", b}}, []string{"EXISTS k:a"}, []any{int64(0)}, nil},
		{"for a time", func(c *SinkConfig) { c.TTL = connectors.TimeSpan(time.Hour) }, []row{{"1", a}}, []string{"TTL k:a"}, []any{int64(3600)}, nil},
		{"keys of several values", bare("k:{a}:{n}"), []row{{"1", a}}, []string{"GET k:a:3"}, []any{"1"}, nil},
		{"no key of null", nil, []row{{"1", [2]connectors.Value{null, null}}, {"2", a}}, []string{"GET k:a"}, []any{"2"}, []int{0}},
		{"hset, and null removes a field", func(c *SinkConfig) { c.Command, c.TTL = cmdHSet, connectors.TimeSpan(time.Hour) },
			[]row{{`{"x":1,"y":"t","z":[1]}`, a}, {`{"y":null,"w":1.50}`, a}}, []string{"HGET k:a x", "HEXISTS k:a y", "HGET k:a z", "HGET k:a w", "TTL k:a"},
			[]any{"1", int64(0), "[1]", "1.50", int64(3600)}, nil},
		{"hset takes objects", func(c *SinkConfig) { c.Command = cmdHSet }, []row{{`[1]`, a}, {`{}`, a}, {"x", a}, {`{"n":1}`, a}}, []string{"HGET k:a n"}, []any{"1"}, []int{0, 1, 2}},
		{"zadd", func(c *SinkConfig) {
			c.Command, c.Key, c.Score = cmdZAdd, template("z"), connectors.Expr{Text: "n", Slot: 1}
		}, []row{{"m", a}, {"m", b}, {"x", [2]connectors.Value{null, s("x")}}, {"", a}}, []string{"ZSCORE z m"}, []any{4.0}, []int{2, 3}},
		{"lists and streams", func(c *SinkConfig) { c.Command, c.Key = cmdLPush, template("l") }, []row{{"1", a}, {"2", a}}, []string{"LRANGE l 0 -1"}, []any{[]any{"2", "1"}}, nil},
		{"a key of another type", nil, []row{{"1", a}, {"2", b}}, []string{"GET k:b"}, []any{"2"}, nil},
	}
	client := redis.NewClient(&redis.Options{Addr: address})
	defer func() { _ = client.Close() }()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client.Del(t.Context(), "k:a", "k:b", "k:a:3", "z", "l")
			err := sending(t, address, nil, tt.change).Write(t.Context(), rows(tt.rows...))
			if got := refusedRows(err); !slices.Equal(got, tt.refuse) || err != nil && got == nil {
				t.Errorf("error %v", err)
			}
			for k, ask := range tt.ask {
				var args []any
				for _, f := range strings.Fields(ask) {
					args = append(args, f)
				}
				got, _ := client.Do(t.Context(), args...).Result()
				if text, ok := got.(string); ok && strings.HasPrefix(ask, "ZSCORE") {
					got, _ = strconv.ParseFloat(text, 64)
				}
				if fmt.Sprint(got) != fmt.Sprint(tt.want[k]) {
					t.Errorf("%s: %v, wanted %v", ask, got, tt.want[k])
				}
			}
		})
	}
	client.Del(t.Context(), "k:a", "k:b")
	client.RPush(t.Context(), "k:a", "x")
	w := sending(t, address, nil, func(c *SinkConfig) { c.Command = cmdHSet })
	if err := w.Write(t.Context(), rows(row{`{"n":1}`, a}, row{`{"n":2}`, b})); !slices.Equal(refusedRows(err), []int{0}) || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("error %v", err)
	}
	if v := client.HGet(t.Context(), "k:b", "n").Val(); v != "2" {
		t.Errorf("k:b has %q", v)
	}
}

// server is Redis in memory, below the client's pipelines: it takes SET only.
type server struct {
	keys  map[string]string
	trips int
	// meet answers a command instead of the server; nil for the server itself.
	meet func(trip, n int) error
	lose func(trip int) bool // the answers are lost, not the commands
}

// answer is an error that a server says.
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

func (s *server) DialHook(next redis.DialHook) redis.DialHook { return next }
func (s *server) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error { return nil }
}
func (s *server) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		s.trips++
		for n, cmd := range cmds {
			if s.meet != nil {
				if err := s.meet(s.trips, n); err != nil {
					cmd.SetErr(err)
					continue
				}
			}
			s.keys[cmd.Args()[1].(string)] = string(cmd.Args()[2].([]byte))
			if s.lose != nil && s.lose(s.trips) {
				cmd.SetErr(net.ErrClosed)
			}
		}
		return nil
	}
}

func many(n int) (out []row) {
	for i := range n {
		out = append(out, row{strconv.Itoa(i), [2]connectors.Value{connectors.IntValue(int64(i % 10))}})
	}
	return out
}

// kept checks that the last of a hundred records of ten keys is kept for each.
func kept(t *testing.T, s *server) {
	t.Helper()
	for i := range 10 {
		if got := s.keys[fmt.Sprint("k:", i)]; got != strconv.Itoa(90+i) {
			t.Errorf("key %d is %s", i, got)
		}
	}
}

func TestRowsAreSentAgainUntilTheyAreTaken(t *testing.T) {
	for _, with := range []error{
		net.ErrClosed, context.DeadlineExceeded, answer("OOM command not allowed when used memory > 'maxmemory'."), answer("READONLY You can't write against a read only replica."),
		answer("LOADING Redis is loading the dataset in memory"), answer("CLUSTERDOWN The cluster is down"), answer("NOAUTH Authentication required."), answer("MOVED 1 a:1"),
	} {
		t.Run(with.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				s := &server{keys: map[string]string{}, meet: func(int, int) error {
					if time.Since(start) < time.Minute {
						return with
					}
					return nil
				}}
				w := sending(t, "nowhere:1", s, func(c *SinkConfig) { c.Concurrency = 1 })
				if err := w.Write(t.Context(), rows(many(100)...)); err != nil {
					t.Fatal(err)
				}
				kept(t, s)
				if took := time.Since(start); took < time.Minute || took > 2*time.Minute || s.trips > 30 {
					t.Errorf("%d trips in %s", s.trips, took)
				}
			})
		})
	}
}

func TestALostAnswerChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{keys: map[string]string{}, lose: func(trip int) bool { return trip%2 == 1 }}
		w := sending(t, "nowhere:1", s, func(c *SinkConfig) { c.Concurrency, c.Batch.Records = 1, 7 })
		if err := w.Write(t.Context(), rows(many(100)...)); err != nil {
			t.Fatal(err)
		}
		kept(t, s)
	})
}

// A row that had to wait goes again, and behind it all of its key, so that the last wins.
func TestSingleRowsThatWaitGoAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{keys: map[string]string{}, meet: func(trip, n int) error {
			if trip < 4 && n%3 == 0 {
				return answer("OOM")
			}
			return nil
		}}
		w := sending(t, "nowhere:1", s, func(c *SinkConfig) { c.Concurrency = 1 })
		if err := w.Write(t.Context(), rows(many(100)...)); err != nil {
			t.Fatal(err)
		}
		kept(t, s)
	})
}

func TestAStopEndsTheTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{keys: map[string]string{}, meet: func(int, int) error { return net.ErrClosed }}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := sending(t, "nowhere:1", s, nil).Write(ctx, rows(many(1)...)); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

func TestWhatEachCommandPromises(t *testing.T) {
	tests := []struct {
		command, key string
		guarantee    connectors.Guarantee
		changes      connectors.ChangeMode
	}{
		{cmdSet, "k:{a}", connectors.EffectivelyOnce, connectors.Upserts},
		{cmdHSet, "k:{a}", connectors.EffectivelyOnce, connectors.Upserts},
		{cmdHSet, "k:{a}:{b}", connectors.EffectivelyOnce, connectors.AppendOnly},
		{cmdZAdd, "k:{a}", connectors.EffectivelyOnce, connectors.AppendOnly},
		{cmdXAdd, "k:{a}", connectors.AtLeastOnce, connectors.AppendOnly},
		{cmdPublish, "k", connectors.AtLeastOnce, connectors.AppendOnly},
	}
	for _, tt := range tests {
		c := sinkConfig("a:1", func(c *SinkConfig) { c.Command, c.Key = tt.command, template(tt.key) })
		if c.guarantee() != tt.guarantee || c.changes().Mode != tt.changes {
			t.Errorf("%s of %s: %s, changes %d", tt.command, tt.key, c.guarantee(), c.changes().Mode)
		}
	}
}

func TestDeadLettersGoToAStream(t *testing.T) {
	m := miniredis.RunT(t)
	r := rows(row{value: "1"})
	r.DeadLetter = make([]*connectors.RecordError, 1)
	if err := sending(t, m.Addr(), nil, func(c *SinkConfig) { c.Command, c.Key = cmdXAdd, template("dead") }).Write(t.Context(), r); err != nil {
		t.Error(err)
	}
	if entries, err := m.Stream("dead"); err != nil || len(entries) != 1 {
		t.Errorf("entries %v, error %v", entries, err)
	}
	if err := sending(t, m.Addr(), nil, nil).Write(t.Context(), r); len(refusedRows(err)) != 1 {
		t.Errorf("error %v", err)
	}
}

func TestSinkConfigurationThatCannotWorkIsRefused(t *testing.T) {
	score := connectors.Expr{Text: "n"}
	tests := []struct {
		name   string
		change func(*SinkConfig)
		want   string
	}{
		{"one key for all", func(c *SinkConfig) { c.Key = template("k") }, "overwrite"},
		{"no score", func(c *SinkConfig) { c.Command = cmdZAdd }, "score"},
		{"a score of a text", func(c *SinkConfig) { c.Score = score }, "score"},
		{"a hash of a value", func(c *SinkConfig) { c.Command, c.Value = cmdHSet, score }, "value"},
		{"a length of a text", func(c *SinkConfig) { c.MaxLen = 5 }, "max_len"},
		{"several servers", func(c *SinkConfig) { c.Addresses = []string{"a:1", "b:1"} }, "cluster"},
		{"a life of nothing", func(c *SinkConfig) { c.Command, c.TTL = cmdPublish, 1e9 }, "ttl"},
		{"no trips", func(c *SinkConfig) { c.Batch.Records = 0 }, "batch.records"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := newSink(sinkConfig("a:1", tt.change)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v", err)
			}
		})
	}
}
