package hdfs

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/colinmarc/hdfs/v2"
)

// client is one connection to the namenode, with those that it opens to datanodes.
// One goroutine uses it at a time: the library's client is not made for more.
type client struct {
	*hdfs.Client
	nn      caller
	cluster *cluster
	login   *login

	ctx    context.Context //nolint:containedctx // ends dialing when the client is killed
	cancel context.CancelFunc
	born   time.Time
	expire *time.Timer // while it is idle
	worked bool        // the namenode has answered a call

	mu      sync.Mutex
	conns   map[*conn]struct{}
	dead    bool
	host    string // the namenode that was dialled last
	nodeErr error  // the first failure of a connection to a datanode
}

// connect makes a client. The context ends the attempt.
func (cl *cluster) connect(ctx context.Context) (*client, error) {
	c := &client{cluster: cl, conns: map[*conn]struct{}{}, born: time.Now()}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, c.kill)
	defer stop()
	options := cl.target.options()
	options.Addresses = cl.addresses()
	options.User = cl.conf.user
	options.NamenodeDialFunc, options.DatanodeDialFunc = c.dialer(false), c.dialer(true)
	var err error
	if cl.conf.kerberos != nil {
		if c.login, err = cl.logins.get(); err != nil {
			c.cancel()
			return nil, err
		}
		options.KerberosClient = c.login.client
	}
	made, err := hdfs.NewClient(options)
	if err == nil {
		c.Client = made
		c.nn, err = namenodeOf(made)
	}
	if err != nil {
		if c.login != nil {
			cl.logins.suspect(c.login)
		}
		c.close()
		return nil, explain(err)
	}
	return c, nil
}

// add registers a connection; a killed client takes none.
func (c *client) add(made *conn, addr string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return false
	}
	c.conns[made] = struct{}{}
	if !made.data {
		c.host = addr
	}
	return true
}

func (c *client) forget(gone *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.conns, gone)
}

// nodeFailed notes that a datanode failed.
func (c *client) nodeFailed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nodeErr == nil {
		c.nodeErr = err
	}
}

// nodeFailure is the first failure of a datanode since the client was taken.
func (c *client) nodeFailure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodeErr
}

// reset closes what is left of connections to datanodes: the library does not close
// those on which a request was refused. It tells the namenode that was dialled last,
// and whether the client has not been killed.
func (c *client) reset() (host string, alive bool) {
	c.mu.Lock()
	host, alive = c.host, !c.dead
	var left []*conn
	for held := range c.conns {
		if held.data {
			left = append(left, held)
		}
	}
	c.nodeErr = nil
	c.mu.Unlock()
	for _, held := range left {
		_ = held.Close()
	}
	return host, alive
}

// kill ends every call that the client is in, and all that would follow.
func (c *client) kill() {
	c.mu.Lock()
	c.dead = true
	left := make([]*conn, 0, len(c.conns))
	for held := range c.conns {
		left = append(left, held)
	}
	c.mu.Unlock()
	c.cancel()
	for _, held := range left {
		_ = held.Close()
	}
}

// close gives everything back.
func (c *client) close() {
	c.kill()
	if c.Client != nil {
		_ = c.Client.Close()
	}
	if c.login != nil {
		c.cluster.logins.put(c.login)
	}
}

// unknown says what it may mean that the namenode ends the very first call: it does not
// know this program, and the library does not understand how it says so.
func (c *client) unknown(err error) error {
	if err != nil && !c.worked && c.login == nil && strings.Contains(err.Error(), "unexpected sequence number") {
		return final(fmt.Errorf("the namenode refuses connections without Kerberos: set storage.hdfs.kerberos.principal and storage.hdfs.kerberos.keytab (%w)", err))
	}
	c.worked = c.worked || answered(err)
	return err
}
