package format

import (
	"errors"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
)

func newTestExpander(t testing.TB) Expander {
	t.Helper()
	x, err := NewExpander(connectors.FormatConfig{Name: "debezium"})
	if err != nil || x == nil {
		t.Fatal(x, err)
	}
	return x
}

// shown is rows as text: operation and value.
func shown(rows []connectors.Record) string {
	var out []string
	for _, r := range rows {
		out = append(out, r.Op.String()+" "+string(r.Value))
	}
	return strings.Join(out, "; ")
}

func TestDebeziumEnvelopesBecomeRows(t *testing.T) {
	x := newTestExpander(t)
	tests := []struct{ name, value, want string }{
		{"insert", `{"before": null, "after": {"id": 1}, "source": {"ts_ms": 5}, "op": "c", "ts_ms": 7}`, `insert {"id": 1}`},
		{"snapshot", `{"before":null,"after":{"id":1},"op":"r"}`, `insert {"id":1}`},
		{"update", `{"before":{"id":1,"n":"a"},"after":{"id":1,"n":"b"},"op":"u"}`, `update_before {"id":1,"n":"a"}; update_after {"id":1,"n":"b"}`},
		{"delete", `{"before":{"id":1},"after":null,"op":"d"}`, `delete {"id":1}`},
		{"delete without after", `{"before":{"id":1},"op":"d"}`, `delete {"id":1}`},
		{"with a schema", `{"schema":{"type":"struct","op":"x"},"payload":{"before":null,"after":{"id":1},"op":"c"}}`, `insert {"id":1}`},
		{"a column payload", `{"before":null,"after":{"payload":{"op":"d"}},"op":"c"}`, `insert {"payload":{"op":"d"}}`},
		{"tombstone with a schema", `{"schema":null,"payload":null}`, ``},
		{"the last of two", `{"after":{"id":1},"op":"c","after":{"id":2}}`, `insert {"id":2}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rows, err := x.Expand(nil, &connectors.Record{Value: []byte(tt.value), Offset: 7, Time: 3})
			if err != nil || shown(rows) != tt.want {
				t.Fatalf("got %s, %v, want %s", shown(rows), err, tt.want)
			}
			for _, r := range rows {
				if r.Offset != 7 || r.Time != 3 {
					t.Errorf("a row lost its place: %+v", r)
				}
			}
		})
	}
	if rows, err := x.Expand(nil, &connectors.Record{}); err != nil || len(rows) > 0 {
		t.Errorf("a tombstone gives %s, %v", shown(rows), err)
	}
}

func TestDebeziumEnvelopesWithoutARowSayWhy(t *testing.T) {
	x := newTestExpander(t)
	tests := []struct{ value, want string }{
		{`{"id": 1}`, "no envelope"},
		{`[1]`, "no envelope"},
		{`{"payload": {"id": 1}}`, "no envelope"},
		{`{"op": "t"}`, "truncated"},
		{`{"op": "m"}`, "none of c, r, u and d"},
		{`{"op": 5, "after": {}}`, "none of c, r, u and d"},
		{`{"op": "u", "before": null, "after": {"id": 1}}`, "REPLICA IDENTITY FULL"},
		{`{"op": "d", "before": null}`, "REPLICA IDENTITY FULL"},
		{`{"op": "c", "after": null}`, "after is null"},
		{`{"op": "c", "after": {"id": 1}`, "ends too early"},
		{`{"op": "c",}`, "field name"},
		{`{"op": "c"} x`, "end of the value"},
		{``, "empty"},
	}
	for _, tt := range tests {
		if rows, err := x.Expand(nil, &connectors.Record{Value: []byte(tt.value)}); err == nil || len(rows) > 0 || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %s, %v, want %q", tt.value, shown(rows), err, tt.want)
		}
	}
}

func TestDebeziumCannotBeWritten(t *testing.T) {
	if _, err := NewEncoder(connectors.FormatConfig{Name: "debezium"}, &connectors.Layout{}, EncoderOptions{}); err == nil || !strings.Contains(err.Error(), "changelog") {
		t.Error(err)
	}
}

func TestDebeziumStreamIsUpdating(t *testing.T) {
	key, ok := Updates(connectors.FormatConfig{Name: "debezium", Options: map[string]any{"key": []any{"id", "part"}}})
	if !ok || strings.Join(key, ",") != "id,part" {
		t.Error(key, ok)
	}
	if _, ok := Updates(connectors.FormatConfig{}); ok {
		t.Error("json is an updating stream")
	}
	if err := Check(connectors.FormatConfig{Name: "debezium", Options: map[string]any{"key": 5}}); err == nil {
		t.Error("a number is taken for a field")
	}
}

func TestExpandingAllocatesNothing(t *testing.T) {
	x := newTestExpander(t)
	rec := &connectors.Record{Value: []byte(`{"before":{"id":1,"n":"a"},"after":{"id":1,"n":"b"},"source":{"x":[1,2,{"y":"z"}]},"op":"u"}`)}
	dst := make([]connectors.Record, 0, 2)
	if n := testing.AllocsPerRun(100, func() { _, _ = x.Expand(dst, rec) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzDebezium(f *testing.F) {
	f.Add([]byte(`{"schema":{},"payload":{"before":{"id":1},"after":{"id":1},"op":"u"}}`))
	f.Add([]byte(`{"op":"d","before":{"a":"\"}"}}`))
	x, err := NewExpander(connectors.FormatConfig{Name: "debezium"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		rows, err := x.Expand(nil, &connectors.Record{Value: data})
		if err != nil && len(rows) > 0 || len(rows) > 2 {
			t.Errorf("%d rows and %v", len(rows), err)
		}
		var syntax *SyntaxError
		if errors.As(err, &syntax) && (syntax.Offset < 0 || syntax.Offset > len(data)+1) {
			t.Errorf("fault at %d of %d", syntax.Offset, len(data))
		}
	})
}
