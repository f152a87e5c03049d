package web

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/cmd/etl/internal/api"
	"github.com/sluice-etl/sluice/pipeline"
)

// Client talks to the API of one process. Its errors are *Problem where the process
// has answered. It is safe for concurrent use.
type Client struct {
	http  *http.Client
	base  string // address without a slash at its end
	token string
}

// NewClient makes a client of the process that listens on a socket.
func NewClient(socket string) *Client {
	return &Client{base: "http://process", http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
		DisableKeepAlives: true,
	}}}
}

// NewClientTo makes a client of the process at an address such as https://etl-1:8080,
// with a token and the settings of TLS; empty and nil for none.
func NewClientTo(address, token string, settings *tls.Config) (*Client, error) {
	u, err := url.Parse(address)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.User != nil {
		return nil, fmt.Errorf("%q is no address of a daemon: write one such as https://etl-1:8080", address)
	}
	return &Client{base: u.Scheme + "://" + u.Host, token: token, http: &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: settings, ForceAttemptHTTP2: true, DisableKeepAlives: true},
		// A token is for one address.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Daemon tells how the process is.
func (c *Client) Daemon(ctx context.Context) (*api.Daemon, error) {
	return fetch[api.Daemon](ctx, c, apiPath+"/daemon")
}

// Pipelines are the pipelines of the process.
func (c *Client) Pipelines(ctx context.Context) ([]api.Pipeline, error) {
	return value(fetch[[]api.Pipeline](ctx, c, allPath))
}

// Pipeline tells how a pipeline is.
func (c *Client) Pipeline(ctx context.Context, name string) (*api.Pipeline, error) {
	return fetch[api.Pipeline](ctx, c, one(name, ""))
}

// Definition is a pipeline's file, as written and as it counts.
func (c *Client) Definition(ctx context.Context, name string) (*api.Definition, error) {
	return fetch[api.Definition](ctx, c, one(name, "/definition"))
}

// Put creates a pipeline or changes it.
func (c *Client) Put(ctx context.Context, name, definition string) (*api.Pipeline, error) {
	return send[api.Pipeline](ctx, c, http.MethodPut, one(name, ""), DefinitionRequest{definition})
}

// Delete stops a pipeline and removes its file.
func (c *Client) Delete(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodDelete, one(name, ""), nil, nil)
}

// Describe tells how a pipeline runs.
func (c *Client) Describe(ctx context.Context, name string) (*pipeline.Description, error) {
	return fetch[pipeline.Description](ctx, c, one(name, "/graph"))
}

// Flow tells what flows through a pipeline.
func (c *Client) Flow(ctx context.Context, name string) (*pipeline.Flow, error) {
	return fetch[pipeline.Flow](ctx, c, one(name, "/flow"))
}

// Failures are the newest records that failed.
func (c *Client) Failures(ctx context.Context, name string) ([]pipeline.Failure, error) {
	return value(fetch[[]pipeline.Failure](ctx, c, one(name, "/failures")))
}

// Start starts a pipeline whose job has ended, or that failed.
func (c *Client) Start(ctx context.Context, name string, o api.StartOptions) ([]api.Moved, error) {
	return value(send[[]api.Moved](ctx, c, http.MethodPost, one(name, "/start"), StartRequest(o)))
}

// Pause takes a last checkpoint and ends the tasks.
func (c *Client) Pause(ctx context.Context, name string) (*pipeline.Taken, error) {
	return send[pipeline.Taken](ctx, c, http.MethodPost, one(name, "/pause"), nil)
}

// Resume goes on with a paused job.
func (c *Client) Resume(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodPost, one(name, "/resume"), nil, nil)
}

// Restart pauses and resumes.
func (c *Client) Restart(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodPost, one(name, "/restart"), nil, nil)
}

// Stop ends the job. Unless it drains, it is given up when ctx ends.
func (c *Client) Stop(ctx context.Context, name string, r StopRequest) (*pipeline.Taken, error) {
	return send[pipeline.Taken](ctx, c, http.MethodPost, one(name, "/stop"), r)
}

// Cancel ends the job at once.
func (c *Client) Cancel(ctx context.Context, name string) (*pipeline.Taken, error) {
	return send[pipeline.Taken](ctx, c, http.MethodPost, one(name, "/cancel"), nil)
}

// Skip starts a failed pipeline behind one record.
func (c *Client) Skip(ctx context.Context, name string, r SkipRequest) ([]api.Moved, error) {
	return value(send[[]api.Moved](ctx, c, http.MethodPost, one(name, "/skip"), r))
}

// Checkpoints is the history of a pipeline's checkpoints.
func (c *Client) Checkpoints(ctx context.Context, name string) (*api.Checkpoints, error) {
	return fetch[api.Checkpoints](ctx, c, one(name, "/checkpoints"))
}

// CheckpointStats is one checkpoint of the history.
func (c *Client) CheckpointStats(ctx context.Context, name string, number uint64) (*checkpoint.AttemptStats, error) {
	return fetch[checkpoint.AttemptStats](ctx, c, one(name, "/checkpoints/"+strconv.FormatUint(number, 10)))
}

// Checkpoint takes a checkpoint now.
func (c *Client) Checkpoint(ctx context.Context, name string) (*pipeline.Taken, error) {
	return send[pipeline.Taken](ctx, c, http.MethodPost, one(name, "/checkpoints"), nil)
}

// Savepoints are those in the pipeline's folder for them.
func (c *Client) Savepoints(ctx context.Context, name string) ([]api.Savepoint, error) {
	return value(fetch[[]api.Savepoint](ctx, c, one(name, "/savepoints")))
}

// Savepoint takes a savepoint. It is given up when ctx ends.
func (c *Client) Savepoint(ctx context.Context, name string, r SavepointRequest) (*pipeline.Taken, error) {
	return send[pipeline.Taken](ctx, c, http.MethodPost, one(name, "/savepoints"), r)
}

// Reload reads the folder of pipelines again.
func (c *Client) Reload(ctx context.Context) (*api.Reload, error) {
	return send[api.Reload](ctx, c, http.MethodPost, apiPath+"/reload", nil)
}

// Validate checks a definition.
func (c *Client) Validate(ctx context.Context, definition string) (*api.Validation, error) {
	return send[api.Validation](ctx, c, http.MethodPost, apiPath+"/validate", DefinitionRequest{definition})
}

// Plan tells what a definition would do.
func (c *Client) Plan(ctx context.Context, definition string) (*api.Plan, error) {
	return send[api.Plan](ctx, c, http.MethodPost, apiPath+"/plan", DefinitionRequest{definition})
}

// one is a path about one pipeline.
func one(name, what string) string { return allPath + "/" + url.PathEscape(name) + what }

func fetch[T any](ctx context.Context, c *Client, path string) (*T, error) {
	return send[T](ctx, c, http.MethodGet, path, nil)
}

func send[T any](ctx context.Context, c *Client, method, path string, body any) (*T, error) {
	out := new(T)
	if err := c.call(ctx, method, path, body, out); err != nil {
		return nil, err
	}
	return out, nil
}

// value is what a pointer points to, where there was no error.
func value[T any](p *T, err error) (out T, _ error) {
	if err != nil {
		return out, err
	}
	return *p, nil
}

// call sends one request and reads its answer, into nil where it has none.
func (c *Client) call(ctx context.Context, method, path string, body, into any) error {
	resp, err := c.do(ctx, method, path, body, nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return lostAnswer(ctx, err)
	}
	return nil
}

// do sends one request. An answer that is no success is an error.
func (c *Client) do(ctx context.Context, method, path string, body any, header http.Header) (*http.Response, error) {
	var content io.Reader = http.NoBody
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, content)
	if err != nil {
		return nil, err
	}
	for key, values := range header {
		req.Header[key] = values
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, lostAnswer(ctx, err)
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	p := problem(resp.StatusCode, CodeFailed, "")
	said, _ := io.ReadAll(io.LimitReader(resp.Body, mostSaid)) // where it cannot be read, the status is what is known
	if err := json.Unmarshal(said, p); err != nil || p.Detail == "" {
		p.Detail = "the process answers " + resp.Status
		if line, _, _ := strings.Cut(string(said), "\n"); err != nil && line != "" && !strings.HasPrefix(line, "<") {
			p.Detail += ": " + strings.TrimSpace(line)
		}
	}
	return nil, p
}

// mostSaid is how much of an answer that is an error is read, in bytes.
const mostSaid = 64 << 10

// lostAnswer says that there was no answer, or not all of it.
func lostAnswer(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	var op *url.Error
	if errors.As(err, &op) {
		err = op.Err
	}
	var untrusted *tls.CertificateVerificationError
	if errors.As(err, &untrusted) {
		return fmt.Errorf("its certificate is not trusted (--ca-file names the authorities that are): %w", err)
	}
	return fmt.Errorf("the process has ended or does not answer: %w", err)
}
