package clickhouse

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/deferred"
	"github.com/sluice-etl/sluice/connectors/deferred/table"
	"github.com/sluice-etl/sluice/connectors/tlsconfig"
)

// SinkConfig is the block of a ClickHouse sink.
type SinkConfig struct {
	URL           string                 `key:"url" doc:"Address of the HTTP interface, such as https://db.example.com:8443." required:"true"`
	Username      string                 `key:"username" doc:"User. Default: default."`
	Password      string                 `key:"password" secret:"true" doc:"The user's password."`
	Database      string                 `key:"database" doc:"Database of the table."`
	Table         string                 `key:"table" doc:"Table that rows go to: one of the MergeTree family that remembers inserted blocks, by non_replicated_deduplication_window or replicated_deduplication_window." required:"true"`
	Columns       connectors.Assignments `key:"columns" doc:"Columns with the expressions of their values: {id: order_id, total: price * amount}. Only these are written. Default: each field goes into the column of its name."`
	Unknown       string                 `key:"unknown_fields" doc:"What becomes of a row with a field that has no column: refuse sends it to on_error, ignore leaves the field out. Default: refuse." enum:"refuse|ignore"`
	Create        table.Create           `key:"create" doc:"Makes the table where it is not there: true where the types of the rows are known, or a list of columns: [{id: int}, {price: \"decimal(10, 2)\"}, {note: string?}]."`
	OrderBy       []string               `key:"order_by" doc:"Columns that a table which is made is sorted by. Default: none."`
	StateDatabase string                 `key:"state_database" doc:"Database of the table sluice_commits, which is made where it is not there. Default: that of the table."`
	Compression   string                 `key:"compression" enum:"none|gzip|zstd" doc:"Compression of the rows that are sent."`
	Timeout       connectors.TimeSpan    `key:"timeout" doc:"How long one request may take. What is not answered then is sent again."`
	TLS           tlsconfig.Config       `key:"tls" doc:"Encryption of the connections, of https."`
	Changelog     bool                   `key:"changelog" doc:"Takes an updating stream row by row, and writes what each row does into the column op: insert, update_before, update_after or delete."`
}

const (
	sinkKind      = "clickhouse"
	unknownIgnore = "ignore"
	compressNone  = "none"
	compressGzip  = "gzip"
	compressZstd  = "zstd"
)

func newSinkConfig() any {
	return &SinkConfig{Database: "default", Compression: compressNone, Timeout: connectors.TimeSpan(5 * time.Minute)}
}

// Validate reports every key that is out of its range.
func (c *SinkConfig) Validate() error {
	faults := []error{table.Check(table.Insert, nil, "", c.Columns, c.Unknown), c.TLS.Check()}
	fault := func(key, msg, help string) {
		faults = append(faults, &connectors.FieldError{Key: key, Msg: msg, Help: help})
	}
	switch u, err := url.Parse(c.URL); {
	case c.URL == "":
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "":
		fault("url", "it is no address of the HTTP interface", "write it like https://db.example.com:8443")
	case u.User != nil:
		fault("url", "credentials do not belong into an address", "there are username and password")
	}
	if c.Database == "" {
		fault("database", "it has no name", "default is the default")
	}
	if c.Username == "" && c.Password != "" {
		fault("username", "a password needs a user", "")
	}
	if t := time.Duration(c.Timeout); t < time.Second || t > time.Hour {
		fault("timeout", "must be from 1s to 1h", "5m is the default")
	}
	if len(c.OrderBy) > 0 && !c.Create.On {
		fault("order_by", "it is for a table that is made", "remove it, or set create")
	}
	for _, name := range c.OrderBy {
		if len(c.Create.Columns) > 0 && !slices.ContainsFunc(c.Create.Columns, func(col connectors.Column) bool { return col.Name == name }) {
			fault("order_by", fmt.Sprintf("the column %s is not among the columns", name), "add it to create")
		}
	}
	return errors.Join(faults...)
}

const sinkExample = `clickhouse:
  url: http://localhost:8123
  username: etl
  database: shop
  table: orders`

func init() {
	connectors.RegisterSink(connectors.SinkSpec{
		Name:      sinkKind,
		Doc:       "Writes rows into a table of ClickHouse. Rows are kept with the checkpoint and sent when it is complete, in blocks with a deduplication token each, so that a block which is sent again adds nothing.",
		NewConfig: newSinkConfig,
		New: func(c any) (connectors.Sink, error) {
			t, err := newTarget(*c.(*SinkConfig))
			if err != nil {
				return nil, err
			}
			return deferred.NewSink(t, deferred.Options{Kind: sinkKind}), nil
		},
		Changes:        func(c any) connectors.Changes { return connectors.TakesChangelog(c.(*SinkConfig).Changelog) },
		DeadLetterRows: true,
		Example:        sinkExample,
	})
}
