package iceberg

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	ice "github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/catalog"
	"github.com/apache/iceberg-go/table"

	"github.com/sluice-etl/sluice/connectors"
)

// upsertConfig is a table of rows that replace each other by id.
func upsertConfig(t testing.TB) SinkConfig {
	t.Helper()
	c := localConfig(t)
	c.Mode, c.Key = modeUpsert, []string{"id"}
	c.Columns = columnList(t, map[string]any{"id": "int"}, map[string]any{"v": "string?"})
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	return c
}

func put1(id int, v string) changedRow {
	return changedRow{value: fmt.Sprintf(`{"id":%d,"v":%q}`, id, v)}
}

func TestUpsertKeepsTheLastChangeOfEachKey(t *testing.T) {
	c := upsertConfig(t)
	d := drive(t, c, 1)
	d.write(0, put1(1, "a"), put1(2, "a"), put1(3, "a"), put1(1, "b"))
	d.checkpoint()
	sameRows(t, tableRows(t, c), sortedLines(t, `{"id":1,"v":"b"}`+"\n"+`{"id":2,"v":"a"}`+"\n"+`{"id":3,"v":"a"}`))
	d.write(0,
		changedRow{op: connectors.UpdateBefore, value: `{"id":1,"v":"b"}`}, changedRow{op: connectors.UpdateAfter, value: `{"id":1,"v":"c"}`},
		changedRow{op: connectors.UpdateBefore, value: `{"id":2,"v":"a"}`}, changedRow{op: connectors.UpdateAfter, value: `{"id":4,"v":"a"}`},
		changedRow{op: connectors.Delete, value: `{"id":3,"v":"a"}`},
		put1(5, "a"), changedRow{op: connectors.Delete, value: `{"id":5}`},
		changedRow{op: connectors.Delete, value: `{"id":6}`}, put1(6, "a"))
	d.checkpoint()
	sameRows(t, tableRows(t, c), sortedLines(t, `{"id":1,"v":"c"}`+"\n"+`{"id":4,"v":"a"}`+"\n"+`{"id":6,"v":"a"}`))
	d.write(0, changedRow{op: connectors.Delete, value: `{"id":1}`}, changedRow{op: connectors.Delete, value: `{"id":99}`})
	d.checkpoint()
	sameRows(t, tableRows(t, c), sortedLines(t, `{"id":4,"v":"a"}`+"\n"+`{"id":6,"v":"a"}`))
}

func TestUpsertOfTombstonesDeletesByTheRecordsKey(t *testing.T) {
	c := upsertConfig(t)
	d := drive(t, c, 1)
	d.write(0, put1(1, "a"), put1(2, "a"), put1(3, "a"))
	d.checkpoint()
	refused := d.write(0, changedRow{key: `1`}, changedRow{key: `{"id":2,"more":true}`}, changedRow{}, changedRow{key: `{"v":1}`}, changedRow{key: `x`},
		changedRow{value: `{"v":"without a key"}`}, changedRow{value: `{"id":null}`})
	var rows []int
	for _, r := range refused {
		rows = append(rows, r.Row)
	}
	if fmt.Sprint(rows) != "[2 3 4 5 6]" {
		t.Errorf("refused are %+v", refused)
	}
	d.checkpoint()
	sameRows(t, tableRows(t, c), sortedLines(t, `{"id":3,"v":"a"}`))
}

func TestKeysOfRecordsThatAreNoTextAreRefused(t *testing.T) {
	c := upsertConfig(t)
	c.Columns = columnList(t, map[string]any{"id": "string"}, map[string]any{"v": "string?"})
	d := drive(t, c, 1)
	refused := d.write(0, changedRow{key: "\xff"}, changedRow{key: "plain text"})
	if len(refused) != 1 || refused[0].Row != 0 || !strings.Contains(refused[0].Reason, "UTF-8") {
		t.Errorf("%+v", refused)
	}
}

// upsertConfigs are tables of every kind that takes upserts.
func upsertConfigs(t testing.TB) map[string]SinkConfig {
	t.Helper()
	plain, parts, format3 := upsertConfig(t), upsertConfig(t), upsertConfig(t)
	parts.PartitionBy = []string{"bucket(3, id)", "truncate(5, id)"}
	format3.Properties = map[string]string{"format-version": "3"}
	return map[string]SinkConfig{"unpartitioned": plain, "partitioned": parts, "format 3": format3}
}

// randomUpserts writes random changes in batches of any size, so that keys come again
// within a batch, a checkpoint and later. After each checkpoint check is given the rows
// that there are.
func randomUpserts(t *testing.T, c SinkConfig, check func(want []string)) (want []string) {
	t.Helper()
	d := drive(t, c, 2)
	rng := rand.New(rand.NewPCG(1, 2))
	rows := map[int]string{}
	for checkpoint := range 6 {
		for _, w := range d.writers {
			w.limit = int64(rng.IntN(400)) + 1
		}
		for n := range rng.IntN(40) {
			id, v := rng.IntN(12), fmt.Sprintf("%d/%d", checkpoint, n)
			row := put1(id, v)
			rows[id] = v
			if rng.IntN(4) == 0 {
				row.op = connectors.Delete
				delete(rows, id)
			}
			d.write(id%2, row)
		}
		d.checkpoint()
		var text strings.Builder
		for id, v := range rows {
			fmt.Fprintf(&text, "{\"id\":%d,\"v\":%q}\n", id, v)
		}
		want = sortedLines(t, text.String())
		check(want)
	}
	return want
}

func TestUpsertsOfAnyOrderLeaveWhatAMapHolds(t *testing.T) {
	for name, c := range upsertConfigs(t) {
		t.Run(name, func(t *testing.T) {
			randomUpserts(t, c, func(want []string) { sameRows(t, tableRows(t, c), want) })
		})
	}
}

// TestUpsertsOfOneKeyInTwoSubtasksLeaveOneRow is about rows whose order nobody knows.
func TestUpsertsOfOneKeyInTwoSubtasksLeaveOneRow(t *testing.T) {
	c := upsertConfig(t)
	d := drive(t, c, 2)
	d.write(0, put1(1, "of 0"), put1(2, "of 0"))
	d.write(1, put1(1, "of 1"), put1(3, "of 1"))
	d.checkpoint()
	if got := tableRows(t, c); len(got) != 3 {
		t.Errorf("the table has %q", got)
	}
}

// A row takes the width of all of its columns in memory, also one that deletes and is as
// short as its key.
func TestRowsCountForWhatTheyTakeInMemory(t *testing.T) {
	d := drive(t, upsertConfig(t), 1)
	w := d.writers[0]
	w.limit = 3 * w.rows.width
	if w.rows.width < keyWidth+8 {
		t.Errorf("a row counts for %d bytes", w.rows.width)
	}
	d.write(0, changedRow{op: connectors.Delete, value: `{"id":1}`}, changedRow{op: connectors.Delete, value: `{"id":2}`})
	if len(w.full) != 0 {
		t.Fatal("rows are written too soon")
	}
	d.write(0, changedRow{op: connectors.Delete, value: `{"id":3}`})
	if len(w.full) != 1 {
		t.Error("rows are held beyond the limit")
	}
	d.checkpoint()
}

// TestOneCommitNamesItsCheckpointOnce looks at the snapshots of a commit with a key in two
// of its parts.
func TestOneCommitNamesItsCheckpointOnce(t *testing.T) {
	c := upsertConfig(t)
	d := drive(t, c, 1)
	d.writers[0].limit = 1
	d.write(0, put1(1, "a"))
	d.write(0, put1(2, "a"))
	d.write(0, put1(1, "b"))
	d.checkpoint()
	tbl := loadTable(t, c)
	var named []string
	for s := range (&view{tbl, c.Branch}).summaries() {
		named = append(named, s[sumCheckpoint])
	}
	if strings.Join(named, ",") != "1," {
		t.Errorf("from the newest on, the snapshots name the checkpoints %q", named)
	}
	sameRows(t, tableRows(t, c), sortedLines(t, `{"id":1,"v":"b"}`+"\n"+`{"id":2,"v":"a"}`))
	// The first commit made the table, the second one all of this.
	versions := 0
	for range tbl.Metadata().PreviousFiles() {
		versions++
	}
	if versions != 1 {
		t.Errorf("the table had %d versions before this one", versions)
	}
}

// TestKeysThatAreWrittenDifferentlyAreOne is about values of each type that can be a key.
func TestKeysThatAreWrittenDifferentlyAreOne(t *testing.T) {
	for _, tc := range typeCases {
		if checkKeyType(ice.NestedField{Type: tc.typ}) != nil {
			continue
		}
		t.Run(tc.name, func(t *testing.T) {
			c := localConfig(t)
			c.Create, c.Columns, c.Mode, c.Key = false, nil, modeUpsert, nil
			schema := ice.NewSchemaWithIdentifiers(0, []int{1}, ice.NestedField{ID: 1, Name: "a key", Type: tc.typ, Required: true}, optional(2, "v", ice.PrimitiveTypes.Int32))
			createTable(t, c, schema)
			d := drive(t, c, 1)
			keys := map[string]bool{} // as readers show them
			var in []string
			for k, shown := range tc.takes {
				in, keys[shown] = append(in, k), true
			}
			for v := range 3 {
				for _, k := range in {
					if refused := d.write(0, changedRow{value: fmt.Sprintf(`{"a key":%s,"v":%d}`, k, v)}); refused != nil {
						t.Fatalf("%s: %+v", k, refused)
					}
				}
				if v > 0 {
					d.checkpoint()
				}
			}
			var want strings.Builder
			for shown := range keys {
				fmt.Fprintf(&want, "{\"a key\":%s,\"v\":2}\n", shown)
			}
			sameRows(t, tableRows(t, c), sortedLines(t, want.String()))
			for _, k := range in {
				d.write(0, changedRow{op: connectors.Delete, value: fmt.Sprintf(`{"a key":%s}`, k)})
			}
			d.checkpoint()
			sameRows(t, tableRows(t, c), nil)
		})
	}
}

// keysTable makes a table whose key is a column of every type that can be one, with values
// at their limits, replaces each of its rows and deletes one of two. It returns the rows as
// readers show them.
func keysTable(t testing.TB) (SinkConfig, []string) {
	t.Helper()
	c := localConfig(t)
	c.Create, c.Columns, c.Mode = false, nil, modeUpsert
	fields := []ice.NestedField{optional(1, "v", ice.PrimitiveTypes.String)}
	var cases []typeCase
	for _, tc := range typeCases {
		if checkKeyType(ice.NestedField{Type: tc.typ}) == nil {
			cases = append(cases, tc)
			fields = append(fields, optional(len(fields)+1, tc.name, tc.typ))
			c.Key = append(c.Key, tc.name)
		}
	}
	createTable(t, c, ice.NewSchema(0, fields...))
	d := drive(t, c, 1)
	const rows = 6
	for _, v := range []string{"old", "new"} {
		for n := range rows {
			d.write(0, changedRow{value: `{` + keyOfRow(cases, n, 0) + `,"v":"` + v + `"}`})
		}
		d.checkpoint()
	}
	var want strings.Builder
	for n := range rows {
		if n%2 == 0 {
			d.write(0, changedRow{op: connectors.Delete, value: `{` + keyOfRow(cases, n, 0) + `}`})
			continue
		}
		want.WriteString(`{` + keyOfRow(cases, n, 1) + `,"v":"new"}` + "\n")
	}
	d.checkpoint()
	return c, sortedLines(t, want.String())
}

// keyOfRow is the fields of the nth row, as the rows have them for 0 and as readers show
// them for 1.
func keyOfRow(cases []typeCase, n, form int) string {
	var out []string
	for _, tc := range cases {
		in := slices.Sorted(maps.Keys(tc.takes))
		v := in[n%len(in)]
		if tc.name == "int" { // tells the rows apart
			in = []string{"-2147483648", "-1", "0", "1", "2147483646", "2147483647"}
			out = append(out, fmt.Sprintf("%q:%s", tc.name, in[n]))
			continue
		}
		out = append(out, fmt.Sprintf("%q:%s", tc.name, []string{v, tc.takes[v]}[form]))
	}
	return strings.Join(out, ",")
}

func TestKeysOfEveryTypeFindTheirRows(t *testing.T) {
	c, want := keysTable(t)
	sameRows(t, tableRows(t, c), want)
}

func TestKeysThatTheRowsLackAreToldAtTheStart(t *testing.T) {
	c := localConfig(t)
	c.Create, c.Mode, c.Key = false, modeUpsert, []string{"id"}
	c.Columns = columnList(t, map[string]any{"v": "string?"})
	createTable(t, c, ice.NewSchema(0, optional(1, "id", ice.PrimitiveTypes.Int32), optional(2, "v", ice.PrimitiveTypes.String)))
	if _, err := tryDrive(t, c, 1); err == nil || !strings.Contains(err.Error(), "no column id") || !connectors.IsPermanent(err) {
		t.Errorf("error %v", err)
	}
}

func TestTablesThatCannotBeUpsertedAreRefused(t *testing.T) {
	fields := []ice.NestedField{
		{ID: 1, Name: "id", Type: ice.PrimitiveTypes.Int64, Required: true}, {ID: 2, Name: "day", Type: ice.PrimitiveTypes.Date, Required: true},
		optional(3, "f", ice.PrimitiveTypes.Float64), optional(4, "l", &ice.ListType{ElementID: 5, Element: ice.PrimitiveTypes.Int32}),
	}
	plain := ice.NewSchema(0, fields...)
	byDay, err := newSpec(plain, []string{"month(day)"})
	if err != nil {
		t.Fatal(err)
	}
	old := catalog.WithProperties(ice.Properties{"format-version": "1"})
	for name, tt := range map[string]struct {
		key  []string
		opts []catalog.CreateTableOpt
		want string
	}{
		"format 1":                        {[]string{"id"}, []catalog.CreateTableOpt{old}, "format 1"},
		"no identifier fields":            {nil, nil, "no identifier fields"},
		"a column that is not there":      {[]string{"id", "nope"}, nil, "no column nope"},
		"a float":                         {[]string{"f"}, nil, "column f (double) cannot be in a key"},
		"a list":                          {[]string{"l"}, nil, "column l (list<int>) cannot be in a key"},
		"a partition column out of it":    {[]string{"id"}, []catalog.CreateTableOpt{catalog.WithPartitionSpec(&byDay)}, "does not have day"},
		"a partition column in it":        {[]string{"id", "day"}, []catalog.CreateTableOpt{catalog.WithPartitionSpec(&byDay)}, ""},
		"an optional column of one value": {[]string{"id"}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := localConfig(t)
			c.Create, c.Columns, c.Mode, c.Key = false, nil, modeUpsert, tt.key
			createTable(t, c, plain, tt.opts...)
			_, err := tryDrive(t, c, 1)
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || !connectors.IsPermanent(err)):
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestDeletesThatWouldMissRowsAreNotMade is about tables whose partitioning changes: a
// delete reaches files of its own partition spec only.
func TestDeletesThatWouldMissRowsAreNotMade(t *testing.T) {
	c := upsertConfig(t)
	c.PartitionBy = []string{"bucket(4, id)"}
	d := drive(t, c, 1)
	d.write(0, put1(1, "a"))
	d.checkpoint()
	d.write(0, put1(1, "b"))
	coms := d.prepare()
	alter(t, c, func(tx *table.Transaction) error {
		return tx.UpdateSpec(true).AddField("id", ice.TruncateTransform{Width: 10}, "id_trunc").Commit()
	})
	if err := d.commit(coms); err != nil {
		t.Fatalf("nothing is written with the new partitioning yet: %v", err)
	}
	sameRows(t, tableRows(t, c), sortedLines(t, `{"id":1,"v":"b"}`))
	if _, err := tryDrive(t, c, 1); err == nil || !strings.Contains(err.Error(), "rewrite them first") || !connectors.IsPermanent(err) {
		t.Errorf("a start on files of an older partitioning: %v", err)
	}
	adding := c
	adding.Mode, adding.Key, adding.PartitionBy = modeAppend, nil, nil
	other := drive(t, adding, 1)
	other.write(0, put1(2, "of another writer"))
	other.checkpoint()
	d.write(0, put1(2, "mine"))
	if err := d.commit(d.prepare()); !errors.Is(err, connectors.ErrLost) {
		t.Errorf("a commit whose deletes would miss a row: %v", err)
	}
}

func TestDeletesByAColumnThatIsGoneAreLost(t *testing.T) {
	c := localConfig(t)
	c.Create, c.Columns, c.Mode, c.Key = false, nil, modeUpsert, []string{"id"}
	createTable(t, c, ice.NewSchema(0, optional(1, "id", ice.PrimitiveTypes.Int32), optional(2, "v", ice.PrimitiveTypes.String)))
	d := drive(t, c, 1)
	d.write(0, put1(1, "a"))
	coms := d.prepare()
	alter(t, c, func(tx *table.Transaction) error {
		return tx.UpdateSchema(true, false).DeleteColumn([]string{"id"}).Commit()
	})
	if err := d.commit(coms); !errors.Is(err, connectors.ErrLost) {
		t.Errorf("error %v", err)
	}
}

// TestColumnsChangedWhileRunningKeepTheirValues has another program add, rename, widen and
// drop columns between the start and the commit.
func TestColumnsChangedWhileRunningKeepTheirValues(t *testing.T) {
	for _, mode := range []string{modeAppend, modeUpsert} {
		t.Run(mode, func(t *testing.T) {
			c := localConfig(t)
			c.Mode = mode
			if mode == modeUpsert {
				c.Key = []string{"id"}
			}
			c.Columns = columnList(t, map[string]any{"id": "int32"}, map[string]any{"a": "string?"}, map[string]any{"b": "string?"}, map[string]any{"n": "int32?"})
			d := drive(t, c, 1)
			d.write(0, changedRow{value: `{"id":1,"a":"a1","b":"b1","n":1}`})
			coms := d.prepare()
			alter(t, c, func(tx *table.Transaction) error {
				return tx.UpdateSchema(true, false).
					AddColumn([]string{"new"}, ice.PrimitiveTypes.String, "", false, nil).
					RenameColumn([]string{"a"}, "renamed").
					DeleteColumn([]string{"b"}).
					UpdateColumn([]string{"n"}, table.ColumnUpdate{FieldType: ice.Optional[ice.Type]{Val: ice.PrimitiveTypes.Int64, Valid: true}}).
					Commit()
			})
			if err := d.commit(coms); err != nil {
				t.Fatal(err)
			}
			d.write(0, changedRow{value: `{"id":2,"a":"a2","b":"b2","n":2}`})
			d.checkpoint()
			sameRows(t, tableRows(t, c), sortedLines(t, `{"id":1,"renamed":"a1","n":1,"new":null}`+"\n"+`{"id":2,"renamed":"a2","n":2,"new":null}`))

			c.Create, c.Columns = false, nil
			next := drive(t, c, 1)
			next.write(0, changedRow{value: `{"id":2,"renamed":"a3","n":9007199254740993,"new":"x"}`})
			next.checkpoint()
			want := `{"id":1,"renamed":"a1","n":1,"new":null}` + "\n" + `{"id":2,"renamed":"a3","n":9007199254740993,"new":"x"}`
			if mode == modeAppend {
				want += "\n" + `{"id":2,"renamed":"a2","n":2,"new":null}`
			}
			sameRows(t, tableRows(t, c), sortedLines(t, want))
		})
	}
}
