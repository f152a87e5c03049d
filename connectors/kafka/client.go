package kafka

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/tlsconfig"
)

// connection is how to reach a cluster.
type connection struct {
	brokers []string
	tls     TLSConfig
	login   *login
	client  ClientConfig
	dial    dialer // nil for the system's
}

// dialer connects to a broker.
type dialer func(ctx context.Context, network, host string) (net.Conn, error)

// options are those that every client of the connection has. dials hears of
// each attempt to connect.
func (c *connection) options(dials *dialWatch) ([]kgo.Opt, error) {
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.brokers...),
		kgo.ClientID(c.client.ClientID),
		kgo.SoftwareNameAndVersion("sluice", "1"),
		kgo.DialTimeout(time.Duration(c.client.DialTimeout)),
		kgo.DisableClientMetrics(),
		kgo.WithHooks(dials),
		// A broker that comes back is found within a second or so.
		kgo.RetryBackoffFn(func(fails int) time.Duration {
			return min(time.Second, 50*time.Millisecond<<min(fails, 6))
		}),
		kgo.MetadataMinAge(250 * time.Millisecond),
	}
	if c.tls.On() {
		t, err := c.tls.build()
		if err != nil {
			return nil, err
		}
		opts = append(opts, kgo.DialTLSConfig(t))
	}
	if c.dial != nil {
		opts = append(opts, kgo.Dialer(c.dial))
	}
	mechanism, err := c.login.mechanism()
	if err != nil {
		return nil, connectors.Permanent(err)
	}
	if mechanism != nil {
		opts = append(opts, kgo.SASL(mechanism))
	}
	return opts, nil
}

// newClient makes a client of the connection.
func (c *connection) newClient(dials *dialWatch, more ...kgo.Opt) (*kgo.Client, error) {
	opts, err := c.options(dials)
	if err != nil {
		return nil, err
	}
	cl, err := kgo.NewClient(append(opts, more...)...)
	if err != nil {
		return nil, connectors.Permanent(fmt.Errorf("set up a client for kafka at %s: %w", strings.Join(c.brokers, ", "), err))
	}
	return cl, nil
}

func (c *TLSConfig) build() (*tls.Config, error) {
	block := tlsconfig.Config{CA: c.CA, Cert: c.Cert, Key: c.Key, ServerName: c.ServerName, InsecureSkipVerify: c.InsecureSkipVerify}
	return block.Build()
}

// dialLogEvery is how often an unreachable broker is logged.
const dialLogEvery = 10 * time.Second

// dialWatch hears of each attempt to connect to a broker: it logs failures, not
// too often, and keeps the last one as the cause of what then times out.
type dialWatch struct {
	log *slog.Logger

	mu     sync.Mutex
	down   map[string]*downBroker
	up     map[string]bool // the last connection to a broker that came about, until one fails
	err    error
	failed time.Time
}

// downBroker is a broker that cannot be reached.
type downBroker struct {
	since, failed, logged time.Time // of the first failure, of the last, and when it was logged last
	err                   error     // the last one
}

func newDialWatch(log *slog.Logger) *dialWatch {
	return &dialWatch{log: cmp.Or(log, slog.New(slog.DiscardHandler)), down: map[string]*downBroker{}, up: map[string]bool{}}
}

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (d *dialWatch) OnBrokerConnect(meta kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	addr := net.JoinHostPort(meta.Host, strconv.Itoa(int(meta.Port)))
	if errors.Is(err, context.Canceled) || errors.Is(err, kgo.ErrClientClosed) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	b, known := d.down[addr]
	if err == nil {
		d.up[addr] = true
		if known {
			delete(d.down, addr)
			d.log.Info("kafka broker is reachable again", "broker", addr)
		}
		return
	}
	delete(d.up, addr)
	now := time.Now()
	if !known {
		b = &downBroker{since: now}
		d.down[addr] = b
	}
	d.err, d.failed, b.err, b.failed = err, now, err, now
	if now.Sub(b.logged) >= dialLogEvery {
		b.logged = now
		d.log.Warn("kafka broker cannot be reached, trying again", "broker", addr, "err", err)
	}
}

// outages are the brokers that could not be reached just now. One that nobody tries any
// more is left out: it has left the cluster, or was an address to begin with.
func (d *dialWatch) outages() []connectors.Outage {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []connectors.Outage
	for addr, b := range d.down {
		if time.Since(b.failed) < dialLogEvery {
			out = append(out, connectors.Outage{What: "kafka broker " + addr, Since: b.since, Err: b.err, Part: len(d.up) > 0})
		}
	}
	return out
}

// Outages implements connectors.OutageTeller.
func (r *reader) Outages() []connectors.Outage { return r.dials.outages() }

// Outages implements connectors.OutageTeller.
func (s *sink) Outages() []connectors.Outage {
	out := s.dials.outages()
	if s.set != nil {
		out = append(out, s.set.dials.outages()...)
	}
	return out
}

// cause is the last failure to connect within the last while, or nil.
func (d *dialWatch) cause() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil && time.Since(d.failed) < 2*dialLogEvery {
		return d.err
	}
	return nil
}

// requestPatience is how long a request of the control path may take with its
// retries before its failure is told.
const requestPatience = 10 * time.Second

// ask runs a request of the control path with a bound on its time and explains
// its failure: what was asked of which cluster, and what to do.
func (c *connection) ask(ctx context.Context, d *dialWatch, what string, f func(ctx context.Context) error) error {
	patience := requestPatience
	if end, ok := ctx.Deadline(); ok {
		// A part of the caller's time is left for telling why.
		patience = min(patience, time.Until(end)*9/10)
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := f(bounded)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		// A coordinator may be on its way to another broker, or into being on a new cluster.
		if !passing(err) || pause(bounded, coordinatorRetry) != nil {
			return c.explain(d, what, err)
		}
	}
}

// coordinatorRetry is the wait between requests for a coordinator that is not there yet.
const coordinatorRetry = 100 * time.Millisecond

// passing reports whether a coordinator says that it will be there, or done with what
// it is at, later.
func passing(err error) bool {
	var shards *kadm.ShardErrors
	if errors.As(err, &shards) {
		for _, s := range shards.Errs {
			if passing(s.Err) {
				return true
			}
		}
	}
	return errors.Is(err, kerr.CoordinatorNotAvailable) || errors.Is(err, kerr.CoordinatorLoadInProgress) || errors.Is(err, kerr.NotCoordinator) ||
		errors.Is(err, kerr.ConcurrentTransactions)
}

// topicPatience is how long a topic may be unknown to the broker that is asked: a
// cluster answers a topic's creation before all of its brokers know of it.
const (
	topicPatience = 2 * time.Second
	topicRetry    = 100 * time.Millisecond
)

// askTopics is ask for what tells of topics: f is repeated for a while as long as
// it reports that a topic is unknown, whose answer then stands.
func (c *connection) askTopics(ctx context.Context, d *dialWatch, what string, f func(ctx context.Context) (unknown bool, err error)) error {
	for began := time.Now(); ; {
		unknown := false
		err := c.ask(ctx, d, what, func(ctx context.Context) (err error) {
			unknown, err = f(ctx)
			return err
		})
		if err != nil || !unknown || time.Since(began) >= topicPatience {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(topicRetry):
		}
	}
}

// explain puts the facts around err that a user needs, and marks what no retry
// mends.
func (c *connection) explain(d *dialWatch, what string, err error) error {
	at := strings.Join(c.brokers, ", ")
	if auth, help := denied(err); auth {
		return connectors.Permanent(&deniedError{what: what, at: at, err: err, help: help})
	}
	if !answered(err) && !errors.Is(err, errSilent) && (errors.Is(err, context.DeadlineExceeded) || isDial(err)) {
		if cause := d.cause(); cause != nil {
			if auth, help := denied(cause); auth {
				return connectors.Permanent(&deniedError{what: what, at: at, err: cause, help: help})
			}
			return &unreachableError{what, at, cause}
		}
	}
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: kafka %s closed the connection: %w (check tls and sasl, which may not be what the broker wants)", what, at, err)
	}
	return fmt.Errorf("%s at kafka %s: %w", what, at, err)
}

// unreachableError is a cluster of which no broker can be connected to.
type unreachableError struct {
	what, at string // what was to be asked, and of which brokers
	err      error
}

func (e *unreachableError) Error() string {
	return fmt.Sprintf("%s: no broker of kafka %s can be reached: %v", e.what, e.at, e.err)
}

func (e *unreachableError) Unwrap() error { return e.err }

// Advice says where to look.
func (e *unreachableError) Advice() (key, help string) {
	return "brokers", "check the addresses, and that a broker listens there for this machine"
}

// deniedError is a right or a login that was refused.
type deniedError struct {
	what, at string // what was asked, and of which brokers
	err      error
	help     string
}

func (e *deniedError) Error() string {
	return fmt.Sprintf("%s at kafka %s: %v (%s)", e.what, e.at, e.err, e.help)
}

func (e *deniedError) Unwrap() error { return e.err }

// Advice is what to do, apart from the text that ends with it.
func (e *deniedError) Advice() (key, help string) {
	if errors.Is(e.err, kerr.SaslAuthenticationFailed) || errors.Is(e.err, kerr.UnsupportedSaslMechanism) || errors.Is(e.err, kerr.IllegalSaslState) {
		key = "sasl"
	}
	return key, e.help
}

func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op)
}

// denials are answers that mean missing rights or a wrong login, with what to do.
var denials = []struct {
	err  error
	help string
}{
	{kerr.TopicAuthorizationFailed, "the user needs the right to it: READ and DESCRIBE for a source, WRITE and DESCRIBE for a sink, and READ too for an exactly-once sink"},
	{kerr.GroupAuthorizationFailed, "the user needs READ and DESCRIBE on the group"},
	{kerr.ClusterAuthorizationFailed, "the user needs the right to this on the cluster"},
	{kerr.TransactionalIDAuthorizationFailed, "the user needs WRITE and DESCRIBE on the transactional ids with this prefix"},
	{kerr.SaslAuthenticationFailed, "the login was refused: check sasl.username and sasl.password, or what proves the client instead"},
	{kerr.UnsupportedSaslMechanism, "check sasl.mechanism against what the broker offers"},
	{kerr.IllegalSaslState, "the broker wants no sasl at this address: remove sasl, or use the address of its SASL listener"},
}

func denied(err error) (bool, string) {
	for _, d := range denials {
		if errors.Is(err, d.err) {
			return true, d.help
		}
	}
	switch {
	case err == nil:
	case refusedLogin(err):
		return true, "no broker was asked"
	case unknownService(err):
		return true, "the KDC does not know the principal of the broker: check sasl.kerberos.service_name, and that brokers name the hosts in client's addresses as in their principals"
	}
	return false, ""
}
