//go:build integration

package soak

import (
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
)

// storeFault is what becomes of a request to an object store.
type storeFault int

const (
	faultError  storeFault = iota // 500
	faultSlow                     // 503 SlowDown
	faultBefore                   // the connection is reset, and nothing was done
	faultAfter                    // it was done, and the connection is reset in place of the answer
	faults
)

// storeProxy stands between the program and an object store, and has requests fail.
type storeProxy struct {
	address string // of the proxy, for the program
	forward http.Handler
	share   atomic.Uint64 // how many of all requests fail, the bits of a float
	down    atomic.Bool   // all connections are reset
	count   [faults]atomic.Int64
	through atomic.Int64

	mu   sync.Mutex
	rand *rand.Rand
}

// newStoreProxy listens until the test ends.
func newStoreProxy(t *testing.T, target string, rng *rand.Rand) *storeProxy {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	p := &storeProxy{rand: rng}
	p.forward = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			// The signature is over the host that the client spoke to.
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = u.Scheme, u.Host, r.In.Host
		},
		Transport:    &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { reset(w) },
	}
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	p.address = server.URL
	return p
}

// fail has that share of all requests fail from now on.
func (p *storeProxy) fail(share float64) { p.share.Store(math.Float64bits(share)) }

// ServeHTTP implements http.Handler.
func (p *storeProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p.down.Load() {
		reset(w)
		return
	}
	p.mu.Lock()
	hit, which := p.rand.Float64() < math.Float64frombits(p.share.Load()), storeFault(p.rand.IntN(int(faults)))
	p.mu.Unlock()
	if !hit {
		p.through.Add(1)
		p.forward.ServeHTTP(w, r)
		return
	}
	p.count[which].Add(1)
	switch which {
	case faultError:
		refuse(w, r, http.StatusInternalServerError, "InternalError")
	case faultSlow:
		refuse(w, r, http.StatusServiceUnavailable, "SlowDown")
	case faultAfter:
		p.forward.ServeHTTP(httptest.NewRecorder(), r)
		reset(w)
	default:
		reset(w)
	}
}

// refuse answers with an error as an object store does.
func refuse(w http.ResponseWriter, r *http.Request, status int, code string) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, "<Error><Code>"+code+"</Code><Message>on purpose</Message></Error>")
}

// reset ends the connection as a host does that went away.
func reset(w http.ResponseWriter) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
