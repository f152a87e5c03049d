package pipeline_test

import (
	"strings"
	"testing"

	_ "github.com/sluice-etl/sluice/connectors/format/avro"
	_ "github.com/sluice-etl/sluice/connectors/format/pattern"
	_ "github.com/sluice-etl/sluice/connectors/format/protobuf"
)

const money = `{type: record, name: m, fields: [{name: n, type: long}, {name: p, type: {type: bytes, logicalType: decimal, precision: 9, scale: 2}}]}`

func TestStepsReadAndWriteFieldsInFormats(t *testing.T) {
	tests := []struct {
		name, steps string
		in, want    []string
	}{
		{"JSON in text", "transforms: [{parse: {field: a}}]\n", []string{`{"a":"{\"b\":1.10}","c":1}`, `{"a":null}`, "NULL"}, []string{`{"a":{"b":1.10},"c":1}`, `{"a":null}`, "NULL"}},
		{"and back", "transforms: [{encode: {field: a, as: t}}]\n", []string{`{"a":{"b":1.10}}`, `{"a":"x"}`, `{"c":1}`}, []string{`{"a":{"b":1.10},"t":"{\"b\":1.10}"}`, `{"a":"x","t":"\"x\""}`, `{"c":1,"t":null}`}},
		{"pairs", "transforms: [{parse: {field: line, as: f, format: key_value}}, {map: {m: f.msg, l: f.level}}]\n",
			[]string{`{"line":"level=info msg=\"two \\\"words\\\"\" x="}`}, []string{`{"m":"two \"words\"","l":"info"}`}},
		{"pairs back", "transforms: [{encode: {field: f, format: key_value}}]\n", []string{`{"f":{"a":1,"b":"x y","c":null,"d":true}}`}, []string{`{"f":"a=1 b=\"x y\" d=true"}`}},
		{"groups of a pattern", `transforms: [{parse: {field: line, as: f, format: {regex: {pattern: '(?P<host>\S+) (?P<status>\d*)', types: [{status: int}]}}}}, {map: {s: f.status + 1, h: f.host}}]` + "\n",
			[]string{`{"line":"a 200"}`}, []string{`{"s":201,"h":"a"}`}},
		{"CSV", "transforms: [{parse: {field: line, format: {csv: {columns: [{a: int}, b]}}}}, {encode: {field: line, as: back, format: {csv: {columns: [b, a], delimiter: ';'}}}}]\n",
			[]string{`{"line":"1,\"x;y\""}`}, []string{`{"line":{"a":1,"b":"x;y"},"back":"\"x;y\";1"}`}},
		{"Avro in base64", "transforms: [{encode: {field: m, as: raw, bytes: true, format: {avro: {schema: " + money + "}}}}, {parse: {field: raw, as: again, format: {avro: {schema: " + money + "}}}}, {drop: [m]}]\n",
			[]string{`{"m":{"n":5,"p":1.10}}`}, []string{`{"raw":"CgJu","again":{"n":5,"p":1.10}}`}},
		{"Protobuf in text of base64", `transforms: [{parse: {field: raw, as: m, base64: true, format: {protobuf: {schema: 'syntax = "proto3"; message M { int64 n = 1; }'}}}}, {map: {n: m.n + 1}}]` + "\n",
			[]string{`{"raw":"CAU="}`}, []string{`{"n":6}`}},
		{"a schema", "transforms: [{set: {n: n + 1}}, {validate: {schema: {type: object, properties: {n: {type: integer, maximum: 9}}}}}]\n", []string{`{"n":1}`}, []string{`{"n":2}`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, bad, err := runFormats(t, "json", "json", tt.steps, tt.in...)
			if err != nil || bad != nil {
				t.Fatal(err, bad)
			}
			equal(t, got, tt.want)
		})
	}
}

func TestWhatAStepCannotReadOrWriteGoesToOnError(t *testing.T) {
	tests := []struct{ name, steps, in, want string }{
		{"no JSON", "transforms: [{parse: {field: a}}]\n", `{"a":"{"}`, "decode: field a: invalid value at byte 1: "},
		{"no text", "transforms: [{parse: {field: a}}]\n", `{"a":1}`, "type: field a is int, and text or bytes are parsed"},
		{"no match", "transforms: [{parse: {field: a, format: {regex: {pattern: '(?P<x>b)'}}}}]\n", `{"a":"c"}`, "decode: field a: the value does not match the pattern"},
		{"no map", "transforms: [{encode: {field: a, format: key_value}}]\n", `{"a":1}`, "type: field a is int, and a map is written"},
		{"not of the schema", "transforms: [{encode: {field: m, bytes: true, format: {avro: {schema: " + money + "}}}}]\n", `{"m":{"n":"x","p":1}}`, "encode: field m: field n: an integer is wanted"},
		{"bytes as text", "transforms: [{encode: {field: m, format: {avro: {schema: " + money + "}}}}]\n", `{"m":{"n":-64,"p":-1}}`, "the result is no text: write bytes: true"},
		{"a violation", "transforms: [{validate: {schema: {properties: {a: {items: {type: integer}}}}}}]\n", `{"a":[1,"x"]}`, "validate: field a.1 violates the schema at /type: got string, want integer"},
		{"a violation behind a step", "transforms: [{set: {n: n + 1}}, {validate: {schema: {properties: {n: {maximum: 1}}}}}]\n", `{"n":1}`, "validate: field n violates the schema at /maximum"},
		{"a violation in a field", "transforms: [{validate: {field: a, schema: {type: string}}}]\n", `{"a":1}`, "validate: in field a: the value violates the schema"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, bad, err := runFormats(t, "json", "json", tt.steps, tt.in)
			if err != nil || got != nil || len(bad) != 1 || !strings.Contains(bad[0], tt.want) || !strings.HasSuffix(bad[0], tt.in) {
				t.Errorf("%v %q %q, want %q", err, got, bad, tt.want)
			}
		})
	}
}

func TestFaultsOfFormatStepsAreFoundAtLoad(t *testing.T) {
	for steps, want := range map[string]string{
		"[{parse: {field: a, format: {regex: {pattern: '('}}}}]":         "missing closing )",
		"[{parse: {field: a, format: {regex: {pattern: 'x'}}}}]":         "it has no named group",
		"[{parse: {field: a, format: csv}}]":                             "CSV is read with columns",
		"[{encode: {field: a, format: {regex: {pattern: '(?P<x>b)'}}}}]": "the format regex can only be read",
		"[{validate: {}}]":                      "one of schema and schema_file is wanted",
		"[{validate: {schema: {type: whole}}}]": "no JSON Schema",
		"[{set: {a: 1}}, {parse: {field: a}}]":  "a is int",
		"[{parse: {field: a, as: m, format: {csv: {columns: [{x: int}]}}}}, {filter: m.y > 1}]": `m has no field "y"`,
	} {
		got := faultsOf(t, "pipeline: p\nsource: {feed: {name: x}}\ntransforms: "+steps+"\nsink: {collect: {name: x}}\ncheckpoint: {storage: \"mem://x\"}\n")
		if !strings.Contains(got, want) {
			t.Errorf("%s:\n%s\nwant %q", steps, got, want)
		}
	}
}

func TestChangesOfATableComeInAvro(t *testing.T) {
	const envelope = `{type: record, name: envelope, fields: [{name: before, type: ["null", {type: record, name: row, fields: [{name: id, type: long}]}]}, {name: after, type: ["null", row]}, {name: op, type: string}]}`
	got, bad, err := runFormats(t, "{debezium: {key: id, format: {avro: {schema: "+envelope+"}}}}", "json", "transforms: [{set: {o: meta.op}}]\n",
		"\x00\x02\x02\x02c", "\x02\x02\x02\x04\x02u", "\x02\x04\x00\x02d", "\x07")
	if err != nil {
		t.Fatal(err)
	}
	equal(t, got, []string{`{"id":1,"o":"insert"}`, `{"id":1,"o":"update_before"}`, `{"id":2,"o":"update_after"}`, `{"id":2,"o":"delete"}`})
	if len(bad) != 1 || !strings.HasPrefix(bad[0], "decode: ") || !strings.HasSuffix(bad[0], " \x07") {
		t.Errorf("%q", bad)
	}
}
