package s3

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go/logging"
	"golang.org/x/sync/semaphore"
)

// client is the connection to a server with one set of settings. All file systems
// of the process with those settings share it, for good: a storage.FS is not closed.
type client struct {
	config Config
	route  http.RoundTripper // in place of a network; nil for none

	mu      sync.Mutex
	api     *s3.Client // made by the first request
	http    *watched
	buckets map[string]*bucket

	slots *semaphore.Weighted // parts being sent
	locks locks
}

// bucket is what is known of one bucket.
type bucket struct {
	client *client
	name   string
	pace   pace
	probe  probe

	mu   sync.Mutex
	seen bool // it answered, so it is there
}

var (
	clientsMu sync.Mutex
	clients   = map[Config]*client{}
	routes    = map[string]*client{}
	// sending bounds the parts being sent by all clients of one concurrency.
	sending = map[int]*semaphore.Weighted{}
)

// clientFor is the client of a bucket by the program's settings.
func clientFor(name string) *client {
	clientsMu.Lock()
	c := routes[name]
	clientsMu.Unlock()
	if c != nil {
		return c
	}
	return shared(configOf(name))
}

// shared is the client of the process with a configuration.
func shared(cfg Config) *client {
	clientsMu.Lock()
	defer clientsMu.Unlock()
	c := clients[cfg]
	if c == nil {
		c = newClient(cfg, nil)
		if sending[cfg.Concurrency] == nil {
			sending[cfg.Concurrency] = c.slots
		}
		c.slots = sending[cfg.Concurrency]
		clients[cfg] = c
	}
	return c
}

func newClient(cfg Config, route http.RoundTripper) *client {
	return &client{config: cfg, route: route, buckets: map[string]*bucket{}, slots: semaphore.NewWeighted(int64(cfg.Concurrency))}
}

func (c *client) bucket(name string) *bucket {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.buckets[name]
	if b == nil {
		b = &bucket{client: c, name: name}
		c.buckets[name] = b
	}
	return b
}

// Route answers the requests to a bucket by a function of the process instead of a
// server, for tests, until the returned function is called. The static keys of cfg
// are used, or made-up ones.
func Route(name string, cfg Config, by http.RoundTripper) (restore func()) {
	clientsMu.Lock()
	defer clientsMu.Unlock()
	c := newClient(cfg, by)
	routes[name] = c
	return func() {
		clientsMu.Lock()
		defer clientsMu.Unlock()
		if routes[name] == c {
			delete(routes, name)
		}
	}
}

// CloseIdle closes the connections that no request uses. They close by themselves
// too, after a while.
func CloseIdle() {
	clientsMu.Lock()
	defer clientsMu.Unlock()
	for _, c := range clients {
		c.mu.Lock()
		if c.http != nil {
			c.http.closeIdle()
		}
		c.mu.Unlock()
	}
}

// sdk is the client of the API. Settings that cannot be used are found here, at the
// first request, and again at the next one.
func (c *client) sdk(ctx context.Context) (*s3.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.api != nil {
		return c.api, nil
	}
	cfg, rt, err := c.load(ctx)
	if err != nil {
		return nil, err
	}
	c.http = &watched{next: rt, patience: c.config.RequestTimeout}
	c.api = s3.NewFromConfig(cfg, c.options)
	return c.api, nil
}

// renew gets new credentials for the next request, where they can be had.
func (c *client) renew() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.api == nil {
		return
	}
	if cached, ok := c.api.Options().Credentials.(*aws.CredentialsCache); ok {
		cached.Invalidate()
	}
}

func (c *client) options(o *s3.Options) {
	if c.config.Endpoint != "" {
		o.BaseEndpoint = aws.String(c.config.Endpoint)
	}
	o.HTTPClient = c.http
	o.Retryer = aws.NopRetryer{} // tries are counted here, where it is known what they mean
	o.UsePathStyle = c.config.PathStyle == "true" || c.config.PathStyle == "" && o.BaseEndpoint != nil
	o.Logger = logging.Nop{}
	o.DisableLogOutputChecksumValidationSkipped = true
	if o.Region == "" {
		o.Region = "us-east-1"
	}
	switch {
	case c.config.checksummed():
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenSupported
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenSupported
	default:
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	}
}

// load finds the credentials, and how the server is reached.
func (c *client) load(ctx context.Context) (aws.Config, http.RoundTripper, error) {
	if c.route != nil {
		id, key := c.config.AccessKeyID, c.config.SecretAccessKey
		if id == "" {
			id, key = "routed", "routed"
		}
		return aws.Config{
			Region: c.config.Region, BaseEndpoint: aws.String("http://s3.invalid"),
			Credentials: credentials.NewStaticCredentialsProvider(id, string(key), string(c.config.SessionToken)),
		}, c.route, nil
	}
	opts := []func(*config.LoadOptions) error{config.WithLogger(logging.Nop{})}
	if c.config.Region != "" {
		opts = append(opts, config.WithRegion(c.config.Region))
	}
	if c.config.Profile != "" {
		opts = append(opts, config.WithSharedConfigProfile(c.config.Profile))
	}
	if c.config.AccessKeyID != "" {
		opts = append(opts, config.WithCredentialsProvider(
			credentials.NewStaticCredentialsProvider(c.config.AccessKeyID, string(c.config.SecretAccessKey), string(c.config.SessionToken))))
	}
	ca, err := c.ca()
	if err != nil {
		return aws.Config{}, nil, fmt.Errorf("%w: %w", errSetup, err)
	}
	if ca != nil {
		opts = append(opts, config.WithCustomCABundle(bytes.NewReader(ca)))
	}
	cfg, err := config.LoadDefaultConfig(ctx, opts...)
	if err != nil {
		return cfg, nil, fmt.Errorf("%w: %w", errSetup, err)
	}
	if c.config.RoleARN != "" {
		cfg.Credentials = aws.NewCredentialsCache(stscreds.NewAssumeRoleProvider(sts.NewFromConfig(cfg), c.config.RoleARN))
	}
	rt, err := c.transport(ca)
	return cfg, rt, err
}

func (c *client) ca() ([]byte, error) {
	file := c.config.CAFile
	if file == "" {
		file = os.Getenv("AWS_CA_BUNDLE")
	}
	if file == "" {
		return nil, nil
	}
	return readCA(file)
}

func (c *client) transport(ca []byte) (*http.Transport, error) {
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if ca != nil && !roots.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("%w: the CA file holds no certificate in PEM form", errSetup)
	}
	dialer := &net.Dialer{Timeout: c.config.ConnectTimeout}
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           dialer.DialContext,
		TLSClientConfig:       &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:   c.config.ConnectTimeout,
		ExpectContinueTimeout: expectTimeout,
		MaxIdleConns:          256,
		MaxIdleConnsPerHost:   64,
		IdleConnTimeout:       idleTimeout,
		DisableCompression:    true,
		ReadBufferSize:        64 << 10,
		WriteBufferSize:       64 << 10,
	}, nil
}

// locks are locks with names, for as long as somebody has or wants them.
type locks struct {
	mu   sync.Mutex
	held map[string]*lock
}

type lock struct {
	users int
	*semaphore.Weighted
}

// take waits for a lock, and returns how to give it back.
func (l *locks) take(ctx context.Context, name string) (func(), error) {
	l.mu.Lock()
	if l.held == nil {
		l.held = map[string]*lock{}
	}
	k := l.held[name]
	if k == nil {
		k = &lock{Weighted: semaphore.NewWeighted(1)}
		l.held[name] = k
	}
	k.users++
	l.mu.Unlock()
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if k.users--; k.users == 0 {
			delete(l.held, name)
		}
	}
	if err := k.Acquire(ctx, 1); err != nil {
		leave()
		return nil, err
	}
	return func() { k.Release(1); leave() }, nil
}
