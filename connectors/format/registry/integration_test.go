//go:build integration

package registry_test

import (
	"crypto/rand"
	"encoding/base64"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	_ "github.com/sluice-etl/sluice/connectors/format/avro"
	"github.com/sluice-etl/sluice/connectors/format/formattest"
	_ "github.com/sluice-etl/sluice/connectors/format/jsonschema"
	_ "github.com/sluice-etl/sluice/connectors/format/protobuf"
	"github.com/sluice-etl/sluice/connectors/format/registry"
)

func env(t *testing.T, name, script string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		t.Fatalf("%s is not set: run deploy/services/with.sh %s -- go test -tags integration …", name, script)
	}
	return v
}

// client runs Confluent's client.
func client(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(env(t, "PYTHON", "python"), append([]string{"testdata/client.py"}, args...)...)
	var faults strings.Builder
	cmd.Stderr = &faults
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, faults.String())
	}
	return strings.TrimSpace(string(out))
}

func TestIntegrationValuesOfOtherClientsAreReadAndOursByThem(t *testing.T) {
	url := env(t, "SCHEMA_REGISTRY_URL", "schema-registry")
	for _, tt := range values {
		t.Run(tt.kind, func(t *testing.T) {
			topic := "users-" + tt.kind + "-" + strings.ToLower(rand.Text())
			value := parts(t, client(t, "write", tt.kind, url, topic))[0]
			options := map[string]any{"registry": map[string]any{"url": url}}
			got, err := formattest.Read(formattest.Input(t, formattest.Config(tt.format, options)), value)
			if err != nil || got != tt.row {
				t.Errorf("read: %s, %v, want %s", got, err, tt.row)
			}
			if tt.kind == "protobuf" {
				options["message"] = "shop.User"
			}
			ours, err := formattest.Write(formattest.Output(t, formattest.Config(tt.format, options), formattest.Env(topic)), tt.row)
			if err != nil {
				t.Fatal(err)
			}
			if said := client(t, "read", tt.kind, url, topic, b64(ours)); said != "same" {
				t.Errorf("the other client reads ours as %s", said)
			}
		})
	}
}

// values are what testdata/client.py writes and wants to read.
var values = []struct{ kind, format, row string }{
	{"avro", "avro", `{"id":9007199254740993,"name":"a","at":"2026-01-31T23:59:59.5Z","price":-1.10}`},
	{"json", "json_schema", `{"id":9007199254740993,"name":"a"}`},
	{"protobuf", "protobuf", `{"id":9007199254740993,"name":"a"}`},
}

func b64(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

// parts are what the client printed.
func parts(t *testing.T, line string) (out [][]byte) {
	t.Helper()
	for _, p := range strings.Fields(line) {
		b, err := base64.StdEncoding.DecodeString(p)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b)
	}
	return out
}

// By GUID over a registry that gives them, which the real one here does not.
func TestIntegrationMarksInHeadersByGUID(t *testing.T) {
	for _, tt := range values {
		t.Run(tt.kind, func(t *testing.T) {
			reg := srfake.New()
			t.Cleanup(reg.Close)
			got := parts(t, client(t, "write-header", tt.kind, reg.URL(), "users"))
			if len(got) != 2 || got[1][0] != 1 {
				t.Fatalf("the other client wrote %x", got)
			}
			exchangeByHeader(t, reg.URL(), "users", tt.kind, tt.format, tt.row, got[0], connectors.Header{Key: registry.Header, Value: got[1]}, 1)
		})
	}
}

// By id, where the registry gives no GUIDs.
func TestIntegrationMarksInHeadersByID(t *testing.T) {
	url := env(t, "SCHEMA_REGISTRY_URL", "schema-registry")
	for _, tt := range values {
		t.Run(tt.kind, func(t *testing.T) {
			topic := "marked-" + tt.kind + "-" + strings.ToLower(rand.Text())
			theirs := parts(t, client(t, "write", tt.kind, url, topic))[0]
			// What stands in front of a value is what a header holds as well.
			n := 5
			if tt.kind == "protobuf" {
				n += 2
			}
			exchangeByHeader(t, url, topic, tt.kind, tt.format, tt.row, theirs[n:], connectors.Header{Key: registry.Header, Value: theirs[:n]}, 0)
		})
	}
}

// exchangeByHeader reads a value of the other client, and lets it read one of ours, whose
// mark begins with form.
func exchangeByHeader(t *testing.T, url, topic, kind, format, row string, theirs []byte, mark connectors.Header, form byte) {
	t.Helper()
	options := map[string]any{"registry": map[string]any{"url": url, "mark": "header"}}
	if got, err := formattest.Read(formattest.Input(t, formattest.Config(format, options)), theirs, mark); err != nil || got != row {
		t.Errorf("read: %s, %v, want %s", got, err, row)
	}
	if kind == "protobuf" {
		options["message"] = "shop.User"
	}
	ours, headers, err := formattest.WriteMarked(formattest.Output(t, formattest.Config(format, options), formattest.Env(topic)), row)
	if err != nil || len(headers) != 1 || headers[0].Key != registry.Header || headers[0].Value[0] != form {
		t.Fatalf("headers %v, %v", headers, err)
	}
	if said := client(t, "read", kind, url, topic, b64(ours), b64(headers[0].Value)); said != "same" {
		t.Errorf("the other client reads ours as %s", said)
	}
}

func TestIntegrationReferencesAreRegisteredAndFollowedByOtherClients(t *testing.T) {
	url := env(t, "SCHEMA_REGISTRY_URL", "schema-registry")
	topic, namespace := "bids-"+strings.ToLower(rand.Text()), "n"+strings.ToLower(rand.Text())
	folder := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const row = `{"price":{"n":9007199254740993}}`
	for kind, options := range map[string]map[string]any{
		"avro": {
			"schema":     `{"type":"record","name":"bid","namespace":"` + namespace + `","fields":[{"name":"price","type":"money"}]}`,
			"references": []any{file("money.avsc", `{"type":"record","name":"money","namespace":"`+namespace+`","fields":[{"name":"n","type":"long"}]}`)},
		},
		"protobuf": {
			"schema":  `syntax = "proto3"; import "` + namespace + `.proto"; message Bid { ` + namespace + `.Money price = 1; }`,
			"imports": []any{filepath.Dir(file(namespace+".proto", `syntax = "proto3"; package `+namespace+`; message Money { int64 n = 1; }`))},
		},
		"json_schema": {
			"schema":     `{"type":"object","properties":{"price":{"$ref":"` + namespace + `.json"}}}`,
			"references": []any{file(namespace+".json", `{"type":"object","properties":{"n":{"type":"integer"}}}`)},
		},
	} {
		t.Run(kind, func(t *testing.T) {
			on := topic + "-" + kind
			options["registry"] = map[string]any{"url": url}
			value, err := formattest.Write(formattest.Output(t, formattest.Config(kind, options), formattest.Env(on)), row)
			if err != nil {
				t.Fatal(err)
			}
			// A reader that has nothing but the registry.
			bare := formattest.Config(kind, map[string]any{"registry": map[string]any{"url": url}})
			if got, err := formattest.Read(formattest.Input(t, bare), value); err != nil || got != row {
				t.Errorf("read back: %s, %v", got, err)
			}
			if kind == "avro" {
				if said := client(t, "read", "bid", url, on, b64(value)); said != "same" {
					t.Errorf("the other client reads ours as %s", said)
				}
			}
			// A second start finds all of it.
			options["registry"] = map[string]any{"url": url, "auto_register": false}
			formattest.Output(t, formattest.Config(kind, options), formattest.Env(on))
		})
	}
}

func TestIntegrationSchemasEvolveAndIncompatibleOnesAreExplained(t *testing.T) {
	topic := "evolving-" + strings.ToLower(rand.Text())
	with := func(fields string) connectors.FormatConfig {
		return formattest.Config("avro", map[string]any{
			"schema":   `{"type":"record","name":"user","fields":[` + fields + `]}`,
			"registry": map[string]any{"url": env(t, "SCHEMA_REGISTRY_URL", "schema-registry")},
		})
	}
	const id, mail = `{"name":"id","type":"int"}`, `{"name":"mail","type":["null","string"],"default":null}`
	var values [][]byte
	for _, fields := range []string{id, id + "," + mail} {
		value, err := formattest.Write(formattest.Output(t, with(fields), formattest.Env(topic)), `{"id":1}`)
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, value)
	}
	in := formattest.Input(t, with(id+","+mail))
	for i, v := range values {
		if got, err := formattest.Read(in, v); err != nil || got != `{"id":1,"mail":null}` {
			t.Errorf("value %d: %s, %v", i, got, err)
		}
	}
	out, err := format.NewOutput(with(`{"name":"id","type":"string"}`))
	if err != nil {
		t.Fatal(err)
	}
	err = out.Start(t.Context(), formattest.Env(topic))
	if !connectors.IsPermanent(err) || !strings.Contains(err.Error(), topic+"-value") || !strings.Contains(err.Error(), "cannot follow") {
		t.Errorf("an incompatible schema: %v", err)
	}
	t.Log(err)
}
