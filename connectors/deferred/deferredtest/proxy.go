package deferredtest

import (
	"context"
	"errors"
	"io"
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
	var mu sync.Mutex // held while an answer may be given
	silent := false
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 64<<10)
		for {
			n, err := server.Read(buf)
			mu.Lock()
			if silent || err != nil {
				mu.Unlock()
				_ = client.Close() // the request is executed, and nobody hears of it
				return
			}
			if !p.broken() {
				_, err = client.Write(buf[:n])
			}
			mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if p.broken() {
			if err == nil {
				continue
			}
			<-ctx.Done() // the server does not hear that the client has gone
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				_ = server.Close()
			}
			break
		}
		if p.matches(buf[:n]) {
			mu.Lock()
			silent = true
			mu.Unlock()
		}
		if _, err := server.Write(buf[:n]); err != nil {
			break
		}
	}
	_ = server.Close()
	<-done
}
