package main

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
)

const (
	tableColumns = "auction bigint, bidder bigint, price bigint, channel text, url text, date_time bigint, extra text"
	keyColumn    = "id bigint PRIMARY KEY, "
)

func tableOf(run string) string { return "bench_" + run }

func placePostgres(keyed bool) func(context.Context, options, string, int64) (func(context.Context) error, error) {
	return func(ctx context.Context, _ options, run string, _ int64) (func(context.Context) error, error) {
		conn, err := pgx.Connect(ctx, os.Getenv("POSTGRES_URL"))
		if err != nil {
			return nil, err
		}
		columns := tableColumns
		if keyed {
			columns = keyColumn + columns
		}
		if _, err := conn.Exec(ctx, fmt.Sprintf("CREATE TABLE %s (%s)", tableOf(run), columns)); err != nil {
			return nil, err
		}
		return func(ctx context.Context) error {
			if _, err := conn.Exec(ctx, "DROP TABLE "+tableOf(run)); err != nil {
				return err
			}
			return conn.Close(ctx)
		}, nil
	}
}

// barePostgresInsert copies the rows of each interval in one transaction.
func barePostgresInsert(ctx context.Context, l *sinkLoop) error {
	return l.copyRows(ctx, func(ctx context.Context, tx pgx.Tx, rows pgx.CopyFromSource) error {
		_, err := tx.CopyFrom(ctx, pgx.Identifier{tableOf(l.run)}, bidColumns, rows)
		return err
	}, func(i int64) []any { return l.bid(i).values() })
}

// barePostgresUpsert copies them into a temporary table, and merges that.
func barePostgresUpsert(ctx context.Context, l *sinkLoop) error {
	columns := append([]string{"id"}, bidColumns...)
	var set []string
	for _, c := range bidColumns {
		set = append(set, c+" = excluded."+c)
	}
	merge := fmt.Sprintf("INSERT INTO %s SELECT * FROM fresh ON CONFLICT (id) DO UPDATE SET %s", tableOf(l.run), strings.Join(set, ", "))
	return l.copyRows(ctx, func(ctx context.Context, tx pgx.Tx, rows pgx.CopyFromSource) error {
		if _, err := tx.Exec(ctx, fmt.Sprintf("CREATE TEMPORARY TABLE fresh (%s%s) ON COMMIT DROP", keyColumn, tableColumns)); err != nil {
			return err
		}
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{"fresh"}, columns, rows); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, merge)
		return err
	}, func(i int64) []any { return append([]any{i}, l.bid(i).values()...) })
}

// copyRows runs a transaction for each interval.
func (l *sinkLoop) copyRows(ctx context.Context, write func(context.Context, pgx.Tx, pgx.CopyFromSource) error, row func(int64) []any) error {
	conn, err := pgx.Connect(ctx, os.Getenv("POSTGRES_URL"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	return l.eachInterval(func(from int64, more func(int64) bool) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			at := from
			return write(ctx, tx, pgx.CopyFromFunc(func() ([]any, error) {
				if !more(at) {
					return nil, nil
				}
				at++
				return row(at - 1), nil
			}))
		})
	})
}

func openMySQL() (*sql.DB, error) {
	u, err := url.Parse(os.Getenv("MYSQL_URL"))
	if err != nil {
		return nil, err
	}
	c := mysql.NewConfig()
	c.Net, c.Addr, c.DBName, c.User = "tcp", u.Host, strings.TrimPrefix(u.Path, "/"), u.User.Username()
	c.Passwd, _ = u.User.Password()
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

func placeMySQL(ctx context.Context, _ options, run string, _ int64) (func(context.Context) error, error) {
	db, err := openMySQL()
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, fmt.Sprintf("CREATE TABLE %s (%s)", tableOf(run), tableColumns)); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		if _, err := db.ExecContext(ctx, "DROP TABLE "+tableOf(run)); err != nil {
			return err
		}
		return db.Close()
	}, nil
}

const rowsAtOnce = 1000 // of an INSERT

// bareMySQL inserts a thousand rows with a prepared statement, in one transaction an interval.
func bareMySQL(ctx context.Context, l *sinkLoop) error {
	db, err := openMySQL()
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	insert := func(rows int) string {
		row := "(" + strings.Repeat("?, ", len(bidColumns)-1) + "?)"
		return fmt.Sprintf("INSERT INTO %s VALUES %s%s", tableOf(l.run), strings.Repeat(row+", ", rows-1), row)
	}
	many, err := db.PrepareContext(ctx, insert(rowsAtOnce))
	if err != nil {
		return err
	}
	defer func() { _ = many.Close() }()
	args := make([]any, 0, rowsAtOnce*len(bidColumns))
	return l.eachInterval(func(from int64, more func(int64) bool) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		prepared := tx.StmtContext(ctx, many)
		for i := from; more(i); i++ {
			args = append(args, l.bid(i).values()...)
			if len(args) == cap(args) {
				if _, err := prepared.ExecContext(ctx, args...); err != nil {
					return err
				}
				args = args[:0]
			}
		}
		if rows := len(args) / len(bidColumns); rows > 0 {
			if _, err := tx.ExecContext(ctx, insert(rows), args...); err != nil {
				return err
			}
			args = args[:0]
		}
		return tx.Commit()
	})
}
