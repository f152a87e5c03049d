package mongodb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.uber.org/goleak"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/columns"
	"github.com/sluice-etl/sluice/connectors/connectortest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSinkKeepsTheContract(t *testing.T) {
	for _, op := range []string{opReplace, opUpdate, opInsert} {
		t.Run(op, func(t *testing.T) {
			connectortest.TestSink(t, func(t *testing.T) connectortest.Sink {
				srv := newServer(t)
				dial := func(change func(*Config)) func() (connectors.Sink, error) {
					return func() (connectors.Sink, error) {
						s, err := newSink(testConfig(func(c *Config) { c.Operation = op; change(c) }))
						if err == nil {
							s.dialer = srv
						}
						return s, err
					}
				}
				sink := connectortest.Sink{
					New:     dial(func(*Config) {}),
					Read:    func(context.Context) ([]string, error) { return once(srv.all("c", false)) },
					Network: srv.network(),
					Poison:  poison,
					Without: putsNothingOff,
					Virtual: true,
				}
				if op != opInsert {
					sink.Updating = &connectortest.Updating{Mode: connectors.Upserts, New: dial(byGroup), Read: sink.Read}
				}
				return sink
			})
		})
	}
}

// poison is no document.
func poison(int, int) string { return `[1]` }

var putsNothingOff = map[string]string{connectortest.WithoutThrottle: "a busy server is slow, and says nothing"}

// byGroup gives the suite's rows the id of their group.
func byGroup(c *Config) { c.ID = connectors.Expr{Text: "group", Slot: connectortest.SlotGroup} }

// once fails where a record is there twice: ids make repetitions replace themselves.
func once(list []string) ([]string, error) {
	seen := map[string]bool{}
	for _, v := range list {
		if seen[v] {
			return nil, fmt.Errorf("%s is there twice", v)
		}
		seen[v] = true
	}
	return list, nil
}

func TestWhatRecordsDo(t *testing.T) {
	s, i, null := connectors.StringValue, connectors.IntValue, connectors.NullValue()
	a, b := s("a"), s("b")
	tests := []struct {
		name   string
		change func(*Config)
		rows   []row
		want   []string
		refuse []int
	}{
		{"ids from coordinates", nil, []row{{value: `{"n":1}`}, {value: `{"n":2}`}}, []string{`{"_id":"in-1-0","n":1}`, `{"_id":"in-1-1","n":2}`}, nil},
		{"or of the record", nil, []row{{value: `{"n":1,"_id":"x"}`}, {value: `{"_id":"x","n":2}`}}, []string{`{"_id":"x","n":2}`}, nil},
		{"the last of an id wins", byID, []row{{`{"n":1}`, a, a}, {`{"n":2,"_id":5}`, i(7), a}, {`{"n":3}`, a, a}}, []string{`{"_id":"a","n":3}`, `{"_id":7,"n":2}`}, nil},
		{"a tombstone deletes", byID, []row{{`{"n":1}`, a, a}, {"", a, a}, {"", b, b}, {`{"n":2}`, b, b}}, []string{`{"_id":"b","n":2}`}, nil},
		{"not without an id", nil, []row{{value: ""}}, nil, []int{0}},
		{"update keeps other fields", func(c *Config) { byID(c); c.Operation = opUpdate }, []row{{`{"n":1}`, a, a}, {`{"m":2}`, a, a}, {`{"m.x":2}`, a, a}, {`{"$m":2}`, a, a}},
			[]string{`{"_id":"a","n":1,"m":2}`}, []int{2, 3}},
		{"insert leaves what is there", func(c *Config) { byID(c); c.Operation = opInsert }, []row{{`{"n":1}`, a, a}, {`{"n":2}`, a, a}, {`{"n":3}`, b, b}, {"", b, b}},
			[]string{`{"_id":"a","n":1}`, `{"_id":"b","n":3}`}, []int{3}},
		{"found by fields", func(c *Config) { c.Key = []string{"k", "l"} }, []row{{value: `{"k":1,"l":"x","n":1}`}, {value: `{"k":1,"l":"x","n":2}`}, {value: `{"k":1}`}, {value: `{"k":[1],"l":1}`}, {value: ""}},
			[]string{`{"k":1,"l":"x","n":2}`}, []int{2, 3, 4}},
		{"ids that are no text", func(c *Config) { byID(c); c.ObjectIDs = []string{"_id", "o"} },
			[]row{{`{"o":"65f000000000000000000001"}`, s("65f000000000000000000000"), a}, {"{}", a, a}, {"{}", null, a}, {`{"o":"x"}`, s("65f000000000000000000000"), a}},
			[]string{`{"_id":{"$oid":"65f000000000000000000000"},"o":{"$oid":"65f000000000000000000001"}}`}, []int{1, 2, 3}},
		{"no document", nil, []row{{value: "[1]"}, {value: `{"a":`}, {value: `{"a":1}{`}, {value: `{"a":1,"a":2}`}}, []string{`{"_id":"in-1-3","a":2}`}, []int{0, 1, 2}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			srv := newServer(t)
			err := opened(t, srv, tt.change).Write(t.Context(), rows(tt.rows...))
			if got := refusedRows(err); !slices.Equal(got, tt.refuse) || err != nil && got == nil {
				t.Errorf("refused %v, error %v", got, err)
			}
			if got := srv.all("c", true); !slices.Equal(got, tt.want) {
				t.Errorf("documents\n%s", strings.Join(got, "\n"))
			}
		})
	}
}

func TestACollectionForEachRow(t *testing.T) {
	srv := newServer(t)
	x, y := connectors.StringValue("x"), connectors.StringValue("y")
	err := opened(t, srv, func(c *Config) { c.Collection = template("c_{a}") }).Write(t.Context(), rows(
		row{"{}", x, x}, row{"{}", x, y}, row{"{}", x, connectors.StringValue("$")}, row{"{}", x, connectors.NullValue()}, row{"{}", x, x}))
	if !slices.Equal(refusedRows(err), []int{2, 3}) || len(srv.docs["c_x"]) != 2 || len(srv.docs["c_y"]) != 1 {
		t.Errorf("error %v, documents %v", err, srv.docs)
	}
}

func TestTypesOfDocuments(t *testing.T) {
	var types columns.List
	if err := types.UnmarshalConfig([]any{
		map[string]any{"at": "timestamp"}, map[string]any{"day": "date"}, map[string]any{"price": "decimal(34, 2)"}, map[string]any{"raw": "bytes"},
		map[string]any{"u": "uuid"}, map[string]any{"f": "float"}, map[string]any{"n": "int32"}, map[string]any{"big": "uint64"}, map[string]any{"wide": "decimal(38, 0)"},
		map[string]any{"list": []any{"decimal(5, 1)"}}, map[string]any{"in": []any{map[string]any{"at": "timestamp"}, map[string]any{"x": "int"}}},
	}); err != nil {
		t.Fatal(err)
	}
	d := newDocuments(types, nil)
	nines := strings.Repeat("9", 34)
	good := map[string]string{
		`{"a":1,"b":9007199254740993,"c":1.5,"d":"t","e":true,"f":null,"g":[1,"x",{"y":2}]}`: `{"a":{"$numberLong":"1"},"b":{"$numberLong":"9007199254740993"},"c":{"$numberDouble":"1.5"},"d":"t","e":true,"f":null,"g":[{"$numberLong":"1"},"x",{"y":{"$numberLong":"2"}}]}`,
		`{"a":18446744073709551616}`:                         `{"a":{"$numberDecimal":"18446744073709551616"}}`,
		`{"at":"2026-01-31T23:59:59.123987654+02:00"}`:       `{"at":{"$date":{"$numberLong":"1769896799123"}}}`,
		`{"day":"1960-01-02"}`:                               `{"day":{"$date":{"$numberLong":"-315532800000"}}}`,
		`{"price":12.5}`:                                     `{"price":{"$numberDecimal":"12.50"}}`,
		`{"price":"` + nines[:32] + `.99"}`:                  `{"price":{"$numberDecimal":"` + nines[:32] + `.99"}}`,
		`{"wide":` + nines + `}`:                             `{"wide":{"$numberDecimal":"` + nines + `"}}`,
		`{"raw":"AQI="}`:                                     `{"raw":{"$binary":{"base64":"AQI=","subType":"00"}}}`,
		`{"u":"00000000-0000-0000-0000-000000000001"}`:       `{"u":{"$binary":{"base64":"AAAAAAAAAAAAAAAAAAAAAQ==","subType":"04"}}}`,
		`{"f":3,"n":7.0}`:                                    `{"f":{"$numberDouble":"3.0"},"n":{"$numberLong":"7"}}`,
		`{"f":"NaN","list":[1,2.5]}`:                         `{"f":{"$numberDouble":"NaN"},"list":[{"$numberDecimal":"1.0"},{"$numberDecimal":"2.5"}]}`,
		`{"in":{"at":"2026-01-01T00:00:00Z","x":1,"y":"z"}}`: `{"in":{"at":{"$date":{"$numberLong":"1767225600000"}},"x":{"$numberLong":"1"},"y":"z"}}`,
	}
	for value, want := range good {
		doc, err := d.document([]byte(value))
		if err != nil {
			t.Errorf("%s: %v", value, err)
			continue
		}
		if text, _ := bson.MarshalExtJSON(doc, true, false); string(text) != want {
			t.Errorf("%s\nis     %s\nwanted %s", value, text, want)
		}
	}
	for value, want := range map[string]string{
		`{"wide":` + nines + `1}`: "34 digits", `{"price":1.234}`: "digits behind the point", `{"at":"soon"}`: "point in time", `{"at":{}}`: "timestamp is wanted",
		`{"n":3000000000}`: "32 bits", `{"big":18446744073709551615}`: "63 bits", `{"day":[1]}`: "not a list", `{"a":1e999}`: "beyond", `{"in":{"x":"y"}}`: "field in: field x",
		`{"a":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`: "levels", "{\"a\\u0000\":1}": "zero byte",
	} {
		if _, err := d.document([]byte(value)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: error %v, wanted %s", value, err, want)
		}
	}
}

func FuzzDocument(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":null}],"c":"x"}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		d := newDocuments(nil, nil)
		doc, err := d.document(value)
		if err != nil {
			return
		}
		if !json.Valid(value) {
			t.Errorf("%q is no JSON and a document", value)
		}
		if _, err := bson.Marshal(doc); err != nil {
			t.Errorf("%q: %v", value, err)
		}
	})
}

// kept checks that the last of a hundred records of ten ids is kept for each.
func kept(t *testing.T, s *server) {
	t.Helper()
	got := s.all("c", true)
	slices.Sort(got)
	var want []string
	for i := range 10 {
		want = append(want, fmt.Sprintf(`{"_id":%d,"n":%d}`, i, 90+i))
	}
	if !slices.Equal(got, want) {
		t.Errorf("documents %v", got)
	}
}

func TestRowsAreWrittenAgainUntilTheyAreTaken(t *testing.T) {
	for _, code := range []int32{0, 10107, 91, 189, 13, 11600} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := newServer(t)
				w := opened(t, srv, byID)
				start := time.Now()
				out := func() bool { return time.Since(start) < time.Minute }
				srv.mu.Lock()
				if code == 0 {
					srv.down = out
				} else {
					srv.rule = func(int) int32 {
						if out() {
							return code
						}
						return 0
					}
				}
				srv.mu.Unlock()
				if err := w.Write(t.Context(), rows(many(100)...)); err != nil {
					t.Fatal(err)
				}
				kept(t, srv)
				if took := time.Since(start); took < time.Minute || took > 2*time.Minute {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}

func TestALostAnswerChangesNothing(t *testing.T) {
	for _, op := range []string{opReplace, opUpdate} {
		synctest.Test(t, func(t *testing.T) {
			srv := newServer(t)
			srv.lose = func(write int) bool { return write%2 == 1 }
			w := opened(t, srv, func(c *Config) { byID(c); c.Operation, c.Batch.Records = op, 7 })
			if err := w.Write(t.Context(), rows(many(100)...)); err != nil {
				t.Fatal(err)
			}
			kept(t, srv)
		})
	}
}

func TestAWriteThatDoesNotEndInTimeGoesAgainInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newServer(t)
		srv.slow = 30
		if err := opened(t, srv, byID).Write(t.Context(), rows(many(100)...)); err != nil {
			t.Fatal(err)
		}
		kept(t, srv)
	})
}

func TestSingleRowsAreRefusedOrGoAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newServer(t)
		srv.meet = func(write, index int, doc bson.D) int32 {
			u, _ := get(doc, "u").(bson.D)
			if n := get(u, "n"); n == int64(7) || n == int64(42) {
				return 121 // a rule of the collection
			}
			if index == 20 && write < 5 {
				return 112 // a conflict, which passes
			}
			return 0
		}
		err := opened(t, srv, byID).Write(t.Context(), rows(many(100)...))
		if !slices.Equal(refusedRows(err), []int{7, 42}) || strings.Contains(err.Error(), "secret") {
			t.Errorf("error %v", err)
		}
		kept(t, srv)
	})
}

func TestAStopEndsTheTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newServer(t)
		w := opened(t, srv, nil)
		srv.mu.Lock()
		srv.rule = func(int) int32 { return 91 }
		srv.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := w.Write(ctx, rows(many(1)...)); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

func TestDeadLettersHaveIDs(t *testing.T) {
	srv := newServer(t)
	r := rows(many(2)...)
	r.DeadLetter = make([]*connectors.RecordError, 2)
	r.Batch.Records[1].Origin = nil
	if err := opened(t, srv, byID).Write(t.Context(), r); err != nil || len(srv.docs["c"]) != 2 {
		t.Errorf("error %v, documents %v", err, srv.docs)
	}
	r.DeadLetter = nil
	if err := opened(t, srv, nil).Write(t.Context(), r); !slices.Equal(refusedRows(err), []int{1}) || !strings.Contains(err.Error(), "give the sink an id") {
		t.Errorf("error %v", err)
	}
}

func TestUpdatingStreams(t *testing.T) {
	for _, tt := range []struct {
		change func(*Config)
		want   connectors.ChangeMode
	}{
		{nil, connectors.AppendOnly}, {byID, connectors.Upserts},
		{func(c *Config) { byID(c); c.Operation = opInsert }, connectors.AppendOnly},
		{func(c *Config) { byID(c); c.Changelog = true }, connectors.Changelog},
	} {
		if got := testConfig(tt.change).changes().Mode; got != tt.want {
			t.Errorf("mode %d, wanted %d", got, tt.want)
		}
	}
}

func TestConfigurationThatCannotWorkIsRefused(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"no address", func(c *Config) { c.URI = "host:27017" }, "must begin with"},
		{"a broken one, without its password", func(c *Config) { c.URI = "mongodb://u:pass word@h:x/" }, "it is no connection string"},
		{"no database", func(c *Config) { c.Database = "a b" }, "database"},
		{"any collection", func(c *Config) { c.Collection = template("{x}") }, "any collection"},
		{"the system's", func(c *Config) { c.Collection = template("system.users") }, "system"},
		{"two ways to find", func(c *Config) { byID(c); c.Key = []string{"a"} }, "id and key"},
		{"paths", func(c *Config) { c.Key = []string{"a.b"} }, "not paths"},
		{"insert by fields", func(c *Config) { c.Key, c.Operation = []string{"a"}, opInsert }, "insert finds"},
		{"no writes", func(c *Config) { c.Concurrency = 0 }, "concurrency"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := newSink(testConfig(tt.change))
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "pass word") {
				t.Errorf("error %v", err)
			}
		})
	}
}
