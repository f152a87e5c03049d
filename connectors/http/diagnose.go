package http

import (
	"context"
	"net"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
)

// Diagnose connects to the host of the address and sends nothing: a request would be one
// too many for the other side. It implements connectors.Diagnoser.
func (s *sink) Diagnose(ctx context.Context, d *connectors.Diagnosis) {
	base, err := s.cfg.base()
	if err != nil {
		d.Fail("address", "url", err, "")
		return
	}
	connects(ctx, d, base.Scheme, s.host)
}

// connects reports whether there is something at a host that takes connections.
func connects(ctx context.Context, d *connectors.Diagnosis, scheme, host string) {
	address := host
	if _, _, err := net.SplitHostPort(host); err != nil {
		address = net.JoinHostPort(strings.Trim(host, "[]"), map[string]string{"http": "80", "https": "443"}[scheme])
	}
	dialer := &net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		d.Fail("address", "url", err, "check the address, and that the service listens there for this machine; where a proxy lies between, it is not asked here")
		return
	}
	_ = conn.Close()
	d.OK("address", address+" takes connections; nothing was sent")
}
