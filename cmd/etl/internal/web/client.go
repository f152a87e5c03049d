package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/pipeline"
)

// Client talks to the API of one process. Its errors are *Problem where the process
// has answered.
type Client struct {
	http *http.Client
}

// NewClient makes a client of the process that listens on a socket.
func NewClient(socket string) *Client {
	return &Client{http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
		DisableKeepAlives: true,
	}}}
}

// Pipelines are the pipelines of the process.
func (c *Client) Pipelines(ctx context.Context) ([]pipeline.Status, error) {
	var out []pipeline.Status
	return out, c.call(ctx, http.MethodGet, "", "", nil, &out)
}

// Checkpoints describes a pipeline's checkpoints since its process started it.
func (c *Client) Checkpoints(ctx context.Context, name string) (checkpoint.Stats, error) {
	var out checkpoint.Stats
	return out, c.call(ctx, http.MethodGet, name, "/checkpoints", nil, &out)
}

// Checkpoint takes a checkpoint now.
func (c *Client) Checkpoint(ctx context.Context, name string) (*pipeline.Taken, error) {
	return c.take(ctx, name, "/checkpoints", nil)
}

// Savepoint takes a savepoint. It is given up when ctx ends.
func (c *Client) Savepoint(ctx context.Context, name string, r SavepointRequest) (*pipeline.Taken, error) {
	return c.take(ctx, name, "/savepoints", r)
}

// Stop ends the job. Unless it drains, it is given up when ctx ends.
func (c *Client) Stop(ctx context.Context, name string, r StopRequest) (*pipeline.Taken, error) {
	return c.take(ctx, name, "/stop", r)
}

// Cancel ends the job at once.
func (c *Client) Cancel(ctx context.Context, name string) (*pipeline.Taken, error) {
	return c.take(ctx, name, "/cancel", nil)
}

func (c *Client) take(ctx context.Context, name, what string, body any) (*pipeline.Taken, error) {
	var t pipeline.Taken
	if err := c.call(ctx, http.MethodPost, name, what, body, &t); err != nil {
		return nil, err
	}
	return &t, nil
}

// call sends one request, for all pipelines where name is empty.
func (c *Client) call(ctx context.Context, method, name, what string, body, into any) error {
	path := "http://process/api/v1/pipelines"
	if name != "" {
		path += "/" + url.PathEscape(name) + what
	}
	var content io.Reader = http.NoBody
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, path, content)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return lostAnswer(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		p := &Problem{Status: resp.StatusCode, Code: CodeFailed}
		if err := json.NewDecoder(resp.Body).Decode(p); err != nil || p.Detail == "" {
			p.Detail = "the process answers " + resp.Status
		}
		return p
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return lostAnswer(ctx, err)
	}
	return nil
}

// lostAnswer says that there was no answer, or not all of it.
func lostAnswer(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	var op *url.Error
	if errors.As(err, &op) {
		err = op.Err
	}
	return fmt.Errorf("the process has ended or does not answer: %w", err)
}
