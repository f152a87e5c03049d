package jsonschema

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/connectors/format/formattest"
)

const bid = `{"type":"object","required":["id"],"properties":{"id":{"type":"integer","minimum":0},"mail":{"type":"string","pattern":"@"},
	"at":{"type":"string","format":"date-time"},"items":{"type":"array","items":{"type":"object","properties":{"n":{"type":"integer"}}}}},"additionalProperties":false}`

func TestValuesAreCheckedAndLeftAsTheyAre(t *testing.T) {
	cfg := formattest.Config("json_schema", map[string]any{"schema": bid})
	in := formattest.Input(t, cfg)
	good := ` {"id": 18446744073709551615, "at":"2026-01-31T00:00:00Z","items":[{"n":1.0}]}`
	if got, err := formattest.Read(in, []byte(good)); err != nil || got != good {
		t.Errorf("%s, %v", got, err)
	}
	out := formattest.Output(t, cfg, formattest.Env(""))
	for value, want := range map[string]string{
		`{"id":-1}`:                       "field id violates the schema at /minimum",
		`{}`:                              "the value violates the schema at /required: missing property 'id'",
		`{"id":1,"mail":"secret"}`:        "field mail violates the schema at /pattern: it does not match pattern",
		`{"id":1,"at":"soon"}`:            "field at violates the schema at /format",
		`{"id":1,"items":[{},{"n":"x"}]}`: "field items.1.n violates the schema at /type: got string, want integer",
		`{"id":1,"more":1}`:               "additional properties 'more' not allowed",
		`{"id":`:                          "invalid value at byte 6",
	} {
		_, err := formattest.Read(in, []byte(value))
		if !format.IsRefused(err) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("read %s: %v, want %q", value, err, want)
		}
		if _, err := formattest.Write(out, value); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("write %s: %v, want %q", value, err, want)
		}
	}
}

func TestSchemasOfARegistry(t *testing.T) {
	reg := srfake.New()
	t.Cleanup(reg.Close)
	url := map[string]any{"url": reg.URL()}
	out := formattest.Output(t, formattest.Config("json_schema", map[string]any{"schema": bid, "registry": url}), formattest.Env("bids"))
	value, err := formattest.Write(out, `{"id":1}`)
	if err != nil || value[0] != 0 || string(value[5:]) != `{"id":1}` {
		t.Fatalf("%q, %v", value, err)
	}
	in := formattest.Input(t, formattest.Config("json_schema", map[string]any{"registry": url}))
	if got, err := formattest.Read(in, value); err != nil || got != `{"id":1}` {
		t.Errorf("%s, %v", got, err)
	}
	wrong := append(value[:5:5], `{"id":"x"}`...)
	if _, err := formattest.Read(in, wrong); !format.IsRefused(err) || !strings.Contains(err.Error(), "field id") {
		t.Error(err)
	}
	plain := formattest.Input(t, formattest.Config("json_schema", map[string]any{"registry": url, "validate": false}))
	if got, err := formattest.Read(plain, wrong); err != nil || got != `{"id":"x"}` {
		t.Errorf("%s, %v", got, err)
	}
	newest := formattest.Output(t, formattest.Config("json_schema", map[string]any{"registry": url}), formattest.Env("bids"))
	if again, err := formattest.Write(newest, `{"id":1}`); err != nil || string(again) != string(value) {
		t.Errorf("%q, %v", again, err)
	}
	o, err := format.NewOutput(formattest.Config("json_schema", map[string]any{"registry": url}))
	if err == nil {
		err = o.Start(t.Context(), formattest.Env("none"))
	}
	if !connectors.IsPermanent(err) {
		t.Error(err)
	}
}

func TestASinkRegistersTheSchemasThatItsOwnRefersTo(t *testing.T) {
	reg := srfake.New()
	t.Cleanup(reg.Close)
	dir := t.TempDir()
	var paths []any
	for _, f := range [][2]string{
		{"n.json", `{"type":"integer"}`},
		{"money.json", `{"$id":"https://shop.example/money.json","type":"object","properties":{"n":{"type":"integer"}}}`},
		{"unused.json", `{"type":"string"}`},
	} {
		path := filepath.Join(dir, f[0])
		if err := os.WriteFile(path, []byte(f[1]), 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	cfg := formattest.Config("json_schema", map[string]any{
		"schema":     `{"properties":{"list":{"prefixItems":[{"$ref":"https://shop.example/money.json#/properties/n"},{"$ref":"n.json"}]}}}`,
		"references": paths, "registry": map[string]any{"url": reg.URL(), "mark": "header"},
	})
	value, headers, err := formattest.WriteMarked(formattest.Output(t, cfg, formattest.Env("t")), `{"list":[1,2]}`)
	if err != nil || string(value) != `{"list":[1,2]}` || len(headers) != 1 {
		t.Fatal(string(value), headers, err)
	}
	s, _ := reg.GetSchema("t-value", 1)
	if len(s.References) != 2 || s.References[0].Subject != "n.json" || s.References[1].Subject != "https://shop.example/money.json" || reg.SubjectExists("unused.json") {
		t.Errorf("references %+v", s.References)
	}
	in := formattest.Input(t, formattest.Config("json_schema", map[string]any{"registry": map[string]any{"url": reg.URL()}}))
	if _, err := formattest.Read(in, value, headers...); err != nil {
		t.Error(err)
	}
	if _, err := formattest.Read(in, []byte(`{"list":["x"]}`), headers...); !format.IsRefused(err) {
		t.Error(err)
	}
}

func TestASchemaThatCannotBeUsedSaysWhy(t *testing.T) {
	for text, want := range map[string]string{
		"{": "no valid JSON", `{"type": "whole"}`: "no JSON Schema", `{"$ref": "http://example.com/x.json"}`: "another document",
	} {
		err := format.Check(formattest.Config("json_schema", map[string]any{"schema": text}))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// FuzzCheck checks values of strangers by schemas of strangers: what is found is a fault of
// the value, and says nothing of what is in it.
func FuzzCheck(f *testing.F) {
	f.Add([]byte(bid), []byte(`{"id":1,"at":"2026-01-31T00:00:00Z","items":[{"n":1}]}`))
	f.Add([]byte(`{"$ref":"#/$defs/a","$defs":{"a":{"items":{"$ref":"#/$defs/a"},"uniqueItems":true,"contentEncoding":"base64"}}}`), []byte(`[[],[[]]]`))
	f.Add([]byte(`{"$ref":"#"}`), []byte(`1e999999`))
	f.Add([]byte(`{"multipleOf":0.01,"pattern":"(a+)+$","format":"idn-email","propertyNames":{"maxLength":2}}`), []byte(`1e-400`))
	f.Fuzz(func(t *testing.T, schema, value []byte) {
		v, err := Compile(string(schema))
		if err != nil {
			return
		}
		if err := v.Check(value); err != nil && !format.IsRefused(err) {
			t.Errorf("%s by %s: %v", value, schema, err)
		}
	})
}
