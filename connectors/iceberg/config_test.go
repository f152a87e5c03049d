package iceberg

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	ice "github.com/apache/iceberg-go"

	"github.com/sluice-etl/sluice/connectors"
)

func TestSettingsOfUpsertsThatCannotWorkAreRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*SinkConfig)
		key    string // of the fault; none for ""
	}{
		"all is well":                        {func(*SinkConfig) {}, ""},
		"a table with identifier fields":     {func(c *SinkConfig) { c.Key, c.Create, c.Columns = nil, false, nil }, ""},
		"append with a key":                  {func(c *SinkConfig) { c.Mode = modeAppend }, "key"},
		"a name twice":                       {func(c *SinkConfig) { c.Key = []string{"id", "id"} }, "key"},
		"a changelog":                        {func(c *SinkConfig) { c.Changelog = true }, "changelog"},
		"a new table without a key":          {func(c *SinkConfig) { c.Key = nil }, "key"},
		"a key that is no column":            {func(c *SinkConfig) { c.Key = []string{"id", "nope"} }, "key"},
		"a key that may be null":             {func(c *SinkConfig) { c.Key = []string{"v"} }, "columns"},
		"a key of floats":                    {func(c *SinkConfig) { c.Key = []string{"f"} }, "key"},
		"partitions by a column of the key":  {func(c *SinkConfig) { c.PartitionBy = []string{"bucket(4, id)"} }, ""},
		"partitions by another column":       {func(c *SinkConfig) { c.PartitionBy = []string{"truncate(4, v)"} }, "partition_by"},
		"a table of format 1":                {func(c *SinkConfig) { c.Properties = map[string]string{"format-version": "1"} }, "properties"},
		"a transform that there is not":      {func(c *SinkConfig) { c.PartitionBy = []string{"week(id)"} }, "partition_by"},
		"a transform of a type without it":   {func(c *SinkConfig) { c.PartitionBy = []string{"hour(id)"} }, "partition_by"},
		"a transform without its width":      {func(c *SinkConfig) { c.PartitionBy = []string{"bucket(id)"} }, "partition_by"},
		"a transform with a width too many":  {func(c *SinkConfig) { c.PartitionBy = []string{"identity(3, id)"} }, "partition_by"},
		"settings of a new table without it": {func(c *SinkConfig) { c.Create, c.PartitionBy = false, []string{"id"} }, "partition_by"},
	} {
		c := upsertConfig(t)
		c.Columns = append(c.Columns, columnList(t, map[string]any{"f": "float"})...)
		tt.change(&c)
		err := c.Validate()
		var fault *connectors.FieldError
		switch {
		case tt.key == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tt.key != "" && (!errors.As(err, &fault) || fault.Key != tt.key):
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestRowsThatDoNotFitTheTableAreToldAtTheStart(t *testing.T) {
	fields := []ice.NestedField{
		{ID: 1, Name: "id", Type: ice.PrimitiveTypes.Int32, Required: true},
		optional(2, "amount", ice.DecimalTypeOf(10, 2)), optional(3, "at", ice.PrimitiveTypes.Timestamp),
		optional(4, "tags", &ice.ListType{ElementID: 5, Element: ice.PrimitiveTypes.String}),
		optional(6, "where", &ice.StructType{FieldList: []ice.NestedField{{ID: 7, Name: "x", Type: ice.PrimitiveTypes.Float64, Required: true}}}),
	}
	id := map[string]any{"id": "int32"}
	one := func(name string, typ any) []any { return []any{id, map[string]any{name: typ}} }
	where := func(typ string) []any { return one("where", []any{map[string]any{"x": typ}}) }
	for _, tt := range []struct {
		columns []any
		want    string // in the error; none for ""
	}{
		{[]any{id}, ""},
		{[]any{map[string]any{"id": "int32?"}}, "column id may be null"},
		{[]any{map[string]any{"id": "int"}}, "column id: it is int of 64 bits"},
		{[]any{map[string]any{"id": "uint32"}}, "column id: it is int of 32 bits"},
		{[]any{map[string]any{"id": "string"}}, "column id: it is string"},
		{[]any{map[string]any{"amount": "decimal(10, 2)"}}, "the table requires the column id"},
		{one("amount", "decimal(11, 2)"), "does not fit into decimal(10, 2)"},
		{one("amount", "decimal(10, 3)"), "does not fit into decimal(10, 2)"},
		{one("more", "int"), "no column more"},
		{one("at", "timestamp"), "has no zone"},
		{one("at", "timestamp_local"), ""},
		{one("tags", []any{"int"}), "column tags: element: it is int"},
		{one("tags", []any{"string"}), ""},
		{where("float32"), ""},
		{where("float?"), "column x may be null"},
		{where("decimal(3, 1)"), ""},
		{where("string"), "column x: it is string"},
		{one("where", []any{map[string]any{"y": "float"}}), "no column y"},
	} {
		c := localConfig(t)
		c.Create, c.Columns = false, columnList(t, tt.columns...)
		createTable(t, c, ice.NewSchema(0, fields...))
		_, err := tryDrive(t, c, 1)
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%v: %v", tt.columns, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || !connectors.IsPermanent(err)):
			t.Errorf("%v: error %v", tt.columns, err)
		}
	}
}

// A look at a database without a catalog makes nothing there, and says what a start would
// meet: that it makes the table, or lacks it.
func TestALookMakesNoCatalog(t *testing.T) {
	for name, prepare := range map[string]func(path string) error{
		"no file":  func(string) error { return nil },
		"no lists": func(path string) error { return os.WriteFile(path, nil, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			c := localConfig(t)
			c.Columns = columnList(t, map[string]any{"id": "int"})
			path := strings.TrimPrefix(c.Catalog.URL, sqliteScheme)
			if err := prepare(path); err != nil {
				t.Fatal(err)
			}
			for create, want := range map[bool]string{true: "", false: "there is no table"} {
				c.Create = create
				s := NewSink(c)
				err := s.Open(t.Context(), connectors.SinkEnv{Pipeline: "test", Name: "out", ReadOnly: true})
				if create != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("create: %v: open: %v", create, err)
				}
				if create && err == nil {
					if _, ok, err := s.Committer().Witness(t.Context()); ok || err != nil {
						t.Errorf("witness: %v, %v", ok, err)
					}
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
			if name == "no file" {
				if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("the look made the database: %v", err)
				}
			}
		})
	}
}
