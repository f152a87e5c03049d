package cli

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
	"github.com/sluice-etl/sluice/pipeline"
)

var testNow = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return testNow.Add(-d) }

func uncolored(_, text string) string { return text }

// wants checks that a text has each of the parts.
func wants(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("there is no %q in:\n%s", part, text)
		}
	}
}

// withProblem is a running pipeline with one problem, and what may be known beside.
func withProblem(p api.Problem) *overview {
	p.Since = ago(3 * time.Minute)
	return &overview{Pipeline: &api.Pipeline{
		Name: "orders", State: api.Running, Since: ago(2 * time.Hour), LagRecords: 1200, LagSeconds: 61, ReadRate: 1234.5,
		Health: api.Health{OK: p.Level != "error", Problems: []api.Problem{p}},
	}}
}

func TestStatusTellsTheCauseAndWhatToDo(t *testing.T) {
	watermark := ago(time.Hour).UnixMilli()
	pending := ago(5 * time.Minute)
	for name, c := range map[string]struct {
		o    *overview
		want []string
	}{
		"broker gone": {
			withProblem(api.Problem{Kind: "broker", Level: "error", Text: "no broker of 127.0.0.1:9092 answers: connection refused", Help: "start the broker, or correct sources.orders.kafka.brokers"}),
			[]string{"orders: running, but not well", "✗ broker: no broker of 127.0.0.1:9092 answers: connection refused (for 3m)", "→ start the broker"},
		},
		"lag grows": {
			withProblem(api.Problem{Kind: "lag", Level: "error", Step: "orders", Text: "the lag grows"}),
			[]string{"✗ lag orders: the lag grows", "1.2k records wait, the next one is 1m1s old"},
		},
		"checkpoints fail": {
			func() *overview {
				o := withProblem(api.Problem{Kind: "checkpoint", Level: "error", Text: "the last 2 failed: no space left on device", Help: "make room"})
				o.Checkpoints = &api.Checkpoints{Interval: 10, Timeout: 600, Retained: 3, Mode: "aligned", Storage: "file:///ck"}
				o.Checkpoints.Completed, o.Checkpoints.Failed, o.Checkpoints.FailedInARow = 7, 2, 2
				o.Checkpoints.History = []checkpoint.AttemptStats{{ID: checkpoint.ID{Number: 9}, Status: checkpoint.Failed, Kind: checkpoint.Periodic, Triggered: ago(4 * time.Second), Failure: "write state: no space left on device"}}
				return o
			}(),
			[]string{"the last 2 failed one after the other", "     9  failed  checkpoint   4s", "write state: no space left on device", "kept below file:///ck"},
		},
		"a sink is slow": {
			func() *overview {
				o := withProblem(api.Problem{Kind: "alignment", Level: "warning", Text: "barriers wait"})
				o.Flow = &pipeline.Flow{
					Tasks: []pipeline.TaskFlow{{Chain: "orders", Backpressured: 0.9, Busy: 0.1}, {Chain: "table", Busy: 0.95, Idle: 0.05, Queued: 512, Queue: 1024}},
					Sinks: []pipeline.SinkFlow{{Sink: "table", Guarantee: "exactly_once", Pending: 2, OldestPending: &pending, Retries: 4, LastError: "connection refused\nat 10.0.0.1"}},
				}
				return o
			}(),
			[]string{"running, and well", "! alignment: barriers wait", "table holds up those before it", "table          1   95%       0%       5%     50%", "connection refused", "5m"},
		},
		"a record that cannot be handled": {
			&overview{
				Pipeline: &api.Pipeline{Name: "orders", State: api.Failed, Since: ago(time.Minute), Failure: "step parse: price is no number", Help: "mend the expression, or etl skip orders orders/3@1201"},
				Failures: []pipeline.Failure{{Time: ago(time.Minute), Operator: "parse", Kind: "type", Reason: "price is no number", Topic: "orders", Partition: 3, Offset: 1201, Outcome: "fail"}},
			},
			[]string{"orders: failed, and needs a person (since 1m)", "✗ why: step parse: price is no number", "→ mend the expression", "1m ago orders/3@1201 at parse (type): price is no number → the pipeline stopped"},
		},
		"an idle partition": {
			func() *overview {
				o := withProblem(api.Problem{Kind: "idle", Level: "warning", Step: "orders", Text: "partition orders/1 gives nothing and holds up event time", Help: "set idle_timeout"})
				o.Flow = &pipeline.Flow{Splits: []pipeline.SplitFlow{{Source: "orders", Split: "orders/1", Position: 77, BehindSeconds: -1, RetentionSeconds: -1, Watermark: &watermark, Idle: true}}}
				return o
			}(),
			[]string{"! idle orders: partition orders/1", "→ set idle_timeout", "orders  orders/1         77     0       -         1h  idle"},
		},
		"a file with faults": {
			&overview{Pipeline: &api.Pipeline{Name: "orders", File: "/etc/etl/orders.yaml", State: api.Invalid, Failure: "orders.yaml:3:5: unknown field\n  did you mean topics?"}},
			[]string{"orders: invalid: its file has faults", "/etc/etl/orders.yaml", "✗ why: orders.yaml:3:5: unknown field\n          did you mean topics?"},
		},
		"a change that was refused": {
			&overview{Pipeline: &api.Pipeline{Name: "orders", State: api.Running, Health: api.Health{OK: true}, Pending: "line 3: unknown field"}},
			[]string{"! change that is not taken over: line 3: unknown field"},
		},
		"one that was cancelled": {
			&overview{Pipeline: &api.Pipeline{Name: "orders", State: api.Stopped, Status: &pipeline.Status{Outcome: pipeline.Cancelled}}},
			[]string{"orders: cancelled; etl start orders --from PATH"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			wants(t, strings.Join(c.o.lines(testNow, false, uncolored), "\n"), c.want...)
		})
	}
}

func TestStatusTellsOfARefusedChangeOnce(t *testing.T) {
	o := withProblem(api.Problem{Kind: "reload", Level: "warning", Text: "line 3: unknown field", Help: "mend orders.yaml"})
	o.Pipeline.Pending = "line 3: unknown field"
	if text := strings.Join(o.lines(testNow, false, uncolored), "\n"); strings.Count(text, "unknown field") != 1 {
		t.Errorf("it says\n%s", text)
	}
}

func TestStatusShowsThePartitionsThatAreFurthestBehind(t *testing.T) {
	var splits []pipeline.SplitFlow
	for i := range 30 {
		splits = append(splits, pipeline.SplitFlow{Source: "orders", Split: "orders/" + string(rune('a'+i)), Behind: int64(i), RetentionSeconds: -1})
	}
	text := strings.Join(splitLines(splits, testNow, false, uncolored), "\n")
	wants(t, text, "orders/"+string(rune('a'+29)), "and 20 more that are less behind")
	if strings.Contains(text, "orders/a ") {
		t.Errorf("one without lag is shown:\n%s", text)
	}
	if all := splitLines(splits, testNow, true, uncolored); len(all) != 31 {
		t.Errorf("%d lines with --all, want 31", len(all))
	}
}

func TestCheckTellsByTheExitCode(t *testing.T) {
	well := api.Pipeline{State: api.Running, Health: api.Health{OK: true}}
	for name, c := range map[string]struct {
		all  []api.Pipeline
		want int
	}{
		"well":               {[]api.Pipeline{well}, exitFine},
		"not well":           {[]api.Pipeline{well, {State: api.Running}}, exitFailed},
		"one needs a person": {[]api.Pipeline{{State: api.Failed}, {State: api.Running}}, exitPerson},
		"invalid":            {[]api.Pipeline{{State: api.Running}, {State: api.Invalid}}, exitPerson},
	} {
		err := checked(c.all)
		var coded *codeError
		got := exitFine
		if errors.As(err, &coded) {
			got = coded.code
		}
		if got != c.want {
			t.Errorf("%s: exit code %d, want %d", name, got, c.want)
		}
	}
}

func TestPSIsAlignedAndNamesProblems(t *testing.T) {
	all := []api.Pipeline{
		{
			Name: "orders", State: api.Running, ReadRate: 1234, WriteRate: 5.25, LagRecords: 0, LagSeconds: -1, Checkpoint: &api.Checkpoint{Time: ago(4 * time.Second)},
			Health: api.Health{Problems: []api.Problem{{Kind: "idle", Level: "warning"}, {Kind: "sink", Level: "error"}}},
		},
		{Name: "a-longer-name", State: api.Invalid, LagRecords: -1},
		{Name: "changed", State: api.Paused, Health: api.Health{OK: true}, Pending: "x"},
	}
	got := strings.Join(pipelineTable(all, testNow).lines("", uncolored), "\n")
	want := `NAME           STATE    READ/S  WRITTEN/S  LAG  BEHIND  CHECKPOINT  RESTARTS  PROBLEM
orders         running    1.2k        5.2    0       -          4s         0  sink, idle
a-longer-name  invalid       -          -    -       -           -         0
changed        paused        0          0    -       -           -         0  change pending`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestColorsDoNotMoveColumns(t *testing.T) {
	all := []api.Pipeline{{Name: "orders", State: api.Failed}, {Name: "b", State: api.Running}}
	colored := pipelineTable(all, testNow).lines("", func(color, text string) string { return color + text + "\x1b[0m" })
	bare := pipelineTable(all, testNow).lines("", uncolored)
	for i, line := range colored {
		for _, color := range []string{red, green, faint, "\x1b[0m"} {
			line = strings.ReplaceAll(line, color, "")
		}
		if strings.TrimRight(line, " ") != bare[i] {
			t.Errorf("with colours %q, without %q", line, bare[i])
		}
	}
}

func TestTopSortsChoosesAndOpens(t *testing.T) {
	v := &topView{by: 'n', all: []api.Pipeline{
		{Name: "b", State: api.Running, ReadRate: 10, LagRecords: 1}, {Name: "a", State: api.Running, ReadRate: 20, LagRecords: 9}, {Name: "c", State: api.Running, ReadRate: 5, LagRecords: 5},
	}}
	names := func() string {
		v.sort()
		var out string
		for _, p := range v.all {
			out += p.Name
		}
		return out
	}
	for _, c := range []struct {
		key  rune
		want string
	}{{'n', "cba"}, {'r', "abc"}, {'r', "cba"}, {'l', "acb"}, {'n', "abc"}} {
		v.press(c.key)
		if got := names(); got != c.want {
			t.Errorf("after %q the order is %s, want %s", c.key, got, c.want)
		}
	}
	v.press(keyDown)
	v.press(keyDown)
	v.press(keyEnter)
	if v.open != "b" {
		t.Errorf("the second one that is shown is b, and %q was opened", v.open)
	}
	v.press(keyEscape)
	if v.open != "" {
		t.Error("Escape does not go back")
	}
	if !v.press('q') || !v.press(keyEnd) {
		t.Error("q and Ctrl-C do not end it")
	}
}

func TestTopFitsTheScreen(t *testing.T) {
	v := &topView{by: 'n'}
	for i := range 40 {
		v.all = append(v.all, api.Pipeline{Name: "pipeline-" + string(rune('A'+i)), State: api.Running})
	}
	paint := func(color, text string) string { return color + text + "\x1b[0m" }
	v.chosen = v.all[39].Name
	lines := v.lines(testNow, 30, 10, paint)
	if len(lines) != 10 {
		t.Fatalf("%d lines on a screen of 10", len(lines))
	}
	if text := strings.Join(lines, "\n"); !strings.Contains(text, v.chosen) {
		t.Errorf("the chosen one is not among the lines:\n%s", text)
	}
	for _, line := range lines {
		for _, color := range []string{red, green, yellow, bold, faint, "\x1b[7m", "\x1b[0m"} {
			line = strings.ReplaceAll(line, color, "")
		}
		if n := len([]rune(line)); n > 30 {
			t.Errorf("a line of %d characters on a screen of 30: %q", n, line)
		}
	}
}

func TestTopRatesAreBetweenTwoLooks(t *testing.T) {
	look := func(at time.Time, in, out int64) *flowAt {
		return &flowAt{Flow: &pipeline.Flow{Time: at, Operators: []pipeline.OperatorFlow{{Name: "parse", In: in, Out: out}}, Tasks: []pipeline.TaskFlow{{Chain: "orders", Busy: 0.5}}}, chain: map[string]string{"parse": "orders"}}
	}
	v := &topView{}
	v.take(sample{flow: look(ago(2*time.Second), 100, 90)})
	if r := v.rates(); r[0].In >= 0 {
		t.Errorf("after one look the rate is known: %+v", r)
	}
	v.take(sample{flow: look(testNow, 300, 190)})
	if r := v.rates()[0]; r.In != 100 || r.Out != 50 || r.Busy != 0.5 {
		t.Errorf("got %+v, want 100 in and 50 out in a second, busy half the time", r)
	}
	v.take(sample{flow: look(testNow.Add(2*time.Second), 20, 10)}) // it has started again
	if r := v.rates()[0]; r.In != 10 {
		t.Errorf("after a restart %v records a second, want 10", r.In)
	}
}

func TestNumbersForPeople(t *testing.T) {
	for n, want := range map[float64]string{-1: "-", 0: "0", 0.25: "0.2", 7: "7", 999: "999", 1000: "1.0k", 12345: "12.3k", 999_400: "999k", 999_600: "1.0M", 2.5e9: "2.5G"} {
		if got := rateText(n); got != want {
			t.Errorf("%v is %q, want %q", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{-time.Second: "0s", 59 * time.Second: "59s", time.Minute: "1m", 61 * time.Second: "1m1s", 90 * time.Minute: "1h30m", 49 * time.Hour: "2d1h", 48 * time.Hour: "2d"} {
		if got := spanText(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

func TestRecordsCannotSteerTheTerminal(t *testing.T) {
	var b strings.Builder
	tapped := &pipeline.Tapped{Time: testNow, Topic: "orders", Partition: 1, Offset: 2, Key: "k\x1b[2J", Value: "a\nb\x07\u009b31m", Headers: map[string]string{"h\r": "v"}, Left: 3}
	if err := printTapped(&b, tapped, uncolored); err != nil {
		t.Fatal(err)
	}
	wants(t, b.String(), "3 records left out", "orders/1@2")
	for i, line := range strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n") {
		if i > 1 || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }) {
			t.Errorf("line %d moves the terminal: %q", i, line)
		}
	}
}

func TestPositionsAreRead(t *testing.T) {
	if p, err := parsePosition("a/b/3@12"); err != nil || p != (position{"a/b", 3, 12}) {
		t.Errorf("got %v, %v", p, err)
	}
	for _, text := range []string{"", "orders", "orders/3", "orders@1", "/3@1", "orders/x@1", "orders/3@-1", "orders/-3@1", "orders/3@1x", "orders/99999999999@1"} {
		if p, err := parsePosition(text); err == nil {
			t.Errorf("%q is read as %v", text, p)
		}
	}
	got, err := parseOffsets([]string{"orders/3=1200", "orders/4=0"})
	if err != nil || got["orders/3"] != 1200 || len(got) != 2 {
		t.Errorf("got %v, %v", got, err)
	}
	for _, given := range [][]string{{"orders=1"}, {"orders/3"}, {"orders/3=-1"}, {"orders/3=1", "orders/3=2"}, {"/3=1"}} {
		if got, err := parseOffsets(given); err == nil {
			t.Errorf("%v is read as %v", given, got)
		}
	}
}

func TestOfTwoProcessesTheNewerOneHasThePipeline(t *testing.T) {
	at := func(generation uint64, phase pipeline.Phase) []api.Pipeline {
		return []api.Pipeline{{Name: "orders", Status: &pipeline.Status{Generation: generation, Phase: phase}}}
	}
	for name, processes := range map[string][]process{
		"later generation": {{pipelines: at(1, pipeline.Running)}, {pipelines: at(2, pipeline.Running)}},
		"not ended":        {{pipelines: at(3, pipeline.Ended)}, {pipelines: at(2, pipeline.Running)}},
		"has run":          {{pipelines: []api.Pipeline{{Name: "orders"}}}, {pipelines: at(2, pipeline.Ended)}},
	} {
		for range 2 {
			all, _ := everyPipeline(processes)
			if len(all) != 1 || all[0].Status == nil || all[0].Status.Generation != 2 {
				t.Errorf("%s: got %+v", name, all)
			}
			slices.Reverse(processes)
		}
	}
}
