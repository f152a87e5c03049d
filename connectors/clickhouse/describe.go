package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
)

// sinkColumn is a column of the table that rows are written to.
type sinkColumn struct {
	name       string
	text       string // the type as the server writes it
	hasDefault bool
	generated  bool // the table makes its values, and takes none
	hidden     bool // EPHEMERAL: written only where it is named
	codec      *codec
}

const (
	leastWindow     = 100  // blocks
	suggestedWindow = 1000 // likewise
)

// description is what the server says of a table.
type description struct {
	Engine string
	Full   string   // the engine with its settings
	Create string   // the statement that makes the table
	Views  []string // materialized views that read it
}

// describe compares the table with what is written to it.
func (t *target) describe(ctx context.Context) error {
	tables, err := ask[description](ctx, t.client, "SELECT engine AS Engine, engine_full AS Full, create_table_query AS Create, dependencies_table AS Views FROM system.tables WHERE "+t.where("name"))
	if err != nil {
		return err
	}
	if len(tables) == 0 {
		if t.config.Create.On && t.env.ReadOnly {
			return nil
		}
		return connectors.Permanent(fmt.Errorf("there is no table %s, or the user may not see it: make it, or set create to have it made", t.table))
	}
	d := &tables[0]
	faults, err := t.checkEngine(ctx, d)
	if err != nil {
		return err
	}
	all, err := t.readColumns(ctx)
	if err != nil {
		return err
	}
	var more []string
	t.columns, more = t.choose(all)
	if faults = append(faults, more...); len(faults) > 0 {
		return connectors.Permanent(fmt.Errorf("table %s cannot be written: %s", t.table, strings.Join(faults, "; ")))
	}
	if len(d.Views) > 0 {
		t.env.Log.Warn("materialized views read the table: a block that is sent again adds nothing to theirs only where they remember blocks too, by the same settings", "views", d.Views)
	}
	return nil
}

func (t *target) where(name string) string {
	return "database = " + literal(t.config.Database) + " AND " + name + " = " + literal(t.config.Table)
}

var (
	quotedText = regexp.MustCompile(`'(?:[^'\\]|\\.|'')*'`)
	conditions = regexp.MustCompile("CONSTRAINT (`(?:[^`\\\\]|\\\\.)*`|\\S+) CHECK ")
)

// checkEngine finds out whether the table remembers blocks, and how many.
func (t *target) checkEngine(ctx context.Context, d *description) (faults []string, err error) {
	if !strings.HasSuffix(d.Engine, "MergeTree") {
		return []string{fmt.Sprintf("its engine is %s, and only those of the MergeTree family remember blocks: name the table behind it, or make one", d.Engine)}, nil
	}
	setting := "non_replicated_deduplication_window"
	if strings.HasPrefix(d.Engine, "Replicated") || strings.HasPrefix(d.Engine, "Shared") {
		setting = "replicated_deduplication_window"
	}
	if t.window, err = t.setting(ctx, d, setting); err != nil {
		return nil, err
	}
	if t.window < leastWindow {
		faults = append(faults, fmt.Sprintf("it remembers %d blocks, and %d are needed at least, so that a block which is sent again adds nothing: run ALTER TABLE %s MODIFY SETTING %s = %d",
			t.window, leastWindow, t.table, setting, suggestedWindow))
	}
	if m := conditions.FindStringSubmatch(quotedText.ReplaceAllString(d.Create, "''")); m != nil {
		faults = append(faults, fmt.Sprintf("it has the constraint %s, which refuses a block as a whole for one of its rows: drop it, and filter the rows in the pipeline", m[1]))
	}
	return faults, nil
}

// setting is the value of a setting of the table: its own, else the server's.
func (t *target) setting(ctx context.Context, d *description, name string) (int, error) {
	own := regexp.MustCompile(`[ ,]` + name + ` = (\d+)`).FindStringSubmatch(quotedText.ReplaceAllString(d.Full, "''"))
	if own != nil {
		return strconv.Atoi(own[1])
	}
	from := "merge_tree_settings"
	if strings.HasPrefix(d.Engine, "Replicated") {
		from = "replicated_merge_tree_settings"
	}
	rows, err := ask[struct{ Value string }](ctx, t.client, "SELECT value AS Value FROM system."+from+" WHERE name = "+literal(name))
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	n, err := strconv.ParseUint(rows[0].Value, 10, 31)
	return int(n), err
}

func (t *target) readColumns(ctx context.Context) ([]sinkColumn, error) {
	rows, err := ask[struct{ Name, Type, Kind string }](ctx, t.client, "SELECT name AS Name, type AS Type, default_kind AS Kind FROM system.columns WHERE "+t.where("table")+" ORDER BY position")
	if err != nil {
		return nil, err
	}
	out := make([]sinkColumn, 0, len(rows))
	for _, r := range rows {
		c := sinkColumn{name: r.Name, text: r.Type, hasDefault: r.Kind == "DEFAULT" || r.Kind == "EPHEMERAL", generated: r.Kind == "MATERIALIZED" || r.Kind == "ALIAS", hidden: r.Kind == "EPHEMERAL"}
		c.codec = newCodec(r.Type, t.zone, t.rowType(r.Name))
		out = append(out, c)
	}
	return out, nil
}

// rowType is the type of what the rows have for a column, where it is known: that of an
// expression is where it is a field.
func (t *target) rowType(name string) connectors.Type {
	field := name
	if i := slices.IndexFunc(t.config.Columns, func(a connectors.Assignment) bool { return a.Name == name }); i >= 0 {
		field = t.config.Columns[i].Expr.Text
	}
	if i := slices.IndexFunc(t.env.Columns, func(c connectors.Column) bool { return c.Name == field }); i >= 0 {
		return t.env.Columns[i].Type
	}
	if i := slices.IndexFunc(t.config.Create.Columns, func(c connectors.Column) bool { return c.Name == name }); i >= 0 {
		return t.config.Create.Columns[i].Type
	}
	return connectors.Type{}
}

// choose picks the columns that are written, and lists what is wrong with them.
func (t *target) choose(all []sinkColumn) (out []sinkColumn, faults []string) {
	take := func(name, what string) {
		switch i := slices.IndexFunc(all, func(c sinkColumn) bool { return c.name == name }); {
		case i < 0:
			faults = append(faults, fmt.Sprintf("it has no column %s%s", name, what))
		case all[i].generated:
			faults = append(faults, fmt.Sprintf("it makes the values of column %s itself", name))
		case all[i].codec == nil:
			faults = append(faults, fmt.Sprintf("column %s is of type %s, which this sink does not write", name, all[i].text))
		default:
			out = append(out, all[i])
		}
	}
	switch {
	case len(t.config.Columns) > 0:
		for _, a := range t.config.Columns {
			take(a.Name, "")
		}
	case t.env.Columns != nil:
		for _, f := range t.env.Columns {
			if t.config.Unknown == unknownIgnore && !slices.ContainsFunc(all, func(c sinkColumn) bool { return c.name == f.Name }) {
				continue
			}
			take(f.Name, ": add it, drop the field, or set unknown_fields: ignore")
		}
	default:
		for i := range all {
			if c := &all[i]; !c.generated && !c.hidden && c.codec != nil {
				out = append(out, *c)
			}
		}
	}
	if len(out) == 0 && len(faults) == 0 {
		faults = append(faults, "none of its columns can be written")
	}
	return out, faults
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
	items := make([]string, len(cols))
	for i, c := range cols {
		items[i] = quote(c.Name) + " " + typeName(c.Type, slices.Contains(t.config.OrderBy, c.Name))
	}
	order := make([]string, len(t.config.OrderBy))
	for i, name := range t.config.OrderBy {
		order[i] = quote(name)
	}
	return fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s (%s) ENGINE = MergeTree ORDER BY (%s) SETTINGS non_replicated_deduplication_window = %d",
		t.table, strings.Join(items, ", "), strings.Join(order, ", "), suggestedWindow), nil
}

// typeName is the type of ClickHouse that holds a type. What a table is sorted by, lists
// and tuples are never null.
func typeName(t connectors.Type, sorted bool) string {
	name := plainName(t)
	switch t.Base {
	case connectors.Sequence, connectors.Struct, connectors.Dictionary:
		return name
	}
	if t.Nullable && !sorted {
		return "Nullable(" + name + ")"
	}
	return name
}

func plainName(t connectors.Type) string {
	switch t.Base {
	case connectors.Integer:
		bits := t.Bits
		if bits == 0 {
			bits = 64
		}
		if t.Unsigned {
			return fmt.Sprintf("UInt%d", bits)
		}
		return fmt.Sprintf("Int%d", bits)
	case connectors.Real:
		if t.Bits == 32 {
			return "Float32"
		}
		return "Float64"
	case connectors.Exact:
		if t.Precision > 0 {
			return fmt.Sprintf("Decimal(%d, %d)", t.Precision, t.Scale)
		}
		return "Decimal(76, 38)"
	case connectors.Sequence:
		return "Array(" + typeName(*t.Elem, false) + ")"
	case connectors.Dictionary:
		return "Map(String, " + typeName(*t.Elem, false) + ")"
	case connectors.Struct:
		items := make([]string, len(t.Fields))
		for i, f := range t.Fields {
			items[i] = quote(f.Name) + " " + typeName(f.Type, false)
		}
		return "Tuple(" + strings.Join(items, ", ") + ")"
	}
	if name, ok := typeNames[t.Base]; ok {
		return name
	}
	return "String"
}

var typeNames = map[connectors.Base]string{
	connectors.Boolean: "Bool", connectors.Instant: "DateTime64(6, 'UTC')", connectors.Local: "DateTime64(6, 'UTC')", connectors.Date: "Date32",
	connectors.Span: "Int64", connectors.UUID: "UUID",
}
