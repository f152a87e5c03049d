package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/placeholder"
)

// column is a column of a key as the database has it.
type column struct {
	name     string
	typ      string // that values are compared as
	category byte   // of the type, see pg_type.typcategory
}

// statement finds rows.
type statement struct {
	text string
	keys []column
	// batched says that the keys are arrays; otherwise the statement is run for each.
	batched bool
}

// The categories of types for which it matters what kind of value is compared.
const (
	categoryNumber = 'N'
	categoryText   = 'S'
	categoryBool   = 'B'
)

// table makes the statement for a table: the keys as arrays that are joined with it.
func (c *LookupConfig) table(ctx context.Context, conn *pgx.Conn, on []string) (*statement, error) {
	table := pgx.Identifier(strings.Split(c.Table, ".")).Sanitize()
	what := "t.*"
	if len(c.Columns) > 0 {
		what = "t." + strings.Join(quoted(c.Columns), ", t.")
	}
	rows := "SELECT " + what + " FROM " + table + " AS t"
	result, err := described(ctx, conn, rows)
	if err != nil {
		return nil, err
	}
	keys, err := described(ctx, conn, "SELECT t."+strings.Join(quoted(on), ", t.")+" FROM "+table+" AS t")
	if err != nil {
		return nil, err
	}
	s := &statement{batched: true}
	if s.keys, err = columnsOf(ctx, conn, on, oids(keys.Fields)); err != nil {
		return nil, err
	}
	object, err := jsonOf(result.Fields, "t")
	if err != nil {
		return nil, err
	}
	var arrays, names, equal []string
	for i, k := range s.keys {
		arrays = append(arrays, fmt.Sprintf("$%d::text[]::%s[]", i+1, k.typ))
		names = append(names, fmt.Sprintf("c%d", i))
		equal = append(equal, fmt.Sprintf("t.%s = k.c%d", pgx.Identifier{k.name}.Sanitize(), i))
	}
	s.text = fmt.Sprintf("SELECT k.i, %s FROM unnest(%s) WITH ORDINALITY AS k(%s, i) JOIN %s AS t ON %s",
		object, strings.Join(arrays, ", "), strings.Join(names, ", "), table, strings.Join(equal, " AND "))
	return s, nil
}

// query makes the statement for a query of the user's.
func (c *LookupConfig) query(ctx context.Context, conn *pgx.Conn, on []string) (*statement, error) {
	inner := strings.TrimRight(strings.TrimSpace(c.Query), "; \n\t")
	result, err := described(ctx, conn, inner)
	if err != nil {
		return nil, err
	}
	if len(result.Fields) == 0 {
		return nil, connectors.Permanent(errors.New("the query gives no rows: write a SELECT"))
	}
	if n := len(result.ParamOIDs); n != len(on) {
		return nil, connectors.Permanent(fmt.Errorf("the query has %d parameters, and on %d columns (%s): $1, $2 … stand for them in their order", n, len(on), strings.Join(on, ", ")))
	}
	s := &statement{}
	if s.keys, err = columnsOf(ctx, conn, on, result.ParamOIDs); err != nil {
		return nil, err
	}
	object, err := jsonOf(result.Fields, "q")
	if err != nil {
		return nil, err
	}
	// Two rows are enough to know that there are several.
	s.text = fmt.Sprintf("SELECT %s FROM (%s\n) AS q LIMIT 2", object, inner)
	_, err = described(ctx, conn, s.text)
	return s, err
}

func quoted(names []string) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = pgx.Identifier{n}.Sanitize()
	}
	return out
}

// described is what the server says of a statement.
func described(ctx context.Context, conn *pgx.Conn, text string) (*pgconn.StatementDescription, error) {
	d, err := conn.PgConn().Prepare(ctx, "", text, nil)
	if err != nil {
		return nil, classify(err)
	}
	return d, nil
}

func oids(fields []pgconn.FieldDescription) []uint32 {
	var out []uint32
	for _, f := range fields {
		out = append(out, f.DataTypeOID)
	}
	return out
}

// columnsOf finds out as what the values of a key are compared.
func columnsOf(ctx context.Context, conn *pgx.Conn, names []string, types []uint32) ([]column, error) {
	out := make([]column, len(names))
	for i, name := range names {
		out[i].name = name
		var base string
		var category string
		err := conn.QueryRow(ctx, "SELECT format_type(t.oid, NULL), t.typcategory::text, t.typname::text FROM pg_catalog.pg_type t WHERE t.oid = $1", types[i]).
			Scan(&out[i].typ, &category, &base)
		if err != nil {
			return nil, classify(err)
		}
		out[i].category = category[0]
		switch base {
		case "int2", "int4":
			out[i].typ = "bigint" // so that a number too large for the column is just not found
		case "bpchar", "bit":
			out[i].typ = base // their names in SQL mean one character
		}
	}
	return out, nil
}

const byteaOID = 17

// jsonOf is the SQL that makes a row, called alias, a JSON object.
func jsonOf(fields []pgconn.FieldDescription, alias string) (string, error) {
	var names, items []string
	for _, f := range fields {
		if slices.Contains(names, f.Name) {
			return "", connectors.Permanent(fmt.Errorf("two columns are called %s: give one of them another name", f.Name))
		}
		names = append(names, f.Name)
		item := alias + "." + pgx.Identifier{f.Name}.Sanitize()
		if f.DataTypeOID == byteaOID {
			item = "translate(encode(" + item + ", 'base64'), E'\\n', '')"
		}
		items = append(items, item+" AS "+pgx.Identifier{f.Name}.Sanitize())
	}
	return "(SELECT row_to_json(r)::text FROM (SELECT " + strings.Join(items, ", ") + ") AS r)", nil
}

// value is a value of a key as the column's type reads it. ok is false where no
// value of that type can be equal: a text never equals a number.
func (c *column) value(v connectors.Value) (text string, ok bool, err error) {
	k := v.Kind()
	number := k == connectors.Int || k == connectors.Float || k == connectors.Decimal
	switch c.category {
	case categoryNumber:
		ok = number && (k == connectors.Int || c.typ != "bigint")
	case categoryText:
		ok = k == connectors.String && !strings.ContainsRune(v.Text(), 0)
	case categoryBool:
		ok = k == connectors.Bool
	default:
		ok = c.typ != "uuid" || k == connectors.String && isUUID(v.Text())
	}
	if !ok {
		return "", false, nil
	}
	switch k {
	case connectors.Float: // JSON has no text for those that are not finite
		return strconv.FormatFloat(v.Float(), 'g', -1, 64), true, nil
	case connectors.Bytes:
		return fmt.Sprintf("\\x%x", v.Raw()), true, nil
	case connectors.List, connectors.Map:
		return string(v.Raw()), true, nil
	}
	text, err = placeholder.Plain(v)
	return text, true, err
}

// isUUID reports whether a text is 32 hexadecimal digits, with - anywhere.
func isUUID(s string) bool {
	n := 0
	for _, c := range []byte(s) {
		switch {
		case c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F':
			n++
		case c != '-':
			return false
		}
	}
	return n == 32
}
