package transform_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/transform"
)

// otherSide is what a lookup asks in tests: rows by the text of their key.
type otherSide struct {
	rows   map[string]string
	size   int                                                      // keys of a call
	before func(ctx context.Context, call int, keys []string) error // of each call
	answer func(key string, a *connectors.Answer) (answered bool)   // instead of rows
	env    connectors.LookupEnv

	mu     sync.Mutex
	calls  [][]string
	active int
	most   int
	closed int
}

func (l *otherSide) Open(_ context.Context, env connectors.LookupEnv) error { l.env = env; return nil }
func (l *otherSide) MaxKeys() int                                           { return max(l.size, 1) }
func (l *otherSide) Close() error                                           { l.closed++; return nil }

func (l *otherSide) Find(ctx context.Context, keys []connectors.LookupKey, answers []connectors.Answer) error {
	var texts []string
	for _, k := range keys {
		var parts []string
		for _, v := range k.Values {
			text, err := format.AppendValue(nil, v)
			if err != nil {
				return err
			}
			parts = append(parts, string(text))
		}
		texts = append(texts, strings.Join(parts, "|"))
	}
	l.mu.Lock()
	l.calls = append(l.calls, texts)
	call := len(l.calls)
	l.active++
	l.most = max(l.most, l.active)
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.active--
		l.mu.Unlock()
	}()
	if l.before != nil {
		if err := l.before(ctx, call, texts); err != nil {
			return err
		}
	}
	for i, k := range texts {
		if l.answer != nil && l.answer(k, &answers[i]) {
			continue
		}
		if row, ok := l.rows[k]; ok {
			answers[i].Row = []byte(row)
		}
	}
	return nil
}

func (l *otherSide) asked() (keys []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.calls {
		keys = append(keys, c...)
	}
	slices.Sort(keys)
	return keys
}

// looking is a lookup at work, alone.
type looking struct {
	t       testing.TB
	step    transform.Step
	inst    transform.Instance
	decoder format.Decoder
	encoder format.Encoder
	view    *transform.View
	stride  int
	out     []string
	failed  []string
	dropped int
	fail    error // that Fail answers with
	discard bool
}

// newLooking builds a step and opens it.
func newLooking(t testing.TB, side *otherSide, on connectors.Keys, change func(*transform.LookupConfig)) *looking {
	t.Helper()
	kind, _ := transform.Lookup("lookup")
	c := kind.NewConfig().(*transform.LookupConfig)
	c.On, c.As = on, "side"
	if change != nil {
		change(c)
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	*c.LookupBlock() = connectors.LookupBlock{Kind: "table", Config: side, Spec: connectors.LookupSpec{
		Name: "table", Concurrency: 4, New: func(any, []string) (connectors.Lookup, error) { return side, nil },
	}}
	in := transform.NewView(transform.NewBase())
	env := &transform.Env{Name: "step", In: in, Fault: func(keys []string, err error) { t.Fatalf("%v: %v", keys, err) }}
	l := &looking{t: t, step: kind.Build(c, env), view: env.Outputs()[0]}
	var err error
	if l.decoder, err = format.NewDecoder(connectors.FormatConfig{}, in.Base().Fields(), true); err != nil {
		t.Fatal(err)
	}
	if l.encoder, err = format.NewEncoder(connectors.FormatConfig{}, l.view.Layout(), format.EncoderOptions{}); err != nil {
		t.Fatal(err)
	}
	l.stride = in.Base().Stride()
	if err := l.step.(transform.Opener).Open(t.Context(), slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.step.(transform.Opener).Close() })
	l.inst = l.step.Start(l.env())
	return l
}

func (l *looking) env() transform.RunEnv {
	return transform.RunEnv{
		Exprs: expr.NewEnv(), Subtasks: 1, Dropped: func(n int) { l.dropped += n },
		Emit: func(_ context.Context, _ int, b *connectors.Batch, sel []uint16) error {
			if l.discard {
				return nil
			}
			rows := connectors.Rows{Batch: b, Sel: sel, Layout: l.view.Layout()}
			l.encoder.Encode(&rows, func(_ int, err error) { l.t.Error(err) })
			for _, v := range rows.Values {
				l.out = append(l.out, string(v))
			}
			return nil
		},
		Fail: func(_ context.Context, _ *connectors.Batch, _ uint16, e *connectors.RecordError) error {
			l.failed = append(l.failed, fmt.Sprintf("%d %s: %s", e.Offset, e.Kind, e.Reason))
			return l.fail
		},
	}
}

func (l *looking) batch(values ...string) (*connectors.Batch, []uint16) {
	b := &connectors.Batch{}
	b.Size(len(values), l.stride)
	origin := &connectors.Origin{Topic: "t"}
	var sel []uint16
	for i, v := range values {
		b.Records[i] = connectors.Record{Origin: origin, Offset: int64(i), Value: []byte(v)}
		if v == "" {
			b.Records[i].Value = nil
		}
		sel = append(sel, uint16(i))
	}
	return b, l.decoder.Decode(b, sel, func(row uint16, err *format.SyntaxError) { l.t.Errorf("row %d: %v", row, err) })
}

func (l *looking) feed(values ...string) error {
	l.t.Helper()
	b, sel := l.batch(values...)
	return l.inst.Process(l.t.Context(), b, sel)
}

func (l *looking) want(out ...string) {
	l.t.Helper()
	if !slices.Equal(l.out, out) {
		l.t.Errorf("rows\n  %s\nwant\n  %s", strings.Join(l.out, "\n  "), strings.Join(out, "\n  "))
	}
}

func sideRows(n int) map[string]string {
	rows := map[string]string{}
	for i := range n {
		rows[fmt.Sprint(i)] = fmt.Sprintf(`{"v":%d}`, i*10)
	}
	return rows
}

func TestLookupAddsTheRowAndKeepsTheOrder(t *testing.T) {
	side := &otherSide{rows: sideRows(3), size: 2}
	l := newLooking(t, side, by("k"), nil)
	if err := l.feed(`{"k":2}`, `{"k":7}`, ``, `{"k":1,"side":"old"}`, `{"k":2.0}`, `{"k":"2"}`, `{"k":null}`, `{}`); err != nil {
		t.Fatal(err)
	}
	l.want(`{"k":2,"side":{"v":20}}`, `{"k":7,"side":null}`, ``, `{"k":1,"side":{"v":10}}`, `{"k":2.0,"side":{"v":20}}`,
		`{"k":"2","side":null}`, `{"k":null,"side":null}`, `{"side":null}`)
	if got := side.asked(); !slices.Equal(got, []string{`"2"`, "1", "2", "7"}) {
		t.Errorf("asked for %v, want each key once, and none for null", got)
	}
}

func TestLookupByAnExpressionOfSeveralColumns(t *testing.T) {
	side := &otherSide{rows: map[string]string{`"de"|5`: `{"x":1}`}}
	l := newLooking(t, side, connectors.Keys{{Name: "a", Expr: connectors.Expr{Text: "lower(c)"}}, {Name: "b", Expr: connectors.Expr{Text: "n + 1"}}}, nil)
	if err := l.feed(`{"c":"DE","n":4}`, `{"c":5,"n":4}`, `{"c":"DE","n":5}`); err != nil {
		t.Fatal(err)
	}
	l.want(`{"c":"DE","n":4,"side":{"x":1}}`, `{"c":"DE","n":5,"side":null}`)
	if len(l.failed) != 1 || !strings.HasPrefix(l.failed[0], "1 type:") {
		t.Errorf("failed %v", l.failed)
	}
}

func TestLookupOfAMissingRow(t *testing.T) {
	in := []string{`{"k":1}`, `{"k":9}`, `{"k":null}`, `{"k":2}`}
	tests := []struct {
		missing transform.Missing
		out     []string
		failed  []string
		dropped int
	}{
		{transform.MissingNull, []string{`{"k":1,"side":{"v":10}}`, `{"k":9,"side":null}`, `{"k":null,"side":null}`, `{"k":2,"side":{"v":20}}`}, nil, 0},
		{transform.MissingDrop, []string{`{"k":1,"side":{"v":10}}`, `{"k":2,"side":{"v":20}}`}, nil, 2},
		{transform.MissingFail, []string{`{"k":1,"side":{"v":10}}`, `{"k":2,"side":{"v":20}}`},
			[]string{"1 missing: there is no row for its key", "2 missing: k is null, which matches no row"}, 0},
	}
	for _, tt := range tests {
		t.Run(string(tt.missing), func(t *testing.T) {
			l := newLooking(t, &otherSide{rows: sideRows(3)}, by("k"), func(c *transform.LookupConfig) { c.Missing = tt.missing })
			if err := l.feed(in...); err != nil {
				t.Fatal(err)
			}
			l.want(tt.out...)
			if !slices.Equal(l.failed, tt.failed) || l.dropped != tt.dropped {
				t.Errorf("failed %v, dropped %d", l.failed, l.dropped)
			}
		})
	}
}

func TestLookupFailureOfOneKeyIsThatOfItsRecords(t *testing.T) {
	side := &otherSide{rows: sideRows(3), size: 10, answer: func(key string, a *connectors.Answer) bool {
		if key != "1" {
			return false
		}
		a.Err = errors.New("status 400")
		return true
	}}
	l := newLooking(t, side, by("k"), nil)
	for range 2 { // a failure is not kept
		if err := l.feed(`{"k":1}`, `{"k":2}`, `{"k":1}`, `[1]`); err != nil {
			t.Fatal(err)
		}
	}
	l.want(`{"k":2,"side":{"v":20}}`, `{"k":2,"side":{"v":20}}`)
	if len(l.failed) != 6 || l.failed[1] != "0 lookup: status 400" || l.failed[2] != "2 lookup: status 400" {
		t.Errorf("failed %q", l.failed)
	}
	if got := side.asked(); !slices.Equal(got, []string{"1", "1", "2"}) {
		t.Errorf("asked for %v", got)
	}
}

func TestLookupKeepsAnswersForTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		side := &otherSide{rows: sideRows(3), size: 10}
		l := newLooking(t, side, by("k"), nil)
		ask := func(wait time.Duration, want ...string) {
			t.Helper()
			time.Sleep(wait)
			side.mu.Lock()
			side.calls = nil
			side.mu.Unlock()
			if err := l.feed(`{"k":1}`, `{"k":9}`); err != nil {
				t.Fatal(err)
			}
			if got := side.asked(); !slices.Equal(got, want) {
				t.Errorf("asked for %v, want %v", got, want)
			}
		}
		ask(0, "1", "9")
		ask(9 * time.Second)
		ask(time.Second, "9") // missing_ttl is over
		ask(9 * time.Second)
		ask(41*time.Second, "1", "9") // and ttl
		other := l.step.Start(l.env())
		b, sel := l.batch(`{"k":1}`)
		if err := other.Process(t.Context(), b, sel); err != nil {
			t.Fatal(err)
		}
		if got := side.asked(); len(got) != 2 {
			t.Errorf("another subtask asked again: %v", got)
		}
	})
}

func TestLookupWithoutACacheAsksForAKeyOnceABatch(t *testing.T) {
	side := &otherSide{rows: sideRows(3)}
	l := newLooking(t, side, by("k"), func(c *transform.LookupConfig) { c.Cache.Size = 0 })
	for range 2 {
		if err := l.feed(`{"k":1}`, `{"k":1}`); err != nil {
			t.Fatal(err)
		}
	}
	if got := side.asked(); !slices.Equal(got, []string{"1", "1"}) {
		t.Errorf("asked for %v", got)
	}
}

func TestLookupCallsAreBoundedOverAllSubtasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		side := &otherSide{rows: sideRows(200), before: func(ctx context.Context, _ int, _ []string) error {
			time.Sleep(100 * time.Millisecond)
			return nil
		}}
		l := newLooking(t, side, by("k"), nil)
		began := time.Now()
		var tasks sync.WaitGroup
		for task := range 2 {
			inst := l.step.Start(transform.RunEnv{
				Exprs: expr.NewEnv(), Emit: func(context.Context, int, *connectors.Batch, []uint16) error { return nil },
			})
			var values []string
			for i := range 100 {
				values = append(values, fmt.Sprintf(`{"k":%d}`, 100*task+i))
			}
			b, sel := l.batch(values...)
			tasks.Go(func() {
				if err := inst.Process(t.Context(), b, sel); err != nil {
					t.Error(err)
				}
			})
		}
		tasks.Wait()
		if side.most != 4 {
			t.Errorf("%d calls at once, want 4", side.most)
		}
		if d := time.Since(began); d != 5*time.Second {
			t.Errorf("200 calls of 100ms, 4 at once, took %s", d)
		}
	})
}

func TestLookupTriesAgainAfterFaultsThatPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		side := &otherSide{rows: sideRows(3), before: func(_ context.Context, call int, _ []string) error {
			switch call {
			case 1:
				return errors.New("connection refused")
			case 2:
				return &connectors.RetryAfterError{After: 5 * time.Second, Err: errors.New("status 429")}
			case 3:
				return &connectors.RetryAfterError{After: time.Hour, Err: errors.New("status 503")}
			}
			return nil
		}}
		l := newLooking(t, side, by("k"), nil)
		began := time.Now()
		if err := l.feed(`{"k":1}`); err != nil {
			t.Fatal(err)
		}
		l.want(`{"k":1,"side":{"v":10}}`)
		if d := time.Since(began); d < 15*time.Second || d > 16*time.Second {
			t.Errorf("took %s: Retry-After is kept to, up to the timeout", d)
		}
	})
}

func TestLookupGivesUp(t *testing.T) {
	refused := errors.New("connection refused")
	tests := []struct {
		name      string
		before    func(ctx context.Context, call int, keys []string) error
		calls     int
		permanent bool
		want      string
	}{
		{"after all tries", func(context.Context, int, []string) error { return refused }, 4, false, "step step: lookup table: no answer in 4 tries: connection refused"},
		{"when no answer comes", func(ctx context.Context, _ int, _ []string) error { <-ctx.Done(); return ctx.Err() }, 4, false, "no answer within 10s (timeout)"},
		{"at once for what does not pass", func(context.Context, int, []string) error { return connectors.Permanent(refused) }, 1, true, "lookup table: connection refused"},
		{"and a panic is such a fault", func(context.Context, int, []string) error { panic("oh") }, 4, false, "panic: oh"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				side := &otherSide{before: tt.before}
				l := newLooking(t, side, by("k"), nil)
				err := l.feed(`{"k":1}`)
				if err == nil || !strings.Contains(err.Error(), tt.want) || connectors.IsPermanent(err) != tt.permanent {
					t.Errorf("error %v", err)
				}
				if len(side.calls) != tt.calls || len(l.out) > 0 {
					t.Errorf("%d calls, rows %v", len(side.calls), l.out)
				}
			})
		})
	}
}

func TestLookupEndsAtOnceWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := errors.New("stop")
		for _, wait := range []time.Duration{time.Second, 10100 * time.Millisecond} { // in a call, in a pause
			side := &otherSide{before: func(ctx context.Context, _ int, _ []string) error { <-ctx.Done(); return ctx.Err() }}
			l := newLooking(t, side, by("k"), func(c *transform.LookupConfig) { c.Backoff = connectors.TimeSpan(10 * time.Second) })
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(wait, func() { cancel(stop) })
			b, sel := l.batch(`{"k":1}`, `{"k":2}`, `{"k":3}`, `{"k":4}`, `{"k":5}`, `{"k":6}`)
			began := time.Now()
			if err := l.inst.Process(ctx, b, sel); !errors.Is(err, stop) {
				t.Errorf("error %v", err)
			}
			if d := time.Since(began); d != wait {
				t.Errorf("ended after %s, not %s", d, wait)
			}
		}
	})
}

func TestLookupOneFailureEndsTheOtherCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		side := &otherSide{before: func(ctx context.Context, _ int, keys []string) error {
			if keys[0] == "2" {
				return connectors.Permanent(errors.New("no such table"))
			}
			<-ctx.Done()
			return ctx.Err()
		}}
		l := newLooking(t, side, by("k"), nil)
		began := time.Now()
		err := l.feed(`{"k":1}`, `{"k":2}`, `{"k":3}`)
		if err == nil || !strings.Contains(err.Error(), "no such table") || time.Since(began) > 0 {
			t.Errorf("error %v after %s", err, time.Since(began))
		}
	})
}

// What ends early gives its calls back: the step is used again by the next attempt.
func TestLookupWorksAgainAfterAnyEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		side := &otherSide{rows: sideRows(20), before: func(ctx context.Context, _ int, _ []string) error { <-ctx.Done(); return ctx.Err() }}
		l := newLooking(t, side, by("k"), nil)
		var values []string
		for i := range 20 {
			values = append(values, fmt.Sprintf(`{"k":%d}`, i))
		}
		for range 50 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Millisecond, cancel)
			b, sel := l.batch(values...)
			if err := l.inst.Process(ctx, b, sel); err == nil {
				t.Fatal("no error")
			}
			b, sel = l.batch(values...)
			if err := l.inst.Process(ctx, b, sel); err == nil {
				t.Fatal("no error")
			}
		}
		side.before = nil
		if err := l.feed(values...); err != nil || len(l.out) != 20 {
			t.Errorf("error %v, %d rows", err, len(l.out))
		}
	})
}

func TestLookupOfLargeRowsGoesOnInParts(t *testing.T) {
	large := `{"v":"` + strings.Repeat("x", 16<<20) + `"}`
	side := &otherSide{answer: func(_ string, a *connectors.Answer) bool { a.Row = []byte(large); return true }}
	l := newLooking(t, side, by("k"), func(c *transform.LookupConfig) { c.Concurrency = 1 })
	l.discard = true
	var values []string
	for i := range 12 {
		values = append(values, fmt.Sprintf(`{"k":%d}`, i))
	}
	emitted := 0
	env := l.env()
	env.Emit = func(_ context.Context, _ int, b *connectors.Batch, sel []uint16) error {
		if len(sel) > 6 {
			t.Errorf("%d rows of 16MiB at once", len(sel))
		}
		for _, row := range sel {
			if int(row) != emitted {
				t.Errorf("row %d comes as number %d", row, emitted)
			}
			emitted++
		}
		return nil
	}
	b, sel := l.batch(values...)
	if err := l.step.Start(env).Process(t.Context(), b, sel); err != nil {
		t.Fatal(err)
	}
	if emitted != 12 {
		t.Errorf("%d rows", emitted)
	}
}

func TestLookupRowsAreOneLine(t *testing.T) {
	side := &otherSide{rows: map[string]string{"1": "{\n  \"a\": \"ü\",\r\n  \"b\": 1\n}"}}
	l := newLooking(t, side, by("k"), nil)
	if err := l.feed(`{"k":1}`); err != nil {
		t.Fatal(err)
	}
	if len(l.out) != 1 || strings.ContainsAny(l.out[0], "\r\n") || !strings.Contains(l.out[0], "ü") {
		t.Errorf("rows %q", l.out)
	}
}

func TestLookupHitsAllocateNothing(t *testing.T) {
	side := &otherSide{rows: sideRows(100), size: 100}
	l := newLooking(t, side, by("k"), nil)
	l.discard = true
	var values []string
	for i := range 500 {
		values = append(values, fmt.Sprintf(`{"k":%d}`, i%150))
	}
	b, sel := l.batch(values...)
	if err := l.inst.Process(t.Context(), b, sel); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(20, func() { _ = l.inst.Process(t.Context(), b, sel) }); n > 0 {
		t.Errorf("%v allocations for %d records", n, len(values))
	}
}

func TestLookupIsConnectedAnewByEachAttempt(t *testing.T) {
	side := &otherSide{rows: sideRows(2)}
	l := newLooking(t, side, by("k"), nil)
	open := l.step.(transform.Opener)
	if err := open.Open(t.Context(), slog.New(slog.DiscardHandler)); err != nil || side.closed != 1 {
		t.Errorf("error %v, closed %d times", err, side.closed)
	}
	if err := errors.Join(open.Close(), open.Close()); err != nil || side.closed != 2 {
		t.Errorf("error %v, closed %d times", err, side.closed)
	}
}

func TestLookupFaultsOfAConfiguration(t *testing.T) {
	kind, _ := transform.Lookup("lookup")
	valid := func() *transform.LookupConfig {
		c := kind.NewConfig().(*transform.LookupConfig)
		c.On, c.As = by("k"), "side"
		return c
	}
	tests := []struct {
		name   string
		change func(*transform.LookupConfig)
		want   string
	}{
		{"no column", func(c *transform.LookupConfig) { c.On = nil }, "on: "},
		{"no field", func(c *transform.LookupConfig) { c.As = "" }, "as: "},
		{"no time", func(c *transform.LookupConfig) { c.Timeout = 0 }, "timeout: "},
		{"tries", func(c *transform.LookupConfig) { c.Retries = -1 }, "retries: "},
		{"pause", func(c *transform.LookupConfig) { c.Backoff = connectors.TimeSpan(time.Minute) }, "backoff: "},
		{"calls", func(c *transform.LookupConfig) { c.Concurrency = -1 }, "concurrency: "},
		{"age", func(c *transform.LookupConfig) { c.Cache.TTL = -1 }, "cache.ttl: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := valid()
			tt.change(c)
			if err := c.Validate(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v", err)
			}
		})
	}
	var faults []string
	env := &transform.Env{Name: "s", In: transform.NewView(transform.NewBase()), Fault: func(keys []string, err error) {
		faults = append(faults, fmt.Sprintf("%v: %v", keys, err))
	}}
	c := valid()
	c.On = connectors.Keys{{Name: "k", Expr: connectors.Expr{Text: "now()"}}}
	if step := kind.Build(c, env); step != nil || len(faults) != 1 || !strings.Contains(faults[0], "[on k]") {
		t.Errorf("now() as a key: %v", faults)
	}
}
