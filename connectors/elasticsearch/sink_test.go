package elasticsearch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/connectortest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// once fails where a record is there twice: ids make repetitions replace themselves.
func once(list []string, err error) ([]string, error) {
	seen := map[string]bool{}
	for _, v := range list {
		if seen[v] {
			return nil, fmt.Errorf("%s is there twice", v)
		}
		seen[v] = true
	}
	return list, err
}

func TestSinkKeepsTheContract(t *testing.T) {
	for _, op := range []string{opIndex, opCreate, opUpdate} {
		t.Run(op, func(t *testing.T) {
			connectortest.TestSink(t, func(*testing.T) connectortest.Sink {
				c := newCluster()
				way := &connectortest.Transport{RoundTripper: c}
				dial := func(change func(*Config)) func() (connectors.Sink, error) {
					return func() (connectors.Sink, error) {
						s, err := newSink(testConfig(func(c *Config) { c.Operation = op; change(c) }))
						if err == nil {
							s.client.transport = way
						}
						return s, err
					}
				}
				sink := connectortest.Sink{
					New:     dial(func(*Config) {}),
					Network: way.Network(),
					Poison:  func(int, int) string { return `{"n":"bad"}` },
					Virtual: true,
					Read: func(ctx context.Context) ([]string, error) {
						list, err := once(c.values(ctx))
						for i, v := range list { // an update sorts the fields
							var part, offset int
							if _, err := fmt.Sscanf(v, `{"offset":%d,"partition":%d}`, &offset, &part); err == nil {
								list[i] = fmt.Sprintf(`{"partition":%d,"offset":%d}`, part, offset)
							}
						}
						return list, err
					},
				}
				if op != opCreate {
					sink.Updating = &connectortest.Updating{Mode: connectors.Upserts, New: dial(byGroup), Read: sink.Read}
				}
				return sink
			})
		})
	}
}

// byGroup gives the suite's rows the id of their group.
func byGroup(c *Config) { c.ID = connectors.Expr{Text: "group", Slot: connectortest.SlotGroup} }

func TestWhatRecordsDo(t *testing.T) {
	s, i := connectors.StringValue, connectors.IntValue
	a, b := s("a"), s("b")
	tests := []struct {
		name   string
		change func(*Config)
		rows   []row
		want   map[string]string // by index/id
		refuse []int
	}{
		{"ids from coordinates", nil, []row{{value: "{}"}, {value: "{ }"}}, map[string]string{"events/in-1-0": "{}", "events/in-1-1": "{ }"}, nil},
		{"the last of an id wins", byID, []row{{`{"n":1}`, a, a}, {`{"n":2}`, i(7), a}, {`{"n":3}`, a, a}}, map[string]string{"events/a": `{"n":3}`, "events/7": `{"n":2}`}, nil},
		{"a tombstone deletes", byID, []row{{`{"n":1}`, a, a}, {"", a, a}, {"", b, b}}, map[string]string{}, nil},
		{"not without an id", nil, []row{{value: ""}}, map[string]string{}, []int{0}},
		{"create leaves what is there", func(c *Config) { byID(c); c.Operation = opCreate }, []row{{`{"n":1}`, a, a}, {`{"n":2}`, a, a}, {"", a, a}}, map[string]string{"events/a": `{"n":1}`}, []int{2}},
		{"or refuses", func(c *Config) { byID(c); c.Operation, c.OnConflict = opCreate, conflictRefuse }, []row{{`{"n":1}`, a, a}, {`{"n":2}`, a, a}}, map[string]string{"events/a": `{"n":1}`}, []int{1}},
		{"update keeps other fields", func(c *Config) { byID(c); c.Operation = opUpdate }, []row{{`{"n":1}`, a, a}, {`{"m":2}`, a, a}}, map[string]string{"events/a": `{"m":2,"n":1}`}, nil},
		{"an older version changes nothing", func(c *Config) { byID(c); c.Version = connectors.Expr{Text: "v", Slot: 1} },
			[]row{{`{"n":1}`, a, i(5)}, {`{"n":2}`, a, i(4)}, {`{"n":3}`, b, s("x")}}, map[string]string{"events/a": `{"n":1}`}, []int{2}},
		{"an index for each row", func(c *Config) { c.Index = template("e-{x}") }, []row{{"{}", a, a}, {"{}", a, s("B")}, {"{}", a, s("a,b")}, {"{}", a, connectors.NullValue()}},
			map[string]string{"e-a/in-1-0": "{}"}, []int{1, 2, 3}},
		{"no value brings other actions along", byID, []row{{"{}\n{\"delete\":{\"_id\":\"b\"}}", a, a}, {"{\n}", b, b}, {"[1]", a, a}, {"1", a, a}}, map[string]string{"events/b": "{ }"}, []int{0, 2, 3}},
		{"a document that does not fit the mapping", byID, []row{{`{"n":1}`, a, a}, {`{"n":"bad"}`, b, a}}, map[string]string{"events/a": `{"n":1}`}, []int{1}},
		{"ids that cannot be", byID, []row{{"{}", s(""), a}, {"{}", connectors.NullValue(), a}, {"{}", s(strings.Repeat("x", 513)), a}}, map[string]string{}, []int{0, 1, 2}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster()
			err := opened(t, c, tt.change).Write(t.Context(), rows(tt.rows...))
			if got := refusedRows(err); !slices.Equal(got, tt.refuse) || err != nil && got == nil {
				t.Errorf("refused %v, error %v", got, err)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the reason holds data: %v", err)
			}
			got := map[string]string{}
			for index, docs := range c.docs {
				for id, doc := range docs {
					got[index+"/"+id] = doc
				}
			}
			if !maps.Equal(got, tt.want) {
				t.Errorf("documents %v", got)
			}
		})
	}
}

func many(n int) (out []row) {
	for i := range n {
		out = append(out, row{value: fmt.Sprintf(`{"n":%d}`, i), id: connectors.IntValue(int64(i % 10))})
	}
	return out
}

func TestARequestIsSentAgainUntilItIsAnswered(t *testing.T) {
	for name, status := range map[string]int{"down": -1, "throttled": 429, "no master": 503, "credentials ran out": 401} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, start := newCluster(), time.Now()
				c.meet = func(int, string) int {
					if time.Since(start) < time.Minute {
						return status
					}
					return 0
				}
				if err := opened(t, c, nil).Write(t.Context(), rows(many(30)...)); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(start); len(c.docs["events"]) != 30 || took < time.Minute || took > 2*time.Minute || c.calls > 60 {
					t.Errorf("%d documents after %s and %d calls", len(c.docs["events"]), took, c.calls)
				}
			})
		})
	}
}

func TestALostAnswerChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		c.lose = func(call int) bool { return call%2 == 1 }
		w := opened(t, c, func(c *Config) { byID(c); c.Batch.Records = 7 })
		if err := w.Write(t.Context(), rows(many(100)...)); err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			if got := c.docs["events"][fmt.Sprint(i)]; got != fmt.Sprintf(`{"n":%d}`, 90+i) {
				t.Errorf("document %d is %s", i, got)
			}
		}
	})
}

// A document that had no room goes again, and behind it all of its id, so that the last
// one wins.
func TestSingleDocumentsWithoutRoomGoAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		n := 0
		c.busy = func(call int, _, _ string) bool { n++; return call < 4 && n%3 == 0 }
		if err := opened(t, c, byID).Write(t.Context(), rows(many(100)...)); err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			if got := c.docs["events"][fmt.Sprint(i)]; got != fmt.Sprintf(`{"n":%d}`, 90+i) {
				t.Errorf("document %d is %s", i, got)
			}
		}
	})
}

func TestARequestThatIsTooLargeIsHalved(t *testing.T) {
	c := newCluster()
	c.limit = 500
	list := append(many(100), row{value: `{"x":"` + strings.Repeat("y", 600) + `"}`})
	err := opened(t, c, nil).Write(t.Context(), rows(list...))
	if !slices.Equal(refusedRows(err), []int{100}) || len(c.docs["events"]) != 100 {
		t.Errorf("error %v, %d documents", err, len(c.docs["events"]))
	}
}

func TestARequestThatIsNotAnsweredInTimeGoesAgainInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		c.slow = 1500
		if err := opened(t, c, byID).Write(t.Context(), rows(many(100)...)); err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			if got := c.docs["events"][fmt.Sprint(i)]; got != fmt.Sprintf(`{"n":%d}`, 90+i) {
				t.Errorf("document %d is %s", i, got)
			}
		}
	})
}

func TestNodesThatAreDownArePassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		c.meet = func(_ int, host string) int {
			if host == "b:9200" {
				return -1
			}
			return 0
		}
		w := opened(t, c, func(c *Config) { c.Addresses = []string{"http://a:9200", "http://b:9200", "http://c:9200"} })
		for range 12 {
			if err := w.Write(t.Context(), rows(many(1)...)); err != nil {
				t.Fatal(err)
			}
		}
		count := map[string]int{}
		for _, h := range c.hosts {
			count[h]++
		}
		if count["b:9200"] != 1 || count["a:9200"] < 5 || count["c:9200"] < 5 {
			t.Errorf("calls %v", count)
		}
	})
}

func TestCredentialsAndCompression(t *testing.T) {
	c := newCluster()
	if err := opened(t, c, func(c *Config) { c.APIKey, c.Compression = "k", compressGzip }).Write(t.Context(), rows(many(3)...)); err != nil {
		t.Fatal(err)
	}
	if c.header.Get("Authorization") != "ApiKey k" || len(c.docs["events"]) != 3 {
		t.Errorf("header %v, documents %v", c.header, c.docs)
	}
}

func TestDeadLettersHaveIDs(t *testing.T) {
	c := newCluster()
	r := rows(many(2)...)
	r.DeadLetter = make([]*connectors.RecordError, 2)
	r.Batch.Records[1].Origin = nil
	if err := opened(t, c, byID).Write(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if c.docs["events"]["in-1-0"] == "" || len(c.docs["events"]) != 2 {
		t.Errorf("documents %v", c.docs)
	}
}

func TestARecordOfNowhereNeedsAnID(t *testing.T) {
	r := rows(many(1)...)
	r.Batch.Records[0].Origin = nil
	if err := opened(t, newCluster(), nil).Write(t.Context(), r); len(refusedRows(err)) != 1 || !strings.Contains(err.Error(), "give the sink an id") {
		t.Error(err)
	}
}

type answering struct{ http.RoundTripper }

func (answering) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

func TestOpenTellsWhoAnswers(t *testing.T) {
	s, err := newSink(testConfig(nil))
	if err != nil {
		t.Fatal(err)
	}
	s.client.transport = answering{}
	if err := s.Open(t.Context(), connectors.SinkEnv{}); !connectors.IsPermanent(err) || !strings.Contains(err.Error(), "neither Elasticsearch nor OpenSearch") {
		t.Error(err)
	}
}

func TestUpdatingStreams(t *testing.T) {
	for _, tt := range []struct {
		change func(*Config)
		want   connectors.ChangeMode
	}{
		{nil, connectors.AppendOnly}, {byID, connectors.Upserts},
		{func(c *Config) { byID(c); c.Operation = opCreate }, connectors.AppendOnly},
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
		{"no node", func(c *Config) { c.Addresses = nil }, "addresses"},
		{"no address", func(c *Config) { c.Addresses = []string{"a:9200"} }, "no address"},
		{"credentials in it", func(c *Config) { c.Addresses = []string{"http://u:p@a:9200"} }, "credentials"},
		{"any index", func(c *Config) { c.Index = template("{x}") }, "any index of the cluster"},
		{"a system's index", func(c *Config) { c.Index = template("_all") }, "does not begin"},
		{"capital letters", func(c *Config) { c.Index = template("Events") }, "capital letters"},
		{"two ways to be known", func(c *Config) { c.Token, c.APIKey = "a", "b" }, "more than one way"},
		{"versions of updates", func(c *Config) { c.Version = connectors.Expr{Text: "v"}; c.Operation = opUpdate }, "version"},
		{"no requests", func(c *Config) { c.Concurrency = 0 }, "concurrency"},
		{"half a certificate", func(c *Config) { c.TLS.Cert = "x" }, "belong together"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := newSink(testConfig(tt.change))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestAStopEndsTheTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		c.meet = func(int, string) int { return -1 }
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := opened(t, c, nil).Write(ctx, rows(many(1)...)); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}
