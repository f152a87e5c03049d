package postgres

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/deferred"
	"github.com/sluice-etl/sluice/connectors/deferred/table"
)

// SinkConfig is the block of a PostgreSQL sink.
type SinkConfig struct {
	URL     string                 `key:"url" secret:"true" doc:"Where the database is: postgres://user:password@host:5432/database, with sslmode, sslrootcert and the like as parameters. What is missing comes from PGHOST, PGUSER and the other variables of PostgreSQL's clients." required:"true"`
	Table   string                 `key:"table" doc:"Table that rows go to, with its schema where that is not on the search path: shop.orders. Names are taken as they are written, capitals included." required:"true"`
	Mode    string                 `key:"mode" doc:"insert: each row is a new one. upsert: a row replaces the one of its key, and a tombstone or a retracted row deletes it. changelog: as upsert, and the field op says what is deleted." enum:"insert|upsert|changelog"`
	Key     []string               `key:"key" doc:"Columns that tell rows apart, for upsert and changelog; they need a unique index. Default: the primary key."`
	Columns connectors.Assignments `key:"columns" doc:"Columns with the expressions of their values: {id: order_id, total: price * amount}. Only these are written. Default: each field goes into the column of its name."`
	Unknown string                 `key:"unknown_fields" doc:"What becomes of a row with a field that has no column: refuse sends it to on_error, ignore leaves the field out. Default: refuse." enum:"refuse|ignore"`
	Op      string                 `key:"op" doc:"Field that says what a row does, for changelog: insert, update, update_after, upsert, c, r, u write it; delete, update_before, d delete it."`
	Create  table.Create           `key:"create" doc:"Makes the table where it is not there: true where the types of the rows are known, or a list of columns: [{id: int}, {price: \"decimal(10, 2)\"}, {note: string?}]."`
	Schema  string                 `key:"state_schema" doc:"Schema of the tables sluice_commits and sluice_rejected, which are made where they are not there. Default: the first one of the search path."`
	Timeout connectors.TimeSpan    `key:"timeout" doc:"How long the commit of one checkpoint may take. It is taken back then, and tried again."`
}

const (
	unknownIgnore = "ignore"
	defaultOp     = "op"
	sinkTimeout   = 10 * time.Minute
)

func newSinkConfig() any {
	return &SinkConfig{Mode: table.Insert, Op: defaultOp, Timeout: connectors.TimeSpan(sinkTimeout)}
}

// Validate reports every key that is out of its range.
func (c *SinkConfig) Validate() error {
	faults := []error{table.Check(c.Mode, c.Key, c.Op, c.Columns, c.Unknown)}
	fault := func(key, msg, help string) {
		faults = append(faults, &connectors.FieldError{Key: key, Msg: msg, Help: help})
	}
	if _, err := pgx.ParseConfig(c.URL); c.URL != "" && err != nil {
		fault("url", "it is no address of PostgreSQL", "write it like postgres://user:password@host:5432/database")
	}
	if c.Table != "" && slices.Contains(strings.Split(c.Table, "."), "") {
		fault("table", "there is no name before or behind a dot", "write it like shop.orders")
	}
	if c.Timeout < connectors.TimeSpan(time.Second) {
		fault("timeout", "must be 1s at least", "10m is the default")
	}
	for _, k := range c.Key {
		if len(c.Create.Columns) > 0 && !slices.ContainsFunc(c.Create.Columns, func(col connectors.Column) bool { return col.Name == k }) {
			fault("create", fmt.Sprintf("the key column %s is not among the columns", k), "add it")
		}
	}
	if c.Create.On && c.Mode != table.Insert && len(c.Key) == 0 {
		fault("key", "a table that is made needs one", "add key: [COLUMN]")
	}
	return errors.Join(faults...)
}

const sinkExample = `postgres:
  url: postgres://etl@localhost:5432/shop
  table: shop.orders
  mode: upsert
  key: [id]`

func init() {
	connectors.RegisterSink(connectors.SinkSpec{
		Name:      sinkKind,
		Doc:       "Writes rows into a PostgreSQL table: inserts, upserts by a key, or the changes that a changelog says. Rows are kept with the checkpoint and applied in one transaction when it is complete.",
		NewConfig: newSinkConfig,
		New: func(c any) (connectors.Sink, error) {
			t, err := newTarget(*c.(*SinkConfig))
			if err != nil {
				return nil, err
			}
			return deferred.NewSink(t, deferred.Options{Kind: sinkKind}), nil
		},
		Changes: func(c any) connectors.Changes {
			if c.(*SinkConfig).Mode == table.Insert {
				return connectors.Changes{}
			}
			return connectors.Changes{Mode: connectors.AllChanges}
		},
		DeadLetterRows: true,
		Example:        sinkExample,
	})
}
