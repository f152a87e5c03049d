package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/connectortest"
	"github.com/sluice-etl/sluice/connectors/deferred"
	"github.com/sluice-etl/sluice/connectors/deferred/deferredtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func (s *server) sink(t *testing.T, change func(*SinkConfig)) connectors.TwoPhaseSink {
	t.Helper()
	target, err := s.target(change)
	if err != nil {
		t.Fatal(err)
	}
	return deferred.NewSink(target, deferred.Options{Kind: sinkKind})
}

// contract is a server as the contract's tests ask for it.
func contract(t *testing.T, change func(*SinkConfig)) connectortest.Sink {
	s := newServer()
	down, put, lose := false, 0, 0
	s.meet = func(int, string) *said {
		switch {
		case down:
			return says(0, 0, "")
		case put > 0:
			put--
			return says(http.StatusServiceUnavailable, 202, "Code: 202. DB::Exception: Too many simultaneous queries")
		}
		return nil
	}
	s.lose = func(int) bool { lose--; return lose == 0 }
	locked := func(f func()) { s.mu.Lock(); defer s.mu.Unlock(); f() }
	return connectortest.Sink{
		New:     func() (connectors.Sink, error) { return strict{s.sink(t, change)}, nil },
		Read:    func(context.Context) ([]string, error) { return s.values(), nil },
		Virtual: true, Ordered: true,
		Network: &connectortest.Network{
			Down:      func(d bool) { locked(func() { down = d }) },
			Requests:  func() (n int) { locked(func() { n = s.calls }); return n },
			LoseReply: func(n int) { locked(func() { lose = n }) },
			Throttle:  func(n int) { locked(func() { put = n }) },
		},
		Poison: func(partition, offset int) string {
			return fmt.Sprintf(`{"partition":%d,"offset":"%d"}`, partition, offset)
		},
	}
}

func TestSinkKeepsTheContract(t *testing.T) {
	for _, compression := range []string{compressNone, compressGzip, compressZstd} {
		t.Run(compression, func(t *testing.T) {
			connectortest.TestSink(t, func(t *testing.T) connectortest.Sink {
				return contract(t, func(c *SinkConfig) { c.Compression = compression })
			})
		})
	}
}

func TestSinkChaos(t *testing.T) {
	connectortest.TestSinkChaos(t, 20, func(t *testing.T, _ uint64) connectortest.Chaos {
		return connectortest.Chaos{Sink: contract(t, nil)}
	})
}

// A checkpoint of several blocks whose commit fails after each of them needs no longer
// memory of the server than one block.
func TestACommitThatIsBrokenOffGoesOnWhereItWas(t *testing.T) {
	s := newServer([3]string{"n", "Int64", ""}, [3]string{"body", "String", ""})
	s.window = 1
	target, err := s.target(nil)
	if err != nil {
		t.Fatal(err)
	}
	target.most = 350
	r := deferredtest.Start(t, deferred.NewSink(target, deferred.Options{Kind: sinkKind}), &connectortest.Files{}, 1, nil)
	body := strings.Repeat("x", 100)
	for n := range 12 {
		if refused := r.Values(fmt.Sprintf(`{"n": %d, "body": %q}`, n, body)); refused != nil {
			t.Fatal(refused)
		}
	}
	coms := r.Prepare()
	inserts := 0
	s.lose = func(int) bool { return len(s.blocks) > inserts }
	for { // each answer to a new block gets lost, once
		err := r.Try(t.Context(), coms, false)
		if err == nil {
			break
		}
		if !errors.Is(err, errReset) {
			t.Fatal(err)
		}
		inserts = len(s.blocks)
	}
	var got []int
	for _, b := range s.blocks {
		got = append(got, b.rows)
	}
	if !slices.Equal(got, []int{3, 3, 3, 3}) {
		t.Errorf("the blocks have %v rows", got)
	}
	for n, row := range s.rows {
		if row["n"] != int64(n) || row["body"] != body {
			t.Errorf("row %d is %d", n, row["n"])
		}
	}
}

// The first commit of a generation that is broken off leaves the witness what it was.
func TestTheWitnessOfACommitThatIsBrokenOff(t *testing.T) {
	s, files := newServer([3]string{"n", "Int64", ""}, [3]string{"m", "Int64", "DEFAULT"}), &connectortest.Files{}
	r := deferredtest.Start(t, s.sink(t, nil), files, 1, nil)
	r.Values(`{"n": 1}`)
	r.Checkpoint()
	want := r.ID
	r.Stop()
	r = deferredtest.Start(t, s.sink(t, nil), files, 2, nil)
	r.ID.Number = want.Number
	r.Values(`{"n": 2}`, `{"n": 3, "m": 1}`) // two blocks
	s.lose = func(int) bool { return len(s.blocks) == 3 }
	coms := r.Prepare()
	if err := r.Try(t.Context(), coms, false); err == nil {
		t.Fatal("an answer that got lost is taken for one")
	}
	s.lose = nil
	if got, ok, err := r.Sink.Committer().Witness(t.Context()); err != nil || !ok || got != want {
		t.Errorf("witness %v, %v, %v", got, ok, err)
	}
	r.Commit(coms, false)
	if got, ok, err := r.Sink.Committer().Witness(t.Context()); err != nil || !ok || got != r.ID || len(s.rows) != 3 {
		t.Errorf("witness %v, %v, %v, rows %v", got, ok, err, s.rows)
	}
}

// A later process sends the blocks that an earlier one has begun to send, from the files of
// the checkpoint, with the same tokens.
func TestALaterProcessSendsTheSameBlocks(t *testing.T) {
	s, files := newServer(), &connectortest.Files{}
	r := deferredtest.Start(t, s.sink(t, nil), files, 1, nil)
	r.Values(`{"partition": 1, "offset": 1}`, `{"partition": 1, "offset": 2}`)
	coms := r.Prepare()
	s.lose = func(int) bool { return len(s.blocks) == 1 }
	if err := r.Try(t.Context(), coms, false); err == nil {
		t.Fatal("an answer that got lost is taken for one")
	}
	s.lose = nil
	r.Stop()
	deferredtest.Start(t, s.sink(t, nil), files, 2, nil, coms...)
	if got := s.values(); len(got) != 2 {
		t.Errorf("rows %v", got)
	}
}

func TestColumnsWithDefaults(t *testing.T) {
	s := newServer([3]string{"a", "Int64", ""}, [3]string{"b", "String", "DEFAULT"}, [3]string{"c", "Int64", "DEFAULT"}, [3]string{"d", "Int64", "MATERIALIZED"}, [3]string{"e", "Int64", "ALIAS"}, [3]string{"f", "Int64", "EPHEMERAL"})
	r := deferredtest.Start(t, s.sink(t, nil), &connectortest.Files{}, 1, nil)
	refused := r.Values(`{"a": 1}`, `{"a": 2, "b": "x"}`, `{"a": 3}`, `{"a": 4, "b": "y", "c": 5}`, `{"a": 5, "b": null}`, `{"b": "x"}`, `{"a": 6, "d": 1}`, `{"a": 7, "f": 1}`)
	if got := positions(refused); !slices.Equal(got, []int{4, 5, 6, 7}) {
		t.Errorf("refused %+v", refused)
	}
	r.Checkpoint()
	want := []map[string]any{{"a": int64(1)}, {"a": int64(3)}, {"a": int64(2), "b": "x"}, {"a": int64(4), "b": "y", "c": int64(5)}}
	if fmt.Sprint(s.rows) != fmt.Sprint(want) {
		t.Errorf("rows %v", s.rows)
	}
}

func positions(rows []connectors.RowError) (out []int) {
	for _, r := range rows {
		out = append(out, r.Row)
	}
	return out
}

// Rows that were kept before the table was changed are of the columns that it had.
func TestATableThatIsChangedMeanwhile(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(s *server)
		want   string
	}{
		"a column is added":         {func(s *server) { s.columns = append(s.columns, [3]string{"new", "String", ""}) }, ""},
		"a column has another type": {func(s *server) { s.columns[1][1] = "String" }, "change them back"},
		"a column is added between": {func(s *server) { s.columns = slices.Insert(s.columns, 1, [3]string{"new", "String", ""}) }, "change them back"},
	} {
		t.Run(name, func(t *testing.T) {
			s, files := newServer(), &connectortest.Files{}
			r := deferredtest.Start(t, s.sink(t, nil), files, 1, nil)
			r.Values(`{"partition": 1, "offset": 1}`)
			coms := r.Prepare()
			r.Stop()
			tt.change(s)
			r = deferredtest.Open(t, s.sink(t, nil), files, 2, nil)
			err := r.Try(t.Context(), coms, true)
			if tt.want == "" && (err != nil || len(s.values()) != 1) || tt.want != "" && (!connectors.IsPermanent(err) || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, rows %v", err, s.values())
			}
		})
	}
}

func TestWhatATableMustBe(t *testing.T) {
	tests := map[string]struct {
		change func(s *server, c *SinkConfig, e *connectors.SinkEnv)
		want   []string
	}{
		"it is not there": {func(s *server, _ *SinkConfig, _ *connectors.SinkEnv) { s.missing = true }, []string{"there is no table `db`.`rows`", "set create"}},
		"it remembers nothing": {func(s *server, _ *SinkConfig, _ *connectors.SinkEnv) {
			s.settings = " SETTINGS index_granularity = 8192"
		}, []string{"it remembers 0 blocks", "ALTER TABLE `db`.`rows` MODIFY SETTING non_replicated_deduplication_window = 1000"}},
		"it remembers too little": {func(s *server, _ *SinkConfig, _ *connectors.SinkEnv) {
			s.settings = " SETTINGS index_granularity = 1, non_replicated_deduplication_window = 99"
		}, []string{"it remembers 99 blocks, and 100 are needed"}},
		"only a comment says so": {func(s *server, _ *SinkConfig, _ *connectors.SinkEnv) {
			s.settings = " COMMENT ' non_replicated_deduplication_window = 200'"
		}, []string{"it remembers 0 blocks"}},
		"a replicated one": {func(s *server, _ *SinkConfig, _ *connectors.SinkEnv) {
			s.engine, s.settings = "ReplicatedMergeTree", " SETTINGS replicated_deduplication_window = 5"
		}, []string{"MODIFY SETTING replicated_deduplication_window = 1000"}},
		"a view": {func(s *server, _ *SinkConfig, _ *connectors.SinkEnv) { s.engine = "Distributed" }, []string{"its engine is Distributed"}},
		"a condition": {func(s *server, _ *SinkConfig, _ *connectors.SinkEnv) {
			s.create = "(`a` Int64, CONSTRAINT `p os` CHECK a > 0)"
		}, []string{"the constraint `p os`", "drop it"}},
		"an expression without one": {func(_ *server, c *SinkConfig, _ *connectors.SinkEnv) {
			c.Columns = connectors.Assignments{{Name: "offset"}, {Name: "x"}}
		}, []string{"no column x"}},
		"its own value": {func(s *server, c *SinkConfig, _ *connectors.SinkEnv) {
			s.columns[0][2] = "MATERIALIZED"
			c.Columns = connectors.Assignments{{Name: "partition"}}
		}, []string{"makes the values of column partition itself"}},
		"a type that is not written": {func(s *server, c *SinkConfig, _ *connectors.SinkEnv) {
			s.columns[0][1] = "AggregateFunction(sum, Int64)"
			c.Columns = connectors.Assignments{{Name: "partition"}}
		}, []string{"type AggregateFunction(sum, Int64), which this sink does not write"}},
		"a field without a column": {func(_ *server, _ *SinkConfig, e *connectors.SinkEnv) {
			e.Columns = []connectors.Column{{Name: "offset"}, {Name: "more"}}
		}, []string{"no column more: add it"}},
		"create without types": {func(s *server, c *SinkConfig, _ *connectors.SinkEnv) { s.missing, c.Create.On = true, true }, []string{"the types of the rows are not known"}},
		"no such database":     {func(s *server, _ *SinkConfig, _ *connectors.SinkEnv) { s.meet = refuses("CREATE", 81) }, []string{"make the database"}},
		"no right to create":   {func(s *server, _ *SinkConfig, _ *connectors.SinkEnv) { s.meet = refuses("CREATE", 497) }, []string{"create table `db`.`sluice_commits`", "granted"}},
		"a wrong password":     {func(s *server, _ *SinkConfig, _ *connectors.SinkEnv) { s.meet = refuses("SELECT version", 516) }, []string{"check username, password"}},
		"something else": {func(s *server, _ *SinkConfig, _ *connectors.SinkEnv) {
			s.meet = func(int, string) *said { return says(200, 0, "<html>hello</html>") }
		}, []string{"is not ClickHouse"}},
		"no interface": {func(s *server, _ *SinkConfig, _ *connectors.SinkEnv) {
			s.meet = func(int, string) *said { return says(404, 0, "secret!") }
		}, []string{"no HTTP interface of ClickHouse", "***"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s, c, env := newServer(), testConfig(nil), deferredtest.Env(nil, 1)
			env.Failpoint = func(string) {}
			tt.change(s, &c, &env)
			target, err := newTarget(c)
			if err != nil {
				t.Fatal(err)
			}
			target.client.transport = s
			err = target.Open(t.Context(), env)
			for _, want := range tt.want {
				if !connectors.IsPermanent(err) || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v\nwant %s", err, want)
				}
			}
			if err != nil && strings.Contains(err.Error(), "secret!") {
				t.Errorf("the error tells the password: %v", err)
			}
		})
	}
}

// refuses answers what begins with a text by an error of ClickHouse.
func refuses(begin string, code int) func(int, string) *said {
	return func(_ int, query string) *said {
		if !strings.HasPrefix(query, begin) {
			return nil
		}
		return says(500, code, fmt.Sprintf("Code: %d. DB::Exception: no", code))
	}
}

func TestWhichErrorsOfAnInsertCanPass(t *testing.T) {
	for name, tt := range map[string]struct {
		answer    *said
		permanent bool
	}{
		"too many parts":      {says(500, 252, "Code: 252. DB::Exception: Too many parts (300). Merges are processing significantly slower than inserts"), false},
		"too many partitions": {says(500, 252, "Code: 252. DB::Exception: Too many partitions for single INSERT block (more than 100)"), true},
		"memory":              {says(500, 241, "Code: 241."), false},
		"read-only replica":   {says(500, 242, "Code: 242."), false},
		"unknown outcome":     {says(500, 319, "Code: 319."), false},
		"no table":            {says(404, 60, "Code: 60."), true},
		"another type":        {says(400, 117, "Code: 117."), true},
		"readonly user":       {says(500, 164, "Code: 164."), true},
		"only in the text":    {says(500, 0, "Code: 60. DB::Exception: no table"), true},
		"a gateway":           {says(502, 0, "bad gateway"), false},
		"a redirect":          {says(302, 0, ""), true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer()
			r := deferredtest.Start(t, s.sink(t, nil), &connectortest.Files{}, 1, nil)
			r.Values(`{"partition": 1, "offset": 1}`)
			s.meet = func(_ int, query string) *said {
				if strings.HasPrefix(query, "INSERT INTO `db`.`rows`") {
					return tt.answer
				}
				return nil
			}
			err := r.Try(t.Context(), r.Prepare(), false)
			if err == nil || connectors.IsPermanent(err) != tt.permanent {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestConfigurations(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*SinkConfig)
		want   string
	}{
		"fine":                  {func(*SinkConfig) {}, ""},
		"another scheme":        {func(c *SinkConfig) { c.URL = "tcp://ch:9000" }, "url"},
		"credentials":           {func(c *SinkConfig) { c.URL = "http://a:b@ch:8123" }, "username and password"},
		"no user":               {func(c *SinkConfig) { c.Username = "" }, "needs a user"},
		"no database":           {func(c *SinkConfig) { c.Database = "" }, "database"},
		"no time":               {func(c *SinkConfig) { c.Timeout = 1 }, "timeout"},
		"an order for no table": {func(c *SinkConfig) { c.OrderBy = []string{"a"} }, "order_by"},
		"an order by nothing": {func(c *SinkConfig) {
			c.OrderBy, c.Create.On, c.Create.Columns = []string{"a"}, true, []connectors.Column{{Name: "b"}}
		}, "not among the columns"},
		"a column twice": {func(c *SinkConfig) { c.Columns = connectors.Assignments{{Name: "a"}, {Name: "a"}} }, "columns"},
		"half a key":     {func(c *SinkConfig) { c.TLS.Cert = "x" }, "belong together"},
	} {
		c := testConfig(tt.change)
		if err := c.Validate(); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An older process commits nothing once a newer one has begun, nor does one of another
// storage that was taken over.
func TestOlderProcessesAreHeldBack(t *testing.T) {
	s, files := newServer(), &connectortest.Files{}
	old := deferredtest.Start(t, s.sink(t, nil), files, 1, nil)
	old.Values(`{"partition": 1, "offset": 1}`)
	old.Checkpoint()
	old.Values(`{"partition": 1, "offset": 2}`)
	orphan := old.Prepare()
	young := deferredtest.Start(t, s.sink(t, nil), files, 2, nil)
	if err := old.Try(t.Context(), orphan, false); !errors.Is(err, connectors.ErrFenced) {
		t.Errorf("the old process: %v", err)
	}
	young.Values(`{"partition": 2, "offset": 1}`)
	young.Checkpoint()
	if id, ok, err := young.Sink.Committer().Witness(t.Context()); err != nil || !ok || id != young.ID {
		t.Errorf("witness %v, %v, %v", id, ok, err)
	}
	other := deferredtest.Open(t, s.sink(t, nil), files, 1, func(e *connectors.SinkEnv) { e.Origin = func() string { return "it's another" } })
	var foreign *connectors.ForeignWitnessError
	if _, _, err := other.Sink.Committer().Witness(t.Context()); !errors.As(err, &foreign) {
		t.Errorf("witness of another storage: %v", err)
	}
	other.Resume()
	young.Values(`{"partition": 2, "offset": 2}`)
	if err := young.Try(t.Context(), young.Prepare(), false); !errors.Is(err, connectors.ErrFenced) {
		t.Errorf("the process that was taken over: %v", err)
	}
	if got := s.values(); len(got) != 2 {
		t.Errorf("rows %v", got)
	}
}

func TestTheUserIsNamedInEachRequest(t *testing.T) {
	s := newServer()
	deferredtest.Start(t, s.sink(t, nil), &connectortest.Files{}, 1, nil)
	if s.header.Get("X-ClickHouse-User") != "etl" || s.header.Get("X-ClickHouse-Key") != "secret!" {
		t.Errorf("headers %v", s.header)
	}
}
