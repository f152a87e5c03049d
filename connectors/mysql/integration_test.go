//go:build integration

package mysql

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/connectortest"
	"github.com/sluice-etl/sluice/connectors/deferred"
	"github.com/sluice-etl/sluice/connectors/deferred/deferredtest"
)

func realURL(t *testing.T) string {
	t.Helper()
	url := os.Getenv("MYSQL_URL")
	if url == "" {
		t.Fatal("MYSQL_URL is not set: run make integration")
	}
	return url
}

// service runs a command of the script that the server was started with.
func service(t *testing.T, command string) {
	t.Helper()
	if out, err := exec.Command("../../deploy/services/mysql.sh", command).CombinedOutput(); err != nil {
		t.Fatalf("mysql.sh %s: %v\n%s", command, err, out)
	}
}

func connect(t *testing.T) *sql.DB {
	t.Helper()
	c := newSinkConfig().(*SinkConfig)
	c.URL = realURL(t)
	cfg, err := c.parse()
	if err != nil {
		t.Fatal(err)
	}
	cfg.MultiStatements = true
	connector, err := driver.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

var databases atomic.Int64

// world is a database of a test's own, whose name needs quotes.
type world struct {
	t    *testing.T
	db   *sql.DB
	name string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, db: connect(t), name: fmt.Sprintf("sink `test` %d", databases.Add(1))}
	w.run("DROP DATABASE IF EXISTS @; CREATE DATABASE @")
	return w
}

// in replaces @ by the database.
func (w *world) in(text string) string { return strings.ReplaceAll(text, "@", quote(w.name)) }

func (w *world) run(text string) {
	w.t.Helper()
	if _, err := w.db.ExecContext(w.t.Context(), w.in(text)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) list(ctx context.Context, text string) (out []string, err error) {
	rows, err := w.db.QueryContext(ctx, w.in(text))
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		values, at := make([]sql.NullString, len(names)), make([]any, len(names))
		for i := range values {
			at[i] = &values[i]
		}
		if err := rows.Scan(at...); err != nil {
			return nil, err
		}
		var line []string
		for _, v := range values {
			if !v.Valid {
				v.String = "NULL"
			}
			line = append(line, v.String)
		}
		out = append(out, strings.Join(line, "|"))
	}
	return out, rows.Err()
}

func (w *world) want(text string, want ...string) {
	w.t.Helper()
	got, err := w.list(w.t.Context(), text)
	if err != nil {
		w.t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		w.t.Errorf("rows\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func (w *world) config(change func(*SinkConfig)) SinkConfig {
	c := newSinkConfig().(*SinkConfig)
	c.URL, c.Table, c.Schema = realURL(w.t), w.name+".rows", w.name
	if change != nil {
		change(c)
	}
	return *c
}

func newTestSink(c SinkConfig) (*deferred.Sink, error) {
	target, err := newTarget(c)
	if err != nil {
		return nil, err
	}
	return deferred.NewSink(target, deferred.Options{Kind: sinkKind}), nil
}

func mustSink(t *testing.T, c SinkConfig) *deferred.Sink {
	t.Helper()
	s, err := newTestSink(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// suite is the target of the contract's tests.
func suite(t *testing.T, mode string) connectortest.Sink {
	w := newWorld(t)
	c := w.config(func(c *SinkConfig) { c.Mode = mode })
	key := ""
	if mode != "insert" {
		key = ", PRIMARY KEY (`partition`, `offset`)"
	}
	w.run("CREATE TABLE @.rows (`partition` int, `offset` bigint" + key + ") ENGINE = InnoDB")
	return connectortest.Sink{
		New: func() (connectors.Sink, error) { return newTestSink(c) },
		Read: func(ctx context.Context) ([]string, error) {
			return w.list(ctx, "SELECT CONCAT('{\"partition\":', `partition`, ',\"offset\":', `offset`, '}') FROM @.rows")
		},
	}
}

func TestRealServerContract(t *testing.T) {
	for _, mode := range []string{"insert", "upsert", "changelog"} {
		t.Run(mode, func(t *testing.T) {
			connectortest.TestSink(t, func(t *testing.T) connectortest.Sink { return suite(t, mode) })
		})
	}
}

func TestRealServerChaos(t *testing.T) {
	connectortest.TestSinkChaos(t, 3, func(t *testing.T, _ uint64) connectortest.Chaos {
		return connectortest.Chaos{Sink: suite(t, "insert")}
	})
}

func TestRealServerTypes(t *testing.T) {
	w := newWorld(t)
	w.run("CREATE TABLE @.rows (`I d` bigint, big bigint unsigned, small smallint, tiny tinyint unsigned, flag boolean, exact decimal(65,30), single float, double_ double, note longtext, short varchar(3)," +
		"code char(3) NOT NULL, raw varbinary(4), at timestamp(6) NULL, local datetime(3), day date, clock time(1), doc json, mood enum('sad','it''s, ok'), tiny_text tinytext) ENGINE = InnoDB CHARACTER SET utf8mb4")
	w.run("CREATE TABLE @.others (note json, short json)") // which says nothing of this one's
	r := deferredtest.Start(t, mustSink(t, w.config(nil)), &connectortest.Files{}, 1, nil)
	refused := r.Values(
		`{"I d": 9223372036854775807, "big": 18446744073709551615, "small": -32768, "tiny": 255, "flag": true, "exact": 12345678901234567890123456789012345.012345678901234567890123456789, "single": 1.5, "double_": 0.1,
		  "note": "tab\t \\ \u0000 \r\n ü 🙂 'q' \"d\" %", "short": "äöü", "code": "ok", "raw": "AAH/", "at": "2026-01-01T10:00:00.123456789+02:00", "local": "2026-01-02T03:04:05.6789", "day": "2026-02-28",
		  "clock": "23:59:59.57", "doc": {"n": 12345678901234567890.10, "s": "it's \\"}, "mood": "it's, ok"}`,
		`{"I d": -9223372036854775808, "flag": 0, "note": "", "code": "x", "raw": "", "doc": "text"}`,
		`{"I d": null, "code": "y"}`,
		// Each of these alone is refused.
		`{"I d": 9223372036854775808, "code": "r"}`, `{"big": -1, "code": "r"}`, `{"small": 32768, "code": "r"}`, `{"tiny": 256, "code": "r"}`, `{"exact": "NaN", "code": "r"}`, `{"double_": "NaN", "code": "r"}`,
		`{"note": 5, "code": "r"}`, `{"short": "äöüß", "code": "r"}`, `{"I d": 1}`, `{"code": null}`, `{"raw": "AAECAwQ=", "code": "r"}`, `{"at": "2039-01-01T10:00:00Z", "code": "r"}`,
		`{"mood": "glad", "code": "r"}`, `{"day": "x", "code": "r"}`, `{"code": "r", "typo": 1}`, `[1]`, `{"code": `, "")
	if len(refused) != 18 {
		t.Errorf("%d rows are refused: %+v", len(refused), refused)
	}
	for i, e := range refused {
		if e.Row != i+3 || e.Kind == "" || strings.Contains(e.Reason, "glad") {
			t.Errorf("refused %+v", e)
		}
	}
	r.Checkpoint()
	w.want("SELECT `I d`, big, small, tiny, flag, exact, single, double_, HEX(note), short, code, HEX(raw), at, local, day, clock, doc, mood FROM @.rows ORDER BY `I d` DESC",
		"9223372036854775807|18446744073709551615|-32768|255|1|12345678901234567890123456789012345.012345678901234567890123456789|1.5|0.1|"+
			strings.ToUpper(fmt.Sprintf("%x", "tab\t \\ \x00 \r\n ü 🙂 'q' \"d\" %"))+"|äöü|ok|0001FF|2026-01-01 08:00:00.123456|2026-01-02 03:04:05.678|2026-02-28|23:59:59.5|"+
			`{"n": 12345678901234567890.10, "s": "it's \\"}|it's, ok`,
		"-9223372036854775808|NULL|NULL|NULL|0|NULL|NULL|NULL||NULL|x||NULL|NULL|NULL|NULL|\"text\"|NULL",
		"NULL|NULL|NULL|NULL|NULL|NULL|NULL|NULL|NULL|NULL|y|NULL|NULL|NULL|NULL|NULL|NULL|NULL")
}

func TestRealServerWritesTheLastRowOfEachKey(t *testing.T) {
	for _, mode := range []string{"upsert", "changelog"} {
		t.Run(mode, func(t *testing.T) {
			w := newWorld(t)
			w.run("CREATE TABLE @.rows (a int, `B b` varchar(20), n int, made int DEFAULT 7, PRIMARY KEY (`B b`, a)) ENGINE = InnoDB; INSERT INTO @.rows VALUES (9, 'old', 1, 1), (8, 'old', 1, 1)")
			r := deferredtest.Start(t, mustSink(t, w.config(func(c *SinkConfig) { c.Mode = mode })), &connectortest.Files{}, 1, nil)
			rows := []deferredtest.Row{
				{Value: `{"a": 1, "B b": "x", "n": 1}`}, {Value: `{"a": 1, "B b": "x", "n": 2}`}, {Value: `{"a": 1, "B b": "y", "n": 3, "made": null}`},
				{Key: `{"a": 9, "B b": "old"}`},
				{Value: `{"a": 2, "B b": "x", "n": 4}`}, {Value: `{"a": 2, "B b": "x", "n": 4}`, Op: connectors.UpdateBefore}, {Value: `{"a": 3, "B b": "x", "n": 4}`, Op: connectors.UpdateAfter},
				{Value: `{"a": 4, "B b": "x"}`}, {Value: `{"a": 4, "B b": "x"}`, Op: connectors.Delete}, {Value: `{"a": 4, "B b": "x", "n": 5, "made": 1}`},
			}
			if mode == "changelog" {
				rows = append(rows, deferredtest.Row{Value: `{"a": 8, "B b": "old", "op": "d"}`}, deferredtest.Row{Value: `{"a": 5, "B b": "x", "n": 6, "op": "update_after"}`})
			} else {
				rows = append(rows, deferredtest.Row{Key: `{"a": 8, "B b": "old"}`}, deferredtest.Row{Value: `{"a": 5, "B b": "x", "n": 6}`})
			}
			if refused := r.Write(rows...); refused != nil {
				t.Fatalf("refused %+v", refused)
			}
			if refused := r.Write(deferredtest.Row{Key: "text"}, deferredtest.Row{Value: `{"a": 1}`}); len(refused) != 2 {
				t.Errorf("refused %+v", refused)
			}
			r.Checkpoint()
			want := []string{"1|x|2|7", "1|y|3|NULL", "3|x|4|7", "4|x|5|1", "5|x|6|7"}
			w.want("SELECT * FROM @.rows ORDER BY a, `B b`", want...)
			// What a row lacks stays as it is, beside one that has it.
			r.Values(`{"a": 5, "B b": "x", "n": 60, "made": 2}`, `{"a": 4, "B b": "x", "n": 50}`)
			r.Checkpoint()
			want[3], want[4] = "4|x|50|1", "5|x|60|2"
			w.want("SELECT * FROM @.rows ORDER BY a, `B b`", want...)
		})
	}
}

func TestRealServerFillsColumnsThatRowsLack(t *testing.T) {
	w := newWorld(t)
	w.run("CREATE TABLE @.rows (id bigint AUTO_INCREMENT PRIMARY KEY, n int, made varchar(10) NOT NULL DEFAULT 'here', twice int AS (n * 2) STORED) ENGINE = InnoDB")
	r := deferredtest.Start(t, mustSink(t, w.config(nil)), &connectortest.Files{}, 1, nil)
	if refused := r.Values(`{"n": 1}`, `{"n": 2, "made": "there"}`, `{"id": 100, "n": 3}`, `{"n": 4}`, `{"made": null}`); len(refused) != 1 || refused[0].Row != 4 {
		t.Fatalf("refused %+v", refused)
	}
	r.Checkpoint()
	w.want("SELECT n, made, twice FROM @.rows ORDER BY n", "1|here|2", "2|there|4", "3|here|6", "4|here|8")
}

func TestRealServerRefusesRowsAtTheCommit(t *testing.T) {
	for _, mode := range []string{"insert", "upsert"} {
		t.Run(mode, func(t *testing.T) {
			w := newWorld(t)
			unique := ""
			if mode == "insert" {
				unique = " UNIQUE"
			}
			w.run("CREATE TABLE @.kinds (kind varchar(10) PRIMARY KEY) ENGINE = InnoDB; INSERT INTO @.kinds VALUES ('a');" +
				"CREATE TABLE @.rows (id int PRIMARY KEY, mail varchar(20)" + unique + ", kind varchar(10), n int CHECK (n > 0), FOREIGN KEY (kind) REFERENCES @.kinds (kind)) ENGINE = InnoDB;" +
				"INSERT INTO @.rows VALUES (1000, 'taken', 'a', 1)")
			w.run("CREATE TRIGGER @.no BEFORE INSERT ON @.rows FOR EACH ROW BEGIN IF NEW.n = 13 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'secret'; END IF; END")
			files := &connectortest.Files{}
			c := w.config(func(c *SinkConfig) { c.Mode = mode })
			r := deferredtest.Start(t, mustSink(t, c), files, 1, nil)
			var values []string
			for i := range 3000 {
				values = append(values, fmt.Sprintf(`{"id": %d, "kind": "a", "n": 1}`, i+2000))
			}
			bad := map[int]string{0: `{"id": 1, "mail": "taken"}`, 700: `{"id": 2, "kind": "secret"}`, 701: `{"id": 3, "n": -1}`, 2999: `{"id": 5, "n": 13}`}
			want := len(bad)
			if mode == "upsert" {
				bad[0] = values[0]
				want--
			}
			for i, v := range bad {
				values[i] = v
			}
			for len(values) > 0 {
				n := min(1000, len(values))
				if refused := r.Values(values[:n]...); refused != nil {
					t.Fatalf("refused at once: %+v", refused)
				}
				values = values[n:]
			}
			r.Checkpoint()
			w.want("SELECT COUNT(*), SUM(id < 1000) FROM @.rows", fmt.Sprintf("%d|0", 3001-want))
			rows := r.AllRefused()
			kinds := map[string]bool{}
			for _, rej := range rows {
				kinds[rej.Kind] = true
				if strings.Contains(rej.Reason, "secret") || rej.Record.Origin == nil || !bytes.Contains(rej.Record.Value, []byte(`"id": `)) || len(rej.Record.Headers) != 2 ||
					!bytes.Equal(rej.Record.Headers[0].Value, []byte("\xff\x00")) || rej.Record.Headers[1].Value != nil || rej.Record.Time != 1700000000000 {
					t.Errorf("rejected %+v", rej)
				}
			}
			if len(rows) != want || kinds["unique"] != (mode == "insert") || !kinds["foreign_key"] || !kinds["check"] || !kinds["trigger"] {
				t.Errorf("rejected %+v", rows)
			}
			if more := r.Tick(); more != nil {
				t.Errorf("%d rows are handed over twice", len(more))
			}
			second := r.Prepare()
			r.Stop()

			// A crash before the second checkpoint was complete: they come again. After it: they do not.
			r = deferredtest.Start(t, mustSink(t, c), files, 2, nil)
			if rows := r.AllRefused(); len(rows) != want {
				t.Errorf("%d rows are handed over again", len(rows))
			}
			r.Stop()
			r = deferredtest.Start(t, mustSink(t, c), files, 3, nil, second...)
			if rows := r.Tick(); rows != nil {
				t.Errorf("%d rows are handed over again", len(rows))
			}
			w.want("SELECT COUNT(*) FROM @.sluice_rejected", "0")
		})
	}
}

func TestRealServerOnErrorFail(t *testing.T) {
	w := newWorld(t)
	w.run("CREATE TABLE @.rows (id int PRIMARY KEY) ENGINE = InnoDB")
	files := &connectortest.Files{}
	fail := func(e *connectors.SinkEnv) { e.OnError = connectors.RowFail }
	r := deferredtest.Start(t, mustSink(t, w.config(nil)), files, 1, fail)
	r.Values(`{"id": 1}`, `{"id": 1}`, `{"id": 2}`)
	coms := r.Prepare()
	if err := r.Try(t.Context(), coms, false); !connectors.IsPermanent(err) || !strings.Contains(err.Error(), "in/0@1") {
		t.Fatalf("error %v", err)
	}
	r.Stop()
	r = deferredtest.Start(t, mustSink(t, w.config(nil)), files, 2, fail, coms...)
	if rows := r.Tick(); rows != nil {
		t.Errorf("rejected %+v", rows)
	}
	w.want("SELECT * FROM @.rows ORDER BY id", "1", "2")
	w.want("SELECT `row` FROM @.sluice_rejected", "(1)")
}

func TestRealServerAnswersThatGetLost(t *testing.T) {
	for name, match := range map[string]func([]byte) bool{
		"of the commit":    func(b []byte) bool { return bytes.HasSuffix(b, []byte("\x03COMMIT")) },
		"of the rows":      func(b []byte) bool { return bytes.Contains(b, []byte("INSERT INTO ")) },
		"of the beginning": func(b []byte) bool { return bytes.HasSuffix(b, []byte("START TRANSACTION")) },
		"of the witness":   func(b []byte) bool { return bytes.Contains(b, []byte("UPDATE ")) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.run("CREATE TABLE @.rows (id int CHECK (id <> 3)) ENGINE = InnoDB")
			c, proxy := through(t, w.config(nil))
			r := deferredtest.Start(t, mustSink(t, c), &connectortest.Files{}, 1, nil)
			for i := range 6 {
				r.Values(fmt.Sprintf(`{"id": %d}`, i))
				coms := r.Prepare()
				proxy.Lose(match)
				r.Commit(coms, false)
				if proxy.Lost() != i+1 {
					t.Fatalf("%d answers got lost", proxy.Lost())
				}
			}
			w.want("SELECT id FROM @.rows ORDER BY id", "0", "1", "2", "4", "5")
			if rows := r.Tick(); len(rows) != 1 {
				t.Errorf("rejected %+v", rows)
			}
		})
	}
}

func TestRealServerGoesAwayInTheMiddle(t *testing.T) {
	w := newWorld(t)
	w.run("CREATE TABLE @.rows (id int) ENGINE = InnoDB")
	r := deferredtest.Start(t, mustSink(t, w.config(nil)), &connectortest.Files{}, 1, nil)
	r.Values(`{"id": 1}`)
	r.Checkpoint()
	r.Values(`{"id": 2}`)
	coms := r.Prepare()
	service(t, "kill")
	t.Cleanup(func() { service(t, "start") })
	if err := r.Try(t.Context(), coms, false); err == nil || connectors.IsPermanent(err) {
		t.Fatalf("without a server: error %v", err)
	}
	r.Values(`{"id": 3}`) // the stream goes on
	var wg sync.WaitGroup
	wg.Go(func() { r.Commit(coms, false) })
	service(t, "restart")
	wg.Wait()
	r.Checkpoint()
	w.want("SELECT id FROM @.rows ORDER BY id", "1", "2", "3")
}

func TestRealServerHoldsOneProcessBack(t *testing.T) {
	w := newWorld(t)
	w.run("CREATE TABLE @.rows (id int) ENGINE = InnoDB")
	files, c := &connectortest.Files{}, w.config(nil)
	old := deferredtest.Start(t, mustSink(t, c), files, 1, nil)
	old.Values(`{"id": 1}`)
	old.Checkpoint()
	old.Values(`{"id": 2}`)
	orphan := old.Prepare()
	young := deferredtest.Start(t, mustSink(t, c), files, 2, nil)
	young.Values(`{"id": 20}`)
	coms := young.Prepare()
	var wg sync.WaitGroup
	var err error
	wg.Go(func() { err = old.Try(t.Context(), orphan, false) })
	young.Commit(coms, false)
	wg.Wait()
	if !errors.Is(err, connectors.ErrFenced) {
		t.Errorf("the old process: %v", err)
	}
	w.want("SELECT id FROM @.rows ORDER BY id", "1", "20")
	if got, ok, err := young.Sink.Committer().Witness(t.Context()); err != nil || !ok || got != coms[0].Checkpoint {
		t.Errorf("witness %v, %v, %v", got, ok, err)
	}

	// One with another storage of checkpoints is told so, and can take over.
	other := deferredtest.Open(t, mustSink(t, c), files, 1, func(e *connectors.SinkEnv) { e.Origin = func() string { return "other" } })
	var foreign *connectors.ForeignWitnessError
	if _, _, err := other.Sink.Committer().Witness(t.Context()); !errors.As(err, &foreign) {
		t.Fatalf("witness of another storage: %v", err)
	}
	other.Resume()
	other.Values(`{"id": 30}`)
	other.Checkpoint()
	young.Values(`{"id": 21}`)
	if err := young.Try(t.Context(), young.Prepare(), false); !errors.Is(err, connectors.ErrFenced) {
		t.Errorf("the process that was taken over: %v", err)
	}
	w.want("SELECT id FROM @.rows ORDER BY id", "1", "20", "30")
}

func TestRealServerCrashesAtEachStep(t *testing.T) {
	for _, mode := range []string{"insert", "upsert"} {
		t.Run(mode, func(t *testing.T) {
			w := newWorld(t)
			deferredtest.Crashes(t, func(t *testing.T) deferredtest.Target {
				w.run("DROP DATABASE @; CREATE DATABASE @; CREATE TABLE @.rows (id int PRIMARY KEY, CHECK (id % 10 <> 2)) ENGINE = InnoDB")
				return deferredtest.Target{
					New: func() connectors.TwoPhaseSink { return mustSink(t, w.config(func(c *SinkConfig) { c.Mode = mode })) },
					Read: func() []string {
						ids, err := w.list(t.Context(), "SELECT id FROM @.rows ORDER BY id")
						if err != nil {
							t.Fatal(err)
						}
						return ids
					},
				}
			})
		})
	}
}
