package avro

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/connectors/format/formattest"
	"github.com/sluice-etl/sluice/connectors/format/registry"
)

func newRegistry(t *testing.T, opts ...srfake.Option) *srfake.Registry {
	t.Helper()
	r := srfake.New(opts...)
	t.Cleanup(r.Close)
	return r
}

func withRegistry(r *srfake.Registry, more map[string]any) connectors.FormatConfig {
	reg := map[string]any{"url": r.URL()}
	options := map[string]any{"registry": reg}
	for k, v := range more {
		if sub, ok := strings.CutPrefix(k, "registry."); ok {
			reg[sub] = v
			continue
		}
		options[k] = v
	}
	return formattest.Config("avro", options)
}

const (
	first  = `{"type":"record","name":"user","namespace":"shop","fields":[{"name":"id","type":"int"},{"name":"name","type":"string"}]}`
	second = `{"type":"record","name":"user","namespace":"shop","fields":[{"name":"id","type":"long"},{"name":"mail","type":["null","string"],"default":null},
		{"name":"title","type":"string","aliases":["name"]},{"name":"since","type":{"type":"long","logicalType":"timestamp-millis"},"default":0}]}`
)

func TestWrittenWithOneSchemaAndReadWithAnother(t *testing.T) {
	reg := newRegistry(t)
	old := formattest.Output(t, withRegistry(reg, map[string]any{"schema": first}), formattest.Env("users"))
	value, err := formattest.Write(old, `{"id":1,"name":"a"}`)
	if err != nil || value[0] != 0 {
		t.Fatalf("%x, %v", value, err)
	}
	if s, ok := reg.GetSchema("users-value", 1); !ok || s.ID != int(value[4]) {
		t.Errorf("the registry has %v, the value %x", s, value)
	}
	for name, tt := range map[string]struct{ schema, want string }{
		"as it was written": {"", `{"id":1,"name":"a"}`},
		"as a later schema": {second, `{"id":1,"title":"a","mail":null,"since":"1970-01-01T00:00:00Z"}`},
	} {
		more := map[string]any{}
		if tt.schema != "" {
			more["schema"] = tt.schema
		}
		got, err := formattest.Read(formattest.Input(t, withRegistry(reg, more)), value)
		if err != nil || got != tt.want {
			t.Errorf("%s: %s, %v, want %s", name, got, err, tt.want)
		}
	}
	_, err = formattest.Read(formattest.Input(t, withRegistry(reg, map[string]any{"schema": `{"type":"record","name":"user","fields":[{"name":"id","type":"string"}]}`})), value)
	if !format.IsRefused(err) || !strings.Contains(err.Error(), "id") {
		t.Errorf("a schema that cannot read it: %v", err)
	}
}

func TestAReaderTakesEveryWritersSchemaThatComes(t *testing.T) {
	reg := newRegistry(t)
	in := formattest.Input(t, withRegistry(reg, nil))
	for i, s := range []string{first, strings.Replace(first, `"int"`, `"long"`, 1)} {
		out := formattest.Output(t, withRegistry(reg, map[string]any{"schema": s}), formattest.Env("users"))
		value, err := formattest.Write(out, `{"id":7,"name":"a"}`)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := formattest.Read(in, value); err != nil || got != `{"id":7,"name":"a"}` {
			t.Errorf("schema %d: %s, %v", i, got, err)
		}
	}
}

func TestASinkWithoutASchemaWritesByTheSubjectsNewest(t *testing.T) {
	reg := newRegistry(t)
	reg.SeedSchema("users-value", 1, 7, sr.Schema{Schema: first})
	value, err := formattest.Write(formattest.Output(t, withRegistry(reg, nil), formattest.Env("users")), `{"id":1,"name":"a"}`)
	if err != nil || string(value) != "\x00\x00\x00\x00\x07\x02\x02a" {
		t.Errorf("%x, %v", value, err)
	}
}

func TestSubjectsAreNamedByTheStrategy(t *testing.T) {
	for strategy, want := range map[string]string{"topic": "users-value", "record": "shop.user", "topic_record": "users-shop.user"} {
		reg := newRegistry(t)
		formattest.Output(t, withRegistry(reg, map[string]any{"schema": first, "registry.subject_strategy": strategy}), formattest.Env("users"))
		if !reg.SubjectExists(want) {
			t.Errorf("%s: there is no subject %s", strategy, want)
		}
	}
	out, err := format.NewOutput(withRegistry(newRegistry(t), map[string]any{"schema": first}))
	if err != nil {
		t.Fatal(err)
	}
	if err := out.Start(t.Context(), formattest.Env("")); !connectors.IsPermanent(err) || !strings.Contains(err.Error(), "no fixed topic") {
		t.Error(err)
	}
}

func TestAnIncompatibleSchemaIsExplained(t *testing.T) {
	reg := newRegistry(t)
	reg.SeedSchema("users-value", 1, 7, sr.Schema{Schema: first})
	reg.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.Method == http.MethodPost && strings.HasPrefix(r.URL.Path, "/compatibility"):
			_, _ = w.Write([]byte(`{"is_compatible":false,"messages":["READER_FIELD_MISSING_DEFAULT_VALUE at /fields/2: mail"]}`))
		case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/versions"):
			w.WriteHeader(http.StatusConflict)
			_, _ = w.Write([]byte(`{"error_code":409,"message":"incompatible"}`))
		default:
			return false
		}
		return true
	})
	out, err := format.NewOutput(withRegistry(reg, map[string]any{"schema": strings.Replace(first, `"int"`, `"string"`, 1)}))
	if err != nil {
		t.Fatal(err)
	}
	err = out.Start(t.Context(), formattest.Env("users"))
	if !connectors.IsPermanent(err) || !strings.Contains(err.Error(), "subject users-value") || !strings.Contains(err.Error(), "READER_FIELD_MISSING_DEFAULT_VALUE") {
		t.Error(err)
	}
}

func TestASchemaThatMustBeThereIsNotRegistered(t *testing.T) {
	reg := newRegistry(t)
	out, err := format.NewOutput(withRegistry(reg, map[string]any{"schema": first, "registry.auto_register": false}))
	if err != nil {
		t.Fatal(err)
	}
	if err := out.Start(t.Context(), formattest.Env("users")); !connectors.IsPermanent(err) || reg.SubjectExists("users-value") {
		t.Error(err)
	}
}

func TestValuesWithoutAKnownSchemaAreRefused(t *testing.T) {
	reg := newRegistry(t)
	reg.SeedSchema("p", 1, 3, sr.Schema{Schema: `syntax = "proto3";`, Type: sr.TypeProtobuf})
	in := formattest.Input(t, withRegistry(reg, nil))
	for value, want := range map[string]string{
		"": "no mark of a schema", "{\"a\":1}": "no mark of a schema", "\x00\x00\x00\x00\x09": "schema 9, which the registry at", "\x00\x00\x00\x00\x03": "of PROTOBUF and not of Avro",
	} {
		if _, err := formattest.Read(in, []byte(value)); !format.IsRefused(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", value, err, want)
		}
	}
}

func TestTheMarkOfAHeaderIsRead(t *testing.T) {
	reg := newRegistry(t)
	reg.SeedSchema("users-value", 1, 7, sr.Schema{Schema: first})
	client, err := sr.NewClient(sr.URLs(reg.URL()))
	if err != nil {
		t.Fatal(err)
	}
	s, err := client.SchemaByVersion(t.Context(), "users-value", 1)
	if err != nil || s.GUID == "" {
		t.Fatal(s, err)
	}
	mark := []byte{1}
	for i := 0; i < len(s.GUID); {
		if s.GUID[i] == '-' {
			i++
			continue
		}
		mark = append(mark, unhex(s.GUID[i])<<4|unhex(s.GUID[i+1]))
		i += 2
	}
	in := formattest.Input(t, withRegistry(reg, nil))
	for name, header := range map[string][]byte{"by GUID": mark, "by id": {0, 0, 0, 0, 7}} {
		got, err := formattest.Read(in, []byte("\x02\x02a"), connectors.Header{Key: registry.Header, Value: header})
		if err != nil || got != `{"id":1,"name":"a"}` {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	if _, err := formattest.Read(in, []byte("\x02\x02a"), connectors.Header{Key: registry.Header, Value: []byte("x")}); !format.IsRefused(err) {
		t.Error(err)
	}
}

func unhex(c byte) byte {
	if c >= 'a' {
		return c - 'a' + 10
	}
	return c - '0'
}

func TestSchemasThatReferToOthersAreRead(t *testing.T) {
	reg := newRegistry(t)
	reg.SeedSchema("money", 1, 1, sr.Schema{Schema: `{"type":"record","name":"money","namespace":"shop","fields":[{"name":"n","type":"int"}]}`})
	reg.SeedSchema("bids-value", 1, 2, sr.Schema{
		Schema:     `{"type":"record","name":"bid","namespace":"shop","fields":[{"name":"p","type":"shop.money"},{"name":"q","type":["null","money"]}]}`,
		References: []sr.SchemaReference{{Name: "shop.money", Subject: "money", Version: 1}},
	})
	got, err := formattest.Read(formattest.Input(t, withRegistry(reg, nil)), []byte("\x00\x00\x00\x00\x02\x02\x02\x04"))
	if err != nil || got != `{"p":{"n":1},"q":{"n":2}}` {
		t.Errorf("%s, %v", got, err)
	}
}

func TestARegistryThatIsAwayIsWaitedForAndAskedOnce(t *testing.T) {
	reg := newRegistry(t)
	reg.SeedSchema("users-value", 1, 7, sr.Schema{Schema: first})
	var calls atomic.Int64
	reg.Intercept(func(w http.ResponseWriter, _ *http.Request) bool {
		if calls.Add(1) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}
		return false
	})
	in := formattest.Input(t, withRegistry(reg, nil))
	for range 5 {
		if _, err := formattest.Read(in, []byte("\x00\x00\x00\x00\x07\x02\x02a")); err != nil {
			t.Fatal(err)
		}
	}
	if n := calls.Load(); n != 3 {
		t.Errorf("the registry was asked %d times", n)
	}
	reg.Intercept(func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := formattest.Input(t, withRegistry(reg, nil)).JSON(ctx, nil, &connectors.Record{Value: []byte("\x00\x00\x00\x00\x07\x02\x02a")})
	if err == nil || format.IsRefused(err) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a registry that stays away is no fault of the record: %v", err)
	}
}

// inFiles writes files into a folder and returns their paths, in the order of names.
func inFiles(t *testing.T, texts ...string) (paths []any) {
	t.Helper()
	folder := t.TempDir()
	for i := 0; i < len(texts); i += 2 {
		path := filepath.Join(folder, texts[i])
		if err := os.WriteFile(path, []byte(texts[i+1]), 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}

func TestASinkRegistersTheTypesThatItsSchemaNames(t *testing.T) {
	reg := newRegistry(t)
	refs := inFiles(t,
		"currency.avsc", `{"type":"enum","name":"currency","namespace":"shop","symbols":["EUR","USD"]}`,
		"money.avsc", `{"type":"record","name":"shop.money","fields":[{"name":"n","type":"long"},{"name":"c","type":["null","currency"]}]}`,
		"unused.avsc", `{"type":"fixed","name":"shop.unused","size":4}`)
	cfg := withRegistry(reg, map[string]any{
		"schema":     `{"type":"record","name":"bid","namespace":"shop","fields":[{"name":"p","type":{"type":"array","items":"money"}}]}`,
		"references": refs, "registry.mark": "header",
	})
	out := formattest.Output(t, cfg, formattest.Env("bids"))
	const row = `{"p":[{"n":1,"c":"EUR"},{"n":2,"c":null}]}`
	value, headers, err := formattest.WriteMarked(out, row)
	if err != nil || len(headers) != 1 {
		t.Fatal(headers, err)
	}
	for subject, want := range map[string]string{"bids-value": "shop.money", "shop.money": "shop.currency", "shop.currency": ""} {
		s, ok := reg.GetSchema(subject, 1)
		var refers string
		for _, r := range s.References {
			refers += r.Name
		}
		if !ok || refers != want {
			t.Errorf("subject %s refers to %q, want %q", subject, refers, want)
		}
	}
	if reg.SubjectExists("shop.unused") {
		t.Error("a type that nothing names is registered")
	}
	// By any reader, and by one that has the files.
	for _, in := range []connectors.FormatConfig{withRegistry(reg, nil), cfg} {
		if got, err := formattest.Read(formattest.Input(t, in), value, headers...); err != nil || got != row {
			t.Errorf("%s, %v", got, err)
		}
	}
	without := formattest.Config("avro", map[string]any{"references": refs})
	if err := format.Check(without); err == nil || !strings.Contains(err.Error(), "no schema that names their types") {
		t.Error(err)
	}
}
