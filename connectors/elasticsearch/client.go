package elasticsearch

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/immediate"
)

// client makes bulk requests to the nodes of a cluster.
type client struct {
	nodes   []*node
	query   string
	header  http.Header
	gzip    bool
	secrets []string
	http    *http.Client

	transport http.RoundTripper // instead of the network, in tests

	mu   sync.Mutex
	next int
}

// node is one address. One that failed is passed over for a while, unless all have.
type node struct {
	url, host string
	rest      time.Time
}

// Bounds of connections and answers.
const (
	dialTimeout    = 5 * time.Second
	keepAlive      = 30 * time.Second
	idleTimeout    = 90 * time.Second
	restAfter      = 10 * time.Second
	mostAnswer     = 256 << 20 // of a bulk request; each of its items has a part
	mostError      = 64 << 10
	mostQuoted     = 300
	mostRetryAfter = 5 * time.Minute
)

func newClient(c *Config) *client {
	out := &client{header: http.Header{}, gzip: c.Compression == compressGzip}
	for _, a := range c.Addresses {
		u, err := url.Parse(a)
		if err != nil {
			continue // Validate has been there
		}
		out.nodes = append(out.nodes, &node{url: strings.TrimSuffix(a, "/"), host: u.Host})
	}
	query := url.Values{"filter_path": {"errors,items.*.status,items.*.error"}}
	if c.Pipeline != "" {
		query.Set("pipeline", c.Pipeline)
	}
	out.query = query.Encode()
	out.header.Set("User-Agent", "sluice")
	out.header.Set("Accept", "application/json")
	switch {
	case c.Username != "":
		out.header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(c.Username+":"+c.Password)))
		out.secrets = []string{c.Password}
	case c.APIKey != "":
		out.header.Set("Authorization", "ApiKey "+c.APIKey)
		out.secrets = []string{c.APIKey}
	case c.Token != "":
		out.header.Set("Authorization", "Bearer "+c.Token)
		out.secrets = []string{c.Token}
	}
	return out
}

func (c *client) open(cfg *Config, conns int) error {
	transport := c.transport
	if transport == nil {
		tls, err := cfg.TLS.Build()
		if err != nil {
			return err
		}
		dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}
		transport = &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, TLSClientConfig: tls, ForceAttemptHTTP2: true,
			TLSHandshakeTimeout: dialTimeout, MaxIdleConnsPerHost: conns, IdleConnTimeout: idleTimeout,
		}
	}
	c.http = &http.Client{
		Transport: transport, Timeout: time.Duration(cfg.Timeout),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return nil
}

func (c *client) close() {
	if c.http != nil {
		c.http.CloseIdleConnections()
	}
}

// pick is the node to ask next.
func (c *client) pick() *node {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for range c.nodes {
		n := c.nodes[c.next%len(c.nodes)]
		c.next++
		if !now.Before(n.rest) {
			return n
		}
	}
	return c.nodes[c.next%len(c.nodes)]
}

func (c *client) failed(n *node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n.rest = time.Now().Add(restAfter)
}

// ping asks the nodes in turn, until one answers, whether there is a cluster.
func (c *client) ping(ctx context.Context) error {
	var last error
	for range c.nodes {
		var hello struct {
			Version struct {
				Number string `json:"number"`
			} `json:"version"`
		}
		body, err := c.do(ctx, http.MethodGet, "/", nil)
		var s *statusError
		switch {
		case errors.As(err, &s) && s.status == http.StatusUnauthorized:
			return connectors.Permanent(err)
		case errors.As(err, &s) && s.status == http.StatusForbidden:
			return nil // who may write need not be told who the cluster is
		case err != nil:
			last = err
			continue
		}
		if json.Unmarshal(body, &hello) != nil || hello.Version.Number == "" {
			return connectors.Permanent(errors.New("what answers is neither Elasticsearch nor OpenSearch: correct addresses"))
		}
		return nil
	}
	return last
}

// item is what a cluster says of one action.
type item struct {
	Status int `json:"status"`
	Error  *struct {
		Type     string `json:"type"`
		Reason   string `json:"reason"`
		CausedBy *struct {
			Reason string `json:"reason"`
		} `json:"caused_by"`
	} `json:"error"`
}

// bulk makes one bulk request of n actions.
func (c *client) bulk(ctx context.Context, body []byte, n int) ([]item, error) {
	said, err := c.do(ctx, http.MethodPost, "/_bulk?"+c.query, body)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Items []map[string]item `json:"items"`
	}
	if err := json.Unmarshal(said, &answer); err != nil || len(answer.Items) != n {
		return nil, fmt.Errorf("the answer to a bulk request of %d actions tells of %d: something between changes answers", n, len(answer.Items))
	}
	out := make([]item, n)
	for i, m := range answer.Items {
		for _, it := range m {
			out[i] = it
		}
	}
	return out, nil
}

// statusError is an answer of a node that is no success.
type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string { return e.text }

// do makes a request to the next node.
func (c *client) do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	n := c.pick()
	req, err := http.NewRequestWithContext(ctx, method, n.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, connectors.Permanent(fmt.Errorf("no request can be made of the address of %s", n.host))
	}
	req.Header = c.header.Clone()
	if body != nil {
		req.Header.Set("Content-Type", "application/x-ndjson")
		if c.gzip {
			req.Header.Set("Content-Encoding", "gzip")
		}
	}
	resp, err := c.http.Do(req)
	if err != nil {
		c.failed(n)
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		return nil, fmt.Errorf("call %s: %w", n.host, err)
	}
	defer func() { _ = resp.Body.Close() }()
	limit := int64(mostAnswer)
	if resp.StatusCode != http.StatusOK {
		limit = mostError
	}
	said, err := io.ReadAll(io.LimitReader(resp.Body, limit))
	if resp.StatusCode == http.StatusOK && err != nil {
		c.failed(n)
		return nil, fmt.Errorf("read the answer of %s: %w", n.host, err)
	}
	if resp.StatusCode == http.StatusOK {
		return said, nil
	}
	if resp.StatusCode >= 500 {
		c.failed(n)
	}
	return nil, c.judge(n, resp, said)
}

// judge says what a status that is no success means.
func (c *client) judge(n *node, resp *http.Response, said []byte) error {
	code := resp.StatusCode
	err := &statusError{code, fmt.Sprintf("call %s: status %d%s", n.host, code, c.quote(said))}
	switch {
	case code == http.StatusRequestEntityTooLarge || code == http.StatusBadRequest:
		return &immediate.RefusedError{Kind: "refused", Reason: err.text}
	case code == http.StatusUnauthorized || code == http.StatusForbidden || code == http.StatusProxyAuthRequired:
		err.text += ": the credentials are refused: check username, api_key and token; nothing is written until they are accepted"
		return err
	case code == http.StatusTooManyRequests || code == http.StatusRequestTimeout || code >= 500:
		if sec, bad := strconv.Atoi(resp.Header.Get("Retry-After")); bad == nil && sec > 0 {
			return &connectors.RetryAfterError{After: min(time.Duration(sec)*time.Second, mostRetryAfter), Err: err}
		}
		return err
	}
	return connectors.Permanent(fmt.Errorf("%w: this is no bulk interface of Elasticsearch or OpenSearch: correct addresses", err))
}

// quote is the beginning of an answer, without secrets and control characters.
func (c *client) quote(said []byte) string {
	text := string(said)
	for _, secret := range c.secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f }), " ")
	if text == "" {
		return ""
	}
	return ": " + short(text)
}

func short(text string) string {
	if len(text) > mostQuoted {
		text = text[:mostQuoted] + "…"
	}
	return strings.ToValidUTF8(text, "")
}

func gzipped(body []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = z.Write(body) // a buffer takes all
	_ = z.Close()
	return out.Bytes()
}
