package hdfs

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// badFor is how long a datanode that failed is kept out of new files.
const badFor = 2 * time.Minute

// nodes are the datanodes of a cluster that failed lately. The library gives a file up
// when one of them fails, and until the namenode has missed a dead one for long enough
// (10.5 minutes by default) it goes on handing it out. Where there are few datanodes,
// every try would meet it. So after a failure a file's datanodes are looked at before
// it is written, and the namenode is asked for others.
type nodes struct {
	mu  sync.Mutex
	bad map[string]badNode // by address
}

type badNode struct {
	info  protoreflect.Message // as the namenode describes it
	until time.Time
}

// excluded are those to be kept out of a file.
func (n *nodes) excluded() (out []protoreflect.Message) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for address, b := range n.bad {
		if time.Now().After(b.until) {
			delete(n.bad, address)
			continue
		}
		out = append(out, b.info)
	}
	return out
}

func (n *nodes) add(address string, info protoreflect.Message) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.bad == nil {
		n.bad = map[string]badNode{}
	}
	n.bad[address] = badNode{info, time.Now().Add(badFor)}
}

// failed is told the datanodes of a failed try, all of which could be connected to. One
// of them hangs; which one is guessed, another one for each try.
func (n *nodes) failed(pipeline []protoreflect.Message, try int) {
	if len(pipeline) > 0 {
		guess := pipeline[try%len(pipeline)]
		n.add(nodeAddress(guess, false), guess)
	}
}

// forgive forgets all: there are not enough datanodes without them.
func (n *nodes) forgive() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.bad)
}

// nodeAddress is where a datanode takes data.
func nodeAddress(info protoreflect.Message, byName bool) string {
	id, _ := field(info, "id")
	host := protoreflect.Name("ipAddr")
	if byName {
		host = "hostName"
	}
	name, _ := field(id.Message(), host)
	port, _ := field(id.Message(), "xferPort")
	return net.JoinHostPort(name.String(), strconv.FormatUint(port.Uint(), 10))
}

// careful reports whether the datanodes are chosen before the file is written: in
// further tries, and while some are known to be bad.
func (u *upload) careful() bool {
	return u.data.size > 0 && (u.try > 0 || len(u.client.cluster.nodes.excluded()) > 0)
}

// chooseTries bounds how often other datanodes are asked for.
const chooseTries = 5

// choose has the namenode allocate the file's block on datanodes that answer. When the
// library then asks for a block, the namenode takes it for the same request sent
// again, and hands out this one.
func (u *upload) choose() error {
	c := u.client
	known := &c.cluster.nodes
	e, err := c.stat(u.at)
	if err != nil {
		return err
	}
	for range chooseTries {
		resp, err := c.ask("addBlock", "AddBlock", map[protoreflect.Name]any{
			"src": u.at, "clientName": c.Name(), "fileId": e.id, "excludeNodes": known.excluded(),
		})
		if err != nil {
			if strings.Contains(err.Error(), "could only be written to") {
				known.forgive()
			}
			return err
		}
		block, ok := field(resp, "block")
		if !ok {
			return final(errUnknownClient)
		}
		u.pipeline = nil
		if locs, ok := field(block.Message(), "locs"); ok {
			for i := range locs.List().Len() {
				u.pipeline = append(u.pipeline, locs.List().Get(i).Message())
			}
		}
		if u.probe() {
			return nil
		}
		b, _ := field(block.Message(), "b")
		if _, err := c.ask("abandonBlock", "AbandonBlock", map[protoreflect.Name]any{
			"b": b.Message(), "src": u.at, "holder": c.Name(), "fileId": e.id,
		}); err != nil {
			return err
		}
	}
	u.pipeline = nil
	return fmt.Errorf("%d times the namenode chose a datanode that cannot be connected to", chooseTries)
}

// probe connects to the datanodes of the block and reports whether all could be.
func (u *upload) probe() bool {
	c := u.client
	ctx, cancel := context.WithTimeout(c.ctx, c.cluster.conf.connectTimeout)
	defer cancel()
	good := make([]bool, len(u.pipeline))
	var all sync.WaitGroup
	for i, info := range u.pipeline {
		all.Go(func() {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", nodeAddress(info, c.cluster.target.byName))
			if good[i] = err == nil; good[i] {
				_ = conn.Close()
			}
		})
	}
	all.Wait()
	whole := true
	for i, info := range u.pipeline {
		if !good[i] && c.ctx.Err() == nil {
			c.cluster.nodes.add(nodeAddress(info, false), info)
		}
		whole = whole && good[i]
	}
	return whole
}
