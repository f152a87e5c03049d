package web

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// guard keeps pages of other sites, which a browser of the user has open, from the API.
type guard struct {
	hosts map[string]bool // lower case
	cross *http.CrossOriginProtection
}

func newGuard(s *Settings) *guard {
	g := &guard{hosts: map[string]bool{"localhost": true}, cross: http.NewCrossOriginProtection()}
	for _, host := range s.Hosts {
		g.hosts[strings.ToLower(host)] = true
	}
	for _, address := range s.Listen {
		if host, _, err := net.SplitHostPort(address); err == nil && host != "" {
			g.hosts[strings.ToLower(host)] = true
		}
	}
	return g
}

// check refuses a request that another site may have made.
func (g *guard) check(r *http.Request) error {
	if bySocket(r) {
		return nil
	}
	if !g.named(r.Host) {
		return &Problem{Status: http.StatusMisdirectedRequest, Code: CodeForbidden, Detail: fmt.Sprintf("the request is for the host %.100q, which is not known: add its name to http.hosts", r.Host)}
	}
	if err := g.cross.Check(r); err != nil {
		return &Problem{Status: http.StatusForbidden, Code: CodeForbidden, Detail: "the request comes from a page of another site: " + err.Error()}
	}
	return nil
}

// foreign reports whether a browser says that another site than the API's own asks,
// which no request for data does.
func foreign(r *http.Request) bool {
	from := r.Header.Get("Sec-Fetch-Site")
	return from == "cross-site" || from == "same-site"
}

// named reports whether a host is one of the API's. A name that somebody else has given
// the API's address, so that their page may read it, is not. An address is always the
// API's: pages of others have names.
func (g *guard) named(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		return true
	}
	return g.hosts[name]
}

// policy is what a page of the dashboard may load: what comes from here, and nothing inline.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; manifest-src 'self'; " +
	"base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// protect sets the headers that every answer has. Handlers may say another Cache-Control.
func protect(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}
