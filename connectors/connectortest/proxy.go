package connectortest

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// Proxy stands between a sink and a server over TCP. It has the hooks of a Network for
// protocols that answer requests one after the other on each connection; what it counts
// and loses are those answers, together with the connection.
type Proxy struct {
	// Addr is where sinks connect to.
	Addr string

	target string
	listen net.Listener
	done   sync.WaitGroup

	mu       sync.Mutex
	down     bool
	requests int
	lose     int
	conns    map[net.Conn]bool
}

// NewProxy starts a proxy before a server. It ends with the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it ends with the test
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Addr: l.Addr().String(), target: target, listen: l, conns: map[net.Conn]bool{}}
	p.done.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.cut()
		p.done.Wait()
	})
	return p
}

// Network are the proxy's hooks, without one that throttles.
func (p *Proxy) Network() *Network {
	return &Network{Down: p.Down, Requests: p.Requests, LoseReply: p.LoseReply}
}

// Down makes the server unreachable, or reachable again.
func (p *Proxy) Down(down bool) {
	p.mu.Lock()
	p.down = down
	p.mu.Unlock()
	if down {
		p.cut()
	}
}

// Requests is how many answers have come so far.
func (p *Proxy) Requests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests
}

// LoseReply cuts the connection in place of the n-th answer from now on; 0 calls it off.
func (p *Proxy) LoseReply(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose = n
}

// cut ends all connections.
func (p *Proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

// keep notes a connection; false says that the server cannot be reached.
func (p *Proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.conns[c] = true
	}
	return !p.down
}

func (p *Proxy) accept() {
	for {
		c, err := p.listen.Accept()
		if err != nil {
			return
		}
		p.done.Go(func() { p.serve(c) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	defer client.Close() //nolint:errcheck // it ends either way
	if !p.keep(client) {
		return
	}
	server, err := net.Dial("tcp", p.target) //nolint:noctx // it ends with the test
	if err != nil {
		return
	}
	defer server.Close() //nolint:errcheck // it ends either way
	if !p.keep(server) {
		return
	}
	var asked atomic.Bool
	var both sync.WaitGroup
	both.Go(func() { // what the server does not get ends the connection for it too
		pass(client, server, func() bool { asked.Store(true); return true })
		_ = server.Close()
	})
	both.Go(func() {
		pass(server, client, func() bool { return !asked.Swap(false) || p.answered() })
		_ = client.Close()
	})
	both.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, client)
	delete(p.conns, server)
}

// answered counts an answer, and reports whether it arrives.
func (p *Proxy) answered() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests++
	p.lose--
	return p.lose != 0
}

// pass copies what comes until one of the ends is closed, or let says that it is lost.
func pass(from io.Reader, to io.Writer, let func() bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if !let() {
				return
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
