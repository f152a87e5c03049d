package http

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"github.com/sluice-etl/sluice/connectors"
)

// Diagnose connects to the host of the address, or to the proxy before it, and sends nothing: a request would be one
// too many for the other side. It implements connectors.Diagnoser.
func (s *sink) Diagnose(ctx context.Context, d *connectors.Diagnosis) {
	base, err := s.cfg.base()
	if err != nil {
		d.Fail("address", "url", err, "")
		return
	}
	address, key := hostOf(base), "url"
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: base})
	if err == nil && proxy != nil {
		address, key = hostOf(proxy), ""
	}
	dialer := &net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	switch {
	case err != nil && proxy != nil:
		d.Fail("address", key, fmt.Errorf("reach the proxy that the environment names: %w", err), "check HTTPS_PROXY and HTTP_PROXY, or name the host in NO_PROXY")
	case err != nil:
		d.Fail("address", key, err, "check the address, and that the service listens there for this machine")
	default:
		_ = conn.Close()
		d.OK("address", address+" takes connections; nothing was sent")
	}
}

// hostOf is the host of an address with its port.
func hostOf(u *url.URL) string {
	if port := u.Port(); port != "" {
		return net.JoinHostPort(u.Hostname(), port)
	}
	if u.Scheme == "https" {
		return net.JoinHostPort(u.Hostname(), "443")
	}
	return net.JoinHostPort(u.Hostname(), "80")
}
