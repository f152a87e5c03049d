package web

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Wrong tokens are counted by address: so many at once, and then one more in each pause.
const (
	failureBurst = 10
	failurePause = 6 * time.Second
	// mostAddresses bounds what is remembered; beyond it the longest quiet one is forgotten.
	mostAddresses = 4096
)

// failures counts wrong attempts by the address that they come from.
type failures struct {
	now  func() time.Time
	mu   sync.Mutex
	by   map[netip.Prefix]*list.Element
	past *list.List // of *attempts, the last one that failed at the back
}

// attempts are the wrong ones of an address. They are forgotten by clear, which each
// of them puts off by a pause.
type attempts struct {
	from  netip.Prefix
	clear time.Time
}

func newFailures() *failures {
	return &failures{now: time.Now, by: map[netip.Prefix]*list.Element{}, past: list.New()}
}

// wait is how long an address has to wait until it may try again; 0 where it need not.
func (f *failures) wait(from netip.Addr) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, ok := f.by[network(from)]
	if !ok {
		return 0
	}
	return max(0, e.Value.(*attempts).clear.Sub(f.now())-(failureBurst-1)*failurePause)
}

// count notes a wrong attempt.
func (f *failures) count(from netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, key := f.now(), network(from)
	e, ok := f.by[key]
	if !ok {
		e = f.past.PushBack(&attempts{from: key, clear: now})
		f.by[key] = e
	}
	f.past.MoveToBack(e)
	a := e.Value.(*attempts)
	if a.clear.Before(now) {
		a.clear = now
	}
	a.clear = a.clear.Add(failurePause)
	for f.past.Len() > mostAddresses {
		oldest := f.past.Front()
		delete(f.by, f.past.Remove(oldest).(*attempts).from)
	}
}

// network is what somebody has to themselves: an address, and of IPv6 a network of 64 bits.
func network(a netip.Addr) netip.Prefix {
	bits := 32
	if a.Is6() {
		bits = 64
	}
	p, err := a.Unmap().WithZone("").Prefix(bits)
	if err != nil {
		return netip.Prefix{} // the socket
	}
	return p
}

// limitConnections lets so many connections be open at a time; others wait.
func limitConnections(ln net.Listener, most int) net.Listener {
	return &limited{Listener: ln, slots: make(chan struct{}, most), closed: make(chan struct{})}
}

type limited struct {
	net.Listener
	slots  chan struct{}
	closed chan struct{}
	once   sync.Once
}

// Accept takes the next connection, once there is room for it.
func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &counted{Conn: conn, release: sync.OnceFunc(func() { <-l.slots })}, nil
}

// Close ends the wait of Accept too.
func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type counted struct {
	net.Conn
	release func()
}

// Close makes room for another connection.
func (c *counted) Close() error {
	defer c.release()
	return c.Conn.Close()
}
