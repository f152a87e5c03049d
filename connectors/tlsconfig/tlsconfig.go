// Package tlsconfig is the block of a connector that says how connections are
// encrypted.
package tlsconfig

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/sluice-etl/sluice/connectors"
)

// Config says how connections are encrypted.
type Config struct {
	CA                 string `key:"ca" doc:"File with the certificates of the authorities to trust, instead of the system's."`
	Cert               string `key:"cert" doc:"File with the client's certificate."`
	Key                string `key:"key" doc:"File with the client's private key."`
	ServerName         string `key:"server_name" doc:"Name to verify in the server's certificate, instead of its address."`
	InsecureSkipVerify bool   `key:"insecure_skip_verify" doc:"Trusts any certificate. Only for trying out."`
}

// Check reports what contradicts itself, below the key tls.
func (c *Config) Check() error {
	if (c.Cert == "") != (c.Key == "") {
		return &connectors.FieldError{Key: "tls", Msg: "cert and key belong together", Help: "set both or neither"}
	}
	return nil
}

// Build reads the files. An error of it is Permanent.
func (c *Config) Build() (*tls.Config, error) {
	out := &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: c.ServerName,
		InsecureSkipVerify: c.InsecureSkipVerify, //nolint:gosec // the user asked for it
	}
	if c.CA != "" {
		pem, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, connectors.Permanent(fmt.Errorf("read tls.ca: %w", err))
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(pem) {
			return nil, connectors.Permanent(fmt.Errorf("read tls.ca: %s holds no certificate in PEM form", c.CA))
		}
	}
	if c.Cert != "" {
		pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
		if err != nil {
			return nil, connectors.Permanent(fmt.Errorf("read tls.cert and tls.key: %w", err))
		}
		out.Certificates = []tls.Certificate{pair}
	}
	return out, nil
}
