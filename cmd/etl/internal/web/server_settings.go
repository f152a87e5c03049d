package web

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strings"
)

// Settings say where the API is served, and to whom.
type Settings struct {
	// Listen are the addresses, HOST:PORT; none serves the socket of the process only.
	Listen []string
	// Insecure allows what Check refuses by default: an address that other machines
	// reach, without TLS or without a token or certificate that tells who asks.
	Insecure bool
	// LocalRole is what everybody may do where neither tokens nor clients are set. Empty is
	// Admin on addresses of this machine, and has to be said where others reach it.
	LocalRole Role
	// Hosts are the names by which the API is reached, beside addresses, localhost and
	// the names in Listen. A request with another name is refused.
	Hosts []string
	// CertFile and KeyFile make the addresses speak TLS. ClientCAFile has the authorities
	// whose certificates Clients have.
	CertFile, KeyFile, ClientCAFile string
	Clients                         []ClientCert
	Tokens                          []Token
	// AuditFile gets a line for each call that changes something or was refused; empty for none.
	AuditFile string
	// Roots are the folders below which callers may name paths; none stands for those
	// that the pipelines have by themselves.
	Roots []string
	// Pprof shows profiles of the process, to Admin.
	Pprof bool
	// MetricsPublic shows metrics to who has no token, too.
	MetricsPublic bool
	// MaxConnections bounds the connections of each address at a time.
	MaxConnections int
}

// ClientCert is a certificate of somebody, and what they may do. One of Subject and SAN is set.
type ClientCert struct {
	Name string // for events and the audit log; by default Subject or SAN
	Role Role
	// Subject is the whole subject, as in CN=ops,O=Example.
	Subject string
	// SAN is a name of the certificate: of DNS, an address, an e-mail address or a URI.
	SAN string
}

var callerName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@=,:/ -]{0,127}$`)

// authenticates reports whether anything is set that tells who asks.
func (s *Settings) authenticates() bool { return len(s.Tokens)+len(s.Clients) > 0 }

// Check reports all that is wrong with the settings, each fault with its key below http.
func (s *Settings) Check() error {
	faults := append(s.checkTLS(), s.checkCallers()...)
	for _, address := range s.Listen {
		faults = append(faults, s.checkAddress(address))
	}
	for i, root := range s.Roots {
		if _, err := parsePlace(root); err != nil {
			faults = append(faults, fmt.Errorf("http.roots.%d: %w", i, err))
		}
	}
	for i, host := range s.Hosts {
		if host == "" || strings.ContainsAny(host, "/:@ ") {
			faults = append(faults, fmt.Errorf("http.hosts.%d is %q: write a name without port and scheme, such as etl.example.com", i, host))
		}
	}
	if s.MaxConnections < 1 {
		faults = append(faults, fmt.Errorf("http.max_connections is %d: at least 1 is wanted", s.MaxConnections))
	}
	return errors.Join(faults...)
}

func (s *Settings) checkTLS() (faults []error) {
	if (s.CertFile == "") != (s.KeyFile == "") {
		faults = append(faults, errors.New("http.cert_file and http.key_file belong together: set both or neither"))
	}
	if s.ClientCAFile != "" && s.CertFile == "" {
		faults = append(faults, errors.New("http.client_ca_file needs http.cert_file and http.key_file: certificates of clients come with TLS only"))
	}
	if (s.ClientCAFile == "") != (len(s.Clients) == 0) {
		faults = append(faults, errors.New("http.client_ca_file and http.clients belong together: the one says whose certificates are trusted, the other what each may do"))
	}
	return faults
}

func (s *Settings) checkCallers() (faults []error) {
	if s.LocalRole != "" && !s.LocalRole.Includes(s.LocalRole) {
		faults = append(faults, fmt.Errorf("http.local_role is %q: write read, operate or admin", s.LocalRole))
	}
	if s.LocalRole != "" && s.authenticates() {
		faults = append(faults, errors.New("http.local_role is what everybody may do where http.tokens and http.clients are empty: leave it out, or them"))
	}
	names := map[string]bool{}
	named := func(key, name string, role Role) {
		switch {
		case !callerName.MatchString(name):
			faults = append(faults, fmt.Errorf("%s: name is %q: write letters, digits and . _ - @ only", key, name))
		case names[name]:
			faults = append(faults, fmt.Errorf("%s: there are two of the name %s", key, name))
		}
		names[name] = true
		if !role.Includes(role) {
			faults = append(faults, fmt.Errorf("%s: role is %q: write read, operate or admin", key, role))
		}
	}
	for i, t := range s.Tokens {
		key := fmt.Sprintf("http.tokens.%d", i)
		named(key, t.Name, t.Role)
		if err := t.check(); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", key, err))
		}
	}
	for i, c := range s.Clients {
		key := fmt.Sprintf("http.clients.%d", i)
		named(key, c.name(), c.Role)
		if (c.Subject == "") == (c.SAN == "") {
			faults = append(faults, fmt.Errorf("%s: write either subject, such as CN=ops,O=Example, or san, such as ops.example.com", key))
		}
	}
	return faults
}

// checkAddress refuses an address that other machines reach, unless who asks is known
// and nobody listens in.
func (s *Settings) checkAddress(address string) error {
	host, _, err := net.SplitHostPort(address)
	switch {
	case err != nil:
		return fmt.Errorf("http.listen: %q is no address: write HOST:PORT, such as 127.0.0.1:8700", address)
	case loopback(host):
		return nil
	case s.Insecure && (s.authenticates() || s.LocalRole != ""):
		return nil
	case s.Insecure:
		return fmt.Errorf("http.listen: everybody who reaches %s could do everything: set http.tokens, or say with http.local_role what everybody may do", address)
	case s.CertFile == "":
		return fmt.Errorf("http.listen: %s can be reached from other machines: set http.cert_file and http.key_file, and http.tokens or http.clients; "+
			"or http.insecure: true where the network or a proxy protects it", address)
	case !s.authenticates():
		return fmt.Errorf("http.listen: %s can be reached from other machines: set http.tokens, or http.clients with http.client_ca_file, so that it is known who asks; "+
			"or http.insecure: true and http.local_role", address)
	}
	return nil
}

// loopback reports whether only this machine reaches a host of an address to listen on.
func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

func (c *ClientCert) name() string {
	for _, name := range []string{c.Name, c.Subject, c.SAN} {
		if name != "" {
			return name
		}
	}
	return ""
}
