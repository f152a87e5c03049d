package web

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// The codes of problems with who asks.
const (
	CodeUnauthenticated = "unauthenticated" // it is not known who asks
	CodeForbidden       = "forbidden"       // who asks may not do that, or not from there
	CodeLimited         = "limited"         // there were too many wrong attempts
)

// authenticator finds out who makes a request.
type authenticator struct {
	settings *Settings
	tokens   atomic.Pointer[[]known]
	failures *failures
	now      func() time.Time
}

// known is a token by its hash.
type known struct {
	hash   [sha256.Size]byte
	caller Caller
}

func newAuthenticator(s *Settings) (*authenticator, error) {
	a := &authenticator{settings: s, failures: newFailures(), now: time.Now}
	return a, a.reload()
}

// reload reads the files of tokens. Where one cannot be read, all tokens stay as they are.
func (a *authenticator) reload() error {
	var all []known
	for i := range a.settings.Tokens {
		t := &a.settings.Tokens[i]
		secrets, err := t.secrets()
		if err != nil {
			return fmt.Errorf("token %s of http.tokens: %w", t.Name, err)
		}
		for _, s := range secrets {
			all = append(all, known{s.hash(), Caller{Name: t.Name, Role: t.Role}})
		}
	}
	a.tokens.Store(&all)
	return nil
}

// caller is who makes a request, from a certificate, a token, or nothing at all. The
// error is a *Problem.
func (a *authenticator) caller(r *http.Request) (Caller, error) {
	if local, ok := r.Context().Value(socketKey{}).(Caller); ok {
		return local, nil
	}
	if !a.settings.authenticates() {
		if a.settings.LocalRole == "" {
			return localUser, nil
		}
		return Caller{Name: "anybody", Role: a.settings.LocalRole}, nil
	}
	if given := r.Header.Get("Authorization"); given != "" {
		return a.byToken(given, peer(r))
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return a.byCertificate(r.TLS.VerifiedChains[0][0])
	}
	return Caller{}, &Problem{Status: http.StatusUnauthorized, Code: CodeUnauthenticated, Detail: a.wanted()}
}

// wanted says what a request has to bring.
func (a *authenticator) wanted() string {
	var ways []string
	if len(a.settings.Tokens) > 0 {
		ways = append(ways, "a token of http.tokens in the header Authorization: Bearer …")
	}
	if len(a.settings.Clients) > 0 {
		ways = append(ways, "a certificate of http.clients")
	}
	return "it is not known who asks: send " + strings.Join(ways, ", or ")
}

// byToken looks a token up. While an address has too many wrong ones behind it, none of
// its tokens is looked at, so that guessing tells nothing.
func (a *authenticator) byToken(header string, from netip.Addr) (Caller, error) {
	if wait := a.failures.wait(from); wait > 0 {
		return Caller{}, &Problem{Status: http.StatusTooManyRequests, Code: CodeLimited,
			Detail: fmt.Sprintf("%s has sent too many wrong tokens: try again in %s", from, wait.Round(time.Second))}
	}
	scheme, text, _ := strings.Cut(header, " ")
	hash := Secret(strings.TrimSpace(text)).hash()
	var found *Caller
	all := *a.tokens.Load()
	for i := range all { // all of them, so that the time tells nothing
		if subtle.ConstantTimeCompare(all[i].hash[:], hash[:]) == 1 {
			found = &all[i].caller
		}
	}
	if found == nil || !strings.EqualFold(scheme, "Bearer") {
		a.failures.count(from)
		return Caller{}, &Problem{Status: http.StatusUnauthorized, Code: CodeUnauthenticated, Detail: "the token is none of http.tokens, or the header is not Authorization: Bearer …"}
	}
	return *found, nil
}

// byCertificate is who has a certificate that its authority vouches for.
func (a *authenticator) byCertificate(cert *x509.Certificate) (Caller, error) {
	subject := cert.Subject.String()
	if a.now().After(cert.NotAfter) { // a connection can outlive its certificate
		return Caller{}, &Problem{Status: http.StatusUnauthorized, Code: CodeUnauthenticated, Detail: fmt.Sprintf("the certificate of %s has run out: connect with a new one", subject)}
	}
	for i := range a.settings.Clients {
		c := &a.settings.Clients[i]
		if c.Subject != "" && c.Subject == subject || c.SAN != "" && slices.Contains(altNames(cert), c.SAN) {
			return Caller{Name: c.name(), Role: c.Role}, nil
		}
	}
	return Caller{}, &Problem{Status: http.StatusForbidden, Code: CodeForbidden, Detail: fmt.Sprintf("the certificate of %s is none of http.clients", subject)}
}

func altNames(cert *x509.Certificate) []string {
	all := slices.Concat(cert.DNSNames, cert.EmailAddresses)
	for _, ip := range cert.IPAddresses {
		all = append(all, ip.String())
	}
	for _, u := range cert.URIs {
		all = append(all, u.String())
	}
	return all
}

// socketKey marks the connections of the socket with who has opened them.
type socketKey struct{}

// connected notes who is at the other end of a socket: its file is the user's own, so
// that it is them, or root.
func connected(ctx context.Context, conn net.Conn) context.Context {
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		return ctx
	}
	caller := localUser
	switch uid, err := peerUser(unix); {
	case errors.Is(err, errors.ErrUnsupported): // the rights of the socket's file have to do
	case err != nil:
		caller = Caller{Name: "somebody unknown"}
	default:
		caller.Name = "uid " + strconv.Itoa(uid)
		if uid != 0 && uid != os.Geteuid() {
			caller.Role = ""
		}
	}
	return context.WithValue(ctx, socketKey{}, caller)
}

// bySocket reports whether a request came over the socket of the process.
func bySocket(r *http.Request) bool { return r.Context().Value(socketKey{}) != nil }

// peer is the address that a request came from; the zero one for a socket.
func peer(r *http.Request) netip.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap()
}
