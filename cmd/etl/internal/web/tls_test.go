package web

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io/fs"
	"log/slog"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	next int64
}

func newAuthority(t *testing.T) *authority {
	a := &authority{}
	ca := &x509.Certificate{Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.cert, a.key = a.sign(t, ca)
	return a
}

// sign makes a certificate of what is asked for, by the authority, or by itself for the first one.
func (a *authority) sign(t *testing.T, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a.next++
	c.SerialNumber = big.NewInt(a.next)
	if c.NotAfter.IsZero() {
		c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(30*24*time.Hour)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func certPEM(c *x509.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
}

func keyPEM(t *testing.T, key *ecdsa.PrivateKey) string {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// server is a certificate for 127.0.0.1.
func (a *authority) server(t *testing.T, name string) (cert, key string) {
	c, k := a.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	return certPEM(c), keyPEM(t, k)
}

// client is the client of a user with a certificate; nil is one without.
func (a *authority) client(t *testing.T, c *x509.Certificate) *http.Client {
	config := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "localhost"}
	config.RootCAs.AddCert(a.cert)
	if c != nil {
		if c.ExtKeyUsage == nil {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		}
		cert, key := a.sign(t, c)
		config.Certificates = []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}}
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// pair writes a certificate and its key, and returns settings with them.
func pair(t *testing.T, a *authority, name string) Settings {
	dir := t.TempDir()
	s := Settings{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	cert, key := a.server(t, name)
	write(t, s.CertFile, cert)
	write(t, s.KeyFile, key)
	return s
}

func TestTLSSpeaksHTTP2AndNothingOld(t *testing.T) {
	a := newAuthority(t)
	s := start(t, Options{Settings: pair(t, a, "one")})
	base := s.Addresses()[0]
	if !strings.HasPrefix(base, "https://") {
		t.Fatalf("it is served at %s", base)
	}
	resp, err := a.client(t, nil).Get(base + "/livez")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.ProtoMajor != 2 || resp.StatusCode != http.StatusOK {
		t.Errorf("it answers with %s, %d", resp.Proto, resp.StatusCode)
	}
	old := a.client(t, nil)
	old.Transport.(*http.Transport).TLSClientConfig.MaxVersion = tls.VersionTLS11
	if resp, err := old.Get(base + "/livez"); err == nil {
		resp.Body.Close()
		t.Error("it speaks TLS 1.1")
	}
	if resp, err := http.Get("http" + strings.TrimPrefix(base, "https") + "/livez"); err == nil {
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			t.Error("it answers without TLS")
		}
	}
}

func TestCertificatesAreReadAgainAndABrokenPairChangesNothing(t *testing.T) {
	a := newAuthority(t)
	settings := pair(t, a, "one")
	var log bytes.Buffer
	s := start(t, Options{Settings: settings, Log: slog.New(slog.NewTextHandler(&log, nil))})
	name := func() string {
		c := a.client(t, nil)
		resp, err := c.Get(s.Addresses()[0] + "/livez")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.TLS.PeerCertificates[0].Subject.CommonName
	}
	look := func() error { return s.certificates.look() }
	if err := look(); err != nil || name() != "one" || strings.Contains(log.String(), "in use") {
		t.Errorf("unchanged: %v, %s", err, name())
	}
	// A renewal writes one file after the other.
	cert, key := a.server(t, "two")
	write(t, settings.CertFile, cert)
	if err := look(); err == nil || name() != "one" || !strings.Contains(log.String(), "last ones stay in use") {
		t.Errorf("half renewed: %v, %s", err, name())
	}
	log.Reset()
	if err := look(); err != nil || log.Len() > 0 {
		t.Errorf("the same fault is told again: %v, %s", err, log.String())
	}
	write(t, settings.KeyFile, key)
	if err := look(); err != nil || name() != "two" {
		t.Errorf("renewed: %v, %s", err, name())
	}
	if err := os.Remove(settings.KeyFile); err != nil {
		t.Fatal(err)
	}
	if err := look(); !errors.Is(err, fs.ErrNotExist) || name() != "two" {
		t.Errorf("without the key: %v, %s", err, name())
	}
	// At SIGHUP too.
	cert, key = a.server(t, "three")
	write(t, settings.CertFile, cert)
	write(t, settings.KeyFile, key)
	if err := s.Reload(); err != nil || name() != "three" {
		t.Errorf("at a reload: %v, %s", err, name())
	}
}

func TestCertificatesOfClientsHaveRoles(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	settings := pair(t, a, "one")
	settings.ClientCAFile = filepath.Join(t.TempDir(), "ca.pem")
	write(t, settings.ClientCAFile, certPEM(a.cert))
	settings.Tokens = []Token{{Name: "owner", Role: Admin, Secret: adminToken}}
	settings.Clients = []ClientCert{
		{Name: "ops", Subject: "CN=ops,O=Example", Role: Operate},
		{SAN: "probe.example.com", Role: Read},
		{SAN: "spiffe://example.com/etl", Role: Admin},
	}
	s := start(t, Options{Settings: settings})
	get := func(c *http.Client, headers ...string) *got {
		return browseWith(t, c, http.MethodGet, s.Addresses()[0]+"/api/v1/daemon", headers...)
	}
	for _, tt := range []struct {
		cert   *x509.Certificate
		status int
		want   string
	}{
		{nil, 401, "or a certificate of http.clients"},
		{&x509.Certificate{Subject: pkix.Name{CommonName: "ops", Organization: []string{"Example"}}}, 200, `"name":"ops"`},
		{&x509.Certificate{Subject: pkix.Name{CommonName: "ops"}}, 403, "CN=ops is none of http.clients"},
		{&x509.Certificate{Subject: pkix.Name{CommonName: "ops,O=Example"}}, 403, "none of http.clients"},
		{&x509.Certificate{DNSNames: []string{"x.example.com", "probe.example.com"}}, 200, `"role":"read"`},
	} {
		if g := get(a.client(t, tt.cert)); g.status != tt.status || !strings.Contains(g.body, tt.want) {
			t.Errorf("%+v: %d %s", tt.cert, g.status, g.body)
		}
	}
	if g := get(a.client(t, nil), "Authorization", "Bearer "+adminToken); g.status != http.StatusOK {
		t.Errorf("with a token: %d %s", g.status, g.body)
	}
	forged := a.client(t, nil)
	cert, key := other.sign(t, &x509.Certificate{DNSNames: []string{"probe.example.com"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	forged.Transport.(*http.Transport).TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return &tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}, nil
	}
	if resp, err := forged.Get(s.Addresses()[0] + "/api/v1/daemon"); err == nil {
		resp.Body.Close()
		t.Errorf("another authority's certificate: %d", resp.StatusCode)
	}
	// A certificate of a server is none of a client.
	for _, c := range []*x509.Certificate{
		{DNSNames: []string{"probe.example.com"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}},
		{DNSNames: []string{"probe.example.com"}, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)},
	} {
		if resp, err := a.client(t, c).Get(s.Addresses()[0] + "/api/v1/daemon"); err == nil {
			resp.Body.Close()
			t.Errorf("%+v: %d", c, resp.StatusCode)
		}
	}
	// A connection outlives its certificate.
	c := a.client(t, &x509.Certificate{DNSNames: []string{"probe.example.com"}})
	if g := get(c); g.status != http.StatusOK {
		t.Fatalf("%d %s", g.status, g.body)
	}
	s.handler.auth.now = func() time.Time { return time.Now().Add(365 * 24 * time.Hour) }
	if g := get(c); g.status != http.StatusUnauthorized || !strings.Contains(g.body, "has run out") {
		t.Errorf("after its end: %d %s", g.status, g.body)
	}
	// An authority that is not trusted any more lets nobody in.
	write(t, settings.ClientCAFile, certPEM(other.cert))
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	if resp, err := a.client(t, &x509.Certificate{DNSNames: []string{"probe.example.com"}}).Get(s.Addresses()[0] + "/api/v1/daemon"); err == nil {
		resp.Body.Close()
		t.Errorf("the authority from before: %d", resp.StatusCode)
	}
}

func TestCertificatesThatCannotBeUsedAreToldAtTheStart(t *testing.T) {
	a := newAuthority(t)
	good := pair(t, a, "one")
	noCA := good
	noCA.ClientCAFile, noCA.Clients = good.KeyFile, []ClientCert{{SAN: "x", Role: Read}}
	mixed := good
	mixed.KeyFile = pair(t, a, "two").KeyFile
	for want, s := range map[string]Settings{
		"no such file": {CertFile: "/no/cert", KeyFile: "/no/key"}, "holds no certificate in PEM form": noCA, "private key does not match": mixed,
	} {
		s.Listen, s.MaxConnections = []string{"127.0.0.1:0"}, 1
		if out, err := Serve(context.Background(), Options{Settings: s, Service: &fakeDaemon{}, Log: slog.New(slog.DiscardHandler)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, %v, want %q", out, err, want)
		}
	}
}
