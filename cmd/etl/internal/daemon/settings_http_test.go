package daemon

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/cmd/etl/internal/web"
)

func TestHTTPSettingsOfAFileAndOfVariables(t *testing.T) {
	path := filepath.Join(t.TempDir(), "etl.yaml")
	text := `
http:
  listen: [127.0.0.1:8700, "[::1]:8700"]
  hosts: [etl.example.com]
  cert_file: /c
  key_file: /k
  client_ca_file: /a
  tokens:
    - {name: ci, role: operate, token: "${CI_TOKEN}"}
    - {name: prometheus, role: read, token_file: /run/token}
  clients:
    - {subject: "CN=ops,O=Example", role: admin}
    - {name: probe, san: probe.example.com, role: read}
  audit_file: /audit
  roots: [s3://backups/etl]
  pprof: true
  max_connections: 7
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	want := web.Settings{
		Listen: []string{"127.0.0.1:8700", "[::1]:8700"}, Hosts: []string{"etl.example.com"}, CertFile: "/c", KeyFile: "/k", ClientCAFile: "/a",
		Tokens:    []web.Token{{Name: "ci", Role: web.Operate, Secret: "${CI_TOKEN}"}, {Name: "prometheus", Role: web.Read, File: "/run/token"}},
		Clients:   []web.ClientCert{{Subject: "CN=ops,O=Example", Role: web.Admin}, {Name: "probe", SAN: "probe.example.com", Role: web.Read}},
		AuditFile: "/audit", Roots: []string{"s3://backups/etl"}, Pprof: true, MaxConnections: 7,
	}
	s, err := LoadSettings(path, nil, nil)
	if err != nil || !reflect.DeepEqual(s.HTTP, want) {
		t.Errorf("error %v; got\n%+v, want\n%+v", err, s.HTTP, want)
	}
	want.Listen, want.Roots, want.Tokens = []string{"127.0.0.1:1", "127.0.0.1:2"}, nil, []web.Token{{Name: "x", Role: web.Admin, Secret: "${X}"}}
	want.MetricsPublic = true
	s, err = LoadSettings(path, []string{
		"ETL_HTTP__LISTEN=127.0.0.1:1, 127.0.0.1:2", "ETL_HTTP__ROOTS=", "ETL_HTTP__TOKENS=[{name: x, role: admin, token: '${X}'}]", "ETL_HTTP__METRICS_PUBLIC=true",
	}, nil)
	if err != nil || !reflect.DeepEqual(s.HTTP, want) {
		t.Errorf("error %v; got\n%+v, want\n%+v", err, s.HTTP, want)
	}
}

func TestFaultsOfHTTPSettingsAllAreToldAndNoSecretIs(t *testing.T) {
	const marker = "a-token-that-nobody-may-see"
	_, err := LoadSettings("", []string{
		"ETL_HTTP__LISTEN=0.0.0.0:80", "ETL_HTTP__PPROF=perhaps", "ETL_HTTP__MAX_CONNECTIONS=many",
		"ETL_HTTP__TOKENS=[{name: x, role: owner, tokn: " + marker + "}, " + marker + "]", "ETL_HTTP__CLIENTS=[{" + marker,
	}, nil)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"http.listen: 0.0.0.0:80", "http.pprof", "http.max_connections", `http.tokens.0: role is "owner"`, `http.tokens.0: there is no key "tokn"`, "http.tokens.1", "http.clients"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), marker) {
		t.Errorf("it shows the token:\n%v", err)
	}
}
