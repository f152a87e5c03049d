//go:build integration

package clickhouse

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/columns"
	"github.com/sluice-etl/sluice/connectors/connectortest"
	"github.com/sluice-etl/sluice/connectors/deferred/deferredtest"
	"github.com/sluice-etl/sluice/connectors/deferred/table"
)

// everyType is a table with a column of each type that is written.
const everyType = `CREATE TABLE @.rows (
  "I d" Int64, i8 Int8, i16 Int16, i32 Int32, i128 Int128, i256 Int256, u8 UInt8, u64 UInt64, u256 UInt256, f32 Float32, f64 Float64,
  d9 Decimal(9, 2), d18 Decimal(18, 4), d38 Decimal(38, 10), d76 Decimal(76, 38), b Bool, s String, fixed FixedString(4),
  low LowCardinality(String), lown LowCardinality(Nullable(String)), n Nullable(Int32), nd Nullable(Decimal(38, 0)),
  e8 Enum8('it\'s, ok' = -2, 'a \\ = (b)' = 1), e16 Enum16('x' = 1000), day Date, day32 Date32, at DateTime, atz DateTime('Europe/Berlin'),
  at3 DateTime64(3, 'UTC'), at9 DateTime64(9), id UUID, ip4 IPv4, ip6 IPv6, list Array(Nullable(UInt64)), lists Array(Array(String)),
  map Map(String, Decimal(38, 2)), nmap Map(Int32, Array(Int8)), pair Tuple(x Int32, "y z" Nullable(String)), places Tuple(String, Float64),
  doc JSON, agg SimpleAggregateFunction(sum, Int64), sub Nested(k String, v Int32)
) ENGINE = MergeTree ORDER BY tuple()` + remembers

// fullRow has a value at the border of each of its types.
const fullRow = `{"I d": 9223372036854775807, "i8": -128, "i16": -32768, "i32": 2147483647, "i128": -170141183460469231731687303715884105728,
  "i256": "57896044618658097711785492504343953926634992332820282019728792003956564819967", "u8": 255, "u64": 18446744073709551615,
  "u256": "115792089237316195423570985008687907853269984665640564039457584007913129639935", "f32": "NaN", "f64": "-Infinity",
  "d9": -9999999.99, "d18": 12345678901234.5678, "d38": 1234567890123456789012345678.0123456789, "d76": "-12345678901234567890123456789012345678.01234567890123456789012345678901234567",
  "b": true, "s": "tab\t \\ \u0000 \r\n ü 🙂 'q' \"d\" %", "fixed": "ab", "low": "", "lown": null, "n": null, "nd": 99999999999999999999999999999999999999,
  "e8": "it's, ok", "e16": "x", "day": "2149-06-06", "day32": "1900-01-01", "at": "2106-02-07T06:28:15Z", "atz": "1970-01-01T01:00:00+01:00",
  "at3": "2026-01-02T03:04:05.6789", "at9": "1901-01-01T00:00:00.123456789+02:00", "id": "00112233-4455-6677-8899-aabbccddeeff", "ip4": "192.0.2.1", "ip6": "2001:db8::1",
  "list": [1, null, 18446744073709551615], "lists": [[], ["a", ""]], "map": {"a": 123456789012345678901234567890123456.78, "ü": -0.1}, "nmap": {"-5": [1, -1], "7": []},
  "pair": {"y z": null, "x": -1}, "places": ["p", 0.1], "doc": {"a": {"b": 12345678901234567}, "c": ["x"]}, "agg": 5, "sub.k": ["k1", "k2"], "sub.v": [1, 2]}`

func TestRealEngineTypes(t *testing.T) {
	for _, compression := range []string{compressNone, compressGzip, compressZstd} {
		t.Run(compression, func(t *testing.T) {
			w := newWorld(t)
			w.run(everyType)
			r := deferredtest.Start(t, mustSink(t, w.config(func(c *SinkConfig) { c.Compression = compression })), &connectortest.Files{}, 1, nil)
			if refused := r.Values(fullRow); refused != nil {
				t.Fatalf("refused %+v", refused)
			}
			r.Checkpoint()
			w.want(`SELECT "I d", i8, i16, i32, i128, i256, u8, u64, u256, f32, f64 FROM @.rows FORMAT TSVRaw`, strings.Join([]string{
				"9223372036854775807", "-128", "-32768", "2147483647", "-170141183460469231731687303715884105728",
				"57896044618658097711785492504343953926634992332820282019728792003956564819967", "255", "18446744073709551615",
				"115792089237316195423570985008687907853269984665640564039457584007913129639935", "nan", "-inf",
			}, "\t"))
			w.want("SELECT d9, d18, d38, d76, b, hex(s), hex(fixed), low = '', lown IS NULL, n IS NULL, nd FROM @.rows FORMAT TSVRaw", strings.Join([]string{
				"-9999999.99", "12345678901234.5678", "1234567890123456789012345678.0123456789", "-12345678901234567890123456789012345678.01234567890123456789012345678901234567",
				"true", fmt.Sprintf("%X", "tab\t \\ \x00 \r\n ü 🙂 'q' \"d\" %"), "61620000", "1", "1", "1", "99999999999999999999999999999999999999",
			}, "\t"))
			w.want("SELECT e8, e16, day, day32, toTimeZone(at, 'UTC'), toTimeZone(atz, 'UTC'), at3, toTimeZone(at9, 'UTC'), id, ip4, ip6 FROM @.rows FORMAT TSVRaw", strings.Join([]string{
				"it's, ok", "x", "2149-06-06", "1900-01-01", "2106-02-07 06:28:15", "1970-01-01 00:00:00", "2026-01-02 03:04:05.678", "1900-12-31 22:00:00.123456789",
				"00112233-4455-6677-8899-aabbccddeeff", "192.0.2.1", "2001:db8::1",
			}, "\t"))
			w.want("SELECT list, lists, map, nmap, pair, places, doc, agg, sub.k, sub.v FROM @.rows FORMAT TSVRaw", strings.Join([]string{
				"[1,NULL,18446744073709551615]", "[[],['a','']]", "{'a':123456789012345678901234567890123456.78,'ü':-0.1}", "{-5:[1,-1],7:[]}", "(-1,NULL)", "('p',0.1)",
				`{"a":{"b":12345678901234567},"c":["x"]}`, "5", "['k1','k2']", "[1,2]",
			}, "\t"))
		})
	}
}

func TestRealEngineTakesRowsThatItCanTake(t *testing.T) {
	w := newWorld(t)
	w.run("CREATE TABLE @.rows (i UInt8 DEFAULT 1, d Decimal(9, 2) DEFAULT 1, s String DEFAULT '', f FixedString(2) DEFAULT '', e Enum8('a' = 1) DEFAULT 'a', day Date DEFAULT 0, " +
		"at DateTime('Europe/Berlin') DEFAULT 0, at9 DateTime64(9) DEFAULT 0, id UUID DEFAULT generateUUIDv4(), ip IPv4 DEFAULT 0, list Array(Int8) DEFAULT [], pair Tuple(x Int8) DEFAULT tuple(0), n Nullable(Int8) DEFAULT 3, " +
		"`sub.k` Array(String) DEFAULT [], `sub.v` Array(Int8) DEFAULT []) ENGINE = MergeTree ORDER BY tuple()" + remembers)
	r := deferredtest.Start(t, mustSink(t, w.config(nil)), &connectortest.Files{}, 1, nil)
	bad := []string{
		`{"i": 256}`, `{"i": -1}`, `{"i": 1.5}`, `{"i": "1"}`, `{"i": null}`, `{"d": 1.234}`, `{"d": 12345678}`, `{"s": 1}`, `{"f": "abc"}`, `{"e": "b"}`, `{"day": "2200-01-01"}`,
		`{"at": "2026-01-01T00:00:00"}`, `{"at": "1969-01-01T00:00:00Z"}`, `{"at9": "2270-01-01T00:00:00Z"}`, `{"id": "x"}`, `{"ip": "::1"}`, `{"list": [1, null]}`, `{"list": [128]}`,
		`{"pair": {"x": 1, "y": 2}}`, `{"pair": {}}`, `{"n": 200}`, `{"sub.k": ["a"], "sub.v": []}`, `{"unknown": 1}`, `[1]`, `{`, "",
	}
	good := `{"i": 7, "n": null}`
	for _, value := range bad {
		refused := r.Values(good, value, good)
		if len(refused) != 1 || refused[0].Row != 1 || refused[0].Kind == "" || refused[0].Reason == "" {
			t.Errorf("%s: refused %+v", value, refused)
		}
	}
	r.Checkpoint()
	w.want("SELECT count(), sum(i), countIf(n IS NULL), countIf(d = 1) FROM @.rows", fmt.Sprintf("%d\t%d\t%d\t%d", 2*len(bad), 14*len(bad), 2*len(bad), 2*len(bad)))
}

// A document that the server does not take would hold its block back for good.
func TestRealEngineTakesEachDocumentThatIsKept(t *testing.T) {
	w := newWorld(t)
	w.run("CREATE TABLE @.rows (doc JSON(max_dynamic_paths=2, SKIP gone)) ENGINE = MergeTree ORDER BY tuple()" + remembers)
	r := deferredtest.Start(t, mustSink(t, w.config(nil)), &connectortest.Files{}, 1, nil)
	deep := strings.Repeat(`{"a":`, 500) + "1" + strings.Repeat("}", 500)
	for i, doc := range []string{
		`{"a": 1, "a": 2}`, `{"a": "\ud800"}`, `{"a": [{"b": 1, "b": 2}]}`, `{"a": 1, "a": {"b": 1}}`, `{"a": {}, "gone": 1, "b": [], "c": null, "": 0}`,
		`{"a": 1.0, "b": 18446744073709551615, "c": 1e20, "d": -0, "e": 123456789012345678901234567890}`, deep,
	} {
		if refused := r.Values(`{"doc": ` + doc + `}`); refused != nil {
			t.Errorf("%.60s is refused: %+v", doc, refused)
		}
		r.Checkpoint()
		w.want("SELECT count() FROM @.rows", fmt.Sprint(i+1))
	}
	w.want("SELECT doc FROM @.rows WHERE doc.a.:Int64 = 2 FORMAT TSVRaw", `{"a":2}`)
	w.want("SELECT dynamicType(doc.a) FROM @.rows WHERE doc.d.:Int64 = 0", "Float64")
}

// The same block with the same token is in the table once, whatever its partitions, also
// for a server that was killed in between.
func TestRealEngineDropsABlockThatComesAgain(t *testing.T) {
	w := newWorld(t)
	w.run("CREATE TABLE @.rows (id Int64, p Int32) ENGINE = ReplacingMergeTree PARTITION BY p ORDER BY id" + remembers)
	files := &connectortest.Files{}
	r := deferredtest.Start(t, mustSink(t, w.config(nil)), files, 1, nil)
	r.Values(`{"id": 1, "p": 1}`, `{"id": 2, "p": 2}`, `{"id": 3, "p": 3}`)
	coms := r.Prepare()
	r.Commit(coms, false)
	r.Stop()
	for generation := uint64(2); generation < 5; generation++ {
		w.run("TRUNCATE TABLE @.sluice_commits") // nobody knows that they are in
		if generation == 3 {
			service(t, "kill")
			service(t, "restart")
		}
		deferredtest.Start(t, mustSink(t, w.config(nil)), files, generation, nil, coms...).Stop()
	}
	w.want("SELECT id FROM @.rows ORDER BY id", "1", "2", "3")
}

func TestRealEngineAnswersThatGetLost(t *testing.T) {
	w := newWorld(t)
	w.run("CREATE TABLE @.rows (id Int64) ENGINE = MergeTree ORDER BY id" + remembers)
	for name, match := range map[string]string{"of the rows": "insert_deduplication_token", "of the mark": "sluice_commits` (pipeline"} {
		t.Run(name, func(t *testing.T) {
			w.run("TRUNCATE TABLE @.rows")
			c := w.config(nil)
			u, err := url.Parse(c.URL)
			if err != nil {
				t.Fatal(err)
			}
			proxy := deferredtest.NewProxy(t, u.Host)
			u.Host = proxy.Addr
			c.URL = u.String()
			r := deferredtest.Start(t, mustSink(t, c), &connectortest.Files{}, 1, func(e *connectors.SinkEnv) { e.Origin = func() string { return name } })
			for i := range 4 {
				r.Values(fmt.Sprintf(`{"id": %d}`, i))
				coms := r.Prepare()
				proxy.Lose(func(b []byte) bool { return strings.Contains(string(b), match) })
				r.Commit(coms, false)
				if proxy.Lost() != i+1 {
					t.Fatalf("%d answers got lost", proxy.Lost())
				}
			}
			w.want("SELECT id FROM @.rows ORDER BY id", "0", "1", "2", "3")
		})
	}
}

func TestRealEngineGoesAwayInTheMiddle(t *testing.T) {
	w := newWorld(t)
	w.run("CREATE TABLE @.rows (id Int64) ENGINE = MergeTree ORDER BY id" + remembers)
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

// What the error tells to run is what the table needs.
func TestRealEngineTellsWhatATableLacks(t *testing.T) {
	w := newWorld(t)
	w.run("CREATE TABLE @.rows (id Int64) ENGINE = MergeTree ORDER BY id")
	open := func() error {
		s := mustSink(t, w.config(nil))
		t.Cleanup(func() { _ = s.Close() })
		return s.Open(t.Context(), deferredtest.Env(nil, 1))
	}
	err := open()
	if !connectors.IsPermanent(err) {
		t.Fatalf("error %v", err)
	}
	w.run(regexp.MustCompile("ALTER TABLE .* = [0-9]+").FindString(err.Error()))
	if err := open(); err != nil {
		t.Error(err)
	}
	w.run("ALTER TABLE @.rows ADD CONSTRAINT `po s` CHECK id > 0")
	if err := open(); !connectors.IsPermanent(err) || !strings.Contains(err.Error(), "constraint `po s`") {
		t.Errorf("error %v", err)
	}
	w.run("DROP TABLE @.rows")
	w.run("CREATE VIEW @.rows AS SELECT 1 AS id")
	if err := open(); !connectors.IsPermanent(err) || !strings.Contains(err.Error(), "engine is View") {
		t.Errorf("error %v", err)
	}
	c := w.config(func(c *SinkConfig) { c.Password = "wrong" })
	s := mustSink(t, c)
	if err := s.Open(t.Context(), deferredtest.Env(nil, 1)); !connectors.IsPermanent(err) || !strings.Contains(err.Error(), "check username") {
		t.Errorf("error %v", err)
	}
	_ = s.Close()
}

func TestRealEngineMoreValuesThanBlocksAreRemembered(t *testing.T) {
	w := newWorld(t)
	w.run("CREATE TABLE @.rows (id Int64) ENGINE = MergeTree PARTITION BY id ORDER BY id" + remembers)
	r := deferredtest.Start(t, mustSink(t, w.config(nil)), &connectortest.Files{}, 1, nil)
	var values []string
	for i := range 101 {
		values = append(values, fmt.Sprintf(`{"id": %d}`, i))
	}
	r.Values(values...)
	if err := r.Try(t.Context(), r.Prepare(), false); !connectors.IsPermanent(err) || !strings.Contains(err.Error(), "raise the table's deduplication window") {
		t.Errorf("error %v", err)
	}
}

func TestRealEngineMakesTheTable(t *testing.T) {
	w := newWorld(t)
	var cols columns.List
	if err := cols.UnmarshalConfig([]any{
		map[string]any{"id": "string"}, map[string]any{"price": "decimal(10, 2)?"}, map[string]any{"tags": []any{"bytes"}}, map[string]any{"at": "timestamp?"}, map[string]any{"raw": "bytes"},
		map[string]any{"took": "duration?"}, map[string]any{"doc": "json"}, map[string]any{"where": []any{map[string]any{"street": "string"}, map[string]any{"n o": "int16?"}}},
		map[string]any{"n": "dictionary(uint64)?"}, map[string]any{"day": "date"}, map[string]any{"clock": "time?"}, map[string]any{"local": "timestamp_local"}, map[string]any{"any": "decimal(38, 0)"},
	}); err != nil {
		t.Fatal(err)
	}
	c := w.config(func(c *SinkConfig) {
		c.Create, c.OrderBy = table.Create{On: true, Columns: cols}, []string{"id", "any"}
	})
	look := mustSink(t, c)
	env := deferredtest.Env(nil, 1)
	env.ReadOnly = true
	if err := look.Open(t.Context(), env); err != nil {
		t.Errorf("looked at: %v", err)
	}
	if _, ok, err := look.Committer().Witness(t.Context()); ok || err != nil {
		t.Errorf("witness %v, %v", ok, err)
	}
	_ = look.Close()
	w.want("SHOW TABLES FROM @")
	for g := uint64(1); g < 3; g++ { // the second finds it
		r := deferredtest.Start(t, mustSink(t, c), &connectortest.Files{}, g, nil)
		if refused := r.Values(`{"id": "a", "price": 1.5, "tags": ["AAH/"], "at": "2026-01-01T00:00:00Z", "raw": "/wA=", "took": 5, "doc": [1, {"x": null}], "where": {"street": "s"}, "n": {"k": 1},
			"day": "2026-01-02", "clock": "10:00:00", "local": "2026-01-01T00:00:00", "any": 1}`); refused != nil {
			t.Fatalf("refused %+v", refused)
		}
		r.Checkpoint()
		r.Stop()
	}
	row := "a\t1.5\t0001FF\t2026-01-01 00:00:00.000000\tFF00\t5\t[1, {\"x\": null}]\t('s',NULL)\t{'k':1}\t2026-01-02\t10:00:00\t2026-01-01 00:00:00.000000\t1"
	w.want("SELECT id, price, hex(tags[1]), at, hex(raw), took, doc, where, n, day, clock, local, any FROM @.rows FORMAT TSVRaw", row, row)
	w.run("DROP TABLE @.rows")
	c.OrderBy = nil
	deferredtest.Start(t, mustSink(t, c), &connectortest.Files{}, 3, nil)
	w.want("SELECT sorting_key FROM system.tables WHERE database = "+literal(w.name)+" AND name = 'rows'", "")
}

// A view that reads the table has each row once too, where its table remembers blocks.
func TestRealEngineViews(t *testing.T) {
	w := newWorld(t)
	w.run("CREATE TABLE @.rows (id Int64) ENGINE = MergeTree ORDER BY id" + remembers)
	w.run("CREATE TABLE @.copy (id Int64) ENGINE = MergeTree ORDER BY id" + remembers)
	w.run("CREATE MATERIALIZED VIEW @.view TO @.copy AS SELECT id * 10 AS id FROM @.rows")
	files := &connectortest.Files{}
	r := deferredtest.Start(t, mustSink(t, w.config(nil)), files, 1, nil)
	r.Values(`{"id": 1}`, `{"id": 2}`)
	coms := r.Prepare()
	r.Commit(coms, false)
	r.Stop()
	w.run("TRUNCATE TABLE @.sluice_commits")
	deferredtest.Start(t, mustSink(t, w.config(nil)), files, 2, nil, coms...)
	w.want("SELECT id FROM @.copy ORDER BY id", "10", "20")
}

func TestRealEngineHoldsOlderProcessesBack(t *testing.T) {
	w := newWorld(t)
	w.run("CREATE TABLE @.rows (id Int64) ENGINE = MergeTree ORDER BY id" + remembers)
	files, c := &connectortest.Files{}, w.config(nil)
	old := deferredtest.Start(t, mustSink(t, c), files, 1, nil)
	old.Values(`{"id": 1}`)
	old.Checkpoint()
	old.Values(`{"id": 2}`)
	orphan := old.Prepare()
	young := deferredtest.Start(t, mustSink(t, c), files, 2, nil)
	young.Values(`{"id": 20}`)
	young.Checkpoint()
	if err := old.Try(t.Context(), orphan, false); !errors.Is(err, connectors.ErrFenced) {
		t.Errorf("the old process: %v", err)
	}
	w.run("OPTIMIZE TABLE @.sluice_commits FINAL") // the marks stay what they are
	if got, ok, err := young.Sink.Committer().Witness(t.Context()); err != nil || !ok || got != young.ID {
		t.Errorf("witness %v, %v, %v", got, ok, err)
	}
	if err := old.Try(t.Context(), orphan, false); !errors.Is(err, connectors.ErrFenced) {
		t.Errorf("the old process: %v", err)
	}
	w.want("SELECT id FROM @.rows ORDER BY id", "1", "20")
}
