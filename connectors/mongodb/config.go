package mongodb

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/columns"
	"github.com/sluice-etl/sluice/connectors/immediate"
	"github.com/sluice-etl/sluice/connectors/tlsconfig"
)

// Config is the block of a sink.
type Config struct {
	URI          string              `key:"uri" secret:"true" doc:"Connection string, mongodb://host:port,host:port/?replicaSet=NAME or mongodb+srv://host/." required:"true"`
	Username     string              `key:"username" doc:"Name of the user, where the connection string has none."`
	Password     string              `key:"password" secret:"true" doc:"The user's password."`
	AuthSource   string              `key:"auth_source" doc:"Database that knows the user, admin by default."`
	Database     string              `key:"database" doc:"Name of the database." required:"true"`
	Collection   connectors.Template `key:"collection" doc:"Name of the collection, which begins with fixed text: orders or orders_{region}." required:"true"`
	Operation    string              `key:"operation" enum:"replace|update|insert" doc:"What a record does: replace puts it in the place of the document, or adds it; update sets its fields in the document and leaves others, or adds it; insert adds it unless its id is there."`
	ID           connectors.Expr     `key:"id" doc:"Expression for the document's _id; by default the record's field _id, else topic-partition-offset."`
	Key          []string            `key:"key" doc:"Fields by which a document is found, instead of its _id. They need a unique index."`
	Columns      columns.List        `key:"columns" doc:"Types of fields for which JSON has no form, such as [{ts: timestamp}, {price: 'decimal(10, 2)'}]; other fields are what they are in JSON."`
	ObjectIDs    []string            `key:"object_ids" doc:"Fields whose text of 24 hexadecimal digits is an ObjectId; _id can be one of them."`
	WriteConcern string              `key:"write_concern" enum:"majority|one" doc:"When a write counts as done: when most members of the replica set have it, or when one has."`
	Batch        immediate.Batch     `key:"batch" doc:"How many records make a bulk write."`
	Concurrency  int                 `key:"concurrency" doc:"Bulk writes at a time, of each subtask. Records of one id are written one after another at any number."`
	Timeout      connectors.TimeSpan `key:"timeout" doc:"How long a bulk write may take."`
	TLS          tlsconfig.Config    `key:"tls" doc:"Encryption of the connections; tls=true in the connection string turns it on without a key here."`
	Changelog    bool                `key:"changelog" doc:"Takes an updating stream row by row, and writes what each row does as the last field, op: insert, update_before, update_after or delete. Without it, id makes an update a new document and a delete one less."`
}

const (
	opReplace = "replace"
	opUpdate  = "update"
	opInsert  = "insert"

	concernMajority = "majority"

	idField = "_id"
)

func newConfig() any {
	return &Config{
		Operation: opReplace, WriteConcern: concernMajority, Batch: immediate.Batch{Records: 1000, Bytes: 8 << 20},
		Concurrency: 2, Timeout: connectors.TimeSpan(30 * time.Second),
	}
}

// changes is how the sink takes an updating stream: by its id where it has one.
func (c *Config) changes() connectors.Changes {
	if !c.Changelog && c.ID.Set() && c.Operation != opInsert {
		return connectors.Changes{Mode: connectors.Upserts, Key: &c.ID}
	}
	return connectors.TakesChangelog(c.Changelog)
}

const mostName = 120 // bytes of a collection's name, with room for the database's

// checkCollection says why a name is none of a collection.
func checkCollection(name string) string {
	switch {
	case name == "" || len(name) > mostName:
		return fmt.Sprintf("a name of a collection has 1 to %d bytes", mostName)
	case strings.ContainsAny(name, "$\x00"):
		return "a name of a collection has no $"
	case strings.HasPrefix(name, "system.") || strings.HasPrefix(name, "."):
		return "collections of the system are not written to"
	}
	return ""
}

// Validate reports every key that is out of its range.
func (c *Config) Validate() error {
	var faults []error
	fault := func(key, msg, help string) {
		faults = append(faults, &connectors.FieldError{Key: key, Msg: msg, Help: help})
	}
	if err := c.checkURI(); err != nil {
		fault("uri", err.Error(), "write it like mongodb://host:27017/")
	}
	if c.Username == "" && c.Password != "" {
		fault("username", "a password needs a user", "")
	}
	if c.Database == "" || len(c.Database) > 63 || strings.ContainsAny(c.Database, "/\\. \"$*<>:|?\x00") {
		fault("database", fmt.Sprintf("%q is no name of a database", c.Database), "letters, digits, - and _, at most 63")
	}
	name, fixed := c.Collection.Fixed()
	if !fixed {
		name = c.Collection.Prefix()
	}
	if reason := checkCollection(name); reason != "" && fixed {
		fault("collection", reason, "")
	} else if reason != "" {
		fault("collection", "a record could name any collection: "+reason, "begin the name with fixed text, as in orders_{region}")
	}
	switch {
	case len(c.Key) > 0 && c.ID.Set():
		fault("key", "there are id and key", "a document is found by one of them")
	case slices.Contains(c.Key, "") || slices.ContainsFunc(c.Key, func(k string) bool { return strings.ContainsAny(k, ".$\x00") }):
		fault("key", "there is a name that no field can have", "name fields of the record, not paths")
	}
	if len(c.Key) > 0 && c.Operation == opInsert {
		fault("key", "insert finds no documents", "write operation: replace or update, or remove key")
	}
	if t := time.Duration(c.Timeout); t < time.Millisecond || t > time.Hour {
		fault("timeout", "must be from 1ms to 1h", "30s is the default")
	}
	faults = append(faults, c.Batch.Check(c.Concurrency), c.TLS.Check())
	return errors.Join(faults...)
}

func (c *Config) checkURI() error {
	if !strings.HasPrefix(c.URI, "mongodb://") && !strings.HasPrefix(c.URI, "mongodb+srv://") {
		return errors.New("it must begin with mongodb:// or mongodb+srv://")
	}
	if strings.HasPrefix(c.URI, "mongodb+srv://") {
		return nil // to check it, names would have to be looked up
	}
	if err := options.Client().ApplyURI(c.URI).Validate(); err != nil {
		// Its text can hold the string, with the password.
		return errors.New("it is no connection string")
	}
	return nil
}
