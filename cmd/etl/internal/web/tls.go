package web

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// lookForCertificates is how often the files of certificates are looked at.
const lookForCertificates = 10 * time.Second

// soonOut is how long before its end a certificate is warned about.
const soonOut = 7 * 24 * time.Hour

// certificates are what TLS is spoken with, read again when their files change.
type certificates struct {
	settings *Settings
	log      *slog.Logger
	current  atomic.Pointer[tls.Config]

	mu   sync.Mutex
	seen []fs.FileInfo // of the files, when they were last read
}

// loadCertificates reads the files for the first time.
func loadCertificates(s *Settings, log *slog.Logger) (*certificates, error) {
	c := &certificates{settings: s, log: log}
	return c, c.reload()
}

// config is what connections are accepted with: each gets the newest.
func (c *certificates) config() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.current.Load(), nil },
		GetCertificate:     func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &c.current.Load().Certificates[0], nil },
	}
}

// watch reads the files again when they have changed, until ctx ends. A renewal may
// write one before the other: what does not fit together is tried again at the next change.
func (c *certificates) watch(ctx context.Context) {
	ticker := time.NewTicker(lookForCertificates)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			_ = c.look() // logged
		}
	}
}

// look reads the files if they are others than those last read.
func (c *certificates) look() error {
	c.mu.Lock()
	seen := c.seen
	c.mu.Unlock()
	if now := c.stat(); same(seen, now) {
		return nil
	}
	return c.reload()
}

func (c *certificates) paths() []string {
	all := []string{c.settings.CertFile, c.settings.KeyFile}
	if c.settings.ClientCAFile != "" {
		all = append(all, c.settings.ClientCAFile)
	}
	return all
}

// stat describes the files; one that is missing by nil.
func (c *certificates) stat() []fs.FileInfo {
	var all []fs.FileInfo
	for _, path := range c.paths() {
		info, err := os.Stat(path)
		if err != nil {
			info = nil
		}
		all = append(all, info)
	}
	return all
}

func same(a, b []fs.FileInfo) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if (a[i] == nil) != (b[i] == nil) {
			return false
		}
		if a[i] != nil && (!os.SameFile(a[i], b[i]) || !a[i].ModTime().Equal(b[i].ModTime()) || a[i].Size() != b[i].Size()) {
			return false
		}
	}
	return true
}

// reload reads the files. What cannot be used leaves the last ones in use.
func (c *certificates) reload() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.seen == nil
	c.seen = c.stat() // before reading: what changes meanwhile is seen by the next look
	config, leaf, err := c.read()
	if err != nil {
		if !first {
			c.log.Error("new certificates cannot be used, and the last ones stay in use", "err", err)
		}
		return err
	}
	c.current.Store(config)
	if left := time.Until(leaf.NotAfter); left < soonOut {
		c.log.Warn("the certificate of the API runs out soon, or has: renew it", "file", c.settings.CertFile, "not_after", leaf.NotAfter)
	}
	if !first {
		c.log.Info("new certificates are in use", "file", c.settings.CertFile, "not_after", leaf.NotAfter)
	}
	return nil
}

// read makes a configuration of the files.
func (c *certificates) read() (*tls.Config, *x509.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(c.settings.CertFile, c.settings.KeyFile)
	if err != nil {
		return nil, nil, fmt.Errorf("read http.cert_file and http.key_file: %w", err)
	}
	config := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"h2", "http/1.1"},
		Certificates: []tls.Certificate{pair},
		// A session gone on with would bring a client's certificate past a change of the authorities.
		SessionTicketsDisabled: true,
	}
	if c.settings.ClientCAFile != "" {
		pem, err := os.ReadFile(c.settings.ClientCAFile)
		if err != nil {
			return nil, nil, fmt.Errorf("read http.client_ca_file: %w", err)
		}
		config.ClientCAs = x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(pem) {
			return nil, nil, fmt.Errorf("read http.client_ca_file: %s holds no certificate in PEM form", c.settings.ClientCAFile)
		}
		// Probes come without one; what needs a role is refused later.
		config.ClientAuth = tls.VerifyClientCertIfGiven
	}
	if pair.Leaf == nil {
		return nil, nil, errors.New("read http.cert_file: it holds no certificate")
	}
	return config, pair.Leaf, nil
}
