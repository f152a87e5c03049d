package http

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/immediate"
	"github.com/sluice-etl/sluice/connectors/retry"
)

// writer implements connectors.Writer.
type writer struct {
	immediate.Idle
	sink  *sink
	ids   immediate.IDs
	rows  *connectors.Rows // of the Write under way
	byRow []prepared
}

// prepared is what is known of a row before it is sent.
type prepared struct {
	id    string // empty for a record that comes from nowhere
	value []byte
}

// Write sends the rows and waits for all answers.
func (w *writer) Write(ctx context.Context, rows *connectors.Rows) error {
	w.rows = rows
	w.byRow = append(w.byRow[:0], make([]prepared, rows.Len())...)
	items := make([]immediate.Item, 0, rows.Len())
	var refused []connectors.RowError
	for i := range rows.Sel {
		item, reason := w.prepare(i)
		if reason != nil {
			refused = append(refused, *reason)
			continue
		}
		items = append(items, item)
	}
	batch := w.sink.cfg.Batch
	if w.sink.cfg.Body == bodyRecord {
		batch.Records = 1
	}
	return immediate.Merge(refused, batch.Write(ctx, items, w.sink.cfg.Concurrency, w.send))
}

// prepare makes a row ready to be sent, or says why it cannot be.
func (w *writer) prepare(i int) (immediate.Item, *connectors.RowError) {
	cfg, rec := w.sink.cfg, w.rows.Record(i)
	item := immediate.Item{Row: i, Key: string(rec.Key)}
	id, _ := w.ids.Append(nil, rec)
	value, err := w.value(i)
	if err != nil {
		reason := rowError(i, "value", err)
		return item, &reason
	}
	if item.Group, err = w.address(i); err != nil {
		reason := rowError(i, "url", err)
		return item, &reason
	}
	if _, fixed := cfg.URL.Fixed(); !fixed {
		item.Key = item.Group // what is at an address ends as the last record says
	}
	w.byRow[i] = prepared{id: string(id), value: value}
	item.Size = len(value) + 1
	if cfg.Body != bodyRecord {
		return item, nil
	}
	for _, h := range cfg.RecordHeaders {
		if _, err := w.headerOf(i, h); err != nil {
			reason := rowError(i, "header", err)
			return item, &reason
		}
	}
	return item, nil
}

// value is what a row adds to a body.
func (w *writer) value(i int) ([]byte, error) {
	cfg, v := w.sink.cfg, w.rows.Values[i]
	if v == nil {
		switch cfg.Tombstones {
		case tombstoneNull:
			return []byte("null"), nil
		case tombstoneDelete:
			return nil, nil
		}
		return nil, errors.New("the record has no value (a tombstone): tombstones says what becomes of such")
	}
	if cfg.Body == bodyRecord {
		return v, nil
	}
	if !json.Valid(v) {
		return nil, errors.New("the value is no JSON, and would spoil the request of others")
	}
	if cfg.Body == bodyLines && bytes.ContainsAny(v, "\r\n") {
		v = bytes.Map(func(r rune) rune { // between tokens only: within text JSON has none
			if r == '\r' || r == '\n' {
				return ' '
			}
			return r
		}, v)
	}
	return v, nil
}

// address is where a row goes.
func (w *writer) address(i int) (string, error) {
	t := &w.sink.cfg.URL
	if fixed, ok := t.Fixed(); ok {
		return fixed, nil
	}
	if w.rows.DeadLetter != nil {
		return "", errNoAddress
	}
	var out []byte
	query := false
	for p := range t.Parts {
		part := &t.Parts[p]
		if part.Literal != "" {
			query = query || strings.Contains(part.Literal, "?")
			out = append(out, part.Literal...)
			continue
		}
		text, err := immediate.Text(nil, w.rows.Slot(i, part.Expr.Slot))
		if err != nil {
			return "", fmt.Errorf("`%s` in url: %w", part.Expr.Text, err)
		}
		switch s := string(text); {
		case query:
			out = append(out, url.QueryEscape(s)...)
		case s == "": // the address of something else
			return "", fmt.Errorf("`%s` in url is empty", part.Expr.Text)
		case s == "." || s == "..": // servers take these for steps in the path
			out = append(out, strings.ReplaceAll(s, ".", "%2E")...)
		default:
			out = append(out, url.PathEscape(s)...)
		}
	}
	return string(out), nil
}

func (w *writer) headerOf(i int, h connectors.Assignment) (string, error) {
	v := w.rows.Slot(i, h.Expr.Slot)
	if w.rows.DeadLetter != nil || v.IsNull() {
		return "", nil
	}
	text, err := immediate.Text(nil, v)
	if err == nil && bytes.ContainsAny(text, "\r\n\x00") {
		err = errors.New("a line break")
	}
	if err != nil {
		return "", fmt.Errorf("header %s cannot hold the value of `%s`: %w", h.Name, h.Expr.Text, err)
	}
	return string(text), nil
}

// send sends the rows of a request, again and again until it is answered for good; one
// that is refused as a whole in parts.
func (w *writer) send(ctx context.Context, items []immediate.Item) error {
	return immediate.Halve(ctx, items, func(ctx context.Context, items []immediate.Item) error {
		req, err := w.request(items)
		if err != nil {
			return err
		}
		w.sink.failpoint("http.send.before")
		policy := retry.Policy{Log: w.sink.env.Log, What: req.method + " " + w.sink.host, Watch: &w.sink.Watch}
		err = policy.Do(ctx, func(ctx context.Context) error { return immediate.Final(w.sink.call(ctx, req)) })
		w.sink.failpoint("http.send.after")
		var refused *immediate.RefusedError
		if errors.As(err, &refused) && refused.Kind != kindContent {
			// The address or the method is refused: parts of the request would be too.
			var all connectors.RowsError
			for _, item := range items {
				all.Rows = append(all.Rows, connectors.RowError{Row: item.Row, Kind: refused.Kind, Reason: refused.Reason})
			}
			return &all
		}
		return err
	})
}

// outgoing is a request that can be sent again.
type outgoing struct {
	method, url string
	header      http.Header
	body        []byte
}

func (w *writer) request(items []immediate.Item) (*outgoing, error) {
	cfg := w.sink.cfg
	r := &outgoing{method: cfg.Method, url: items[0].Group, header: w.sink.header.Clone()}
	ids := make([]string, len(items))
	for k, item := range items {
		row := &w.byRow[item.Row]
		ids[k] = row.id
		switch {
		case cfg.Body == bodyArray && k == 0:
			r.body = append(r.body, '[')
		case cfg.Body == bodyArray:
			r.body = append(r.body, ',')
		}
		r.body = append(r.body, row.value...)
		if cfg.Body == bodyLines {
			r.body = append(r.body, '\n')
		}
	}
	switch cfg.Body {
	case bodyArray:
		r.body = append(r.body, ']')
	case bodyRecord:
		i := items[0].Row
		if w.rows.Values[i] == nil && cfg.Tombstones == tombstoneDelete {
			r.method = http.MethodDelete
			r.header.Del("Content-Type")
			r.header.Del("Content-Encoding")
		}
		for _, h := range cfg.RecordHeaders {
			text, err := w.headerOf(i, h)
			if err != nil {
				return nil, err // prepare has made it already
			}
			if text != "" {
				r.header.Set(h.Name, text)
			}
		}
	}
	if cfg.IdempotencyHeader != "" {
		r.header.Set(cfg.IdempotencyHeader, w.sink.idempotencyKey(ids))
	}
	if cfg.Compression == compressGzip && len(r.body) > 0 {
		r.body = gzipped(r.body)
	}
	return r, nil
}

func gzipped(body []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = z.Write(body) // a buffer takes all
	_ = z.Close()
	return out.Bytes()
}

// Bounds of answers.
const (
	mostAnswer     = 64 << 10
	mostRetryAfter = 5 * time.Minute
)

// call makes a request once and judges the answer.
func (s *sink) call(ctx context.Context, r *outgoing) error {
	req, err := http.NewRequestWithContext(ctx, r.method, r.url, bytes.NewReader(r.body))
	if err != nil {
		return &immediate.RefusedError{Kind: "url", Reason: "no address can be made of the record"}
	}
	req.Header = r.header.Clone()
	if host := r.header.Get("Host"); host != "" {
		req.Host = host
	}
	token := ""
	if s.tokens != nil {
		if token, err = s.tokens.get(ctx); err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return fmt.Errorf("call %s: %w", s.host, bare(err))
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, mostAnswer))
	_ = resp.Body.Close()
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return nil // what it says beside that does not matter
	}
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", s.host, err)
	}
	if token != "" && resp.StatusCode == http.StatusUnauthorized {
		s.tokens.drop(token)
	}
	if token != "" {
		body = bytes.ReplaceAll(body, []byte(token), []byte("***"))
	}
	return s.judge(resp, body)
}

// The kinds of refusal: what a request holds can be refused for one of its rows.
const (
	kindContent = "refused"
	kindAddress = "status"
)

// judge says what a status that is no success means.
func (s *sink) judge(resp *http.Response, body []byte) error {
	code := resp.StatusCode
	said := "status " + strconv.Itoa(code) + s.quote(body)
	err := fmt.Errorf("call %s: %s", s.host, said)
	switch {
	case slices.Contains(s.cfg.Refuse, code):
		return &immediate.RefusedError{Kind: kindContent, Reason: "the service refuses the record: " + said}
	case code >= 300 && code < 400:
		return connectors.Permanent(fmt.Errorf("%w: it leads to another address, and records are sent to the configured one only: correct url", err))
	case code == http.StatusUnauthorized || code == http.StatusForbidden || code == http.StatusProxyAuthRequired:
		// Credentials run out and come back; records are not lost for that.
		return fmt.Errorf("%w: the credentials are refused: check headers, username, token and oauth2; nothing is sent until they are accepted", err)
	case code >= 500 || code == http.StatusRequestTimeout || code == http.StatusTooEarly || code == http.StatusTooManyRequests:
		if after := retryAfter(resp.Header.Get("Retry-After"), time.Now()); after > 0 {
			return &connectors.RetryAfterError{After: min(after, mostRetryAfter), Err: err}
		}
		return err
	case code == http.StatusBadRequest || code == http.StatusRequestEntityTooLarge || code == http.StatusUnprocessableEntity:
		return &immediate.RefusedError{Kind: kindContent, Reason: "the service refuses the record: " + said}
	default:
		return &immediate.RefusedError{Kind: kindAddress, Reason: "the service refuses the request: " + said}
	}
}
