//go:build integration

package soak

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// endTxn is the number of the request that commits or aborts a transaction.
const endTxn = 26

// loss is what becomes of a request that ends a transaction.
type loss int32

const (
	lossNone    loss = iota
	lossRequest      // the broker never gets it
	lossReply        // the broker does it, and the client never hears of it
)

// proxy stands between a client and a broker and loses what it is told to. A
// loss closes the connection, as a network does that went away.
type proxy struct {
	target string
	next   atomic.Pointer[func() loss] // asked at each end of a transaction
	lost   [3]atomic.Int64             // how often each happened
}

// newProxy listens at an address until the test ends.
func newProxy(t *testing.T, listen, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", listen)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{target: target}
	p.lose(func() loss { return lossNone })
	var all sync.WaitGroup
	var open sync.Map
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			broker, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			c := &conversation{proxy: p, client: client, broker: broker}
			open.Store(c, nil)
			all.Go(func() {
				c.run()
				open.Delete(c)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		open.Range(func(c, _ any) bool {
			c.(*conversation).close()
			return true
		})
		all.Wait()
	})
	return p
}

func (p *proxy) lose(next func() loss) { p.next.Store(&next) }

// conversation is one connection of a client, with the one to the broker that
// carries it on.
type conversation struct {
	proxy          *proxy
	client, broker net.Conn
	doomed         sync.Map // correlation ids whose replies are lost
}

func (c *conversation) close() {
	_ = c.client.Close()
	_ = c.broker.Close()
}

func (c *conversation) run() {
	defer c.close()
	var replies sync.WaitGroup
	replies.Go(func() {
		defer c.close()
		_ = frames(c.broker, func(frame []byte) error {
			if _, ok := c.doomed.Load(binary.BigEndian.Uint32(frame[4:])); ok {
				return errLost
			}
			_, err := c.client.Write(frame)
			return err
		})
	})
	_ = frames(c.client, func(frame []byte) error {
		if binary.BigEndian.Uint16(frame[4:]) == endTxn {
			what := (*c.proxy.next.Load())()
			c.proxy.lost[what].Add(1)
			switch what {
			case lossRequest:
				return errLost
			case lossReply:
				c.doomed.Store(binary.BigEndian.Uint32(frame[8:]), nil)
			}
		}
		_, err := c.broker.Write(frame)
		return err
	})
	c.close()
	replies.Wait()
}

var errLost = errors.New("lost on purpose")

// frames gives each message of a connection, with its four bytes of length, to
// f. Requests go on with api key, version and correlation id, replies with the
// correlation id.
func frames(r io.Reader, f func([]byte) error) error {
	head := make([]byte, 4)
	for {
		if _, err := io.ReadFull(r, head); err != nil {
			return err
		}
		frame := make([]byte, 4+binary.BigEndian.Uint32(head))
		copy(frame, head)
		if _, err := io.ReadFull(r, frame[4:]); err != nil {
			return err
		}
		if len(frame) < 8 {
			return io.ErrUnexpectedEOF
		}
		if err := f(frame); err != nil {
			return err
		}
	}
}
