package deferredtest

import (
	"context"
	"net"
	"sync"
	"testing"
)

// Proxy stands between a client and a server. It can swallow the answer to a request that
// the server has executed, or everything, as a network does in whose middle a cable breaks.
type Proxy struct {
	// Addr is where it listens.
	Addr string

	server string
	mu     sync.Mutex
	lose   func(request []byte) bool
	lost   int
	cable  bool // is broken
}

// NewProxy makes a proxy in front of a server.
func NewProxy(t *testing.T, server string) *Proxy {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Addr: l.Addr().String(), server: server}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { p.serve(ctx, client) })
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		wg.Wait()
	})
	return p
}

// Lose swallows the answer to the next request that matches, and breaks the connection.
func (p *Proxy) Lose(match func(request []byte) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose = match
}

// Lost is how many answers got lost.
func (p *Proxy) Lost() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// Break lets nothing through any more, while both ends believe that they are connected. New
// connections come to nothing.
func (p *Proxy) Break() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cable = true
}

func (p *Proxy) broken() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cable
}

func (p *Proxy) matches(request []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lose == nil || !p.lose(request) {
		return false
	}
	p.lose = nil
	p.lost++
	return true
}

func (p *Proxy) serve(ctx context.Context, client net.Conn) {
	defer func() { _ = client.Close() }()
	if p.broken() {
		return
	}
	server, err := new(net.Dialer).DialContext(ctx, "tcp", p.server)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	stop := context.AfterFunc(ctx, func() {
		_ = client.Close()
		_ = server.Close()
	})
	defer stop()
	l := &link{proxy: p, client: client, server: server}
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.answers()
	}()
	l.requests(ctx)
	_ = server.Close()
	<-done
}

// link is a connection of a client and the one that the proxy has for it.
type link struct {
	proxy          *Proxy
	client, server net.Conn

	mu     sync.Mutex // held while an answer may be given
	silent bool
}

// answers brings back what the server says.
func (l *link) answers() {
	buf := make([]byte, 64<<10)
	for {
		n, err := l.server.Read(buf)
		l.mu.Lock()
		if l.silent || err != nil {
			l.mu.Unlock()
			_ = l.client.Close() // the request is executed, and nobody hears of it
			return
		}
		if !l.proxy.broken() {
			_, err = l.client.Write(buf[:n])
		}
		l.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// requests brings over what the client says.
func (l *link) requests(ctx context.Context) {
	buf := make([]byte, 64<<10)
	for {
		n, err := l.client.Read(buf)
		if l.proxy.broken() {
			if err == nil {
				continue
			}
			<-ctx.Done() // the server does not hear that the client has gone
		}
		if err != nil {
			return
		}
		if l.proxy.matches(buf[:n]) {
			l.mu.Lock()
			l.silent = true
			l.mu.Unlock()
		}
		if _, err := l.server.Write(buf[:n]); err != nil {
			return
		}
	}
}
