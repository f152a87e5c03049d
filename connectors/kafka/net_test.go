package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-etl/sluice/connectors"
)

// faultyNet is a network that loses requests to end a transaction, or the
// replies to them.
type faultyNet struct {
	mu       sync.Mutex
	requests int // still to lose
	replies  int
	cycle    int // of three in a row, one request and one reply is lost; 0 for none
}

func (f *faultyNet) dial(ctx context.Context, network, host string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, host)
	return &faultyConn{Conn: c, net: f}, err
}

func (f *faultyNet) use(c *SinkConfig, _ *connectors.SinkEnv) { c.dial = f.dial }

func (f *faultyNet) lose(requests, replies int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests, f.replies = requests, replies
}

func (f *faultyNet) left() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests + f.replies
}

type faultyConn struct {
	net.Conn
	net  *faultyNet
	lost atomic.Bool // the next reply
}

var errNet = errors.New("the connection broke")

// Write sends a request; the client writes one at a time. Behind its length comes
// the number of its kind.
func (c *faultyConn) Write(b []byte) (int, error) {
	if len(b) > 6 && int16(binary.BigEndian.Uint16(b[4:])) == int16(kmsg.EndTxn) {
		c.net.mu.Lock()
		defer c.net.mu.Unlock()
		if c.net.cycle > 0 {
			c.net.cycle++
			c.net.requests, c.net.replies = c.net.cycle%3/2, c.net.cycle%3%2
		}
		switch {
		case c.net.requests > 0:
			c.net.requests--
			c.Conn.Close()
			return 0, errNet
		case c.net.replies > 0:
			c.net.replies--
			c.lost.Store(true)
		}
	}
	return c.Conn.Write(b)
}

func (c *faultyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && c.lost.Load() {
		c.Conn.Close()
		return 0, errNet
	}
	return n, err
}

func repliesLost(t *testing.T, brokers []string) {
	for lost := 1; lost <= 3; lost++ {
		out := topic(t, brokers, 1, nil)
		var faults faultyNet
		p := process(t, brokers, 1, faults.use, out).start(1, nil)
		p.write(0, numbers(0, 10)...)
		cs := p.prepared(1, 1)
		faults.lose(0, lost)
		p.mustCommit(cs, false)
		if n := faults.left(); n == lost {
			t.Error("no reply was lost")
		}
		faults.lose(0, 0)
		p.commit.Done(cs[0].Checkpoint)
		for n := uint64(2); n <= 8; n++ { // its slot can be used on
			p.write(0, numbers(int(n)*10, int(n)*10+10)...)
			cs := p.prepared(1, n)
			p.mustCommit(cs, false)
			p.commit.Done(cs[0].Checkpoint)
		}
		p.stop()
		wantTopic(t, "topic", brokers, out, append(numbers(0, 10), numbers(20, 90)...))
	}
}

func requestsLost(t *testing.T, brokers []string) {
	out := topic(t, brokers, 1, nil)
	var faults faultyNet
	p := process(t, brokers, 1, faults.use, out).start(1, nil)
	defer p.stop()
	p.write(0, "one")
	cs := p.prepared(1, 1)
	faults.lose(3, 0)
	p.mustCommit(cs, false)
	wantTopic(t, "topic", brokers, out, []string{"one"})
}

func replyLostAfterRestart(t *testing.T, brokers []string) {
	out := topic(t, brokers, 1, nil)
	a := process(t, brokers, 1, nil, out).start(1, nil)
	a.write(0, "one")
	cs := a.prepared(1, 1)
	a.stop()
	var faults faultyNet
	b := process(t, brokers, 1, faults.use, out)
	defer b.stop()
	faults.lose(1, 1)
	b.mustCommit(cs, true)
	b.start(1, cs)
	b.mustCommit(cs, true)
	wantTopic(t, "topic", brokers, out, []string{"one"})
}
