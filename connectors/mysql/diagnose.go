package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	driver "github.com/go-sql-driver/mysql"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/deferred/table"
)

// OpenAdvice says what to do about a server that does not let this program in. It
// implements connectors.OpenAdviser.
func (t *target) OpenAdvice(err error) (key, help string) {
	var e *driver.MySQLError
	var dial *net.OpError
	switch {
	case errors.As(err, &e):
		switch e.Number {
		case 1045, 1698:
			return "url", "correct the user or the password in it, or let the user in from this machine"
		case 1044, 1142, 1143:
			return "url", "grant the right to this user"
		case 1049:
			return "url", "make the database, or correct its name"
		case 1040, 1203:
			return "url", "raise max_connections of the server, or end sessions: a sink needs up to 3"
		}
	case errors.As(err, &dial), errors.Is(err, driver.ErrInvalidConn):
		return "url", "check host and port, and that the server runs and listens for this machine"
	}
	return "", ""
}

// Diagnose tells of the server, the rights to the tables, and settings that take commits
// back. It implements connectors.Diagnoser.
func (t *target) Diagnose(ctx context.Context, d *connectors.Diagnosis) {
	for _, look := range []func(context.Context, *connectors.Diagnosis) error{t.diagnoseServer, t.diagnoseRights, t.diagnoseSettings} {
		if err := look(ctx, d); err != nil {
			d.Fail("server", "", classify(err), "")
			return
		}
	}
}

func (t *target) diagnoseServer(ctx context.Context, d *connectors.Diagnosis) error {
	var version, user string
	var readOnly bool
	if err := t.db.QueryRowContext(ctx, "SELECT VERSION(), CURRENT_USER(), @@read_only").Scan(&version, &user, &readOnly); err != nil {
		return err
	}
	if readOnly {
		d.Warn("server", "url", fmt.Sprintf("%s is read-only (read_only = 1), as user %s: only users with special rights write to it", version, user), "name the server that takes writes")
		return nil
	}
	d.OK("server", version+", as user "+user)
	return nil
}

// diagnoseRights looks among the user's grants for what a commit does.
func (t *target) diagnoseRights(ctx context.Context, d *connectors.Diagnosis) error {
	granted, err := t.grants(ctx)
	if err != nil {
		return err
	}
	lacks := table.Lacks{}
	var absent []string
	for name, rights := range table.Rights(t.config.Mode, t.env.OnError, t.table, t.commits, t.rejected) {
		there, err := t.exists(ctx, name)
		if err != nil {
			return err
		}
		if !there {
			absent, rights = append(absent, name), []string{"CREATE"}
		}
		for _, r := range rights {
			if !granted.has(r, name) {
				lacks.Add(name, r)
			}
		}
	}
	slices.Sort(absent)
	switch {
	case len(lacks) > 0:
		// Rights of roles and those that patterns give are not read: it may be enough.
		d.Warn("rights", "table", "SHOW GRANTS does not name "+lacks.String(), lacks.Grants()+", unless a role or a pattern gives it")
	case len(absent) > 0:
		d.OK("rights", "the first start makes "+strings.Join(absent, ", "))
	default:
		d.OK("rights", "rows and marks can be written")
	}
	return nil
}

// grants are the rights of a user as SHOW GRANTS tells them.
type grants []grant

type grant struct {
	rights []string
	on     string // `db`.`table`, `db`.* or *.*
}

func (t *target) grants(ctx context.Context) (out grants, err error) {
	rows, err := t.db.QueryContext(ctx, "SHOW GRANTS")
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		if g, ok := parseGrant(text); ok {
			out = append(out, g)
		}
	}
	return out, rows.Err()
}

// parseGrant takes a line of SHOW GRANTS apart; ok is false for one of roles.
func parseGrant(text string) (g grant, ok bool) {
	rest, ok := strings.CutPrefix(text, "GRANT ")
	if !ok {
		return g, false
	}
	rights, rest, ok := strings.Cut(rest, " ON ")
	if !ok {
		return g, false
	}
	g.on, _, ok = strings.Cut(rest, " TO ")
	for r := range strings.SplitSeq(rights, ",") {
		g.rights = append(g.rights, strings.TrimSpace(r))
	}
	return g, ok
}

// has reports whether a right to a table, whose name is quoted, is among them.
func (g grants) has(right, name string) bool {
	database, _, _ := strings.Cut(name, ".")
	for _, one := range g {
		if one.on != "*.*" && one.on != name && strings.ReplaceAll(one.on, `\_`, "_") != database+".*" {
			continue
		}
		if slices.Contains(one.rights, "ALL PRIVILEGES") || slices.Contains(one.rights, right) {
			return true
		}
	}
	return false
}

// diagnoseSettings looks for what takes commits back in a crash.
func (t *target) diagnoseSettings(ctx context.Context, d *connectors.Diagnosis) error {
	var flush int
	var binlog sql.NullInt64
	if err := t.db.QueryRowContext(ctx, "SELECT @@innodb_flush_log_at_trx_commit, @@sync_binlog").Scan(&flush, &binlog); err != nil {
		return err
	}
	if flush != 1 {
		d.Warn("settings", "", fmt.Sprintf("innodb_flush_log_at_trx_commit is %d: a crash of the server loses commits that this pipeline holds for proven", flush), "set it to 1")
		return nil
	}
	d.OK("settings", fmt.Sprintf("commits are kept in a crash; a statement has up to %d bytes (max_allowed_packet)", t.packet))
	return nil
}
