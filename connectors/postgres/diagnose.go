package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/deferred/table"
)

// OpenAdvice says what to do about a database that does not let this program in. It
// implements connectors.OpenAdviser.
func (t *target) OpenAdvice(err error) (key, help string) { return openAdvice(err) }

// OpenAdvice is that of the sink.
func (l *Lookup) OpenAdvice(err error) (key, help string) { return openAdvice(err) }

func openAdvice(err error) (key, help string) {
	var e *pgconn.PgError
	var connect *pgconn.ConnectError
	switch {
	case errors.As(err, &e) && e.Code == "28P01":
		return "url", "correct the user or the password in it"
	case errors.As(err, &e) && e.Code[:2] == "28":
		return "url", "let the user in from this machine (pg_hba.conf of the server), or correct it"
	case errors.As(err, &e) && e.Code == "3D000":
		return "url", "make the database, or correct its name"
	case errors.As(err, &e) && e.Code[:2] == "53":
		return "url", "raise max_connections of the server, or end sessions: a sink needs up to 3"
	case errors.As(err, &e) && e.Code == "42501":
		return "table", "grant the right to this user"
	case errors.As(err, &connect):
		return "url", "check host and port, and that the server runs and listens for this machine"
	}
	return "", ""
}

// Diagnose tells of the server, the rights to the tables, and settings that take commits
// back or end sessions. It implements connectors.Diagnoser.
func (t *target) Diagnose(ctx context.Context, d *connectors.Diagnosis) {
	err := t.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if err := t.diagnoseServer(ctx, tx, d); err != nil {
			return err
		}
		if err := t.diagnoseRights(ctx, tx, d); err != nil {
			return err
		}
		return t.diagnoseSettings(ctx, tx, d)
	})
	if err != nil {
		d.Fail("server", "", err, "")
	}
}

func (t *target) diagnoseServer(ctx context.Context, tx pgx.Tx, d *connectors.Diagnosis) error {
	var version, user string
	var standby bool
	err := tx.QueryRow(ctx, "SELECT current_setting('server_version'), current_user::text, pg_is_in_recovery()").Scan(&version, &user, &standby)
	if err != nil {
		return err
	}
	if standby {
		d.Fail("server", "url", fmt.Errorf("PostgreSQL %s is a standby, which takes no writes", version), "name the primary, or several hosts with target_session_attrs=read-write")
		return nil
	}
	d.OK("server", fmt.Sprintf("PostgreSQL %s, as user %s", version, user))
	return nil
}

// diagnoseRights asks for what a commit does: rows into the table, and the marks.
func (t *target) diagnoseRights(ctx context.Context, tx pgx.Tx, d *connectors.Diagnosis) error {
	lacks := table.Lacks{}
	var absent []string
	for name, rights := range table.Rights(t.config.Mode, t.env.OnError, t.table, t.state.commits, t.state.rejected) {
		var there bool
		if err := tx.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", name).Scan(&there); err != nil {
			return err
		}
		if !there {
			absent = append(absent, name)
			continue
		}
		for _, r := range rights {
			var has bool
			if err := tx.QueryRow(ctx, "SELECT has_table_privilege(to_regclass($1)::oid, $2)", name, r).Scan(&has); err != nil {
				return err
			}
			if !has {
				lacks.Add(name, r)
			}
		}
	}
	slices.Sort(absent)
	if len(lacks) > 0 {
		d.Fail("rights", "table", fmt.Errorf("this user lacks %s", lacks), lacks.Grants())
		return nil
	}
	if len(absent) == 0 {
		d.OK("rights", "rows and marks can be written")
		return nil
	}
	return t.diagnoseCreate(ctx, tx, d, absent)
}

// diagnoseCreate asks whether the tables that the first start makes can be made.
func (t *target) diagnoseCreate(ctx context.Context, tx pgx.Tx, d *connectors.Diagnosis, absent []string) error {
	var may *bool
	var schema *string
	err := tx.QueryRow(ctx, `SELECT s, has_schema_privilege(s, 'CREATE') FROM (SELECT coalesce(nullif($1, ''), current_schema()::text) AS s) x
WHERE s IS NULL OR EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = s)`, t.config.Schema).Scan(&schema, &may)
	if errors.Is(err, pgx.ErrNoRows) {
		d.Fail("rights", "state_schema", fmt.Errorf("there is no schema %s, in which the first start makes tables", t.config.Schema), "CREATE SCHEMA "+pgx.Identifier{t.config.Schema}.Sanitize())
		return nil
	}
	if err != nil {
		return err
	}
	text := "the first start makes " + strings.Join(absent, ", ")
	switch {
	case schema == nil:
		d.Fail("rights", "state_schema", errors.New(text+", and the search path names no schema that is there"), "set state_schema, or search_path of the user")
	case may == nil || !*may:
		d.Fail("rights", "state_schema", fmt.Errorf("%s, and this user may not make tables in schema %s", text, *schema), "GRANT CREATE ON SCHEMA "+pgx.Identifier{*schema}.Sanitize()+" TO the user of url, or set state_schema to another one")
	default:
		d.OK("rights", text)
	}
	return nil
}

// diagnoseSettings looks for what takes commits back, or ends them while they work.
func (t *target) diagnoseSettings(ctx context.Context, tx pgx.Tx, d *connectors.Diagnosis) error {
	var fsync, limit string
	err := tx.QueryRow(ctx, "SELECT current_setting('fsync'), coalesce(current_setting('transaction_timeout', true), '0')").Scan(&fsync, &limit)
	if err != nil {
		return err
	}
	if fsync != "on" {
		d.Warn("settings", "", "fsync is off: a crash of the server loses commits that this pipeline holds for proven", "set fsync = on in postgresql.conf")
	}
	if limit != "0" {
		d.Warn("settings", "timeout", fmt.Sprintf("the server ends transactions after %s (transaction_timeout): a checkpoint with many rows is then never committed", limit), "ALTER ROLE of this user SET transaction_timeout = 0")
	}
	if fsync == "on" && limit == "0" {
		d.OK("settings", "commits are kept in a crash, and none is ended for its length")
	}
	return nil
}
