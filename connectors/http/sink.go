package http

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/retry"
)

func init() {
	connectors.RegisterSink(connectors.SinkSpec{
		Name:      "http",
		Doc:       "Sends records to a service, one or many in a request, and sends a request again until it is answered. A header tells the service which requests are the same.",
		NewConfig: newSinkConfig,
		New:       func(c any) (connectors.Sink, error) { return newSink(c.(*SinkConfig)) },
		Changes:   func(c any) connectors.Changes { return connectors.TakesChangelog(c.(*SinkConfig).Changelog) },
		// Facts of a dead letter are in its row, as services read bodies.
		DeadLetterRows: true,
		Example:        "http:\n  url: https://api.example.org/events\n  body: array\n  batch: {records: 100}\n",
	})
}

// sink implements connectors.Sink.
type sink struct {
	retry.Watch

	cfg     *SinkConfig
	host    string
	header  http.Header
	secrets []string // never shown in a reason
	env     connectors.SinkEnv
	client  *http.Client
	tokens  *tokens // nil where credentials need none

	transport http.RoundTripper // instead of the network, in tests
}

var (
	_ connectors.Sink         = (*sink)(nil)
	_ connectors.OutageTeller = (*sink)(nil)
)

func newSink(c *SinkConfig) (*sink, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	base, err := c.base()
	if err != nil {
		return nil, err
	}
	s := &sink{cfg: c, host: base.Host, header: http.Header{}}
	s.header.Set("User-Agent", "sluice")
	switch {
	case c.Body == bodyLines:
		s.header.Set("Content-Type", "application/x-ndjson")
	case c.Body == bodyArray, c.Format.Name == "", c.Format.Name == "json":
		s.header.Set("Content-Type", "application/json")
	default:
		s.header.Set("Content-Type", "application/octet-stream")
	}
	if c.Compression == compressGzip {
		s.header.Set("Content-Encoding", "gzip")
	}
	switch {
	case c.Username != "":
		s.header.Set("Authorization", basic(c.Username, c.Password))
		s.secrets = append(s.secrets, c.Password, s.header.Get("Authorization"))
	case c.Token != "":
		s.header.Set("Authorization", "Bearer "+c.Token)
		s.secrets = append(s.secrets, c.Token)
	}
	for name, value := range c.Headers {
		s.header.Set(name, value)
		s.secrets = append(s.secrets, value)
	}
	return s, nil
}

// Guarantee is at_least_once: only the service can tell a request from its repetition.
func (s *sink) Guarantee() connectors.Guarantee { return connectors.AtLeastOnce }

// Open sets the client up. It makes no call: there is none without effect.
func (s *sink) Open(_ context.Context, env connectors.SinkEnv) error {
	s.env = env
	transport := s.transport
	if transport == nil {
		tls, err := s.cfg.TLS.Build()
		if err != nil {
			return err
		}
		conns := max(1, env.Subtasks) * s.cfg.Concurrency
		dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}
		transport = &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, TLSClientConfig: tls, ForceAttemptHTTP2: true,
			TLSHandshakeTimeout: dialTimeout, MaxIdleConns: conns, MaxIdleConnsPerHost: conns,
			IdleConnTimeout: idleTimeout, MaxResponseHeaderBytes: mostHeaders,
		}
	}
	s.client = &http.Client{
		Transport: transport, Timeout: time.Duration(s.cfg.Timeout),
		// To another address neither records nor credentials go.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if s.cfg.OAuth2.set() {
		s.tokens = &tokens{config: s.cfg.OAuth2, client: s.client}
		s.secrets = append(s.secrets, s.cfg.OAuth2.ClientSecret)
	}
	return nil
}

// Start has nothing to go on from.
func (s *sink) Start(context.Context, connectors.Restored) error { return nil }

// Writer makes a writer.
func (s *sink) Writer(int) (connectors.Writer, error) { return &writer{sink: s}, nil }

// Close closes idle connections.
func (s *sink) Close() error {
	if s.client != nil {
		s.client.CloseIdleConnections()
	}
	return nil
}

func (s *sink) failpoint(name string) {
	if s.env.Failpoint != nil {
		s.env.Failpoint(name)
	}
}

// idempotencyKey is the same for a request of the same records whenever it is made, also
// after a restart. Records that come from nowhere get one that holds for the tries of one
// request: two of them that look alike can be two results.
func (s *sink) idempotencyKey(ids []string) string {
	sum := sha256.New()
	sum.Write([]byte(s.env.Pipeline + "\x00" + s.env.Name))
	for _, id := range ids {
		if id == "" {
			return rand.Text()
		}
		sum.Write([]byte("\x00" + id))
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

const mostQuoted = 300

// quote is the beginning of an answer, without secrets and control characters.
func (s *sink) quote(body []byte) string {
	text := string(body)
	for _, secret := range s.secrets {
		if len(secret) > 2 {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	text = strings.ToValidUTF8(strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f || r == ' ' }), " "), "�")
	if len(text) > mostQuoted {
		text = strings.ToValidUTF8(text[:mostQuoted], "") + "…"
	}
	if text == "" {
		return ""
	}
	return ": " + text
}

// errNoAddress says that a row's address cannot be made.
var errNoAddress = errors.New("a dead letter names no address: give the sink of dead letters a fixed one")

// rowError refuses a row before anything is sent.
func rowError(i int, kind string, err error) connectors.RowError {
	return connectors.RowError{Row: i, Kind: kind, Reason: err.Error()}
}
