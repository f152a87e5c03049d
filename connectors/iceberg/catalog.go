package iceberg

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strconv"
	"strings"

	ice "github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/catalog"
	"github.com/apache/iceberg-go/catalog/rest"
	icesql "github.com/apache/iceberg-go/catalog/sql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite" // the driver sqlite

	"github.com/sluice-etl/sluice/connectors"
)

// openLake connects to the catalog of a table.
func openLake(ctx context.Context, c *SinkConfig, readOnly bool) (lake, error) {
	l := &iceLake{ident: strings.Split(c.Table, "."), branch: c.Branch, free: func() error { return nil }}
	var err error
	if c.Catalog.Type == catalogREST {
		l.cat, err = openREST(ctx, &c.Catalog)
		if closer, ok := l.cat.(catalog.Closer); ok && err == nil {
			l.free = closer.Close
		}
	} else {
		l.cat, l.free, err = openSQL(ctx, &c.Catalog, readOnly)
		if errors.Is(err, errNoLists) {
			return noLists{}, nil
		}
	}
	if err != nil {
		err = fmt.Errorf("open the catalog (%s): %w", c.Catalog.place(), err)
		if errors.Is(err, rest.ErrUnauthorized) || errors.Is(err, rest.ErrForbidden) {
			err = connectors.Permanent(err)
		}
		return nil, err
	}
	return l, nil
}

func openREST(ctx context.Context, c *Catalog) (catalog.Catalog, error) {
	tls, err := c.TLS.Build()
	if err != nil {
		return nil, err
	}
	opts := []rest.Option{rest.WithTLSConfig(tls), rest.WithWarehouseLocation(c.Warehouse)}
	if c.Prefix != "" {
		opts = append(opts, rest.WithPrefix(c.Prefix))
	}
	if c.Token != "" {
		opts = append(opts, rest.WithOAuthToken(c.Token))
	}
	if c.Credential != "" {
		opts = append(opts, rest.WithCredential(c.Credential), rest.WithScope(c.Scope))
	}
	if c.TokenURL != "" {
		u, err := url.Parse(c.TokenURL)
		if err != nil {
			return nil, connectors.Permanent(fmt.Errorf("read token_url: %w", err))
		}
		opts = append(opts, rest.WithAuthURI(u), rest.WithOAuthTLSConfig(tls))
	}
	return rest.NewCatalog(ctx, c.Name, c.URL, opts...)
}

// openSQL connects to a database that tables are listed in. The library makes the
// lists' tables itself where they are missing, with a context of its own, so the
// connection is tried first. errNoLists says that they are missing and not to be made.
func openSQL(ctx context.Context, c *Catalog, readOnly bool) (catalog.Catalog, func() error, error) {
	if path, ok := strings.CutPrefix(c.URL, sqliteScheme); ok && readOnly {
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil, nil, errNoLists // connecting would make the file
		}
	}
	db, dialect, err := openDatabase(c.URL)
	if err != nil {
		return nil, nil, err
	}
	err = db.PingContext(ctx)
	if err == nil && readOnly {
		err = findLists(ctx, db, dialect)
	}
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	cat, err := icesql.NewCatalog(c.Name, db, dialect, ice.Properties{
		"warehouse": c.Warehouse, "init_catalog_tables": strconv.FormatBool(!readOnly),
	})
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return cat, func() error { return errors.Join(cat.Close(), db.Close()) }, nil
}

// findLists looks for the table that the catalog's tables are listed in.
func findLists(ctx context.Context, db *sql.DB, dialect icesql.SupportedDialect) error {
	query := "SELECT to_regclass('iceberg_tables') IS NOT NULL"
	if dialect == icesql.SQLite {
		query = "SELECT count(*) > 0 FROM sqlite_master WHERE type = 'table' AND name = 'iceberg_tables'"
	}
	var there bool
	if err := db.QueryRowContext(ctx, query).Scan(&there); err != nil {
		return fmt.Errorf("look for the catalog's tables: %w", err)
	}
	if !there {
		return errNoLists
	}
	return nil
}

var errNoLists = errors.New("the database holds no catalog yet")

// noLists is a lake of a database that holds no catalog yet, to be looked at only: the
// first start makes it.
type noLists struct{}

func (noLists) load(context.Context) (*view, error)         { return nil, errNoTable }
func (noLists) create(context.Context, newTable) error      { return errNoLists }
func (noLists) commit(context.Context, *view, change) error { return errNoLists }
func (noLists) close() error                                { return nil }

const sqliteScheme = "sqlite://"

// openDatabase makes the pool of connections to a database. A connection is asked
// whether it lives before it is used again: else one that broke meanwhile fails a commit.
func openDatabase(address string) (*sql.DB, icesql.SupportedDialect, error) {
	if path, ok := strings.CutPrefix(address, sqliteScheme); ok {
		db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(30000)&_txlock=immediate")
		return db, icesql.SQLite, err
	}
	conf, err := pgx.ParseConfig(address)
	if err != nil {
		return nil, "", connectors.Permanent(err)
	}
	always := func(context.Context, stdlib.ShouldPingParams) bool { return true }
	return stdlib.OpenDB(*conf, stdlib.OptionShouldPing(always)), icesql.Postgres, nil
}
