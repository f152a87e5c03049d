package postgres

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/deferred/table"
)

func valid() SinkConfig {
	c := newSinkConfig().(*SinkConfig)
	c.URL, c.Table = "postgres://u@h/db", "shop.orders"
	return *c
}

func TestSinkConfigFaults(t *testing.T) {
	for _, tt := range []struct {
		change func(*SinkConfig)
		want   string
	}{
		{func(*SinkConfig) {}, ""},
		{func(c *SinkConfig) { c.URL = "mysql://x" }, "url: it is no address of PostgreSQL"},
		{func(c *SinkConfig) { c.Table = "shop." }, "table: there is no name"},
		{func(c *SinkConfig) { c.Key = []string{"id"} }, "key: mode: insert has no key"},
		{func(c *SinkConfig) { c.Mode, c.Key = table.Upsert, []string{"id", "id"} }, "key: a name is empty or there twice"},
		{func(c *SinkConfig) { c.Mode, c.Op = table.Changelog, "" }, "op: the field"},
		{func(c *SinkConfig) { c.Mode, c.Create.On = table.Upsert, true }, "key: a table that is made needs one"},
		{func(c *SinkConfig) { c.Timeout = connectors.TimeSpan(time.Millisecond) }, "timeout: must be 1s"},
		{func(c *SinkConfig) {
			c.Mode, c.Key, c.Columns = table.Upsert, []string{"id"}, connectors.Assignments{{Name: "n"}}
		}, "columns: the key column id has no expression"},
		{func(c *SinkConfig) {
			c.Unknown, c.Columns = unknownIgnore, connectors.Assignments{{Name: "n"}}
		}, "unknown_fields"},
	} {
		c := valid()
		tt.change(&c)
		err := c.Validate()
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("error %v, want %q", err, tt.want)
		}
	}
}

// encoder is one for columns of types, as the table would have them.
func encoder(t *testing.T, mode string, key []string, types ...columnType) *rowEncoder {
	t.Helper()
	c := valid()
	c.Mode, c.Key = mode, key
	target, err := newTarget(c)
	if err != nil {
		t.Fatal(err)
	}
	for i, typ := range types {
		col := sinkColumn{name: string(rune('a' + i)), typ: typ, text: typ.name}
		col.chooseWriter()
		target.columns = append(target.columns, col)
	}
	e, err := target.NewRowEncoder()
	if err != nil {
		t.Fatal(err)
	}
	return e.(*rowEncoder)
}

func encode(t *testing.T, e *rowEncoder, values ...string) (out []string) {
	t.Helper()
	b := new(connectors.Batch)
	b.Size(len(values), 0)
	rows := &connectors.Rows{Batch: b, Layout: &connectors.Layout{}}
	for i, v := range values {
		rows.Sel = append(rows.Sel, uint16(i))
		if v == "" {
			b.Records[i].Key = []byte("7")
			rows.Values = append(rows.Values, nil)
			continue
		}
		rows.Values = append(rows.Values, []byte(v))
	}
	if err := e.Begin(rows); err != nil {
		t.Fatal(err)
	}
	for i := range values {
		got, err := e.Append(nil, i)
		if err != nil {
			out = append(out, "refused: "+err.Error())
			continue
		}
		k, err := takeApart(got)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(k.op)+" "+strings.TrimSuffix(string(k.line), "\n"))
	}
	return out
}

func TestRowsAsLinesOfCopy(t *testing.T) {
	for _, tt := range []struct {
		typ  columnType
		want map[string]string // values of a by what is kept of them
	}{
		{columnType{name: "int4", mod: -1}, map[string]string{`2147483647`: "2147483647", `2147483648`: "refused", `"1"`: "refused", `null`: `\N`, `1.0`: "1"}},
		{columnType{name: "numeric", mod: 4<<16 + 2 + 4}, map[string]string{`12.34`: "12.34", `-0.10`: "-0.10", `123.4`: "refused", `1.234`: "refused", `"1.5"`: "1.50", `"NaN"`: "NaN", `1e1`: "10.00"}},
		{columnType{name: "float8", mod: -1}, map[string]string{`0.1`: "0.1", `9007199254740993`: "9.007199254740992e+15", `0.1000000000000000055511151231257827`: "0.1", `"NaN"`: "NaN", `1e400`: "refused"}},
		{columnType{name: "float4", mod: -1}, map[string]string{`0.1`: "0.1", `16777217`: "1.6777216e+07", `1e39`: "refused"}},
		{columnType{name: "varchar", mod: 3 + 4}, map[string]string{`"a\tb"`: `a\tb`, `"\\N"`: `\\N`, `"abcd"`: "refused", `""`: "", `"\u0000"`: "refused"}},
		{columnType{name: "bytea", mod: -1}, map[string]string{`"AAH/"`: `\\x0001ff`, `"?"`: "refused"}},
		{columnType{name: "timestamptz", mod: -1}, map[string]string{`"2026-01-01T00:00:00.000001999+01:00"`: "2025-12-31 23:00:00.000001+00", `"0000-01-01T00:00:00Z"`: "refused", `253402300800000`: "10000-01-01 00:00:00+00"}},
		{columnType{name: "_int4", mod: -1, elem: &columnType{name: "int4", mod: -1}}, map[string]string{`[1, null, [2]]`: `{"1",NULL,{"2"}}`, `[]`: "{}", `1`: "refused"}},
		{columnType{name: "_text", mod: -1, elem: &columnType{name: "text", mod: -1}}, map[string]string{`["a\"\\", "NULL", ""]`: `{"a\\"\\\\","NULL",""}`}},
		{columnType{name: "jsonb", mod: -1}, map[string]string{`{"n":1.10,"s":"\\u0000"}`: `{"n":1.10,"s":"\\\\u0000"}`, `"\u0000"`: "refused", `12345678901234567890.10`: "12345678901234567890.10"}},
		{columnType{name: "json", mod: -1}, map[string]string{"\"\xff\"": "refused", "[\"\xff\"]": "refused", `["ä"]`: `["ä"]`}},
		{columnType{name: "jsonb", mod: -1}, map[string]string{"\"\xff\"": "refused", "{\"a\":\"\xff\"}": "refused"}},
		{columnType{name: "mood", mod: -1, labels: []string{"ok"}}, map[string]string{`"ok"`: "ok", `"no"`: "refused"}},
	} {
		for value, want := range tt.want {
			e := encoder(t, table.Insert, nil, tt.typ)
			got := encode(t, e, `{"a": `+value+`}`)[0]
			if want == "refused" && strings.HasPrefix(got, want) || got == "w "+want {
				continue
			}
			t.Errorf("%s of %s: %s, want %s", tt.typ.name, value, got, want)
		}
	}
}

// Text is looked at in words: what is special has to be found at each place of one, beside
// each other byte.
func TestSpecialCharactersAtAnyPlaceOfAText(t *testing.T) {
	e := encoder(t, table.Insert, nil, columnType{name: "text", mod: -1})
	escaped := map[byte]string{'\\': `\\`, '\t': `\t`, '\n': `\n`, '\r': `\r`, ' ': " ", 1: "\x01", 0x1f: "\x1f", '~': "~", '[': "[", ']': "]", 0x7f: "\x7f"}
	for _, length := range []int{1, 7, 8, 9, 17} {
		for at := range length {
			for c, want := range escaped {
				before, behind := strings.Repeat("!", at), strings.Repeat("~", length-at-1)
				value, err := json.Marshal(before + string(rune(c)) + behind)
				if err != nil {
					t.Fatal(err)
				}
				if got := encode(t, e, `{"a": `+string(value)+`}`)[0]; got != "w "+before+want+behind {
					t.Errorf("%s: %q", value, got)
				}
			}
			for _, bad := range []string{`\u0000`, "\xff"} {
				if got := encode(t, e, `{"a": "`+strings.Repeat("!", at)+bad+strings.Repeat("~", length-at-1)+`"}`)[0]; !strings.HasPrefix(got, "refused") {
					t.Errorf("%q at %d of %d: %q", bad, at, length, got)
				}
			}
		}
	}
}

func TestRowsThatAreDeleted(t *testing.T) {
	e := encoder(t, table.Changelog, []string{"b"}, columnType{name: "text", mod: -1}, columnType{name: "int4", mod: -1})
	got := encode(t, e, "", `{"a": "x", "b": 1, "op": "delete"}`, `{"a": "x", "b": 1, "op": "?"}`, `{"a": "x", "op": "d"}`, `{"a": "x", "b": 1}`)
	want := []string{`d \N	7`, `d \N	1`, "refused: the field op", "refused: column b must", `w x	1`}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("row %d: %q, want %q", i, got[i], want[i])
		}
	}
}

func TestStatementsQuoteNames(t *testing.T) {
	c := valid()
	c.Mode, c.Key, c.Table, c.Schema = table.Upsert, []string{`k"`}, `S.or"ders`, "st ate"
	c.Create = table.Create{On: true, Columns: []connectors.Column{{Name: `k"`, Type: connectors.Type{Base: connectors.UUID}}, {Name: "tags", Type: connectors.Type{Base: connectors.Sequence, Elem: &connectors.Type{Base: connectors.Exact, Precision: 5, Scale: 1}, Nullable: true}}}}
	target, err := newTarget(c)
	if err != nil {
		t.Fatal(err)
	}
	text, err := target.createTable()
	if want := `CREATE TABLE IF NOT EXISTS "S"."or""ders" ("k""" uuid NOT NULL, "tags" numeric(5, 1)[], PRIMARY KEY ("k"""))`; err != nil || text != want {
		t.Errorf("%s, %v\nwant %s", text, err, want)
	}
	target.columns = []sinkColumn{{name: `k"`}, {name: "n", hasDefault: true}}
	if got, want := target.conflictText(0), `ON CONFLICT ("k""") DO UPDATE SET "n" = EXCLUDED."n"`; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if got, want := target.conflictText(1), `ON CONFLICT ("k""") DO NOTHING`; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if got, want := target.state.commits, `"st ate"."sluice_commits"`; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func TestKeptRowsThatAreNone(t *testing.T) {
	for _, row := range []string{"", "w", "w\x00", "w\x001", "w\xff\xff\n", "w\n"} {
		if _, err := takeApart([]byte(row)); !connectors.IsPermanent(err) {
			t.Errorf("%q: %v", row, err)
		}
	}
}
