package clickhouse

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/sluice-etl/sluice/connectors"
)

// client asks a server over its HTTP interface.
type client struct {
	url      string
	host     string // for errors
	header   http.Header
	secret   string
	compress string
	http     *http.Client

	transport http.RoundTripper // instead of the network, in tests
}

// Bounds of connections and answers.
const (
	dialTimeout    = 5 * time.Second
	keepAlive      = 30 * time.Second
	idleTimeout    = 2 * time.Second // below the 10 s, in old versions 3 s, after which servers close
	mostAnswer     = 16 << 20
	mostQuoted     = 400
	mostRetryAfter = 5 * time.Minute
)

func newClient(c *SinkConfig) *client {
	out := &client{url: strings.TrimSuffix(c.URL, "/") + "/", header: http.Header{}, secret: c.Password, compress: c.Compression}
	if u, err := url.Parse(c.URL); err == nil {
		out.host = u.Host
	}
	out.header.Set("User-Agent", "sluice")
	if c.Username != "" {
		out.header.Set("X-ClickHouse-User", c.Username)
		out.header.Set("X-ClickHouse-Key", c.Password)
	}
	return out
}

func (c *client) open(cfg *SinkConfig) error {
	transport := c.transport
	if transport == nil {
		tls, err := cfg.TLS.Build()
		if err != nil {
			return err
		}
		dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}
		transport = &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, TLSClientConfig: tls,
			TLSHandshakeTimeout: dialTimeout, IdleConnTimeout: idleTimeout,
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

// run runs a statement that gives nothing back.
func (c *client) run(ctx context.Context, statement string) error {
	_, err := c.do(ctx, nil, statement, nil)
	return err
}

// insert runs an INSERT whose rows are body.
func (c *client) insert(ctx context.Context, settings url.Values, statement string, body []byte) error {
	_, err := c.do(ctx, settings, statement, body)
	return err
}

// ask reads the rows of a query, each as JSON into a new T.
func ask[T any](ctx context.Context, c *client, query string) ([]T, error) {
	said, err := c.do(ctx, nil, query+" FORMAT JSONEachRow", nil)
	if err != nil {
		return nil, err
	}
	var out []T
	for lines := json.NewDecoder(bytes.NewReader(said)); ; {
		var row T
		switch err := lines.Decode(&row); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, connectors.Permanent(fmt.Errorf("what answers at %s is not ClickHouse: correct url", c.host))
		}
		out = append(out, row)
	}
}

// do makes one request. The answer is complete or there is an error: the server holds it
// back until the query has ended.
func (c *client) do(ctx context.Context, settings url.Values, query string, rows []byte) ([]byte, error) {
	params := url.Values{"wait_end_of_query": {"1"}, "async_insert": {"0"}}
	for name, values := range settings {
		params[name] = values
	}
	body := []byte(query)
	if rows != nil {
		params.Set("query", query)
		body = c.pack(rows)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"?"+params.Encode(), bytes.NewReader(body))
	if err != nil {
		return nil, connectors.Permanent(fmt.Errorf("no request can be made of the address of %s", c.host))
	}
	req.Header = c.header.Clone()
	// Each request can be repeated, so the transport may do so on a connection that was
	// closed while it lay idle. An empty list is not sent.
	req.Header["Idempotency-Key"] = []string{}
	if rows != nil && c.compress != compressNone {
		req.Header.Set("Content-Encoding", c.compress)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		return nil, fmt.Errorf("call %s: %w", c.host, err)
	}
	defer func() { _ = resp.Body.Close() }()
	said, err := io.ReadAll(io.LimitReader(resp.Body, mostAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", c.host, err)
	}
	if resp.StatusCode == http.StatusOK && resp.Header.Get(exceptionHeader) == "" {
		return said, nil
	}
	return nil, c.judge(resp, said)
}

// pack compresses rows.
func (c *client) pack(rows []byte) []byte {
	var out bytes.Buffer
	switch c.compress {
	case compressGzip:
		z := gzip.NewWriter(&out)
		_, _ = z.Write(rows) // a buffer takes all
		_ = z.Close()
	case compressZstd:
		z, _ := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1)) // these options are no error
		_, _ = z.Write(rows)
		_ = z.Close()
	default:
		return rows
	}
	return out.Bytes()
}

const exceptionHeader = "X-ClickHouse-Exception-Code"

var exceptionText = regexp.MustCompile(`Code: (\d+)[.,]`)

// serverError is what the server says that is no success.
type serverError struct {
	code int // of ClickHouse; 0 where it is not ClickHouse that answers
	text string
}

func (e *serverError) Error() string { return e.text }

// judge says what an answer that is no success means.
func (c *client) judge(resp *http.Response, said []byte) error {
	code, _ := strconv.Atoi(resp.Header.Get(exceptionHeader))
	if m := exceptionText.FindSubmatch(said); code == 0 && m != nil {
		code, _ = strconv.Atoi(string(m[1]))
	}
	err := &serverError{code, fmt.Sprintf("call %s: status %d%s", c.host, resp.StatusCode, c.quote(said))}
	if code != 0 {
		return judgeCode(err)
	}
	switch status := resp.StatusCode; {
	case status == http.StatusTooManyRequests || status == http.StatusRequestTimeout || status >= 500:
		if sec, bad := strconv.Atoi(resp.Header.Get("Retry-After")); bad == nil && sec > 0 {
			return &connectors.RetryAfterError{After: min(time.Duration(sec)*time.Second, mostRetryAfter), Err: err}
		}
		return err
	case status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusProxyAuthRequired:
		return connectors.Permanent(fmt.Errorf("%w: the credentials are refused: check username and password", err))
	}
	return connectors.Permanent(fmt.Errorf("%w: this is no HTTP interface of ClickHouse: correct url", err))
}

// The codes of errors that waiting does not mend, by what does.
var (
	credentialCodes = codes(192, 193, 194, 497, 516)
	settingCodes    = codes(115, 164, 452)
	lastingCodes    = codes(6, 16, 20, 26, 27, 33, 36, 38, 41, 43, 44, 46, 47, 48, 50, 53, 57, 60, 62, 69, 70, 72, 73, 80, 82, 117, 130, 131, 177, 190, 349, 386, 469)
)

// databaseCode is about a database that is not there.
const databaseCode = 81

// partsCode is about too many parts, which merges mend, and about too many partitions in a
// block, which nothing does.
const partsCode = 252

func codes(list ...int) map[int]bool {
	out := make(map[int]bool, len(list))
	for _, c := range list {
		out[c] = true
	}
	return out
}

func judgeCode(err *serverError) error {
	switch {
	case credentialCodes[err.code]:
		return connectors.Permanent(fmt.Errorf("%w: check username, password and what the user is granted", err))
	case err.code == databaseCode:
		return connectors.Permanent(fmt.Errorf("%w: make the database, or correct its name in database or state_database", err))
	case settingCodes[err.code]:
		return connectors.Permanent(fmt.Errorf("%w: the user must be able to write, and to set what an insert needs (readonly must be 0)", err))
	case err.code == partsCode && strings.Contains(err.text, "partitions for single INSERT"):
		return connectors.Permanent(fmt.Errorf("%w: the rows of one block go to more partitions than blocks are remembered: raise the table's deduplication window, or partition it more coarsely", err))
	case lastingCodes[err.code]:
		return connectors.Permanent(err)
	}
	return err
}

// quote is the beginning of an answer, without the password and control characters.
func (c *client) quote(said []byte) string {
	text := string(said)
	if c.secret != "" {
		text = strings.ReplaceAll(text, c.secret, "***")
	}
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f }), " ")
	if text == "" {
		return ""
	}
	if len(text) > mostQuoted {
		text = text[:mostQuoted] + "…"
	}
	return ": " + strings.ToValidUTF8(text, "")
}

var (
	nameEscapes = strings.NewReplacer("\\", "\\\\", "`", "\\`")
	textEscapes = strings.NewReplacer("\\", "\\\\", "'", "\\'")
)

// quote makes an identifier of names.
func quote(names ...string) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = "`" + nameEscapes.Replace(n) + "`"
	}
	return strings.Join(out, ".")
}

// literal makes a text of SQL.
func literal(text string) string { return "'" + textEscapes.Replace(text) + "'" }
