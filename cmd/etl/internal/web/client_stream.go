package web

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
	"github.com/sluice-etl/sluice/pipeline"
)

// Message is one server-sent event.
type Message struct {
	Event string // one of the constants, such as EventRecord
	ID    string
	Data  json.RawMessage
}

// Events are those with a number above after, at most the newest so many.
func (c *Client) Events(ctx context.Context, name string, after uint64, limit int) ([]api.Event, error) {
	return value(fetch[[]api.Event](ctx, c, apiPath+"/events?"+listed(name, after, limit).Encode()))
}

// FollowEvents gives those events and then each that comes, until ctx ends or with an error.
func (c *Client) FollowEvents(ctx context.Context, name string, after uint64, limit int) iter.Seq2[api.Event, error] {
	q := listed(name, after, limit)
	q.Set("follow", "true")
	return of[api.Event](c.messages(ctx, apiPath+"/events?"+q.Encode()), EventEvent)
}

// Logs are lines of the log, oldest first.
func (c *Client) Logs(ctx context.Context, q api.LogQuery) ([]api.Line, error) {
	return value(fetch[[]api.Line](ctx, c, apiPath+"/logs?"+logQuery(q).Encode()))
}

// FollowLogs gives those lines and then each that comes, until ctx ends or with an error.
func (c *Client) FollowLogs(ctx context.Context, q api.LogQuery) iter.Seq2[api.Line, error] {
	v := logQuery(q)
	v.Set("follow", "true")
	return of[api.Line](c.messages(ctx, apiPath+"/logs?"+v.Encode()), EventLine)
}

// Tap gives records at an operator, until there are no more, ctx ends, or with an error.
func (c *Client) Tap(ctx context.Context, name, operator string, o pipeline.TapOptions) iter.Seq2[pipeline.Tapped, error] {
	q := url.Values{"operator": {operator}}
	set(q, "limit", o.Limit)
	set(q, "per_second", o.PerSecond)
	if o.Input {
		q.Set("input", "true")
	}
	return of[pipeline.Tapped](c.messages(ctx, one(name, "/tap?"+q.Encode())), EventRecord)
}

// Stream tells of what changes, more of the pipeline that is named, until ctx ends or
// with an error.
func (c *Client) Stream(ctx context.Context, name string) iter.Seq2[Message, error] {
	q := url.Values{}
	if name != "" {
		q.Set("pipeline", name)
	}
	return c.messages(ctx, apiPath+"/stream?"+q.Encode())
}

func listed(name string, after uint64, limit int) url.Values {
	q := url.Values{}
	if name != "" {
		q.Set("pipeline", name)
	}
	if after > 0 {
		q.Set("after", strconv.FormatUint(after, 10))
	}
	set(q, "limit", limit)
	return q
}

func logQuery(l api.LogQuery) url.Values {
	q := listed(l.Pipeline, l.After, l.Limit)
	if l.Level != "" {
		q.Set("level", l.Level)
	}
	return q
}

// set sets a number that is not left to the process.
func set(q url.Values, key string, n int) {
	if n > 0 {
		q.Set(key, strconv.Itoa(n))
	}
}

// of gives the data of the messages of one event.
func of[T any](messages iter.Seq2[Message, error], event string) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for m, err := range messages {
			var data T
			if err == nil && m.Event != event {
				continue
			}
			if err == nil {
				err = json.Unmarshal(m.Data, &data)
			}
			if !yield(data, err) || err != nil {
				return
			}
		}
	}
}

// messages reads a stream. It ends without an error at EventEnd, and where ctx was ended.
func (c *Client) messages(ctx context.Context, path string) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		resp, err := c.do(ctx, http.MethodGet, path, nil, http.Header{"Accept": {"text/event-stream"}})
		if err != nil {
			yield(Message{}, err)
			return
		}
		defer func() { _ = resp.Body.Close() }()
		in := bufio.NewReader(resp.Body)
		for {
			m, err := readMessage(in)
			switch {
			case err != nil && ctx.Err() != nil, err == nil && m.Event == EventEnd:
				return
			case err != nil:
				yield(m, lostAnswer(ctx, err))
				return
			case !yield(m, nil):
				return
			}
		}
	}
}

// readMessage reads up to the end of the next message; comments are left out.
func readMessage(in *bufio.Reader) (m Message, err error) {
	for {
		line, err := in.ReadBytes('\n')
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return m, fmt.Errorf("the stream broke off: %w", err)
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			if m.Event != "" {
				return m, nil
			}
			continue
		}
		key, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(key) {
		case "event":
			m.Event = string(value)
		case "id":
			m.ID = string(value)
		case "data":
			m.Data = append(m.Data, value...)
		}
	}
}
