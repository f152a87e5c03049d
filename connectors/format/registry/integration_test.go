//go:build integration

package registry_test

import (
	"crypto/rand"
	"encoding/base64"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	_ "github.com/sluice-etl/sluice/connectors/format/avro"
	"github.com/sluice-etl/sluice/connectors/format/formattest"
	_ "github.com/sluice-etl/sluice/connectors/format/jsonschema"
	_ "github.com/sluice-etl/sluice/connectors/format/protobuf"
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
	for _, tt := range []struct{ kind, format, row string }{
		{"avro", "avro", `{"id":9007199254740993,"name":"a","at":"2026-01-31T23:59:59.5Z","price":-1.10}`},
		{"json", "json_schema", `{"id":9007199254740993,"name":"a"}`},
		{"protobuf", "protobuf", `{"id":9007199254740993,"name":"a"}`},
	} {
		t.Run(tt.kind, func(t *testing.T) {
			topic := "users-" + tt.kind + "-" + strings.ToLower(rand.Text())
			value, err := base64.StdEncoding.DecodeString(client(t, "write", tt.kind, url, topic))
			if err != nil {
				t.Fatal(err)
			}
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
			if said := client(t, "read", tt.kind, url, topic, base64.StdEncoding.EncodeToString(ours)); said != "same" {
				t.Errorf("the other client reads ours as %s", said)
			}
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
