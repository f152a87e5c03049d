package redis

import (
	"errors"
	"fmt"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/immediate"
)

// SinkConfig is the block of a sink.
type SinkConfig struct {
	Addresses   []string                `key:"addresses" doc:"Addresses, host:port: one server, some nodes of a cluster, or the sentinels of a master." required:"true"`
	Cluster     bool                    `key:"cluster" doc:"The addresses are those of a cluster."`
	Master      string                  `key:"master" doc:"Name of the master that the addresses are the sentinels of."`
	Username    string                  `key:"username" doc:"Name of the user, where the server has users."`
	Password    string                  `key:"password" secret:"true" doc:"The user's password, or the server's."`
	Database    int                     `key:"database" doc:"Number of the database; a cluster has 0 only."`
	TLS         TLS                     `key:"tls" doc:"Encryption of the connections."`
	Command     string                  `key:"command" enum:"set|hset|zadd|xadd|lpush|rpush|publish" doc:"What a record does: set keeps it under its key; hset sets the fields of a hash; zadd adds a member to a sorted set; xadd, lpush and rpush add it to a stream or list; publish sends it to the subscribers of a channel."`
	Key         connectors.Template     `key:"key" doc:"The key in Redis, or the channel: user:{user_id}." required:"true"`
	Value       connectors.Expr         `key:"value" doc:"Expression for what is set, added or sent; by default the record."`
	Score       connectors.Expr         `key:"score" doc:"Expression for the score of a member, for zadd."`
	Format      connectors.FormatConfig `key:"format" doc:"How records are encoded; hset takes JSON only."`
	TTL         connectors.TimeSpan     `key:"ttl" doc:"How long the key is kept after a record for it; by default for good."`
	MaxLen      int64                   `key:"max_len" doc:"About how many entries a stream keeps, for xadd; by default all."`
	Batch       immediate.Batch         `key:"batch" doc:"How many records go in one round trip."`
	Concurrency int                     `key:"concurrency" doc:"Round trips at a time, of each subtask. Records of one key are sent one after another at any number."`
	Timeout     connectors.TimeSpan     `key:"timeout" doc:"How long the server may take to answer."`
	Changelog   bool                    `key:"changelog" doc:"Takes an updating stream row by row, and writes what each row does as the last field, op: insert, update_before, update_after or delete. Without it, set and hset take an update as its new row and remove the key at a delete, where key has one expression."`
}

// The commands.
const (
	cmdSet     = "set"
	cmdHSet    = "hset"
	cmdZAdd    = "zadd"
	cmdXAdd    = "xadd"
	cmdLPush   = "lpush"
	cmdRPush   = "rpush"
	cmdPublish = "publish"
)

func newSinkConfig() any {
	return &SinkConfig{
		Command: cmdSet, Format: connectors.FormatConfig{Name: "json"}, Batch: immediate.Batch{Records: 500, Bytes: 4 << 20},
		Concurrency: 2, Timeout: connectors.TimeSpan(10 * time.Second),
	}
}

// guarantee is what the command promises when a record is written again.
func (c *SinkConfig) guarantee() connectors.Guarantee {
	switch c.Command {
	case cmdSet, cmdHSet, cmdZAdd:
		return connectors.EffectivelyOnce
	}
	return connectors.AtLeastOnce
}

// deletes reports whether a record without a value removes its key.
func (c *SinkConfig) deletes() bool { return c.Command == cmdSet || c.Command == cmdHSet }

// changes is how the sink takes an updating stream: by its key, where one expression is
// all that tells keys apart.
func (c *SinkConfig) changes() connectors.Changes {
	var key *connectors.Expr
	n := 0
	for i := range c.Key.Parts {
		if e := &c.Key.Parts[i].Expr; e.Set() {
			key = e
			n++
		}
	}
	if !c.Changelog && c.deletes() && n == 1 {
		return connectors.Changes{Mode: connectors.Upserts, Key: key}
	}
	return connectors.TakesChangelog(c.Changelog)
}

// connection is what the sink has in common with a lookup.
func (c *SinkConfig) connection() *LookupConfig {
	return &LookupConfig{
		Addresses: c.Addresses, Cluster: c.Cluster, Master: c.Master, Username: c.Username, Password: c.Password,
		Database: c.Database, TLS: c.TLS, MaxKeys: 1, MaxValue: 1,
	}
}

// Validate reports every key that is out of its range.
func (c *SinkConfig) Validate() error {
	var faults []error
	fault := func(key, msg, help string) {
		faults = append(faults, &connectors.FieldError{Key: key, Msg: msg, Help: help})
	}
	if !c.Key.Set() {
		fault("key", "it is empty", "write it like user:{user_id}")
	}
	if _, fixed := c.Key.Fixed(); fixed && c.deletes() {
		fault("key", "every record would overwrite the one before it", "write it with an expression, like user:{user_id}")
	}
	if c.Command == cmdZAdd && !c.Score.Set() {
		fault("score", "zadd needs one", "write score: EXPRESSION")
	}
	if c.Command != cmdZAdd && c.Score.Set() {
		fault("score", "only zadd has one", "remove it")
	}
	if c.Command != cmdXAdd && c.MaxLen != 0 || c.MaxLen < 0 {
		fault("max_len", "only xadd has one, from 1 on", "remove it")
	}
	if c.Command == cmdHSet {
		if c.Value.Set() {
			fault("value", "hset sets the fields of the record", "choose the fields in a step before, or write command: set")
		}
		if c.Format.Name != "" && c.Format.Name != "json" {
			fault("format", "hset sets the fields of a record of JSON", "remove it")
		}
	}
	if c.TTL < 0 || c.TTL > 0 && time.Duration(c.TTL) < time.Millisecond {
		fault("ttl", "must be 1ms or more", "remove it to keep keys for good")
	}
	if c.TTL != 0 && c.Command == cmdPublish {
		fault("ttl", "publish keeps nothing", "remove it")
	}
	if t := time.Duration(c.Timeout); t < time.Millisecond || t > time.Hour {
		fault("timeout", "must be from 1ms to 1h", fmt.Sprintf("%s is the default", 10*time.Second))
	}
	faults = append(faults, c.connection().Validate(), c.Batch.Check(c.Concurrency))
	return errors.Join(faults...)
}
