package http

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/immediate"
	"github.com/sluice-etl/sluice/connectors/tlsconfig"
)

// SinkConfig is the block of a sink.
type SinkConfig struct {
	URL               connectors.Template     `key:"url" doc:"Address that records are sent to, such as https://host/events or https://host/users/{user_id}: the value of an expression in braces is escaped. Scheme and host are fixed." required:"true"`
	Method            string                  `key:"method" enum:"POST|PUT|PATCH|DELETE" doc:"Method of the requests."`
	Format            connectors.FormatConfig `key:"format" doc:"How records are encoded; requests of several records are JSON always."`
	Body              string                  `key:"body" enum:"record|array|lines" doc:"What a request holds: record, one record as it is; array, a JSON array of records; lines, one record of JSON a line."`
	Batch             immediate.Batch         `key:"batch" doc:"How many records make a request, where the body is array or lines."`
	Concurrency       int                     `key:"concurrency" doc:"Requests at a time, of each subtask. Records of one key are sent one after another at any number."`
	Headers           map[string]string       `key:"headers" secret:"true" doc:"Headers of each request."`
	RecordHeaders     connectors.Assignments  `key:"record_headers" doc:"Headers from expressions, where a request holds one record: {X-Tenant: tenant}."`
	IdempotencyHeader string                  `key:"idempotency_header" doc:"Header that carries the same text when a request is sent again, so that the service can tell; empty for none."`
	Tombstones        string                  `key:"tombstones" enum:"refuse|null|delete" doc:"What becomes of a record without a value: it is refused, sent as null, or makes a request with method DELETE and no body."`
	Compression       string                  `key:"compression" enum:"none|gzip" doc:"Compression of what is sent."`
	Timeout           connectors.TimeSpan     `key:"timeout" doc:"How long a request may take, from connecting to the end of the answer."`
	Username          string                  `key:"username" doc:"User of basic authentication."`
	Password          string                  `key:"password" secret:"true" doc:"The user's password."`
	Token             string                  `key:"token" secret:"true" doc:"Bearer token that is sent with each request."`
	OAuth2            OAuth2                  `key:"oauth2" doc:"Client credentials, for which a server gives bearer tokens."`
	Refuse            []int                   `key:"refuse" doc:"Statuses that refuse the records of a request, where otherwise it would be sent again, such as 500 of a service that answers so for records that it cannot take."`
	TLS               tlsconfig.Config        `key:"tls" doc:"Encryption of the connections, of https."`
	Changelog         bool                    `key:"changelog" doc:"Takes an updating stream row by row, and writes what each row does as the last field, op: insert, update_before, update_after or delete."`
}

// OAuth2 says where tokens are had.
type OAuth2 struct {
	TokenURL     string   `key:"token_url" doc:"Address of the server that gives tokens."`
	ClientID     string   `key:"client_id" doc:"Name of the client."`
	ClientSecret string   `key:"client_secret" secret:"true" doc:"The client's secret."`
	Scopes       []string `key:"scopes" doc:"What the token shall be good for."`
	Audience     string   `key:"audience" doc:"Whom it is for, where the server asks for that."`
}

func (o *OAuth2) set() bool { return o.TokenURL != "" || o.ClientID != "" || o.ClientSecret != "" }

// The bodies of requests, and what becomes of tombstones.
const (
	bodyRecord = "record"
	bodyArray  = "array"
	bodyLines  = "lines"

	tombstoneRefuse = "refuse"
	tombstoneNull   = "null"
	tombstoneDelete = "delete"

	compressGzip = "gzip"
)

func newSinkConfig() any {
	return &SinkConfig{
		Method: methodPost, Format: connectors.FormatConfig{Name: "json"}, Body: bodyRecord,
		Batch: immediate.Batch{Records: 100, Bytes: 1 << 20}, Concurrency: 4, IdempotencyHeader: "Idempotency-Key",
		Tombstones: tombstoneRefuse, Compression: "none", Timeout: connectors.TimeSpan(30 * time.Second),
	}
}

// Validate reports every key that is out of its range.
func (c *SinkConfig) Validate() error {
	var faults []error
	fault := func(key, msg, help string) {
		faults = append(faults, &connectors.FieldError{Key: key, Msg: msg, Help: help})
	}
	if _, err := c.base(); err != nil {
		fault("url", err.Error(), "write it like https://host/events or https://host/users/{user_id}")
	}
	faults = append(faults, c.Batch.Check(c.Concurrency), c.TLS.Check(), c.checkHeaders(), c.checkAuth())
	if c.Body != bodyRecord {
		if c.Format.Name != "" && c.Format.Name != "json" {
			fault("format", "a request of several records is JSON", "write body: record, or remove format")
		}
		if len(c.RecordHeaders) > 0 {
			fault("record_headers", "a request of several records has no headers of one of them", "write body: record, or use headers")
		}
		if c.Tombstones == tombstoneDelete {
			fault("tombstones", "delete makes a request for one record", "write body: record")
		}
	}
	if t := time.Duration(c.Timeout); t < time.Millisecond || t > time.Hour {
		fault("timeout", "must be from 1ms to 1h", "30s is the default")
	}
	for _, status := range c.Refuse {
		if status < 400 || status > 599 || slices.Contains([]int{401, 403, 407}, status) {
			fault("refuse", fmt.Sprintf("%d cannot refuse a record", status), "statuses from 400 to 599, but for those of credentials")
		}
	}
	return errors.Join(faults...)
}

func (c *SinkConfig) checkHeaders() error {
	var faults []error
	fault := func(key, msg, help string) {
		faults = append(faults, &connectors.FieldError{Key: key, Msg: msg, Help: help})
	}
	for name, value := range c.Headers {
		if !token(name) || strings.ContainsAny(value, "\r\n\x00") {
			fault("headers", "there is one that cannot be sent", "names are letters, digits and -, and values have no line breaks")
		}
	}
	for _, h := range c.RecordHeaders {
		if !token(h.Name) {
			fault("record_headers", fmt.Sprintf("%q is no name of a header", h.Name), "names are letters, digits and -")
		}
	}
	if c.IdempotencyHeader != "" && !token(c.IdempotencyHeader) {
		fault("idempotency_header", "it is no name of a header", "names are letters, digits and -")
	}
	return errors.Join(faults...)
}

func (c *SinkConfig) checkAuth() error {
	var faults []error
	fault := func(key, msg, help string) {
		faults = append(faults, &connectors.FieldError{Key: key, Msg: msg, Help: help})
	}
	ways := 0
	for _, used := range []bool{c.Username != "" || c.Password != "", c.Token != "", c.OAuth2.set()} {
		if used {
			ways++
		}
	}
	if ways > 1 {
		fault("token", "there is more than one way of authentication", "keep one of username, token and oauth2")
	}
	if c.Username == "" && c.Password != "" {
		fault("username", "a password needs a user", "")
	}
	if strings.ContainsAny(c.Token, "\r\n\x00 ") {
		fault("token", "it has a blank or a line break", "")
	}
	if o := &c.OAuth2; o.set() {
		if u, err := url.Parse(o.TokenURL); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
			fault("oauth2.token_url", "it is no address", "write it like https://login.example.org/oauth2/token")
		}
		if o.ClientID == "" || o.ClientSecret == "" {
			fault("oauth2.client_id", "client_id and client_secret belong together", "set both")
		}
	}
	return errors.Join(faults...)
}

// base is the address up to its host, in which nothing of a record can be.
func (c *SinkConfig) base() (*url.URL, error) {
	prefix := c.URL.Prefix()
	fixed, isFixed := c.URL.Fixed()
	if isFixed {
		prefix = fixed
	}
	_, rest, _ := strings.Cut(prefix, "://")
	if !isFixed && !strings.ContainsAny(rest, "/?") {
		return nil, errors.New("scheme and host cannot come from a record")
	}
	for _, p := range c.URL.Parts {
		if strings.Contains(p.Literal, "#") {
			return nil, errors.New("it cannot have a fragment (#)")
		}
	}
	return (&LookupConfig{URL: prefix}).base()
}
