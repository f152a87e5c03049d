package iceberg

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/columns"
	"github.com/sluice-etl/sluice/connectors/tlsconfig"
)

// SinkConfig is the block of an Iceberg sink.
type SinkConfig struct {
	Catalog     Catalog             `key:"catalog" doc:"Where the table is listed." required:"true"`
	Table       string              `key:"table" doc:"The table, with its namespace: sales.orders." required:"true"`
	Branch      string              `key:"branch" doc:"Branch of the table that is written to."`
	Mode        string              `key:"mode" doc:"append: each row is a new one. upsert: a row replaces the one of its key, and a tombstone or a retracted row deletes it; the table must be of format 2 or later." enum:"append|upsert"`
	Key         []string            `key:"key" doc:"Columns that tell rows apart, for upsert. Default: the table's identifier fields. A table that is created gets them as those."`
	Changelog   bool                `key:"changelog" doc:"Takes an updating stream row by row, and writes what each row does into the column op: insert, update_before, update_after or delete."`
	Columns     columns.List        `key:"columns" doc:"The rows' columns with their types, such as {id: int}, {price: \"decimal(10, 2)\"}, {note: string?}. Default: those of the table. Needed to create one."`
	Unknown     string              `key:"unknown_fields" doc:"What becomes of a row with a field that has no column: refuse sends it to on_error, ignore leaves the field out. Default: refuse." enum:"refuse|ignore"`
	Create      bool                `key:"create" doc:"Creates the table with these columns where there is none."`
	PartitionBy []string            `key:"partition_by" doc:"How a table that is created is partitioned: day(ts), hour(ts), month(ts), year(ts), bucket(16, id), truncate(4, name), or a column."`
	Location    string              `key:"location" doc:"Where a table that is created keeps its files. Default: a folder of the catalog's warehouse."`
	Properties  map[string]string   `key:"properties" doc:"Properties of a table that is created, such as write.parquet.compression-codec."`
	Buffer      connectors.ByteSize `key:"buffer" doc:"Bytes of rows, as JSON, that a subtask holds before it writes them into files; at most its share of the memory. The files of a checkpoint are about as many times smaller as Parquet is than JSON."`
	Timeout     connectors.TimeSpan `key:"timeout" doc:"How long a call of the catalog may take."`
}

// Catalog is where a table is listed.
type Catalog struct {
	Type       string           `key:"type" doc:"sql is a database that all writers and readers share, rest a server of the Iceberg REST protocol." enum:"sql|rest" required:"true"`
	URL        string           `key:"url" secret:"true" doc:"Of sql: postgres://user:password@host:5432/database, or sqlite:///path/to/catalog.db for trying out. Of rest: its address, such as https://catalog.example/api/catalog." required:"true"`
	Name       string           `key:"name" doc:"Name of the catalog among those in one database."`
	Warehouse  string           `key:"warehouse" doc:"Of sql: the folder that new tables are put into, such as s3://bucket/warehouse. Of rest: the warehouse as the server names it."`
	Prefix     string           `key:"prefix" doc:"Of rest: prefix of paths, where the server does not say it itself."`
	Credential string           `key:"credential" secret:"true" doc:"Of rest: client id and secret for OAuth2, as id:secret."`
	TokenURL   string           `key:"token_url" doc:"Of rest: where the token is had for the credential. Default: at the catalog itself."`
	Scope      string           `key:"scope" doc:"Of rest: the scope that is asked for with the credential."`
	Token      string           `key:"token" secret:"true" doc:"Of rest: a token that is sent as it is."`
	TLS        tlsconfig.Config `key:"tls" doc:"Of rest: how the connection is encrypted."`
}

const (
	catalogREST   = "rest"
	catalogSQL    = "sql"
	modeAppend    = "append"
	modeUpsert    = "upsert"
	unknownIgnore = "ignore"
)

func newSinkConfig() any {
	return &SinkConfig{
		Catalog: Catalog{Name: "default", Scope: "catalog"}, Branch: "main", Mode: modeAppend,
		Buffer: 64 << 20, Timeout: connectors.TimeSpan(defaultTimeout),
	}
}

// Validate reports every key that is out of its range.
func (c *SinkConfig) Validate() error {
	var errs []error
	fault := func(key, msg, help string) {
		errs = append(errs, &connectors.FieldError{Key: key, Msg: msg, Help: help})
	}
	if parts := strings.Split(c.Table, "."); c.Table != "" && (len(parts) < 2 || slices.Contains(parts, "")) {
		fault("table", fmt.Sprintf("%q has no namespace", c.Table), "write it like sales.orders")
	}
	c.checkMode(fault)
	if c.Branch == "" {
		fault("branch", "is empty", "main is the default")
	}
	if c.Buffer < 1<<20 {
		fault("buffer", fmt.Sprintf("%s is too small", c.Buffer), "write at least 1MiB; the default is 64MiB")
	}
	if c.Timeout <= 0 {
		fault("timeout", "must be more than nothing", "the default is 1m")
	}
	c.creation(fault)
	tls := c.Catalog.check(fault)
	return errors.Join(append(errs, tls)...)
}

// checkMode checks what says whether rows are added or replaced.
func (c *SinkConfig) checkMode(fault func(key, msg, help string)) {
	for i, k := range c.Key {
		if k == "" || slices.Contains(c.Key[:i], k) {
			fault("key", "a name is empty or there twice", "")
		}
	}
	switch {
	case c.Mode == modeAppend && len(c.Key) > 0:
		fault("key", "mode: append has no key", "remove it, or set mode: upsert")
	case c.Mode == modeUpsert && c.Changelog:
		fault("changelog", "mode: upsert writes what rows are now, not what they do", "remove one of the two")
	case c.Mode == modeUpsert && c.Create && len(c.Key) == 0:
		fault("key", "a table that is created needs one", "add key: [COLUMN]")
	case c.Mode == modeUpsert && c.Properties["format-version"] == "1":
		fault("properties", "mode: upsert needs a table of format 2 or later", "remove format-version")
	}
}

// creation checks what a table is created by.
func (c *SinkConfig) creation(fault func(key, msg, help string)) {
	if !c.Create {
		for key, set := range map[string]bool{"partition_by": len(c.PartitionBy) > 0, "location": c.Location != "", "properties": len(c.Properties) > 0} {
			if set {
				fault(key, "is for tables that are created", "add create: true, or remove it")
			}
		}
		return
	}
	if len(c.Columns) == 0 {
		fault("columns", "are needed to create the table", "write them like [{id: int}, {note: string?}]")
		return
	}
	schema, err := newSchema(c.Columns, c.Key)
	if err != nil {
		fault("columns", err.Error(), "")
		return
	}
	spec, err := newSpec(schema, c.PartitionBy)
	if err == nil {
		err = checkSpec(schema, &spec)
	}
	if err != nil {
		fault("partition_by", err.Error(), "")
		return
	}
	if len(c.Key) == 0 {
		return
	}
	key, err := keyOf(schema, c.Key)
	if err != nil {
		fault("key", "the table to create cannot have this key: "+err.Error(), "")
	} else if err := checkKeyPartitions(schema, &spec, key); err != nil {
		fault("partition_by", "the table to create cannot be written with mode: upsert: "+err.Error(), "")
	}
}

func (c *Catalog) check(fault func(key, msg, help string)) error {
	u, err := url.Parse(c.URL)
	switch {
	case c.URL == "" || c.Type == "":
	case err != nil:
		fault("catalog.url", "it is no URL", "")
	case c.Type == catalogSQL && u.Scheme != "postgres" && u.Scheme != "postgresql" && u.Scheme != "sqlite":
		fault("catalog.url", fmt.Sprintf("a database of scheme %q cannot be read", u.Scheme), "write postgres://… or sqlite:///path")
	case c.Type == catalogREST && u.Scheme != "http" && u.Scheme != "https":
		fault("catalog.url", "it is no address of a server", "write https://host/path")
	}
	if c.Name == "" {
		fault("catalog.name", "is empty", "default is the default")
	}
	if c.Token != "" && c.Credential != "" {
		fault("catalog.token", "a token and a credential exclude each other", "remove one of them")
	}
	if c.Credential != "" && !strings.Contains(c.Credential, ":") {
		fault("catalog.credential", "it is no id and secret", "write id:secret")
	}
	if c.Type == catalogSQL && (c.Token != "" || c.Credential != "" || c.Prefix != "" || c.TokenURL != "") {
		fault("catalog.type", "prefix, credential, token_url and token are for rest", "remove them, or write type: rest")
	}
	return c.TLS.Check()
}

// place names the catalog without its secrets.
func (c *Catalog) place() string {
	u, err := url.Parse(c.URL)
	if err != nil {
		return c.Type
	}
	u.RawQuery, u.Fragment = "", "" // a password can stand there too
	return c.Type + " at " + u.Redacted()
}

const example = `
iceberg:
  catalog: {type: sql, url: "postgres://etl@db:5432/catalog", warehouse: "s3://lake/warehouse"}
  table: sales.orders
  create: true
  columns: [{id: int}, {customer: string}, {amount: "decimal(12, 2)"}, {ordered_at: timestamp}]
  partition_by: [day(ordered_at)]
`

func init() {
	connectors.RegisterSink(connectors.SinkSpec{
		Name: "iceberg",
		Doc:  "Adds rows to an Apache Iceberg table, or replaces rows by a key, exactly once: each checkpoint is one commit of the catalog.",
		Changes: func(c any) connectors.Changes {
			if c.(*SinkConfig).Mode == modeUpsert {
				return connectors.Changes{Mode: connectors.AllChanges}
			}
			return connectors.TakesChangelog(c.(*SinkConfig).Changelog)
		},
		NewConfig: newSinkConfig,
		New: func(config any) (connectors.Sink, error) {
			c, ok := config.(*SinkConfig)
			if !ok {
				return nil, fmt.Errorf("iceberg sink: configuration is a %T", config)
			}
			return NewSink(*c), nil
		},
		DeadLetterRows: true,
		Check:          check,
		Example:        strings.TrimSpace(example) + "\n",
	})
}

// check compares the rows of the plan with the declared columns.
func check(config any, cols []connectors.Column) error {
	c, ok := config.(*SinkConfig)
	if !ok || len(c.Columns) == 0 || len(cols) == 0 {
		return nil
	}
	schema, err := newSchema(c.Columns, nil)
	if err != nil {
		return &connectors.FieldError{Key: "columns", Msg: err.Error()}
	}
	if err := checkColumns(schema, certain(cols)); err != nil {
		return &connectors.FieldError{Key: "columns", Msg: "they are not those of the rows: " + err.Error()}
	}
	return nil
}

// certain are columns that hold a value each: whether they do is seen row by row.
func certain(cols []connectors.Column) []connectors.Column {
	out := slices.Clone(cols)
	for i := range out {
		out[i].Type.Nullable = false
	}
	return out
}
