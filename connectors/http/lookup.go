package http

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/connectors/placeholder"
)

func init() {
	connectors.RegisterLookup(connectors.LookupSpec{
		Name:        "http",
		Example:     "http: {url: \"https://api.example.org/users/{id}\"}\n",
		Doc:         "Asks a service for the row of each key, with one call a key, and takes the JSON object that it answers with. Status 404 and 410, an empty answer and null say that there is none.",
		NewConfig:   newLookupConfig,
		Concurrency: 32,
		New: func(config any, columns []string) (connectors.Lookup, error) {
			c, ok := config.(*LookupConfig)
			if !ok {
				return nil, fmt.Errorf("http lookup: configuration is a %T", config)
			}
			return NewLookup(*c, columns)
		},
	})
}

// Lookup finds rows over HTTP.
type Lookup struct {
	config  LookupConfig
	request request
	host    string
	header  http.Header
	field   []string
	client  *http.Client
}

var _ connectors.Lookup = (*Lookup)(nil)

// NewLookup makes a lookup of a configuration that Validate accepts.
func NewLookup(c LookupConfig, columns []string) (*Lookup, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	base, err := c.base()
	if err != nil {
		return nil, err
	}
	l := &Lookup{config: c, host: base.Host, header: http.Header{}}
	if l.request, err = c.request(columns); err != nil {
		return nil, err
	}
	l.header.Set("Accept", "application/json")
	l.header.Set("User-Agent", "sluice")
	if c.Method == methodPost {
		l.header.Set("Content-Type", "application/json")
	}
	if c.Username != "" {
		l.header.Set("Authorization", basic(c.Username, c.Password))
	}
	for name, value := range c.Headers {
		l.header.Set(name, value)
	}
	if c.Field != "" {
		l.field = strings.Split(c.Field, ".")
	}
	return l, nil
}

// Bounds of connections.
const (
	dialTimeout    = 5 * time.Second
	keepAlive      = 30 * time.Second
	idleTimeout    = 90 * time.Second
	mostHeaders    = 256 << 10
	mostRedirects  = 5
	leastRetryWait = time.Second
)

// Open sets the client up. It makes no call: without a key there is none to make.
func (l *Lookup) Open(_ context.Context, env connectors.LookupEnv) error {
	tls, err := l.config.TLS.Build()
	if err != nil {
		return err
	}
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}
	l.client = &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, TLSClientConfig: tls, ForceAttemptHTTP2: true,
			TLSHandshakeTimeout: dialTimeout, MaxIdleConns: env.Concurrency, MaxIdleConnsPerHost: env.Concurrency,
			IdleConnTimeout: idleTimeout, MaxResponseHeaderBytes: mostHeaders,
		},
		CheckRedirect: sameHost,
	}
	return nil
}

// sameHost follows redirects within a host only: to another one neither keys nor
// credentials go.
func sameHost(next *http.Request, via []*http.Request) error {
	first := via[0].URL
	if len(via) > mostRedirects || next.URL.Host != first.Host || next.URL.Scheme != first.Scheme {
		return http.ErrUseLastResponse
	}
	return nil
}

// MaxKeys is one: each call is for one row.
func (l *Lookup) MaxKeys() int { return 1 }

// Close closes idle connections; others close when their calls end.
func (l *Lookup) Close() error {
	if l.client != nil {
		l.client.CloseIdleConnections()
	}
	return nil
}

// Find makes one call for each key.
func (l *Lookup) Find(ctx context.Context, keys []connectors.LookupKey, answers []connectors.Answer) error {
	for i := range keys {
		if err := l.find(ctx, keys[i].Values, &answers[i]); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lookup) find(ctx context.Context, key []connectors.Value, out *connectors.Answer) error {
	req, err := l.newRequest(ctx, key)
	if errors.Is(err, errEmpty) {
		return nil
	}
	if err != nil {
		out.Err = err
		return nil
	}
	resp, err := l.client.Do(req)
	if err != nil {
		var u *url.Error // its text has the address with the key
		if errors.As(err, &u) {
			err = u.Err
		}
		return fmt.Errorf("call %s: %w", l.host, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if done, err := l.status(resp, out); done || err != nil {
		return err
	}
	limit := int64(l.config.MaxResponse)
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", l.host, err)
	}
	if int64(len(body)) > limit {
		out.Err = fmt.Errorf("the answer is larger than %s (max_response)", l.config.MaxResponse)
		return nil
	}
	out.Row, out.Err = l.row(body)
	return nil
}

// errEmpty says that a part of the path would be empty: that is the address of
// something else than a row.
var errEmpty = errors.New("an empty part of a path")

// newRequest makes the call for a key. An error is that of the key.
func (l *Lookup) newRequest(ctx context.Context, key []connectors.Value) (*http.Request, error) {
	path, err := l.request.path.Fill(key, func(v connectors.Value) (string, error) {
		switch s, err := placeholder.Plain(v); {
		case err != nil:
			return "", err
		case s == "":
			return "", errEmpty
		case s == "." || s == "..": // servers take these for steps in the path
			return strings.ReplaceAll(s, ".", "%2E"), nil
		default:
			return url.PathEscape(s), nil
		}
	})
	if err != nil {
		return nil, err
	}
	query, err := l.request.query.Fill(key, func(v connectors.Value) (string, error) {
		s, err := placeholder.Plain(v)
		return url.QueryEscape(s), err
	})
	if err != nil {
		return nil, err
	}
	var body io.Reader
	if l.config.Body != "" {
		text, err := l.request.body.Fill(key, placeholder.JSON)
		if err != nil {
			return nil, err
		}
		body = strings.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, l.config.Method, path+query, body)
	if err != nil {
		return nil, errors.New("no address can be made of the key")
	}
	req.Header = l.header.Clone()
	if host := l.header.Get("Host"); host != "" {
		req.Host = host
	}
	return req, nil
}

// status decides by the status of an answer. done says that the answer holds no row
// to be read.
func (l *Lookup) status(resp *http.Response, out *connectors.Answer) (done bool, err error) {
	code := resp.StatusCode
	switch {
	case code == http.StatusNoContent || code == http.StatusNotFound || code == http.StatusGone:
		return true, nil
	case code >= 200 && code < 300:
		return false, nil
	case code == http.StatusUnauthorized || code == http.StatusProxyAuthRequired:
		return true, connectors.Permanent(fmt.Errorf("call %s: status %d: the credentials are refused: check headers, username and password", l.host, code))
	case code >= 500 || slices.Contains([]int{http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests}, code):
		err := fmt.Errorf("call %s: status %d", l.host, code)
		if after := retryAfter(resp.Header.Get("Retry-After"), time.Now()); after > 0 {
			return true, &connectors.RetryAfterError{After: after, Err: err}
		}
		return true, err
	case code >= 300 && code < 400:
		out.Err = fmt.Errorf("status %d leads to another host, or on and on: only redirects within a host are followed", code)
	default:
		out.Err = fmt.Errorf("status %d", code)
	}
	return true, nil
}

// retryAfter reads the header of that name: seconds, or a date.
func retryAfter(text string, now time.Time) time.Duration {
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if t, err := http.ParseTime(text); err == nil {
		return max(t.Sub(now), leastRetryWait) // dates are whole seconds
	}
	return 0
}

// row takes the row out of an answer, nil for none.
func (l *Lookup) row(body []byte) ([]byte, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, nil
	}
	var arena connectors.Arena
	v, err := format.ParseValue(body, &arena)
	if err != nil {
		return nil, fmt.Errorf("the answer is no JSON: %w", err)
	}
	for i, name := range l.field {
		if v.Kind() != connectors.Map && !v.IsNull() {
			return nil, fmt.Errorf("%s of the answer is no object but of type %s", l.at(i), v.Kind())
		}
		if v.IsNull() {
			return nil, nil
		}
		v, _ = format.Lookup(v.Raw(), name, &arena)
	}
	switch {
	case v.IsNull():
		return nil, nil
	case v.Kind() != connectors.Map:
		return nil, fmt.Errorf("%s of the answer is no object but of type %s: field says where in the answer the row is", l.at(len(l.field)), v.Kind())
	}
	if len(l.field) > 0 {
		return bytes.Clone(v.Raw()), nil // the rest of the answer need not be kept for it
	}
	return v.Raw(), nil
}

// at names a place in the answer, for messages.
func (l *Lookup) at(depth int) string {
	if depth == 0 {
		return "the whole"
	}
	return "field " + strings.Join(l.field[:depth], ".")
}
