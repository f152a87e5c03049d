//go:build integration

package kafka

import (
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-etl/sluice/connectors"
)

// secureScript runs the script for a broker with listeners for logins, and with further
// settings, a line each.
func secureScript(t *testing.T, verb, settings string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join("..", "..", "deploy", "services", "kafka.sh"), verb)
	cmd.Env = append(os.Environ(), "SERVICES_INSTANCE=secure", "NODES=1", "KAFKA_PORT=29592", "KAFKA_SECURE=1", "KAFKA_HEAP=384m", "KAFKA_EXTRA="+settings)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("kafka.sh %s: %v\n%s", verb, err, errs.String())
	}
	return string(out)
}

// secureBroker starts it for the time of a test and returns what its env says.
func secureBroker(t *testing.T, settings ...string) map[string]string {
	t.Helper()
	lines := strings.Join(settings, "\n")
	t.Cleanup(func() { secureScript(t, "clean", lines) })
	secureScript(t, "start", lines)
	env := map[string]string{}
	for line := range strings.Lines(secureScript(t, "env", lines)) {
		if name, value, found := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "="); found {
			env[name] = strings.Trim(value, `'"`)
		}
	}
	return env
}

// unsigned is a token as a broker takes it whose listener checks no signature.
func unsigned(subject string, until time.Time) string {
	part := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	now := time.Now().Unix()
	return part(`{"alg":"none"}`) + "." + part(fmt.Sprintf(`{"sub":%q,"iat":%d,"exp":%d}`, subject, now-60, until.Unix())) + "."
}

func TestLoginsOnKafka(t *testing.T) {
	env := secureBroker(t)
	plain := strings.Split(env["KAFKA_BROKERS"], ",")
	secure, mutual := strings.Split(env["KAFKA_SASL_BROKERS"], ","), strings.Split(env["KAFKA_MTLS_BROKERS"], ",")
	ca := TLSConfig{Enabled: true}
	ca.CA = env["KAFKA_CA_FILE"]
	both := ca
	both.Cert, both.Key = env["KAFKA_CLIENT_CERT_FILE"], env["KAFKA_CLIENT_KEY_FILE"]
	user := func(mechanism string) SASLConfig {
		return SASLConfig{Mechanism: mechanism, Username: env["KAFKA_USERNAME"], Password: env["KAFKA_PASSWORD"]}
	}
	token := func(until time.Time) SASLConfig {
		return SASLConfig{Mechanism: "OAUTHBEARER", OAuth: OAuthConfig{Token: unsigned("etl", until)}}
	}
	out := topic(t, plain, 1, nil)
	var want []string
	for _, c := range []struct {
		name    string
		brokers []string
		tls     TLSConfig
		sasl    SASLConfig
	}{
		{"SCRAM-SHA-512", secure, ca, user("SCRAM-SHA-512")},
		{"SCRAM-SHA-256", secure, ca, user("SCRAM-SHA-256")},
		{"PLAIN", secure, ca, user("PLAIN")},
		{"OAUTHBEARER", secure, ca, token(time.Now().Add(time.Hour))},
		{"mutual TLS", mutual, both, SASLConfig{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := process(t, c.brokers, 1, func(s *SinkConfig, _ *connectors.SinkEnv) { s.TLS, s.SASL = c.tls, c.sasl }, out).start(1, nil)
			defer p.stop()
			p.write(0, c.name)
			p.mustCommit(p.prepared(1, 1), false)
			want = append(want, c.name)
			wantTopic(t, "topic", plain, out, want)
			got := readBounded(t, c.brokers, func(s *SourceConfig) {
				s.TLS, s.SASL = c.tls, c.sasl
				s.Until = Until{kind: startLatest}
			}, out)
			wantSet(t, "read", got, want)
		})
	}

	wrong := user("SCRAM-SHA-512")
	wrong.Password += "x"
	unknown := user("SCRAM-SHA-256")
	unknown.Username += "x"
	wrongPlain := user("PLAIN")
	wrongPlain.Password += "x"
	for _, c := range []struct {
		name      string
		brokers   []string
		tls       TLSConfig
		sasl      SASLConfig
		permanent bool
		texts     []string
	}{
		{"wrong password", secure, ca, wrong, true, []string{"sasl.password"}},
		{"wrong password, PLAIN", secure, ca, wrongPlain, true, []string{"sasl.password"}},
		{"unknown user", secure, ca, unknown, true, []string{"sasl.username"}},
		{"expired token", secure, ca, token(time.Now().Add(-time.Minute)), true, []string{"login was refused"}},
		{"mechanism that is not offered", secure, ca, SASLConfig{Mechanism: "AWS_MSK_IAM"}, true, []string{"sasl.mechanism"}},
		{"no login", secure, ca, SASLConfig{}, false, []string{"sasl"}},
		{"no certificate of the client", mutual, ca, SASLConfig{}, false, []string{"certificate"}},
		{"authority that is not trusted", secure, TLSConfig{Enabled: true}, user("PLAIN"), false, []string{"certificate"}},
		{"no tls", secure, TLSConfig{}, user("PLAIN"), false, []string{"tls"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
			t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
			t.Setenv("AWS_REGION", "eu-central-1")
			cfg := newSinkConfig().(*SinkConfig)
			cfg.Brokers, cfg.Topic, cfg.TLS, cfg.SASL = c.brokers, fixedTopic(out), c.tls, c.sasl
			s := newSink(cfg)
			err := s.Open(testContext(t), connectors.SinkEnv{Pipeline: "p", Name: "out", Subtasks: 1, Slots: 5, Budget: 1 << 20})
			if cerr := s.Close(); cerr != nil {
				t.Error(cerr)
			}
			wantText(t, err, c.texts...)
			if err != nil && connectors.IsPermanent(err) != c.permanent {
				t.Errorf("permanent is %v: %v", !c.permanent, err)
			}
			if err != nil && strings.Contains(err.Error(), env["KAFKA_PASSWORD"]) {
				t.Errorf("the error shows the password: %v", err)
			}
		})
	}
	if got := stored(t, plain, out, kgo.ReadUncommitted()); len(got) != len(want) {
		t.Errorf("%d records are there, %d were written", len(got), len(want))
	}
}

// TestRightsOnKafka has a broker with the authorizer of a cluster without ZooKeeper, which
// the tests administer over the listener without a login.
func TestRightsOnKafka(t *testing.T) {
	env := secureBroker(t, "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users=User:ANONYMOUS")
	eachRightIsMissing(t, &guarded{
		admin:   client(t, strings.Split(env["KAFKA_BROKERS"], ",")),
		brokers: strings.Split(env["KAFKA_SASL_BROKERS"], ","),
		tls:     TLSConfig{Enabled: true, CA: env["KAFKA_CA_FILE"]},
		user:    SASLConfig{Mechanism: "SCRAM-SHA-512", Username: env["KAFKA_USERNAME"], Password: env["KAFKA_PASSWORD"]},
	}, slices.Concat(rightsCases, unusedGroupCases))
}
