package kafka

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-etl/sluice/connectors"
)

// brokerNet is a network on which brokers die: one that was killed, whose host refuses
// connections, and one whose host is gone, so that nothing comes back.
type brokerNet struct {
	mu     sync.Mutex
	killed map[string]bool
	gone   map[string]bool
	conns  map[*brokerConn]bool
}

func newBrokerNet() *brokerNet {
	return &brokerNet{killed: map[string]bool{}, gone: map[string]bool{}, conns: map[*brokerConn]bool{}}
}

func (n *brokerNet) use(c *SinkConfig, _ *connectors.SinkEnv) { c.dial = n.dial }

func (n *brokerNet) dial(ctx context.Context, network, host string) (net.Conn, error) {
	n.mu.Lock()
	killed, gone := n.killed[host], n.gone[host]
	n.mu.Unlock()
	switch {
	case killed:
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	case gone:
		<-ctx.Done()
		return nil, &net.OpError{Op: "dial", Net: network, Err: ctx.Err()}
	}
	c, err := (&net.Dialer{}).DialContext(ctx, network, host)
	if err != nil {
		return nil, err
	}
	b := &brokerConn{Conn: c, net: n, host: host}
	n.mu.Lock()
	n.conns[b] = true
	n.mu.Unlock()
	return b, nil
}

// kill breaks what is open to a broker.
func (n *brokerNet) kill(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.killed[host] = true
	for c := range n.conns {
		if c.host == host {
			c.Conn.Close()
		}
	}
}

// vanish leaves what is open to a broker open.
func (n *brokerNet) vanish(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gone[host] = true
}

type brokerConn struct {
	net.Conn
	net  *brokerNet
	host string
}

func (c *brokerConn) Write(b []byte) (int, error) {
	c.net.mu.Lock()
	gone := c.net.gone[c.host]
	c.net.mu.Unlock()
	if gone {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// addressOf is where a broker of a cluster listens.
func addressOf(t *testing.T, brokers []string, node int32) string {
	t.Helper()
	meta, err := kadm.NewClient(client(t, brokers)).BrokerMetadata(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range meta.Brokers {
		if b.NodeID == node {
			return net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
		}
	}
	t.Fatalf("there is no broker %d", node)
	return ""
}

// TestACommitFindsTheNewCoordinator has the coordinator of the transaction, or of the
// witness's group, die after the process has come to know it and before the commit. Its
// successor is there at once, so that one call is enough.
func TestACommitFindsTheNewCoordinator(t *testing.T) {
	ofTransaction := func(d *txnData) string { return d.TransactionalID }
	ofWitness := func(d *txnData) string { return d.Group }
	for _, c := range []struct {
		name     string
		die      func(*brokerNet, string)
		key      func(*txnData) string
		restored bool
	}{
		{"of the transaction, killed", (*brokerNet).kill, ofTransaction, false},
		{"of the transaction, killed after a restart", (*brokerNet).kill, ofTransaction, true},
		{"of the witness, killed", (*brokerNet).kill, ofWitness, false},
		{"of the witness, killed after a restart", (*brokerNet).kill, ofWitness, true},
		{"of the transaction, vanished", (*brokerNet).vanish, ofTransaction, false},
		{"of the witness, vanished after a restart", (*brokerNet).vanish, ofWitness, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cluster, brokers := fake(t, kfake.NumBrokers(3))
			out := topic(t, brokers, 1, nil)
			network := newBrokerNet()
			p := process(t, brokers, 1, network.use, out).start(1, nil)
			defer func() { p.stop() }()
			p.write(0, "one")
			cs := p.prepared(1, 1)
			if c.restored {
				p.stop()
				p = process(t, brokers, 1, network.use, out)
				if _, _, err := p.commit.Witness(testContext(t)); err != nil {
					t.Fatal(err)
				}
			} else {
				// Where the writer's client fails to end it, the commit goes on beside it.
				cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, Err: kerr.UnknownServerError})
			}
			d := dataOf(t, cs[0])
			node := cluster.CoordinatorFor(c.key(&d))
			host := addressOf(t, brokers, node)
			if err := cluster.RemoveNode(node); err != nil {
				t.Fatal(err)
			}
			c.die(network, host)
			p.mustCommit(cs, c.restored)
			wantTopic(t, "topic", cluster.ListenAddrs(), out, []string{"one"})
		})
	}
}

func TestACommitTellsThatOnlyTheCoordinatorIsSilent(t *testing.T) {
	cluster, brokers := fake(t, kfake.NumBrokers(3))
	out := topic(t, brokers, 1, nil)
	network := newBrokerNet()
	p := process(t, brokers, 1, network.use, out).start(1, nil)
	p.write(0, "one")
	cs := p.prepared(1, 1)
	p.stop()
	p = process(t, brokers, 1, network.use, out)
	defer func() { p.stop() }()
	network.kill(addressOf(t, brokers, cluster.CoordinatorFor(dataOf(t, cs[0]).TransactionalID)))
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	err := p.commit.Commit(ctx, cs[0], true)
	if connectors.IsPermanent(err) {
		t.Error("the error is permanent: the cluster will have a new coordinator")
	}
	wantText(t, err, "checkpoint 1", "the coordinator does not answer, while other brokers do", "connection refused")
}

func TestAnAnswerIsToldBeforeABrokerThatIsDown(t *testing.T) {
	dials := newDialWatch(nil)
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	dials.OnBrokerConnect(kgo.BrokerMetadata{Host: "127.0.0.1", Port: 9092}, 0, nil, refused)
	conn := connection{brokers: []string{"127.0.0.1:9092", "127.0.0.1:9093"}}
	err := conn.explain(dials, "add the witness", errors.Join(kerr.CoordinatorLoadInProgress, context.DeadlineExceeded))
	wantText(t, err, "add the witness", "COORDINATOR_LOAD_IN_PROGRESS")
	if strings.Contains(err.Error(), "can be reached") {
		t.Errorf("%v: one broker answered", err)
	}
}

// What was read and is wrong is no silence.
func TestAGroupOfOthersIsToldAtOnce(t *testing.T) {
	cluster, brokers := fake(t)
	out := topic(t, brokers, 1, nil)
	p := process(t, brokers, 1, nil, out)
	defer func() { p.stop() }()
	offsets := kadm.Offsets{}
	offsets.AddOffset(out, 0, 7, -1)
	if err := kadm.NewClient(client(t, brokers)).CommitAllOffsets(testContext(t), p.sinks[0].(*txnSink).set.group(), offsets); err != nil {
		t.Fatal(err)
	}
	asked := 0
	cluster.ControlKey(int16(kmsg.OffsetFetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		asked++
		return nil, nil, false
	})
	_, _, err := p.commit.Witness(testContext(t))
	wantText(t, err, "is no witness of this program", "set another transactional_id_prefix")
	if !connectors.IsPermanent(err) || strings.Contains(err.Error(), "does not answer") || asked != 1 {
		t.Errorf("asked %d times: %v", asked, err)
	}
}
