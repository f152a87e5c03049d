package spec

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/transform"
)

// The connectors of these tests have blocks like the real ones, and none of
// their function.

type fakeTLS struct {
	CA     string `key:"ca" doc:"File of certificates."`
	Verify bool   `key:"verify" doc:"Whether the server is checked."`
}

type fakeSASL struct {
	Mechanism string `key:"mechanism" required:"true" enum:"plain|scram-sha-256|scram-sha-512" doc:"How to log in."`
	Username  string `key:"username" doc:"Name of the user."`
	Password  string `key:"password" secret:"true" doc:"Password of the user."`
}

type fakeStart struct {
	From string
	At   time.Time
}

func (s *fakeStart) UnmarshalConfig(v any) error {
	switch v := v.(type) {
	case string:
		if v == "earliest" || v == "latest" {
			s.From = v
			return nil
		}
	case map[string]any:
		if text, ok := v["timestamp"].(string); ok {
			at, err := time.Parse(time.RFC3339, text)
			if err != nil {
				return &connectors.FieldError{Key: "timestamp", Msg: "is no RFC 3339 time", Help: "write it like 2026-01-31T00:00:00Z"}
			}
			s.At = at
			return nil
		}
	}
	return errors.New("write earliest, latest or {timestamp: TIME}")
}

type fakeKafkaSource struct {
	Brokers      []string                `key:"brokers" required:"true" doc:"Addresses of brokers."`
	Topics       []string                `key:"topics" doc:"Topics to read."`
	TopicPattern string                  `key:"topic_pattern" doc:"Regular expression of topics."`
	Start        fakeStart               `key:"start" doc:"Where a new job starts."`
	Isolation    string                  `key:"isolation" enum:"read_committed|read_uncommitted" doc:"Whether open transactions are read."`
	FetchMax     connectors.ByteSize     `key:"fetch_max" doc:"Bytes of a fetch."`
	Discover     connectors.TimeSpan     `key:"discover" doc:"How often new partitions are looked for."`
	Retries      int8                    `key:"retries" doc:"Tries of a request."`
	Format       connectors.FormatConfig `key:"format" doc:"Format of the values."`
	TLS          *fakeTLS                `key:"tls" doc:"Encryption."`
	SASL         *fakeSASL               `key:"sasl" doc:"Login."`
	Client       map[string]string       `key:"client" doc:"Further settings of the client."`
}

func (c *fakeKafkaSource) Validate() error {
	var faults []error
	if (len(c.Topics) == 0) == (c.TopicPattern == "") {
		faults = append(faults, &connectors.FieldError{Msg: "exactly one of topics and topic_pattern must be given"})
	}
	for _, b := range c.Brokers {
		if !strings.Contains(b, ":") {
			faults = append(faults, &connectors.FieldError{Key: "brokers", Msg: b + " has no port", Help: "write " + b + ":9092"})
		}
	}
	if c.SASL != nil && c.SASL.Username == "" {
		faults = append(faults, &connectors.FieldError{Key: "sasl.username", Msg: "is needed to log in"})
	}
	return errors.Join(faults...)
}

type fakeKafkaSink struct {
	Brokers  []string                `key:"brokers" required:"true" doc:"Addresses of brokers."`
	Topic    string                  `key:"topic" required:"true" doc:"Topic to write."`
	Key      connectors.Expr         `key:"key" doc:"Key of a record."`
	Headers  connectors.Assignments  `key:"headers" doc:"Headers of a record."`
	Delivery string                  `key:"delivery" enum:"exactly_once|at_least_once" doc:"Guarantee."`
	Format   connectors.FormatConfig `key:"format" doc:"Format of the values."`
	SASL     *fakeSASL               `key:"sasl" doc:"Login."`
}

type fakeRoll struct {
	Size connectors.ByteSize `key:"size" doc:"Largest file."`
	Age  connectors.TimeSpan `key:"age" doc:"Oldest file."`
}

type fakeFileSink struct {
	Path        string                  `key:"path" required:"true" doc:"Directory to write."`
	Format      connectors.FormatConfig `key:"format" doc:"Format of the files."`
	Roll        fakeRoll                `key:"roll" doc:"When a file ends."`
	PartitionBy []connectors.Expr       `key:"partition_by" doc:"Folders by expression."`
}

type fakeGenerate struct {
	Count int64   `key:"count" doc:"Records in all."`
	Rate  float64 `key:"rate" doc:"Records a second."`
	Seed  uint16  `key:"seed" doc:"Start of the sequence."`
}

type fakeNothing struct{}

// tally stands for a step with keyed state and a branch beside its output.
type fakeTally struct {
	By     connectors.Keys        `key:"by" doc:"What is counted by."`
	Select connectors.Assignments `key:"select" doc:"Fields of the result."`
	Nested fakeBounds             `key:"within" doc:"Bounds."`
}

type fakeBounds struct {
	From connectors.Expr `key:"from" doc:"First."`
	To   connectors.Expr `key:"to" doc:"Last."`
}

// pair stands for a step that names its inputs.
type fakePair struct {
	Left  connectors.Ref  `key:"left" required:"true" doc:"One input."`
	Right connectors.Ref  `key:"right" required:"true" doc:"The other."`
	On    connectors.Expr `key:"on" doc:"What goes together."`
}

func registerSteps() {
	build := func(any, *transform.KeyedEnv) transform.KeyedStep { return nil }
	transform.Register(transform.Spec{
		Name: "zz-tally", Doc: "Counts.", NewConfig: func() any { return &fakeTally{} }, BuildKeyed: build, Side: []string{"late"},
	})
	transform.Register(transform.Spec{
		Name: "zz-pair", Doc: "Joins.", NewConfig: func() any { return &fakePair{} }, BuildKeyed: build,
		Inputs: func(config any) []connectors.Ref {
			c := config.(*fakePair)
			return []connectors.Ref{c.Left, c.Right}
		},
	})
}

// fakeService stands for what a lookup asks.
type fakeService struct {
	URL     string            `key:"url" required:"true" secret:"true" doc:"Where it is."`
	Method  string            `key:"method" enum:"GET|POST" doc:"How it is asked."`
	Headers map[string]string `key:"headers" secret:"true" doc:"What goes with it."`
}

func (c *fakeService) Validate() error {
	if c.Method == http.MethodPost {
		return &connectors.FieldError{Key: "method", Msg: "POST needs a body", Help: "write GET"}
	}
	return nil
}

func registerLookups() {
	lookup := func(any, []string) (connectors.Lookup, error) { return nil, errors.New("a fake") }
	connectors.RegisterLookup(connectors.LookupSpec{
		Name: "service", Doc: "Asks a service.", NewConfig: func() any { return &fakeService{Method: http.MethodGet} }, New: lookup, Concurrency: 1,
	})
	connectors.RegisterLookup(connectors.LookupSpec{
		Name: "file", Doc: "Reads a file.", NewConfig: func() any { return &fakeNothing{} }, New: lookup, Concurrency: 1, Local: true,
	})
}

func init() {
	registerSteps()
	registerLookups()
	bounded := func(any) bool { return false }
	source := func(any) (connectors.Source, error) { return nil, errors.New("a fake") }
	sink := func(any) (connectors.Sink, error) { return nil, errors.New("a fake") }
	connectors.RegisterSource(connectors.SourceSpec{
		Name: "kafka", Doc: "Reads topics.", New: source, Bounded: bounded,
		NewConfig: func() any {
			return &fakeKafkaSource{Start: fakeStart{From: "earliest"}, Isolation: "read_committed", Discover: connectors.TimeSpan(time.Minute)}
		},
	})
	connectors.RegisterSource(connectors.SourceSpec{
		Name: "generate", Doc: "Makes records.", New: source, Bounded: bounded,
		NewConfig: func() any { return &fakeGenerate{Rate: 1000} },
	})
	connectors.RegisterSink(connectors.SinkSpec{
		Name: "kafka", Doc: "Writes a topic.", New: sink,
		NewConfig: func() any { return &fakeKafkaSink{Delivery: "exactly_once"} },
	})
	connectors.RegisterSink(connectors.SinkSpec{
		Name: "file", Doc: "Writes files.", New: sink,
		NewConfig: func() any {
			return &fakeFileSink{Roll: fakeRoll{Size: 128 << 20, Age: connectors.TimeSpan(time.Minute)}}
		},
	})
	connectors.RegisterSink(connectors.SinkSpec{
		Name: "stdout", Doc: "Prints.", New: sink, NewConfig: func() any { return &fakeNothing{} },
	})
	connectors.RegisterSink(connectors.SinkSpec{
		Name: "blackhole", Doc: "Drops.", New: sink, NewConfig: func() any { return &fakeNothing{} },
	})
}
