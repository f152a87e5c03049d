package kafka

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-etl/sluice/connectors"
)

// proof is what a client says first to a broker.
func proof(t *testing.T, c SASLConfig) (string, error) {
	t.Helper()
	m, err := (&login{cfg: &c}).mechanism()
	if err != nil {
		return "", err
	}
	_, first, err := m.Authenticate(t.Context(), "b-1.cluster.kafka.eu-central-1.amazonaws.com:9098")
	return string(first), err
}

func TestATokenIsReadFromItsFileForEachLogin(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	c := SASLConfig{Mechanism: "OAUTHBEARER", OAuth: OAuthConfig{TokenFile: file, Extensions: map[string]string{"logicalCluster": "lkc-1"}}}
	m, err := (&login{cfg: &c}).mechanism()
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{"first", "second\n"} {
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
		_, first, err := m.Authenticate(t.Context(), "localhost:9092")
		if want := "auth=Bearer " + strings.TrimSpace(token) + "\x01logicalCluster=lkc-1\x01"; err != nil || !strings.Contains(string(first), want) {
			t.Errorf("login %q %v, want %q", first, err, want)
		}
	}
	c.OAuth.TokenFile += "x"
	_, err = proof(t, c)
	wantText(t, err, "token_file")
}

// provider gives tokens that last for the given seconds, each another one.
func provider(t *testing.T, seconds int) (*httptest.Server, *atomic.Int64) {
	var given atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, secret, _ := r.BasicAuth()
		if id != "sluice" || secret != "s%3Acret" || r.FormValue("grant_type") != "client_credentials" || r.FormValue("scope") != "kafka" {
			w.WriteHeader(http.StatusUnauthorized)
			_ = json.NewEncoder(w).Encode(map[string]string{"error": "invalid_client", "error_description": "no such client"})
			return
		}
		fmt.Fprintf(w, `{"access_token": "token-%d", "token_type": "Bearer", "expires_in": %d}`, given.Add(1), seconds)
	}))
	t.Cleanup(srv.Close)
	return srv, &given
}

func TestATokenOfAnIdentityProviderIsKeptUntilItEnds(t *testing.T) {
	for seconds, want := range map[int]int64{3600: 1, 0: 1, -1: 1} {
		srv, given := provider(t, seconds)
		c := SASLConfig{Mechanism: "OAUTHBEARER", OAuth: OAuthConfig{TokenURL: srv.URL, ClientID: "sluice", ClientSecret: "s:cret", Scope: "kafka"}}
		m, err := (&login{cfg: &c}).mechanism()
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			_, first, err := m.Authenticate(t.Context(), "localhost:9092")
			if err != nil || !strings.Contains(string(first), "auth=Bearer token-1\x01") {
				t.Fatalf("login %q %v", first, err)
			}
		}
		if given.Load() != want {
			t.Errorf("%d tokens were asked for, want %d", given.Load(), want)
		}
	}
	srv, given := provider(t, 3600)
	tokens := &tokens{cfg: &OAuthConfig{TokenURL: srv.URL, ClientID: "sluice", ClientSecret: "s:cret", Scope: "kafka"}, client: srv.Client()}
	if _, err := tokens.get(t.Context()); err != nil {
		t.Fatal(err)
	}
	tokens.until = tokens.until.AddDate(-1, 0, 0)
	if token, err := tokens.get(t.Context()); err != nil || token != "token-2" || given.Load() != 2 {
		t.Errorf("token %s %v after the first has ended", token, err)
	}
}

func TestAnIdentityProviderThatRefusesIsToldFromOneThatIsDown(t *testing.T) {
	srv, _ := provider(t, 3600)
	c := SASLConfig{Mechanism: "OAUTHBEARER", OAuth: OAuthConfig{TokenURL: srv.URL, ClientID: "sluice", ClientSecret: "wrong"}}
	_, err := proof(t, c)
	wantText(t, err, "401", "invalid_client no such client", "client_secret")
	if !refusedLogin(err) {
		t.Error("a refusal is tried again")
	}
	down := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	defer down.Close()
	c.OAuth.TokenURL = down.URL
	_, err = proof(t, c)
	wantText(t, err, "503")
	if refusedLogin(err) {
		t.Error("a provider that is down is given up")
	}
	c.OAuth.TokenURL = "http://127.0.0.1:1/token"
	if _, err = proof(t, c); err == nil || refusedLogin(err) {
		t.Errorf("a provider that is not there: %v", err)
	}
}

func TestARefusedLoginIsPermanentAndSaysWhy(t *testing.T) {
	srv, _ := provider(t, 3600)
	c, brokers := fake(t, kfake.SeedTopics(1, "t"))
	c.ControlKey(int16(kmsg.SASLHandshake), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		return kreq.ResponseKind(), nil, true
	})
	s := newTestSource(t, brokers, func(cfg *SourceConfig) {
		cfg.SASL = SASLConfig{Mechanism: "OAUTHBEARER", OAuth: OAuthConfig{TokenURL: srv.URL, ClientID: "sluice", ClientSecret: "wrong"}}
	}, "t")
	_, err := s.Splits(testContext(t), nil)
	wantText(t, err, "invalid_client")
	if !connectors.IsPermanent(err) {
		t.Errorf("%v, want a permanent error", err)
	}
}

func TestMSKIsToldTheCredentialsOfTheEnvironment(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_SESSION_TOKEN", "session")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	first, err := proof(t, SASLConfig{Mechanism: "AWS_MSK_IAM"})
	if err != nil || !strings.Contains(first, "AKIATEST/") || !strings.Contains(first, "eu-central-1") || !strings.Contains(first, "session") || strings.Contains(first, "secret") {
		t.Errorf("login %s %v", first, err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	t.Setenv("AWS_CONFIG_FILE", "/nonexistent")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
	_, err = proof(t, SASLConfig{Mechanism: "AWS_MSK_IAM"})
	wantText(t, err, "AWS credentials", "AWS_ACCESS_KEY_ID")
}

func TestKerberosSettingsThatCannotBeReadAreNamed(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "krb5.conf")
	_, err := proof(t, SASLConfig{Mechanism: "GSSAPI", Kerberos: KerberosConfig{Krb5Conf: conf, Keytab: "k", Principal: "etl@X"}})
	wantText(t, err, "krb5_conf", conf)
	if err := os.WriteFile(conf, []byte("[libdefaults]\n default_realm = X\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = proof(t, SASLConfig{Mechanism: "GSSAPI", Kerberos: KerberosConfig{Krb5Conf: conf, Keytab: conf + "x", Principal: "etl@X"}})
	wantText(t, err, "keytab", conf+"x")
	_, err = proof(t, SASLConfig{Mechanism: "GSSAPI", Kerberos: KerberosConfig{Krb5Conf: conf, CCache: conf + "y"}})
	wantText(t, err, "ccache", conf+"y")
}

func TestFaultsOfSASLBlocks(t *testing.T) {
	for _, c := range []struct {
		sasl SASLConfig
		text string
	}{
		{SASLConfig{Mechanism: "OAUTHBEARER"}, "one of token, token_file and token_url"},
		{SASLConfig{Mechanism: "OAUTHBEARER", OAuth: OAuthConfig{Token: "t", TokenFile: "f"}}, "one of token, token_file and token_url"},
		{SASLConfig{Mechanism: "OAUTHBEARER", OAuth: OAuthConfig{TokenURL: "nowhere"}}, "is no address"},
		{SASLConfig{Mechanism: "OAUTHBEARER", OAuth: OAuthConfig{TokenURL: "https://host/token"}}, "client_id and client_secret"},
		{SASLConfig{Mechanism: "GSSAPI"}, "one of kerberos.keytab"},
		{SASLConfig{Mechanism: "GSSAPI", Kerberos: KerberosConfig{Keytab: "k", ServiceName: "kafka"}}, "principal"},
		{SASLConfig{Mechanism: "PLAIN", Username: "u", Password: "p", AWS: AWSConfig{Profile: "p"}}, "AWS_MSK_IAM"},
		{SASLConfig{OAuth: OAuthConfig{Token: "t"}}, "sasl.mechanism"},
		{SASLConfig{Mechanism: "AWS_MSK_IAM"}, ""},
		{SASLConfig{Mechanism: "OAUTHBEARER", OAuth: OAuthConfig{Token: "t"}}, ""},
		{SASLConfig{Mechanism: "GSSAPI", Kerberos: KerberosConfig{CCache: "c", ServiceName: "kafka"}}, ""},
	} {
		src := config([]string{"localhost:9092"}, func(s *SourceConfig) { s.SASL = c.sasl }, "t")
		err := src.Validate()
		if c.text == "" && err != nil {
			t.Errorf("%+v: %v", c.sasl, err)
		}
		if c.text != "" {
			wantText(t, err, c.text)
		}
	}
}
