package s3

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/storage"
)

func TestSettingsAreTakenAsFilesAndVariablesHoldThem(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, []byte("-----BEGIN CERTIFICATE-----"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := parse(map[string]any{
		"region": "eu-west-1", "endpoint": "https://minio.example:9000", "path_style": true, "access_key_id": "AKIA", "secret_access_key": "shh",
		"session_token": "token", "role_arn": "arn:aws:iam::1:role/r", "sse": "sse-kms", "kms_key_id": "alias/k", "ca_file": ca, "checksums": "when_supported",
		"part_size": "16MiB", "concurrency": 3, "connect_timeout": "1s", "request_timeout": "2s", "retry_timeout": "3m",
		"buckets": map[string]any{
			"plain":  map[string]any{"region": "us-west-2", "path_style": "false", "part_size": "5MiB", "concurrency": "7"},
			"dotted": map[string]any{"name": map[string]any{"org": map[string]any{"sse": "none", "kms_key_id": "", "region": "r"}}},
			"empty":  map[string]any{},
		},
	})
	if err == nil || !strings.Contains(err.Error(), "buckets.dotted.name.org.kms_key_id: it is empty") {
		t.Fatalf("got error %v", err)
	}
	want := Config{
		Region: "eu-west-1", Endpoint: "https://minio.example:9000", PathStyle: "true", AccessKeyID: "AKIA", SecretAccessKey: "shh", SessionToken: "token",
		RoleARN: "arn:aws:iam::1:role/r", SSE: "sse-kms", KMSKeyID: "alias/k", CAFile: ca, Checksums: "when_supported",
		PartSize: 16 << 20, Concurrency: 3, ConnectTimeout: time.Second, RequestTimeout: 2 * time.Second, RetryTimeout: 3 * time.Minute,
	}
	if s.of("other") != want || s.of("empty") != want {
		t.Errorf("got %+v", s.of("other"))
	}
	want.Region, want.PathStyle, want.PartSize, want.Concurrency = "us-west-2", "false", 5<<20, 7
	if s.of("plain") != want {
		t.Errorf("got %+v for the bucket", s.of("plain"))
	}
}

func TestBadSettingsAreAllReportedWithoutSecrets(t *testing.T) {
	_, err := parse(map[string]any{
		"regoin": "eu", "endpoint": "minio:9000", "path_style": "maybe", "secret_access_key": 12345, "session_token": "tok-secret", "sse": "aes", "kms_key_id": "k",
		"ca_file": "/does/not/exist", "checksums": "never", "part_size": "1MiB", "concurrency": 0, "connect_timeout": "0s", "request_timeout": "soon", "retry_timeout": []any{"1m"},
		"buckets": map[string]any{"b": map[string]any{"regoin": "x", "buckets": "y"}, "one": "value", "ok-bucket": map[string]any{"part_size": "2GiB"}},
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`regoin: there is no such key; there are region,`, "endpoint: write it like https://", "path_style: maybe is neither", "secret_access_key: a text is wanted",
		"sse: aes is not one of none, sse-s3, sse-kms", "ca_file: read the CA's", "checksums: never is not one of", `part_size: "1MiB" is no size from 5MiB`,
		`concurrency: "0" is no number from 1 to 256`, `connect_timeout: "0s" is no duration above 0`, `request_timeout: "soon" is no duration`, "retry_timeout: one value is wanted",
		"buckets.b.regoin: there is no such key", "buckets.b.buckets: there is no such key", "buckets.one: keys with values are wanted", `buckets.b: "b" is no name of a bucket`,
		`buckets.ok-bucket.part_size: "2GiB"`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q", want)
		}
	}
	for _, secret := range []string{"12345", "tok-secret"} {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("the error shows the secret %q", secret)
		}
	}
	if t.Failed() {
		t.Log(err)
	}
}

func TestSettingsThatDoNotGoTogetherAreReported(t *testing.T) {
	for want, values := range map[string]map[string]any{
		"go together":             {"access_key_id": "a"},
		"session_token needs":     {"session_token": "a"},
		"give one of them":        {"access_key_id": "a", "secret_access_key": "b", "profile": "p"},
		"needs sse: sse-kms":      {"kms_key_id": "a"},
		"names of buckets with":   {"buckets": "b"},
		"buckets.bbb.kms_key_id ": {"buckets": map[string]any{"bbb": map[string]any{"kms_key_id": "a"}}},
	} {
		if _, err := parse(values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want an error that says %q", values, err, want)
		}
	}
}

func TestSecretsAreNeverShown(t *testing.T) {
	c := NewConfig()
	c.AccessKeyID, c.SecretAccessKey, c.SessionToken = "id", "shh", "shh"
	for _, text := range []string{fmt.Sprint(c), fmt.Sprintf("%v", c), fmt.Sprintf("%+v", c), fmt.Sprintf("%#v", c), fmt.Sprint(c.SecretAccessKey)} {
		if strings.Contains(text, "shh") {
			t.Errorf("shown in %s", text)
		}
	}
}

// The settings file of the repository and the page show every key with its default.
func TestEveryKeyIsShown(t *testing.T) {
	file, err := os.ReadFile("../../configs/etl.yaml")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/storage.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range storage.SettingsOf()["s3"].Known {
		if !strings.Contains(string(file), "\n#     "+k.Key+": "+k.Default) {
			t.Errorf("configs/etl.yaml lacks the key %s with its default %q", k.Key, k.Default)
		}
		def := ""
		if k.Default != "" {
			def = "`" + k.Default + "`"
		}
		if row := fmt.Sprintf("| `%s` | %s | %s |", k.Key, def, k.Doc); !strings.Contains(string(page), row) {
			t.Errorf("docs/storage.md lacks the row\n%s", row)
		}
	}
}

func TestDefaultsAreThoseThatAreShown(t *testing.T) {
	given := map[string]any{}
	for _, k := range known() {
		if k.Default != "" && !strings.Contains(k.Default, " ") {
			given[k.Key] = k.Default
		}
	}
	s, err := parse(given)
	want := NewConfig()
	want.SSE, want.Checksums = "none", "when_required"
	if err != nil || s.all != want {
		t.Fatalf("got %+v, %v; want %+v", s.all, err, want)
	}
}

func TestPartsOfSizes(t *testing.T) {
	for text, want := range map[string]int64{"8MiB": 8 << 20, "10MB": 10e6, "1GiB": 1 << 30, "5242880": 5242880, "64 KiB": 64 << 10} {
		if got, err := parseSize(text); err != nil || got != want {
			t.Errorf("%s: got %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "MiB", "-1MiB", "1.5MiB", "99999999999GiB"} {
		if got, err := parseSize(text); err == nil {
			t.Errorf("%s: got %d", text, got)
		}
	}
}

func TestBuffersAreReadAsTheyWereWritten(t *testing.T) {
	var b buffer
	data := make([]byte, 3*chunkSize+100)
	for i := range data {
		data[i] = byte(i >> 3)
	}
	const limit = 3*chunkSize + 50
	n := 0
	for _, piece := range slices.Collect(slices.Chunk(data, 100_000)) {
		n += b.write(piece, limit)
	}
	if n != limit || b.size != limit {
		t.Fatalf("it took %d bytes and has %d", n, b.size)
	}
	r := b.reader()
	for range 2 {
		got := make([]byte, 0, limit)
		piece := make([]byte, 33_333)
		for {
			m, err := r.Read(piece)
			got = append(got, piece[:m]...)
			if err != nil {
				break
			}
		}
		if !slices.Equal(got, data[:limit]) {
			t.Fatal("other bytes")
		}
		if _, err := r.Seek(0, 0); err != nil {
			t.Fatal(err)
		}
	}
	if end, err := r.Seek(0, 2); err != nil || end != limit {
		t.Fatalf("its end is at %d, %v", end, err)
	}
	if _, err := r.Seek(-1, 0); err == nil {
		t.Fatal("it was read before its beginning")
	}
	b.free()
}
