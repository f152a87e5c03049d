package http

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/placeholder"
	"github.com/sluice-etl/sluice/connectors/tlsconfig"
)

// LookupConfig is the block of a lookup over HTTP.
type LookupConfig struct {
	URL         string              `key:"url" doc:"Address of the row of a key, such as https://host/users/{code}: the name of a column in braces stands for its value, which is escaped. The host is fixed." required:"true"`
	Method      string              `key:"method" enum:"GET|POST" doc:"How it is asked for."`
	Body        string              `key:"body" doc:"What a POST sends. The name of a column in braces stands for its value in JSON, texts with their quotes: '{\"id\": {code}}'."`
	Headers     map[string]string   `key:"headers" secret:"true" doc:"Headers of the call. Accept and Content-Type are application/json unless they are here."`
	Username    string              `key:"username" doc:"User of basic authentication."`
	Password    string              `key:"password" secret:"true" doc:"The user's password."`
	Field       string              `key:"field" doc:"Where in the answer the row is, such as data.user; by default the answer is the row."`
	MaxResponse connectors.ByteSize `key:"max_response" doc:"Largest answer that is read; records whose answer is larger go to on_error."`
	TLS         tlsconfig.Config    `key:"tls" doc:"Encryption of the connections, of https."`
}

const (
	methodGet  = "GET"
	methodPost = "POST"
)

func newLookupConfig() any { return &LookupConfig{Method: methodGet, MaxResponse: 1 << 20} }

// Validate reports every key that is out of its range.
func (c *LookupConfig) Validate() error {
	var faults []error
	fault := func(key, msg, help string) {
		faults = append(faults, &connectors.FieldError{Key: key, Msg: msg, Help: help})
	}
	if _, err := c.base(); err != nil {
		fault("url", err.Error(), "write it like https://host/users/{code}")
	}
	if c.Body != "" && c.Method != methodPost {
		fault("body", "only a POST has one", "write method: POST")
	}
	for name, value := range c.Headers {
		if !token(name) || strings.ContainsAny(value, "\r\n\x00") {
			fault("headers", "there is one that cannot be sent", "names are letters, digits and -, and values have no line breaks")
		}
	}
	if c.Username == "" && c.Password != "" {
		fault("username", "a password needs a user", "")
	}
	if c.MaxResponse < 1 || c.MaxResponse > 1<<30 {
		fault("max_response", "must be from 1B to 1GiB", "1MiB is the default")
	}
	faults = append(faults, c.TLS.Check())
	return errors.Join(faults...)
}

// token reports whether a text can be the name of a header.
func token(s string) bool {
	for _, c := range []byte(s) {
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`()<>@,;:\"/[]?={}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}

// base is the address up to its host, in which nothing of a record can be.
func (c *LookupConfig) base() (*url.URL, error) {
	scheme, rest, ok := strings.Cut(c.URL, "://")
	if !ok || scheme != "http" && scheme != "https" {
		return nil, errors.New("it must begin with http:// or https://")
	}
	host := rest
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		host = rest[:i]
	}
	switch {
	case strings.ContainsAny(host, "{}"):
		return nil, errors.New("the host cannot come from a record")
	case strings.Contains(host, "@"):
		return nil, errors.New("credentials do not belong into it: there are username, password and headers")
	case strings.Contains(rest, "#"):
		return nil, errors.New("it cannot have a fragment (#)")
	}
	u, err := url.Parse(scheme + "://" + host)
	if err != nil || u.Hostname() == "" {
		return nil, errors.New("it has no host")
	}
	return u, nil
}

// request is the texts of a call.
type request struct {
	path, query, body placeholder.Text
}

// request finds the places of the columns, each of which must be used.
func (c *LookupConfig) request(columns []string) (request, error) {
	var r request
	path, query, asked := strings.Cut(c.URL, "?")
	if asked {
		query = "?" + query
	}
	for _, x := range []struct {
		key, text string
		out       *placeholder.Text
	}{{"url", path, &r.path}, {"url", query, &r.query}, {"body", c.Body, &r.body}} {
		t, err := placeholder.Parse(x.text, columns)
		if err != nil {
			return r, &connectors.FieldError{Key: x.key, Msg: err.Error()}
		}
		*x.out = t
	}
	for i, name := range columns {
		if !r.path.Uses(i) && !r.query.Uses(i) && !r.body.Uses(i) {
			return r, &connectors.FieldError{
				Key: "url", Msg: fmt.Sprintf("on has the column %s, and the call does not use it", name),
				Help: fmt.Sprintf("put {%s} into url or body", name),
			}
		}
	}
	return r, nil
}
