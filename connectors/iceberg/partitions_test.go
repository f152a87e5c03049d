package iceberg

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	ice "github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/catalog"

	"github.com/sluice-etl/sluice/connectors"
)

// transforms are the transforms of partitions by the types that they take, as
// partition_by has them; none stands for a column itself.
var transforms = map[string][]string{
	"bucket(7, %s)":   {"int", "long", "decimal", "date", "time", "timestamp", "timestamptz", "string", "uuid", "fixed", "binary"},
	"truncate(3, %s)": {"int", "long", "string", "binary"},
	"year(%s)":        {"date", "timestamp", "timestamptz"},
	"month(%s)":       {"date", "timestamp", "timestamptz"},
	"day(%s)":         {"date", "timestamp", "timestamptz"},
	"hour(%s)":        {"timestamp", "timestamptz"},
	"%s":              {"boolean", "int", "long", "float", "double", "decimal", "date", "time", "timestamp", "timestamptz", "string", "uuid", "binary"},
}

// partitionsTable makes a table that is partitioned by every transform of every type, of
// columns of their own, and rows with the values of typeCases and with nulls. It returns
// the rows as readers show them.
func partitionsTable(t testing.TB) (SinkConfig, []string) {
	t.Helper()
	var fields []ice.NestedField
	var by []string
	values := map[string][][2]string{} // by column: as the rows have them and as readers show them
	for _, call := range slices.Sorted(maps.Keys(transforms)) {
		for _, name := range transforms[call] {
			tc := typeCases[slices.IndexFunc(typeCases, func(c typeCase) bool { return c.name == name })]
			column := fmt.Sprintf("c%d", len(fields))
			fields = append(fields, optional(len(fields)+1, column, tc.typ))
			by = append(by, fmt.Sprintf(call, column))
			for _, in := range slices.Sorted(maps.Keys(tc.takes)) {
				values[column] = append(values[column], [2]string{in, tc.takes[in]})
			}
		}
	}
	schema := ice.NewSchema(0, fields...)
	spec, err := newSpec(schema, by)
	if err != nil {
		t.Fatal(err)
	}
	c := localConfig(t)
	c.Create, c.Columns = false, nil
	createTable(t, c, schema, catalog.WithPartitionSpec(&spec))
	rows := []changedRow{{value: "{}"}}
	var want strings.Builder
	for n := range 8 {
		in, out := map[string]json.RawMessage{}, map[string]json.RawMessage{}
		for column, list := range values {
			v := list[n%len(list)]
			in[column], out[column] = json.RawMessage(v[0]), json.RawMessage(v[1])
			if n == 0 {
				in[column], out[column] = nil, json.RawMessage("null")
			}
		}
		row, _ := json.Marshal(in)
		line, _ := json.Marshal(out)
		rows = append(rows, changedRow{value: string(row)})
		want.Write(append(line, '\n'))
		if n == 0 { // for the row without any field
			want.Write(append(line, '\n'))
		}
	}
	d := drive(t, c, 1)
	if refused := d.write(0, rows...); refused != nil {
		t.Fatalf("%+v", refused)
	}
	d.checkpoint()
	return c, sortedLines(t, want.String())
}

func TestRowsOfEveryPartitionTransformAreReadBack(t *testing.T) {
	c, want := partitionsTable(t)
	sameRows(t, tableRows(t, c), want)
}

// TestRowsThatCameIntoNoFileAreMissed is about files that could not be made, of which the
// library says nothing.
func TestRowsThatCameIntoNoFileAreMissed(t *testing.T) {
	c := localConfig(t)
	c.Columns, c.PartitionBy = columnList(t, map[string]any{"s": "string"}), []string{"s"}
	d := drive(t, c, 1)
	d.write(0, changedRow{value: `{"s":"fits"}`}, changedRow{value: `{"s":"` + strings.Repeat("x", 300) + `"}`})
	batch, err := d.writers[0].take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.sink.view.write(t.Context(), d.sink.schema, nil, batch); err == nil {
		t.Error("a folder's name that is too long costs a row without an error")
	}
}

// TestPartitionsThatCannotBeDescribedAreRefused is about what would be tried in vain for
// long, or make the table unreadable.
func TestPartitionsThatCannotBeDescribedAreRefused(t *testing.T) {
	for _, typ := range []ice.Type{ice.DecimalTypeOf(38, 10), ice.PrimitiveTypes.UUID, ice.FixedTypeOf(4)} {
		schema := ice.NewSchema(0, optional(1, "a", typ), optional(2, "b", typ))
		spec, err := newSpec(schema, []string{"a", "b"})
		if err != nil {
			t.Fatal(err)
		}
		c := localConfig(t)
		c.Create, c.Columns = false, nil
		createTable(t, c, schema, catalog.WithPartitionSpec(&spec))
		if _, err := tryDrive(t, c, 1); err == nil || !strings.Contains(err.Error(), "(a") || !connectors.IsPermanent(err) {
			t.Errorf("%s: error %v", typ, err)
		}
	}
}

func TestDecimalsAreTruncatedIntoPartitions(t *testing.T) {
	c := localConfig(t)
	c.Columns, c.PartitionBy = columnList(t, map[string]any{"d": "decimal(38, 2)"}), []string{"truncate(50, d)"}
	d := drive(t, c, 1)
	d.write(0, changedRow{value: `{"d":10.65}`}, changedRow{value: `{"d":-0.01}`}, changedRow{value: `{"d":999999999999999999999999999999999999.99}`})
	d.checkpoint()
	sameRows(t, tableRows(t, c), sortedLines(t, `{"d":"10.65"}`+"\n"+`{"d":"-0.01"}`+"\n"+`{"d":"999999999999999999999999999999999999.99"}`))
}

// TestVoidPartitionsTakeRows is about what is left of a partition field that was removed
// from a table of format 1.
func TestVoidPartitionsTakeRows(t *testing.T) {
	c := localConfig(t)
	c.Create, c.Columns, c.Mode, c.Key = false, nil, modeUpsert, []string{"id"}
	schema := ice.NewSchema(0, ice.NestedField{ID: 1, Name: "id", Type: ice.PrimitiveTypes.Int32, Required: true}, optional(2, "v", ice.PrimitiveTypes.String))
	spec, err := ice.NewPartitionSpecOpts(ice.AddPartitionFieldByName("v", "v_void", ice.VoidTransform{}, schema, nil))
	if err != nil {
		t.Fatal(err)
	}
	createTable(t, c, schema, catalog.WithPartitionSpec(&spec))
	d := drive(t, c, 1)
	d.write(0, put1(1, "a"), put1(2, "a"))
	d.checkpoint()
	d.write(0, put1(1, "b"))
	d.checkpoint()
	sameRows(t, tableRows(t, c), sortedLines(t, `{"id":1,"v":"b"}`+"\n"+`{"id":2,"v":"a"}`))
}
