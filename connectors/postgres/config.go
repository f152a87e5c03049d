package postgres

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-etl/sluice/connectors"
)

// LookupConfig is the block of a lookup in PostgreSQL.
type LookupConfig struct {
	URL     string   `key:"url" secret:"true" doc:"Where the database is: postgres://user:password@host:5432/database, with sslmode, sslrootcert and the like as parameters. What is missing comes from PGHOST, PGUSER and the other variables of PostgreSQL's clients." required:"true"`
	Table   string   `key:"table" doc:"Table or view that rows are found in, with its schema where that is not on the search path: shop.customers. Names are taken as they are written, capitals included. The columns in on should have an index."`
	Columns []string `key:"columns" doc:"Columns of the table that the row has. Default: all."`
	Query   string   `key:"query" doc:"A query in place of a table, in which $1, $2 … stand for the values of on, in their order. It runs once for each key, many keys in one round trip."`
	MaxKeys int      `key:"max_keys" doc:"Keys in one call at most."`
}

// mostKeys bounds max_keys: with more, one slow call holds up a whole batch.
const mostKeys = connectors.MaxBatch

func newLookupConfig() any { return &LookupConfig{MaxKeys: 256} }

// Validate reports every key that is out of its range.
func (c *LookupConfig) Validate() error {
	var faults []error
	fault := func(key, msg, help string) {
		faults = append(faults, &connectors.FieldError{Key: key, Msg: msg, Help: help})
	}
	if _, err := pgx.ParseConfig(c.URL); c.URL != "" && err != nil {
		fault("url", "it is no address of PostgreSQL", "write it like postgres://user:password@host:5432/database")
	}
	switch {
	case c.Table == "" && c.Query == "":
		fault("table", "there is no table and no query", "add table: name")
	case c.Table != "" && c.Query != "":
		fault("query", "table and query exclude each other", "remove one of them")
	case c.Query != "" && len(c.Columns) > 0:
		fault("columns", "the query says which columns there are", "remove it")
	case c.Table != "" && slices.Contains(strings.Split(c.Table, "."), ""):
		fault("table", "there is no name before or behind a dot", "write it like shop.customers")
	}
	for i, name := range c.Columns {
		if name == "" || slices.Contains(c.Columns[:i], name) {
			fault("columns", "a name is empty or there twice", "")
		}
	}
	if c.MaxKeys < 1 || c.MaxKeys > mostKeys {
		fault("max_keys", fmt.Sprintf("must be from 1 to %d", mostKeys), "256 is the default")
	}
	return errors.Join(faults...)
}
