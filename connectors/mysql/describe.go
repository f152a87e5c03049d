package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	driver "github.com/go-sql-driver/mysql"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/deferred/table"
)

// sinkColumn is a column of the table that rows are written to.
type sinkColumn struct {
	name       string
	typ        string // without sizes
	text       string // the type as users write it
	length     int    // characters of text, bytes of anything else; 0 for no limit
	octets     int
	precision  int // of decimals
	scale      int
	fraction   int // digits of seconds
	notNull    bool
	hasDefault bool
	numbers    bool // AUTO_INCREMENT
	generated  bool // the table makes its values, and takes none
	isJSON     bool
	reads      connectors.Type
	write      appendFunc
}

// describe compares the table with what is written to it.
func (t *target) describe(ctx context.Context) error {
	var engine sql.NullString
	err := t.db.QueryRowContext(ctx, "SELECT engine FROM information_schema.tables WHERE table_schema = ? AND table_name = ?", t.database, t.name).Scan(&engine)
	if errors.Is(err, sql.ErrNoRows) {
		if t.config.Create.On && t.env.ReadOnly {
			return nil
		}
		return connectors.Permanent(connectors.Advise("table", fmt.Errorf("there is no table %s", t.table), "make it, or set create to have it made"))
	}
	if err != nil {
		return classify(err)
	}
	all, err := t.readColumns(ctx)
	if err != nil {
		return classify(err)
	}
	var faults []string
	if !strings.EqualFold(engine.String, "InnoDB") {
		faults = append(faults, fmt.Sprintf("its engine is %q, and only InnoDB has transactions", engine.String))
	}
	var more []string
	t.columns, more = t.choose(all)
	if faults = append(faults, more...); len(faults) == 0 {
		if faults, err = t.checkKey(ctx); err != nil {
			return classify(err)
		}
	}
	if len(faults) > 0 {
		return connectors.Permanent(connectors.Advise("table", fmt.Errorf("table %s does not fit the rows: %s", t.table, strings.Join(faults, "; ")), ""))
	}
	return nil
}

func (t *target) readColumns(ctx context.Context) ([]sinkColumn, error) {
	documents, err := t.documents(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := t.db.QueryContext(ctx, `SELECT column_name, data_type, column_type, is_nullable = 'NO', COALESCE(column_default, 'NULL') <> 'NULL' OR extra LIKE '%auto_increment%' OR extra LIKE '%DEFAULT_GENERATED%',
  extra LIKE '%auto_increment%', extra LIKE '%GENERATED%' AND extra NOT LIKE '%DEFAULT_GENERATED%', COALESCE(character_maximum_length, 0), COALESCE(character_octet_length, 0),
  COALESCE(numeric_precision, 0), COALESCE(numeric_scale, 0), COALESCE(datetime_precision, 0)
FROM information_schema.columns WHERE table_schema = ? AND table_name = ? ORDER BY ordinal_position`, t.database, t.name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var out []sinkColumn
	for rows.Next() {
		var c sinkColumn
		var length, octets uint64
		if err := rows.Scan(&c.name, &c.typ, &c.text, &c.notNull, &c.hasDefault, &c.numbers, &c.generated, &length, &octets, &c.precision, &c.scale, &c.fraction); err != nil {
			return nil, err
		}
		c.typ = strings.ToLower(c.typ)
		c.length, c.octets = int(length), int(octets)
		c.isJSON = c.typ == "json" || slices.Contains(documents, c.name)
		c.write, c.reads = writerOf(&c)
		out = append(out, c)
	}
	return out, rows.Err()
}

// documents are the columns that MariaDB calls JSON: text with a condition. MySQL has a
// type for them, and does not tell whose a condition is.
func (t *target) documents(ctx context.Context) (out []string, err error) {
	rows, err := t.db.QueryContext(ctx, "SELECT check_clause FROM information_schema.check_constraints WHERE constraint_schema = ? AND table_name = ? AND check_clause LIKE 'json_valid(%'", t.database, t.name)
	var e *driver.MySQLError
	if errors.As(err, &e) && (e.Number == 1109 || e.Number == 1054) {
		return nil, nil // a server too old to have conditions, or MySQL
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var clause string
		if err := rows.Scan(&clause); err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(strings.TrimPrefix(clause, "json_valid(`"), "`)")
		out = append(out, strings.ReplaceAll(name, "``", "`"))
	}
	return out, rows.Err()
}

// choose picks the columns that are written, and lists what is wrong with them.
func (t *target) choose(all []sinkColumn) (out []sinkColumn, faults []string) {
	find := func(name string) *sinkColumn {
		// The names of columns do not differ by case alone.
		if i := slices.IndexFunc(all, func(c sinkColumn) bool { return strings.EqualFold(c.name, name) }); i >= 0 {
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
			taken := *c
			taken.name = name
			out = append(out, taken)
		}
	}
	switch {
	case len(t.config.Columns) > 0:
		for _, a := range t.config.Columns {
			take(a.Name, "")
		}
	case t.env.Columns != nil:
		for _, f := range t.env.Columns {
			if find(f.Name) == nil && (t.config.Unknown == unknownIgnore || t.config.Mode == table.Changelog && f.Name == t.config.Op) {
				continue
			}
			take(f.Name, ": add it, drop the field, or set unknown_fields: ignore")
		}
	default:
		for _, c := range all {
			if !c.generated {
				out = append(out, c)
			}
		}
	}
	for _, c := range all {
		written := slices.ContainsFunc(out, func(o sinkColumn) bool { return strings.EqualFold(o.name, c.name) })
		if !written && c.notNull && !c.hasDefault && !c.generated {
			faults = append(faults, fmt.Sprintf("column %s must have a value, and nothing is written to it", c.name))
		}
	}
	return out, faults
}

// checkKey finds the key. ON DUPLICATE KEY goes by any unique index, so that with a second
// one a row could overwrite another than the one of its key.
func (t *target) checkKey(ctx context.Context) (faults []string, err error) {
	if t.config.Mode == table.Insert {
		return nil, nil
	}
	rows, err := t.db.QueryContext(ctx, "SELECT index_name, column_name FROM information_schema.statistics WHERE table_schema = ? AND table_name = ? AND non_unique = 0 ORDER BY index_name, seq_in_index", t.database, t.name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	indexes := map[string][]string{}
	for rows.Next() {
		var index, column string
		if err := rows.Scan(&index, &column); err != nil {
			return nil, err
		}
		indexes[index] = append(indexes[index], column)
	}
	if len(t.config.Key) == 0 {
		t.key = slices.Clone(indexes["PRIMARY"])
	}
	found := false
	for name, cols := range indexes {
		if sameSet(cols, t.key) {
			found = true
			continue
		}
		faults = append(faults, fmt.Sprintf("it has the unique index %s beside the key: a row that meets another one there would overwrite it; drop the index, or use mode: insert", name))
	}
	switch {
	case len(t.key) == 0:
		return []string{"it has no primary key: set key to the columns that tell rows apart"}, rows.Err()
	case !found:
		faults = append(faults, fmt.Sprintf("it has no unique index on exactly the key (%s)", strings.Join(t.key, ", ")))
	}
	for _, k := range t.key {
		if !slices.ContainsFunc(t.columns, func(c sinkColumn) bool { return c.name == k }) {
			faults = append(faults, fmt.Sprintf("nothing is written to the key column %s", k))
		}
	}
	return faults, rows.Err()
}

func sameSet(a, b []string) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(x string) bool {
		return !slices.ContainsFunc(b, func(y string) bool { return strings.EqualFold(x, y) })
	})
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
		key := slices.Contains(t.config.Key, c.Name)
		item := quote(c.Name) + " " + typeName(c.Type, key)
		if !c.Type.Nullable || key {
			item += " NOT NULL"
		} else {
			item += " NULL"
		}
		items = append(items, item)
	}
	if t.config.Mode != table.Insert {
		items = append(items, "PRIMARY KEY ("+names(t.config.Key)+")")
	}
	return "CREATE TABLE IF NOT EXISTS " + t.table + " (" + strings.Join(items, ", ") + ") ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", nil
}

// names lists identifiers.
func names(list []string) string {
	out := make([]string, len(list))
	for i, n := range list {
		out[i] = quote(n)
	}
	return strings.Join(out, ", ")
}

// typeName is the type of MySQL that holds a type. Text and bytes of a key have a length.
func typeName(t connectors.Type, key bool) string {
	switch t.Base {
	case connectors.Integer:
		name := map[int]string{8: "tinyint", 16: "smallint", 32: "int"}[t.Bits]
		if name == "" {
			name = "bigint"
		}
		if t.Unsigned {
			name += " unsigned"
		}
		return name
	case connectors.Real:
		if t.Bits == 32 {
			return "float"
		}
		return "double"
	case connectors.Exact:
		if t.Precision > 0 {
			return fmt.Sprintf("decimal(%d, %d)", t.Precision, t.Scale)
		}
		return "decimal(65, 30)"
	case connectors.Text:
		if key {
			return "varchar(255)"
		}
		return "longtext"
	case connectors.Binary:
		if key {
			return "varbinary(255)"
		}
		return "longblob"
	}
	if name, ok := typeNames[t.Base]; ok {
		return name
	}
	return "json"
}

var typeNames = map[connectors.Base]string{
	connectors.Boolean: "boolean", connectors.Instant: "datetime(6)", connectors.Local: "datetime(6)", connectors.Date: "date",
	connectors.TimeOfDay: "time(6)", connectors.Span: "bigint", connectors.UUID: "char(36)",
}
