package elasticsearch

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/immediate"
	"github.com/sluice-etl/sluice/connectors/tlsconfig"
)

// Config is the block of a sink.
type Config struct {
	Addresses   []string            `key:"addresses" doc:"Addresses of nodes, such as https://node-1:9200. Those that do not answer are passed over." required:"true"`
	Index       connectors.Template `key:"index" doc:"Index, alias or data stream: a name that begins with fixed text, such as events-{format_time(ts, '%Y.%m')}." required:"true"`
	ID          connectors.Expr     `key:"id" doc:"Expression for the document's id, by which a new record replaces the old one; by default topic-partition-offset."`
	Operation   string              `key:"operation" enum:"index|create|update" doc:"What a record does: index replaces the document, create adds one that is not there yet (data streams take no other), update sets the record's fields in the document and leaves its others, or adds it."`
	OnConflict  string              `key:"on_conflict" enum:"skip|refuse" doc:"What becomes of a record whose id is there already, with operation create, or whose version is older: it counts as written, or is refused."`
	Version     connectors.Expr     `key:"version" doc:"Expression for a number that grows with each change of a document, such as meta.offset: a record never replaces one of a higher version."`
	Routing     connectors.Expr     `key:"routing" doc:"Expression for what decides the shard, instead of the id."`
	Pipeline    string              `key:"ingest_pipeline" doc:"Ingest pipeline of the cluster that documents go through."`
	Batch       immediate.Batch     `key:"batch" doc:"How many records make a bulk request."`
	Concurrency int                 `key:"concurrency" doc:"Bulk requests at a time, of each subtask. Records of one id are sent one after another at any number."`
	Compression string              `key:"compression" enum:"none|gzip" doc:"Compression of what is sent."`
	Timeout     connectors.TimeSpan `key:"timeout" doc:"How long a request may take."`
	Username    string              `key:"username" doc:"User of basic authentication."`
	Password    string              `key:"password" secret:"true" doc:"The user's password."`
	APIKey      string              `key:"api_key" secret:"true" doc:"API key, in its encoded form."`
	Token       string              `key:"token" secret:"true" doc:"Bearer token."`
	TLS         tlsconfig.Config    `key:"tls" doc:"Encryption of the connections, of https."`
	Changelog   bool                `key:"changelog" doc:"Takes an updating stream row by row, and writes what each row does as the last field, op: insert, update_before, update_after or delete. Without it, id makes an update a new document and a delete one less."`
}

const (
	opIndex  = "index"
	opCreate = "create"
	opUpdate = "update"
	opDelete = "delete"

	conflictSkip   = "skip"
	conflictRefuse = "refuse"

	compressGzip = "gzip"
)

func newConfig() any {
	return &Config{
		Operation: opIndex, OnConflict: conflictSkip, Batch: immediate.Batch{Records: 1000, Bytes: 5 << 20}, Concurrency: 2,
		Compression: "none", Timeout: connectors.TimeSpan(time.Minute),
	}
}

// changes is how the sink takes an updating stream: by its id where it has one.
func (c *Config) changes() connectors.Changes {
	if !c.Changelog && c.ID.Set() && c.Operation != opCreate {
		return connectors.Changes{Mode: connectors.Upserts, Key: &c.ID}
	}
	return connectors.TakesChangelog(c.Changelog)
}

// indexPart is what a name of an index may have in it.
var indexPart = regexp.MustCompile(`^[^A-Z\\/*?"<>| ,#:]*$`)

// checkIndex says why a name is none of an index.
func checkIndex(name string) string {
	switch {
	case name == "" || name == "." || name == ".." || len(name) > 255:
		return "a name of an index has 1 to 255 bytes"
	case strings.ContainsAny(name[:1], "-_+"):
		return `a name of an index does not begin with -, _ or +`
	case !indexPart.MatchString(name):
		return `a name of an index has no capital letters, blanks, and none of \ / * ? " < > | , # :`
	}
	return ""
}

// Validate reports every key that is out of its range.
func (c *Config) Validate() error {
	var faults []error
	fault := func(key, msg, help string) {
		faults = append(faults, &connectors.FieldError{Key: key, Msg: msg, Help: help})
	}
	if len(c.Addresses) == 0 {
		fault("addresses", "there is none", "write addresses: [https://node-1:9200]")
	}
	for _, a := range c.Addresses {
		u, err := url.Parse(a)
		switch {
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "":
			fault("addresses", fmt.Sprintf("%q is no address", a), "write it as https://host:port")
		case u.User != nil:
			fault("addresses", "credentials do not belong into an address", "there are username, api_key and token")
		}
	}
	if name, fixed := c.Index.Fixed(); fixed {
		if reason := checkIndex(name); reason != "" {
			fault("index", reason, "")
		}
	} else if reason := checkIndex(c.Index.Prefix()); reason != "" {
		fault("index", "a record could name any index of the cluster: "+reason, "begin the name with fixed text, as in events-{region}")
	}
	if ways := c.ways(); ways > 1 {
		fault("api_key", "there is more than one way of authentication", "keep one of username, api_key and token")
	}
	if c.Username == "" && c.Password != "" {
		fault("username", "a password needs a user", "")
	}
	for key, secret := range map[string]string{"api_key": c.APIKey, "token": c.Token} {
		if strings.ContainsAny(secret, "\r\n\x00 ") {
			fault(key, "it has a blank or a line break", "")
		}
	}
	if c.Version.Set() && c.Operation != opIndex {
		fault("version", "only index knows versions", "write operation: index, or remove version")
	}
	if t := time.Duration(c.Timeout); t < time.Millisecond || t > time.Hour {
		fault("timeout", "must be from 1ms to 1h", "1m is the default")
	}
	faults = append(faults, c.Batch.Check(c.Concurrency), c.TLS.Check())
	return errors.Join(faults...)
}

func (c *Config) ways() (n int) {
	for _, set := range []bool{c.Username != "" || c.Password != "", c.APIKey != "", c.Token != ""} {
		if set {
			n++
		}
	}
	return n
}
