package csv

import (
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/connectors/format/formattest"
)

func of(options map[string]any) connectors.FormatConfig { return formattest.Config("csv", options) }

func typed(t string) map[string]any { return map[string]any{"columns": []any{map[string]any{"f": t}}} }

func TestValuesGoThroughCSVAsTheyAre(t *testing.T) {
	tests := []struct{ typ, value string }{
		{"int", "-9223372036854775808"}, {"uint64", "18446744073709551615"}, {"float", "0.1"}, {"float", `"NaN"`}, {"float", `"-Infinity"`},
		{"decimal(38, 10)", "1234567890123456789012345678.0123456789"}, {"decimal(5, 2)", "-0.10"}, {"bool", "true"},
		{"string", `"a, \"b\"\r\n\tб"`}, {"string", `""`}, {"string?", "null"}, {"string?", `""`}, {"bytes", `"/wA="`},
		{"timestamp", `"2026-01-31T23:59:59.123456789+02:00"`}, {"timestamp_local", `"2026-01-31T23:59:59.5"`}, {"date", `"1969-12-31"`},
		{"time", `"23:59:59.5"`}, {"duration", `"1h30m"`}, {"uuid", `"123e4567-e89b-12d3-a456-426614174000"`}, {"json", `{"a":[1,null]}`}, {"int?", "null"},
	}
	for _, tt := range tests {
		t.Run(tt.typ+" "+tt.value, func(t *testing.T) {
			cfg, row := of(typed(tt.typ)), `{"f":`+tt.value+`}`
			value, err := formattest.Write(formattest.Output(t, cfg, formattest.Env("")), row)
			if err != nil {
				t.Fatal(err)
			}
			got, err := formattest.Read(formattest.Input(t, cfg), value)
			if err != nil || got != row {
				t.Errorf("%q became %s, %v, want %s", value, got, err, row)
			}
		})
	}
}

func TestWhatAColumnDoesNotHoldIsRefused(t *testing.T) {
	for _, tt := range []struct{ typ, row, want string }{
		{"int8", `{"f":128}`, "field f: the integer does not fit 8 bits"},
		{"decimal(3, 1)", `{"f":1.23}`, "more than 1 digits behind the point"},
		{"int", `{"f":"x"}`, "an integer is wanted"},
		{"date", `{"f":"soon"}`, "a date like"},
		{"bytes", `{"f":"%"}`, "base64"},
	} {
		_, err := formattest.Write(formattest.Output(t, of(typed(tt.typ)), formattest.Env("")), tt.row)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.row, err, tt.want)
		}
	}
	if _, err := formattest.Read(formattest.Input(t, of(typed("string"))), []byte("\xff")); !format.IsRefused(err) {
		t.Errorf("bytes that are no text: %v", err)
	}
}

func TestHeaders(t *testing.T) {
	in := formattest.Input(t, of(map[string]any{"header": true}))
	for value, want := range map[string]string{"b,a\r\n1,\"x\ny\"\r\n": `{"b":"1","a":"x\ny"}`, "a\n\"\"": `{"a":""}`, "a\n": `{"a":null}`} {
		if got, err := formattest.Read(in, []byte(value)); err != nil || got != want {
			t.Errorf("%q: %s, %v, want %s", value, got, err, want)
		}
	}
	for value, want := range map[string]string{"a,a\n1,2": "twice", "a,b\n1": "1 fields, and its header 2", "a\n1\n2": "more than one row", "a": "0 fields"} {
		if _, err := formattest.Read(in, []byte(value)); !format.IsRefused(err) {
			t.Errorf("%q: %v, want %q", value, err, want)
		}
	}
	with := of(map[string]any{"header": true, "columns": []any{map[string]any{"n": "int"}, "s"}})
	value, err := formattest.Write(formattest.Output(t, with, formattest.Env("")), `{"s":"x","n":1}`)
	if err != nil || string(value) != "n,s\n1,x" {
		t.Errorf("%q, %v", value, err)
	}
	if got, err := formattest.Read(formattest.Input(t, with), []byte("s,other,n\nx,y,1")); err != nil || got != `{"s":"x","n":1}` {
		t.Errorf("%s, %v", got, err)
	}
}

func TestNullIsATextOfItsOwn(t *testing.T) {
	cfg := of(map[string]any{"columns": []any{"a", "b"}, "null": `\N`})
	value, err := formattest.Write(formattest.Output(t, cfg, formattest.Env("")), `{"a":null,"b":"\\N"}`)
	if err != nil || string(value) != `\N,"\N"` {
		t.Fatalf("%q, %v", value, err)
	}
	if got, err := formattest.Read(formattest.Input(t, cfg), value); err != nil || got != `{"a":null,"b":"\\N"}` {
		t.Errorf("%s, %v", got, err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("1,\"a\"\"b\",2026-01-31\n"))
	in := formattest.Input(f, of(map[string]any{"columns": []any{map[string]any{"a": "decimal(9, 2)?"}, "b", map[string]any{"c": "date?"}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		out, err := formattest.Read(in, b)
		if err != nil {
			return
		}
		var arena connectors.Arena
		if _, err := format.ParseValue([]byte(out), &arena); err != nil {
			t.Fatalf("%q became %s: %v", b, out, err)
		}
	})
}
