package hdfs

import (
	"context"
	"net"
	"time"
)

// conn is a connection with a time limit on every read and write. The client has
// none of its own and would wait for ever for a peer that hangs.
type conn struct {
	net.Conn
	owner   *client
	timeout time.Duration
	data    bool // to a datanode
}

func (c *conn) Read(p []byte) (int, error) {
	if err := c.Conn.SetReadDeadline(time.Now().Add(c.timeout)); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(p)
	if err != nil && c.data {
		c.owner.nodeFailed(err)
	}
	return n, err
}

// Write to a datanode never fails. The client would leave goroutines behind for good
// on a failed write; as it is, the connection is closed, which the goroutine that
// reads acknowledgements notices, and whoever writes the file asks the owner.
func (c *conn) Write(p []byte) (int, error) {
	err := c.Conn.SetWriteDeadline(time.Now().Add(c.timeout))
	n := 0
	if err == nil {
		n, err = c.Conn.Write(p)
	}
	if err != nil && c.data {
		c.owner.nodeFailed(err)
		_ = c.Conn.Close()
		return len(p), nil
	}
	return n, err
}

// SetDeadline does nothing: the client clears deadlines that it has not set.
func (c *conn) SetDeadline(time.Time) error { return nil }

func (c *conn) Close() error {
	c.owner.forget(c)
	return c.Conn.Close()
}

// dialer makes the dial function for the namenode, or for datanodes.
func (c *client) dialer(data bool) func(ctx context.Context, network, addr string) (net.Conn, error) {
	conf := &c.cluster.conf
	timeout := conf.namenodeTimeout
	if data {
		timeout = conf.datanodeTimeout
	}
	return func(_ context.Context, network, addr string) (net.Conn, error) {
		//nolint:contextcheck // its own: the library hands over one that never ends
		nc, err := (&net.Dialer{Timeout: conf.connectTimeout, KeepAlive: 30 * time.Second}).DialContext(c.ctx, network, addr)
		if err != nil {
			if data {
				c.nodeFailed(err)
			}
			return nil, err
		}
		made := &conn{Conn: nc, owner: c, timeout: timeout, data: data}
		if !c.add(made, addr) {
			_ = nc.Close()
			return nil, net.ErrClosed
		}
		return made, nil
	}
}
