package mysql

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/deferred"
	"github.com/sluice-etl/sluice/connectors/deferred/table"
	"github.com/sluice-etl/sluice/connectors/tlsconfig"
)

// SinkConfig is the block of a MySQL sink.
type SinkConfig struct {
	URL     string                 `key:"url" secret:"true" doc:"Where the database is: mysql://user:password@host:3306/database, with ?tls=true for an encrypted connection." required:"true"`
	Table   string                 `key:"table" doc:"Table that rows go to, an InnoDB one, with its database where that is another: shop.orders." required:"true"`
	Mode    string                 `key:"mode" doc:"insert: each row is a new one. upsert: a row replaces the one of its key, and a tombstone or a retracted row deletes it. changelog: as upsert, and the field op says what is deleted." enum:"insert|upsert|changelog"`
	Key     []string               `key:"key" doc:"Columns that tell rows apart, for upsert and changelog: those of the only unique index of the table. Default: the primary key."`
	Columns connectors.Assignments `key:"columns" doc:"Columns with the expressions of their values: {id: order_id, total: price * amount}. Only these are written. Default: each field goes into the column of its name."`
	Unknown string                 `key:"unknown_fields" doc:"What becomes of a row with a field that has no column: refuse sends it to on_error, ignore leaves the field out. Default: refuse." enum:"refuse|ignore"`
	Op      string                 `key:"op" doc:"Field that says what a row does, for changelog: insert, update, update_after, upsert, c, r, u write it; delete, update_before, d delete it."`
	Create  table.Create           `key:"create" doc:"Makes the table where it is not there: true where the types of the rows are known, or a list of columns: [{id: int}, {price: \"decimal(10, 2)\"}, {note: string?}]."`
	Schema  string                 `key:"state_schema" doc:"Database of the tables sluice_commits and sluice_rejected, which are made where they are not there. Default: that of the url."`
	Timeout connectors.TimeSpan    `key:"timeout" doc:"How long the commit of one checkpoint may take. It is taken back then, and tried again."`
	TLS     tlsconfig.Config       `key:"tls" doc:"Encryption of the connections, which it turns on."`
}

const (
	sinkKind      = "mysql"
	unknownIgnore = "ignore"
	defaultOp     = "op"
	sinkTimeout   = 10 * time.Minute
	dialTimeout   = 5 * time.Second
	// patience is how long the server waits for a process that is silent. One that is cut
	// off has locks, for which its successor would wait as long as the server believes in
	// the connection: for hours, by the server's default.
	patience = time.Minute
)

func newSinkConfig() any {
	return &SinkConfig{Mode: table.Insert, Op: defaultOp, Timeout: connectors.TimeSpan(sinkTimeout)}
}

// Validate reports every key that is out of its range.
func (c *SinkConfig) Validate() error {
	faults := []error{table.Check(c.Mode, c.Key, c.Op, c.Columns, c.Unknown), c.TLS.Check()}
	fault := func(key, msg, help string) {
		faults = append(faults, &connectors.FieldError{Key: key, Msg: msg, Help: help})
	}
	if c.URL != "" {
		if _, err := c.parse(); err != nil {
			fault("url", err.Error(), "write it like mysql://user:password@host:3306/database")
		}
	}
	if parts := strings.Split(c.Table, "."); c.Table != "" && (len(parts) > 2 || slices.Contains(parts, "")) {
		fault("table", "it is no name, and no database and name", "write it like orders or shop.orders")
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

// parse reads the address.
func (c *SinkConfig) parse() (*driver.Config, error) {
	u, err := url.Parse(c.URL)
	if err != nil || u.Scheme != sinkKind || u.Host == "" {
		return nil, errors.New("it is no address of MySQL")
	}
	out := driver.NewConfig()
	out.Net, out.Addr, out.User, out.DBName = "tcp", u.Host, u.User.Username(), strings.TrimPrefix(u.Path, "/")
	if u.Port() == "" {
		out.Addr = net.JoinHostPort(u.Hostname(), "3306")
	}
	out.Passwd, _ = u.User.Password()
	if out.DBName == "" {
		return nil, errors.New("it names no database")
	}
	for name, values := range u.Query() {
		if name != "tls" || len(values) != 1 || values[0] != "true" && values[0] != "false" {
			return nil, fmt.Errorf("it has the parameter %s, and only tls=true and tls=false are known", name)
		}
	}
	if u.Query().Get("tls") == "true" || c.TLS != (tlsconfig.Config{}) {
		if out.TLS, err = c.TLS.Build(); err != nil {
			return nil, err
		}
		if out.TLS.ServerName == "" {
			out.TLS.ServerName = u.Hostname()
		}
	}
	out.Timeout, out.InterpolateParams = dialTimeout, true
	out.ReadTimeout, out.WriteTimeout = time.Duration(c.Timeout), time.Duration(c.Timeout)
	out.MaxAllowedPacket = 0 // as the server says
	out.Params = map[string]string{
		"time_zone": "'+00:00'",
		// Nothing is cut off or replaced in silence, and 0 is no request for a number.
		"sql_mode":                 "'STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO'",
		"foreign_key_checks":       "1",
		"unique_checks":            "1",
		"innodb_lock_wait_timeout": seconds(time.Duration(c.Timeout)),
		"wait_timeout":             seconds(min(time.Duration(c.Timeout), patience)),
		"character_set_results":    "'utf8mb4'",
		"character_set_client":     "'utf8mb4'",
		"character_set_connection": "'utf8mb4'",
	}
	return out, nil
}

func seconds(d time.Duration) string { return strconv.Itoa(max(1, int(d.Seconds()))) }

const sinkExample = `mysql:
  url: mysql://etl@localhost:3306/shop
  table: orders
  mode: upsert
  key: [id]`

func init() {
	connectors.RegisterSink(connectors.SinkSpec{
		Name:      sinkKind,
		Doc:       "Writes rows into a table of MySQL or MariaDB: inserts, upserts by a key, or the changes that a changelog says. Rows are kept with the checkpoint and applied in one transaction when it is complete.",
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
