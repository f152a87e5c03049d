package kafka

import (
	"errors"
	"regexp"
	"strings"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// SourceConfig is the block of a kafka source.
type SourceConfig struct {
	Brokers         []string                `key:"brokers" doc:"Addresses of some brokers, host:port; the others are learned from them." required:"true"`
	Topics          []string                `key:"topics" doc:"Names of the topics to read."`
	TopicPattern    string                  `key:"topic_pattern" doc:"Regular expression for whole topic names, instead of or besides topics."`
	Format          connectors.FormatConfig `key:"format" doc:"How values are encoded."`
	Group           string                  `key:"group" doc:"Consumer group that positions are committed to after each checkpoint, for lag tools. Positions are never read from it but by start: group."`
	Start           Start                   `key:"start" doc:"Where a new job begins: earliest, latest, group, {timestamp: T} or {offsets: {topic/partition: n}}."`
	Until           Until                   `key:"until" doc:"Where the source ends: latest, {timestamp: T} or {offsets: {topic/partition: n}}. Without it, it never does."`
	Isolation       string                  `key:"isolation" doc:"Whether records of open and aborted transactions are read." enum:"read_committed|read_uncommitted"`
	OnMissingOffset string                  `key:"on_missing_offset" doc:"What to do where the position to go on from has been deleted from the topic." enum:"fail|earliest|latest"`
	Discover        connectors.TimeSpan     `key:"discover" doc:"How often new partitions and topics are looked for; 0s for never."`
	TLS             TLSConfig               `key:"tls" doc:"Encryption of the connections."`
	SASL            SASLConfig              `key:"sasl" doc:"Authentication."`
	Client          ClientConfig            `key:"client" doc:"Fine tuning of the client."`
}

// SinkConfig is the block of a kafka sink.
type SinkConfig struct {
	Brokers               []string                `key:"brokers" doc:"Addresses of some brokers, host:port; the others are learned from them." required:"true"`
	Topic                 connectors.Template     `key:"topic" doc:"Name of the topic to write to, which must exist, or a text with expressions such as events-{region}, which begins with fixed text." required:"true"`
	CreateTopics          CreateConfig            `key:"create_topics" doc:"Creates topics that rows name and that do not exist. Without it such a row goes to on_error."`
	Format                connectors.FormatConfig `key:"format" doc:"How values are encoded."`
	Key                   connectors.Expr         `key:"key" doc:"Expression for the record's key; by default the key it has."`
	Headers               connectors.Assignments  `key:"headers" doc:"Expressions for headers by name, beside those that the record has."`
	Partition             connectors.Expr         `key:"partition" doc:"Expression for the partition's number; by default the key decides as in Java's client, and records without key are spread."`
	Timestamp             connectors.Expr         `key:"timestamp" doc:"Expression for the record's time, a timestamp or milliseconds since 1970; by default the time it has."`
	Delivery              string                  `key:"delivery" doc:"What is promised about each record." enum:"exactly_once|at_least_once"`
	TransactionalIDPrefix string                  `key:"transactional_id_prefix" doc:"Beginning of the transactional ids and of the witness's group; by default the pipeline's name. It must not change and belong to this pipeline alone."`
	TransactionTimeout    connectors.TimeSpan     `key:"transaction_timeout" doc:"How long a transaction may stay open before the broker aborts it: longer than the longest downtime to survive without rewinding. By default the smaller of 15m and the broker's limit."`
	Compression           string                  `key:"compression" doc:"Compression of what is sent. On a fast network none costs least: lz4 more than doubles what the sink costs per record." enum:"none|gzip|snappy|lz4|zstd"`
	MaxRecordBytes        connectors.ByteSize     `key:"max_record_bytes" doc:"Largest record that is sent; a larger one goes to on_error. By default what the topic takes."`
	Changelog             bool                    `key:"changelog" doc:"Takes an updating stream row by row, and writes what each row does as the last field, op: insert, update_before, update_after or delete. Without it, key makes an update its new value and a delete a tombstone."`
	TLS                   TLSConfig               `key:"tls" doc:"Encryption of the connections."`
	SASL                  SASLConfig              `key:"sasl" doc:"Authentication."`
	Client                ClientConfig            `key:"client" doc:"Fine tuning of the client."`

	dial dialer // nil for the system's
}

// CreateConfig says how topics are created. None is where partitions is not set.
type CreateConfig struct {
	Partitions  int `key:"partitions" doc:"Partitions of a topic that is created; 0 creates none."`
	Replication int `key:"replication" doc:"Copies of each partition; 0 for the broker's default."`
	Max         int `key:"max" doc:"How many topics a process creates at most; rows for further ones go to on_error."`
}

// Expiry implements connectors.Expirer: the broker aborts a transaction that is left open.
func (c *SinkConfig) Expiry() (time.Duration, string) {
	if c.Delivery == atLeastOnce {
		return 0, ""
	}
	return time.Duration(c.TransactionTimeout), "transaction_timeout"
}

// changes is how the sink takes an updating stream: by its key where it has one.
func (c *SinkConfig) changes() connectors.Changes {
	if !c.Changelog && c.Key.Set() {
		return connectors.Changes{Mode: connectors.Upserts, Key: &c.Key}
	}
	return connectors.TakesChangelog(c.Changelog)
}

// TLSConfig says how connections are encrypted. They are as soon as one of its
// keys is set.
type TLSConfig struct {
	Enabled            bool   `key:"enabled" doc:"Turns encryption on where no other key is needed: the system's authorities are trusted."`
	CA                 string `key:"ca" doc:"File with the certificates of the authorities to trust, instead of the system's."`
	Cert               string `key:"cert" doc:"File with the client's certificate."`
	Key                string `key:"key" doc:"File with the client's private key."`
	ServerName         string `key:"server_name" doc:"Name to verify in the broker's certificate, instead of its address."`
	InsecureSkipVerify bool   `key:"insecure_skip_verify" doc:"Trusts any certificate. Only for trying out."`
}

// On reports whether connections are encrypted.
func (c TLSConfig) On() bool { return c != TLSConfig{} }

// ClientConfig tunes the client. Zero values leave its defaults.
type ClientConfig struct {
	ClientID               string              `key:"client_id" doc:"Name that brokers log and quotas apply to."`
	DialTimeout            connectors.TimeSpan `key:"dial_timeout" doc:"How long connecting to a broker may take."`
	FetchMaxBytes          connectors.ByteSize `key:"fetch_max_bytes" doc:"Largest answer of a broker to one fetch; by default derived from the memory budget."`
	FetchMaxPartitionBytes connectors.ByteSize `key:"fetch_max_partition_bytes" doc:"Largest part of one partition in it."`
	FetchMaxWait           connectors.TimeSpan `key:"fetch_max_wait" doc:"How long a broker waits for new records before it answers with none."`
	Linger                 connectors.TimeSpan `key:"linger" doc:"How long the sink waits for more records before it sends a batch."`
	Rack                   string              `key:"rack" doc:"Rack of this process: records are fetched from a replica in it where there is one."`
}

// Defaults of the configurations.
const (
	readCommitted   = "read_committed"
	readUncommitted = "read_uncommitted"
	onMissingFail   = "fail"
	exactlyOnce     = "exactly_once"
	atLeastOnce     = "at_least_once"

	defaultPartitionBytes = 1 << 20
)

func newSourceConfig() any {
	return &SourceConfig{
		Format:          connectors.FormatConfig{Name: "json"},
		Start:           Start{kind: startEarliest},
		Isolation:       readCommitted,
		OnMissingOffset: onMissingFail,
		Discover:        connectors.TimeSpan(time.Minute),
		Client:          newClientConfig(),
		SASL:            newSASLConfig(),
	}
}

func newSinkConfig() any {
	return &SinkConfig{
		Format:       connectors.FormatConfig{Name: "json"},
		Delivery:     exactlyOnce,
		Compression:  "none",
		CreateTopics: CreateConfig{Max: 100},
		Client:       newClientConfig(),
		SASL:         newSASLConfig(),
	}
}

func newSASLConfig() SASLConfig { return SASLConfig{Kerberos: KerberosConfig{ServiceName: "kafka"}} }

func newClientConfig() ClientConfig {
	return ClientConfig{
		ClientID:               "sluice",
		DialTimeout:            connectors.TimeSpan(5 * time.Second),
		FetchMaxPartitionBytes: defaultPartitionBytes,
		FetchMaxWait:           connectors.TimeSpan(time.Second),
		Linger:                 connectors.TimeSpan(5 * time.Millisecond),
	}
}

// Validate reports all faults of the block.
func (c *SourceConfig) Validate() error {
	var faults []error
	if len(c.Topics) == 0 && c.TopicPattern == "" {
		faults = append(faults, &connectors.FieldError{Key: "topics", Msg: "nothing to read", Help: "name the topics, or set topic_pattern"})
	}
	for _, t := range c.Topics {
		if err := checkTopic(t); err != "" {
			faults = append(faults, &connectors.FieldError{Key: "topics", Msg: err})
		}
	}
	if _, err := regexp.Compile(c.TopicPattern); err != nil {
		faults = append(faults, &connectors.FieldError{Key: "topic_pattern", Msg: err.Error()})
	}
	if c.Start.kind == startGroup && c.Group == "" {
		faults = append(faults, &connectors.FieldError{Key: "start", Msg: "group needs the key group", Help: "name the consumer group whose positions to begin from"})
	}
	if c.Discover < 0 {
		faults = append(faults, &connectors.FieldError{Key: "discover", Msg: "a negative time", Help: "0s turns it off"})
	}
	faults = append(faults, checkConnection(c.Brokers, &c.TLS, &c.SASL, &c.Client)...)
	return errors.Join(faults...)
}

// Validate reports all faults of the block.
func (c *SinkConfig) Validate() error {
	var faults []error
	faults = append(faults, c.checkTopics()...)
	if t := time.Duration(c.TransactionTimeout); t < 0 || t > 0 && t < time.Second {
		faults = append(faults, &connectors.FieldError{Key: "transaction_timeout", Msg: "less than a second", Help: "it must be longer than a checkpoint takes, and than the process may be down"})
	}
	faults = append(faults, checkConnection(c.Brokers, &c.TLS, &c.SASL, &c.Client)...)
	return errors.Join(faults...)
}

// checkTopics checks the topic's name, or what is known of it.
func (c *SinkConfig) checkTopics() []error {
	var faults []error
	fault := func(key, msg, help string) {
		faults = append(faults, &connectors.FieldError{Key: key, Msg: msg, Help: help})
	}
	prefix := c.Topic.Prefix()
	if name, ok := c.Topic.Fixed(); ok {
		if reason := checkTopic(name); reason != "" {
			fault("topic", reason, "")
		}
		if c.CreateTopics.Partitions != 0 {
			fault("create_topics", "the topic "+name+" is fixed", "create it by hand: create_topics is for topics that rows name")
		}
	} else if prefix == "" || strings.HasPrefix("__", prefix) || strings.HasPrefix(prefix, "__") {
		fault("topic", "a record could name any topic of the cluster", "begin the name with fixed text, as in events-{region}")
	} else {
		for _, p := range c.Topic.Parts {
			if p.Literal != "" && !topicName.MatchString(p.Literal) {
				fault("topic", "\""+p.Literal+"\" is no part of a topic name: letters, digits, dot, _ and -, at most 249", "")
			}
		}
	}
	if n := c.CreateTopics; n.Partitions < 0 || n.Partitions > 100_000 || n.Replication < 0 || n.Replication > 100 || n.Max < 0 {
		fault("create_topics", "numbers out of range", "partitions: 1 to 100000, replication: 1 to 100, max: 0 or more")
	}
	return faults
}

var topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

func checkTopic(t string) string {
	if !topicName.MatchString(t) || t == "." || t == ".." {
		return "\"" + t + "\" is no topic name: letters, digits, dot, _ and -, at most 249"
	}
	return ""
}

func checkConnection(brokers []string, t *TLSConfig, s *SASLConfig, c *ClientConfig) []error {
	var faults []error
	fault := func(key, msg, help string) {
		faults = append(faults, &connectors.FieldError{Key: key, Msg: msg, Help: help})
	}
	if len(brokers) == 0 {
		fault("brokers", "no address", "list some brokers as host:port")
	}
	for _, b := range brokers {
		if strings.TrimSpace(b) == "" || strings.ContainsAny(b, " ,/") {
			fault("brokers", "\""+b+"\" is no address", "write it as host:port, one address an element")
		}
	}
	if (t.Cert == "") != (t.Key == "") {
		fault("tls", "cert and key belong together", "set both or neither")
	}
	faults = append(faults, s.check()...)
	if c.DialTimeout <= 0 {
		fault("client.dial_timeout", "not positive", "")
	}
	return faults
}
