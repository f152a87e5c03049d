package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/deferred/table"
)

// sinkColumn is a column of the table that rows are written to.
type sinkColumn struct {
	name       string
	typ        columnType
	text       string // the type as users write it
	notNull    bool
	hasDefault bool
	generated  bool // the table makes its values, and takes none
	reads      connectors.Type
	write      appendFunc
	plain      bool // what write appends needs no escapes
	free       bool // text of any length
}

// chooseWriter finds out from the type how values are written.
func (c *sinkColumn) chooseWriter() {
	c.write, c.plain, c.reads = writerOf(&c.typ)
	c.free = c.typ.elem == nil && c.typ.labels == nil && (c.typ.name == "text" || c.typ.name == "citext")
}

// columnType is a type without its domain.
type columnType struct {
	oid    uint32
	name   string // as pg_type has it
	full   string // as SQL has it, with lengths and precisions
	mod    int32  // of lengths and precisions; -1 for none
	elem   *columnType
	labels []string // of an enum
}

// describe compares the table with what is written to it.
func (t *target) describe(ctx context.Context, tx pgx.Tx) error {
	all, err := t.readColumns(ctx, tx)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		if t.config.Create.On && t.env.ReadOnly {
			return nil
		}
		return connectors.Permanent(connectors.Advise("table", fmt.Errorf("there is no table %s", t.table), "make it, or set create to have it made"))
	}
	var faults []string
	if t.columns, faults = t.choose(all); len(faults) == 0 {
		faults, err = t.checkKey(ctx, tx)
		if err != nil {
			return err
		}
	}
	if len(faults) > 0 {
		return connectors.Permanent(connectors.Advise("table", fmt.Errorf("table %s does not fit the rows: %s", t.table, strings.Join(faults, "; ")), ""))
	}
	return nil
}

const columnsQuery = `SELECT a.attname, a.atttypid, a.atttypmod, format_type(a.atttypid, a.atttypmod), a.attnotnull,
  a.atthasdef OR a.attidentity <> '' OR t.typdefault IS NOT NULL, a.attidentity = 'a' OR a.attgenerated <> ''
FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`

func (t *target) readColumns(ctx context.Context, tx pgx.Tx) ([]sinkColumn, error) {
	rows, err := tx.Query(ctx, columnsQuery, t.table)
	if err != nil {
		return nil, classify(err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c sinkColumn, err error) {
		err = row.Scan(&c.name, &c.typ.oid, &c.typ.mod, &c.text, &c.notNull, &c.hasDefault, &c.generated)
		return c, err
	})
	if err != nil {
		return nil, classify(err)
	}
	for i := range all {
		c := &all[i]
		if c.typ, err = readType(ctx, tx, c.typ, &c.notNull); err != nil {
			return nil, classify(err)
		}
		c.chooseWriter()
	}
	return all, nil
}

// readType finds out what a type is under its domains.
func readType(ctx context.Context, tx pgx.Tx, t columnType, notNull *bool) (columnType, error) {
	for {
		var kind, category string
		var base, elem uint32
		var mod int32
		var required bool
		err := tx.QueryRow(ctx, "SELECT typname::text, typtype::text, typcategory::text, typbasetype, typtypmod, typnotnull, typelem, format_type(oid, $2) FROM pg_catalog.pg_type WHERE oid = $1", t.oid, t.mod).
			Scan(&t.name, &kind, &category, &base, &mod, &required, &elem, &t.full)
		if err != nil {
			return t, err
		}
		switch {
		case kind == "d":
			*notNull = *notNull || required
			t.oid, t.mod = base, mod
			continue
		case kind == "e":
			rows, err := tx.Query(ctx, "SELECT enumlabel::text FROM pg_catalog.pg_enum WHERE enumtypid = $1", t.oid)
			if err != nil {
				return t, err
			}
			t.labels, err = pgx.CollectRows(rows, pgx.RowTo[string])
			return t, err
		case category == "A" && elem != 0:
			of, err := readType(ctx, tx, columnType{oid: elem, mod: t.mod}, new(bool))
			t.elem = &of
			return t, err
		}
		return t, nil
	}
}

// choose picks the columns that are written, and lists what is wrong with them.
func (t *target) choose(all []sinkColumn) (out []sinkColumn, faults []string) {
	find := func(name string) *sinkColumn {
		if i := slices.IndexFunc(all, func(c sinkColumn) bool { return c.name == name }); i >= 0 {
			return &all[i]
		}
		return nil
	}
	take := func(name, what string) {
		switch c := find(name); {
		case c == nil:
			faults = append(faults, fmt.Sprintf("it has no column %s%s", name, what))
		case c.generated:
			faults = append(faults, fmt.Sprintf("it makes the values of column %s itself", name))
		default:
			out = append(out, *c)
		}
	}
	switch {
	case len(t.config.Columns) > 0:
		for _, a := range t.config.Columns {
			take(a.Name, "")
		}
	case t.env.Columns != nil:
		for _, f := range t.env.Columns {
			c := find(f.Name)
			if c == nil && (t.config.Unknown == unknownIgnore || t.config.Mode == table.Changelog && f.Name == t.config.Op) {
				continue
			}
			take(f.Name, ": add it, drop the field, or set unknown_fields: ignore")
			if c != nil && !fits(c.reads.Base, f.Type.Base) {
				faults = append(faults, fmt.Sprintf("column %s is %s, and the field is %s", f.Name, c.text, f.Type.Base))
			}
		}
	default:
		for _, c := range all {
			if !c.generated {
				out = append(out, c)
			}
		}
	}
	for _, c := range all {
		written := slices.ContainsFunc(out, func(o sinkColumn) bool { return o.name == c.name })
		if !written && c.notNull && !c.hasDefault && !c.generated {
			faults = append(faults, fmt.Sprintf("column %s must have a value, and nothing is written to it", c.name))
		}
	}
	return out, faults
}

// fits reports whether values of a field's type can go into a column at all.
func fits(column, field connectors.Base) bool {
	number := func(b connectors.Base) bool {
		return b == connectors.Integer || b == connectors.Real || b == connectors.Exact
	}
	switch {
	case field == connectors.Dynamic || column == connectors.Dynamic || column == connectors.Document:
		return true
	case field == connectors.Text: // which can hold any of them but these
		return column != connectors.Boolean && column != connectors.Integer && column != connectors.Sequence
	case number(field):
		return number(column) || field == connectors.Integer && (column == connectors.Instant || column == connectors.Local)
	case field == connectors.Instant || field == connectors.Local:
		return column == connectors.Instant || column == connectors.Local || column == connectors.Date || column == connectors.Text
	case field == connectors.Boolean, field == connectors.Sequence, field == connectors.Binary:
		return column == field
	}
	return column == field || column == connectors.Text
}

// checkKey finds the key, and whether a unique index is there for it.
func (t *target) checkKey(ctx context.Context, tx pgx.Tx) (faults []string, err error) {
	if t.config.Mode == table.Insert {
		return nil, nil
	}
	rows, err := tx.Query(ctx, `SELECT i.indisprimary, array_agg(a.attname::text)
FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])
WHERE i.indrelid = to_regclass($1) AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL
GROUP BY i.indexrelid, i.indisprimary`, t.table)
	if err != nil {
		return nil, classify(err)
	}
	found := false
	var primary bool
	var names []string
	_, err = pgx.ForEachRow(rows, []any{&primary, &names}, func() error {
		if len(t.config.Key) == 0 && primary {
			t.key = slices.Clone(names)
		}
		found = found || len(t.config.Key) > 0 && sameSet(names, t.config.Key)
		return nil
	})
	if err != nil {
		return nil, classify(err)
	}
	switch {
	case len(t.key) == 0:
		return []string{"it has no primary key: set key to the columns that tell rows apart"}, nil
	case len(t.config.Key) > 0 && !found:
		return []string{fmt.Sprintf("it has no unique index on exactly the key (%s)", strings.Join(t.config.Key, ", "))}, nil
	}
	for _, k := range t.key {
		if !slices.ContainsFunc(t.columns, func(c sinkColumn) bool { return c.name == k }) {
			faults = append(faults, fmt.Sprintf("nothing is written to the key column %s", k))
		}
	}
	return faults, nil
}

func sameSet(a, b []string) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(x string) bool { return !slices.Contains(b, x) })
}

// createTable is the statement that makes the table.
func (t *target) createTable() (string, error) {
	cols := []connectors.Column(t.config.Create.Columns)
	if len(cols) == 0 {
		cols = t.env.Columns
	}
	if len(cols) == 0 {
		return "", connectors.Permanent(errors.New("create: the types of the rows are not known here: list the columns: create: [{id: int}, {name: string?}]"))
	}
	var items []string
	for _, c := range cols {
		if t.config.Mode == table.Changelog && c.Name == t.config.Op && len(t.config.Create.Columns) == 0 {
			continue
		}
		item := pgx.Identifier{c.Name}.Sanitize() + " " + typeName(c.Type)
		if !c.Type.Nullable {
			item += " NOT NULL"
		}
		items = append(items, item)
	}
	if t.config.Mode != table.Insert {
		items = append(items, "PRIMARY KEY ("+strings.Join(quoted(t.config.Key), ", ")+")")
	}
	return "CREATE TABLE IF NOT EXISTS " + t.table + " (" + strings.Join(items, ", ") + ")", nil
}

// typeName is the type of PostgreSQL that holds a type.
func typeName(t connectors.Type) string {
	switch t.Base {
	case connectors.Integer:
		bits := t.Bits
		if bits == 0 {
			bits = 64
		}
		if t.Unsigned {
			bits *= 2
		}
		switch {
		case bits <= 16:
			return "smallint"
		case bits <= 32:
			return "integer"
		case bits <= 64:
			return "bigint"
		}
		return "numeric(20)"
	case connectors.Real:
		if t.Bits == 32 {
			return "real"
		}
		return "double precision"
	case connectors.Exact:
		if t.Precision > 0 {
			return fmt.Sprintf("numeric(%d, %d)", t.Precision, t.Scale)
		}
		return "numeric"
	case connectors.Sequence:
		if e := typeName(*t.Elem); e != "jsonb" && !strings.HasSuffix(e, "[]") {
			return e + "[]"
		}
		return "jsonb"
	}
	if name, ok := typeNames[t.Base]; ok {
		return name
	}
	return "jsonb"
}

var typeNames = map[connectors.Base]string{
	connectors.Boolean: "boolean", connectors.Text: "text", connectors.Binary: "bytea", connectors.Instant: "timestamptz",
	connectors.Local: "timestamp", connectors.Date: "date", connectors.TimeOfDay: "time", connectors.Span: "interval", connectors.UUID: "uuid",
}
