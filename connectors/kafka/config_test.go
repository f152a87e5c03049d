package kafka

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/sluice-etl/sluice/connectors"
)

func TestPositionsAreReadInEveryForm(t *testing.T) {
	at := time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC).UnixMilli()
	for _, c := range []struct {
		in     any
		kind   startKind
		millis int64
	}{
		{"earliest", startEarliest, 0}, {"latest", startLatest, 0}, {"group", startGroup, 0},
		{map[string]any{"timestamp": "2026-01-31T00:00:00Z"}, startTimestamp, at},
		{map[string]any{"timestamp": "2026-01-31"}, startTimestamp, at},
		{map[string]any{"timestamp": at}, startTimestamp, at},
		{map[string]any{"offsets": map[string]any{"a/b/3": int64(5)}}, startOffsets, 0},
	} {
		var s Start
		if err := s.UnmarshalConfig(c.in); err != nil || s.kind != c.kind || s.millis != c.millis {
			t.Errorf("start %v: %+v, %v", c.in, s, err)
		}
		var u Until
		err := u.UnmarshalConfig(c.in)
		if ends := c.kind != startEarliest && c.kind != startGroup; ends != (err == nil) || ends != u.Set() {
			t.Errorf("until %v: %+v, %v", c.in, u, err)
		}
	}
	for _, bad := range []any{
		"first", nil, true, int64(3), map[string]any{}, map[string]any{"timestamp": "noon"}, map[string]any{"offsets": map[string]any{}},
		map[string]any{"offsets": map[string]any{"a": int64(1)}}, map[string]any{"offsets": map[string]any{"a/0": int64(-1)}},
		map[string]any{"offsets": map[string]any{"a/0": "x"}}, map[string]any{"offsets": map[string]any{"a/0": int64(1)}, "timestamp": int64(1)},
	} {
		if err := new(Start).UnmarshalConfig(bad); err == nil {
			t.Errorf("start %v is taken", bad)
		}
	}
}

func TestValidationNamesEachFault(t *testing.T) {
	source := newSourceConfig().(*SourceConfig)
	source.Brokers, source.TopicPattern, source.Start = []string{"a b"}, "(", Start{kind: startGroup}
	source.Topics = []string{"no/slash"}
	source.SASL = SASLConfig{Mechanism: "PLAIN"}
	source.TLS = TLSConfig{Cert: "c"}
	wantText(t, source.Validate(), "brokers", "topic_pattern", "no/slash", "start", "sasl", "cert and key")

	sink := newSinkConfig().(*SinkConfig)
	sink.TransactionTimeout = connectors.TimeSpan(time.Millisecond)
	sink.SASL = SASLConfig{Mechanism: "MAGIC"}
	wantText(t, sink.Validate(), "topic", "brokers", "transaction_timeout", "MAGIC")

	source = config([]string{"localhost:9092"}, nil, "orders")
	if err := source.Validate(); err != nil {
		t.Error(err)
	}
	sink = newSinkConfig().(*SinkConfig)
	sink.Brokers, sink.Topic = []string{"localhost:9092"}, fixedTopic("orders")
	if err := sink.Validate(); err != nil {
		t.Error(err)
	}
}

// certificates makes an authority with a certificate for 127.0.0.1 and returns
// the server's part and the authority's file.
func certificates(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	self := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, self, self, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}

func TestConnectionsAreEncryptedAndTheBrokerIsVerified(t *testing.T) {
	cert, ca := certificates(t)
	_, brokers := fake(t, kfake.TLS(&tls.Config{Certificates: []tls.Certificate{cert}}), kfake.SeedTopics(1, "t"))
	for _, c := range []struct {
		name string
		tls  TLSConfig
		text string
	}{
		{"trusted", TLSConfig{CA: ca}, ""},
		{"not verified", TLSConfig{InsecureSkipVerify: true}, ""},
		{"unknown authority", TLSConfig{Enabled: true}, "certificate"},
		{"no file", TLSConfig{CA: ca + "x"}, "tls.ca"},
		{"other name", TLSConfig{CA: ca, ServerName: "other.example"}, "other.example"},
		{"off", TLSConfig{}, "tls"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newTestSource(t, brokers, func(cfg *SourceConfig) { cfg.TLS = c.tls }, "t")
			_, err := s.Splits(testContext(t), nil)
			if c.text == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantText(t, err, c.text)
		})
	}
}
