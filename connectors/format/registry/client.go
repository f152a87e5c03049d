package registry

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/connectors/retry"
)

// Schema is a schema of the registry.
type Schema struct {
	ID   int
	GUID string // empty where the registry has none
	Type string // AVRO, PROTOBUF or JSON
	Text string
	// References are the schemas that it refers to, each behind those that it refers to
	// itself.
	References []Reference
}

// Reference is a schema by the name that others refer to it by.
type Reference = format.Reference

// Client asks a registry. It serves one subtask and remembers what it was told.
type Client struct {
	config *Config
	log    *slog.Logger
	api    *sr.Client
	known  map[Mark]Schema
	none   map[Mark]time.Time // until when a schema is taken for missing
}

// New makes a client. It does no I/O but reading files of certificates.
func New(c *Config, log *slog.Logger) (*Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	var err error
	if transport.TLSClientConfig, err = c.TLS.Build(); err != nil {
		return nil, err
	}
	opts := []sr.ClientOpt{
		sr.URLs(c.URL...), sr.UserAgent("sluice"),
		sr.HTTPClient(&http.Client{Transport: transport, Timeout: time.Duration(c.Timeout)}),
	}
	if c.Username != "" {
		opts = append(opts, sr.BasicAuth(c.Username, c.Password))
	}
	if c.Token != "" {
		opts = append(opts, sr.BearerToken(c.Token))
	}
	api, err := sr.NewClient(opts...)
	if err != nil {
		return nil, connectors.Permanent(fmt.Errorf("schema registry: %w", err))
	}
	return &Client{config: c, log: log, api: api, known: map[Mark]Schema{}, none: map[Mark]time.Time{}}, nil
}

// Waits of Get for a schema that the registry does not know: one that was registered a
// moment ago may not have come to the instance that was asked.
const (
	missingTries = 4
	missingWait  = 100 * time.Millisecond
	missingFor   = 30 * time.Second
)

// Get is the schema of a mark. An error marked by format.Refuse says that the registry has
// none; any other, that it cannot be asked before ctx ends.
func (c *Client) Get(ctx context.Context, m Mark) (Schema, error) {
	if s, ok := c.known[m]; ok {
		return s, nil
	}
	if until, ok := c.none[m]; ok && time.Now().Before(until) {
		return Schema{}, c.missing(m)
	}
	for try := range missingTries {
		s, err := c.fetch(ctx, m)
		if err == nil {
			if len(c.known) >= c.config.Cache {
				clear(c.known)
			}
			c.known[m] = s
			delete(c.none, m)
			return s, nil
		}
		if !isMissing(err) {
			return Schema{}, err
		}
		if try == missingTries-1 {
			break
		}
		if err := pause(ctx, missingWait<<try); err != nil {
			return Schema{}, err
		}
	}
	if len(c.none) >= c.config.Cache {
		clear(c.none)
	}
	c.none[m] = time.Now().Add(missingFor)
	return Schema{}, c.missing(m)
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *Client) missing(m Mark) error {
	return format.Refuse(fmt.Errorf("the value is marked with schema %s, which the registry at %s does not have", m, c.config.URL[0]))
}

func (c *Client) fetch(ctx context.Context, m Mark) (out Schema, err error) {
	s := sr.SubjectSchema{ID: m.ID}
	err = c.call(ctx, "get schema "+m.String(), func(ctx context.Context) (err error) {
		if m.ByGUID {
			s, err = c.api.SchemaByGUID(ctx, m.guid())
			return err
		}
		s.Schema, err = c.api.SchemaByID(ctx, m.ID)
		return err
	})
	if err != nil {
		return Schema{}, err
	}
	return c.whole(ctx, s)
}

// whole adds the schemas that s refers to.
func (c *Client) whole(ctx context.Context, s sr.SubjectSchema) (Schema, error) {
	out := Schema{ID: s.ID, GUID: s.GUID, Type: s.Type.String(), Text: s.Schema.Schema}
	seen := map[string]bool{}
	err := c.resolve(ctx, s.References, seen, &out.References, 0)
	return out, err
}

// maxReferences bounds how deep schemas refer to others, and how many there are.
const maxReferences = 200

func (c *Client) resolve(ctx context.Context, refs []sr.SchemaReference, seen map[string]bool, out *[]Reference, depth int) error {
	for _, r := range refs {
		key := fmt.Sprintf("%s %s %d", r.Name, r.Subject, r.Version)
		if seen[key] {
			continue
		}
		if seen[key] = true; len(seen) > maxReferences || depth > maxReferences {
			return format.Refuse(fmt.Errorf("the schema refers to more than %d others", maxReferences))
		}
		var s sr.SubjectSchema
		err := c.call(ctx, fmt.Sprintf("get version %d of subject %s", r.Version, r.Subject), func(ctx context.Context) (err error) {
			s, err = c.api.SchemaByVersion(ctx, r.Subject, r.Version)
			return err
		})
		if isMissing(err) {
			return format.Refuse(fmt.Errorf("the schema refers to version %d of subject %s, which the registry does not have", r.Version, r.Subject))
		}
		if err != nil {
			return err
		}
		if err := c.resolve(ctx, s.References, seen, out, depth+1); err != nil {
			return err
		}
		*out = append(*out, Reference{Name: r.Name, Text: s.Schema.Schema})
	}
	return nil
}

// Newest is the version of a subject's newest schema.
const Newest = -1

// Latest is the newest schema of a subject; ok is false where there is none.
func (c *Client) Latest(ctx context.Context, subject string) (out Schema, ok bool, err error) {
	return c.version(ctx, subject, Newest)
}

func (c *Client) version(ctx context.Context, subject string, version int) (out Schema, ok bool, err error) {
	what := "get the newest schema of subject " + subject
	if version != Newest {
		what = fmt.Sprintf("get version %d of subject %s", version, subject)
	}
	var s sr.SubjectSchema
	err = c.call(ctx, what, func(ctx context.Context) (err error) {
		s, err = c.api.SchemaByVersion(ctx, subject, version)
		return err
	})
	if isMissing(err) {
		return Schema{}, false, nil
	}
	if err == nil {
		out, err = c.whole(ctx, s)
	}
	return out, err == nil, err
}

// Read is a version of the subject of a configuration, or its Newest. It waits no longer
// than a minute for a registry that does not answer.
func Read(c *Config, version int) (Schema, error) {
	const patience = time.Minute
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, fmt.Errorf("it did not answer for %s", patience))
	defer cancel()
	client, err := New(c, slog.New(slog.DiscardHandler))
	if err != nil {
		return Schema{}, err
	}
	s, ok, err := client.version(ctx, c.Subject, version)
	switch {
	case err != nil:
		return s, err
	case !ok && version == Newest:
		return s, fmt.Errorf("schema registry: there is no subject %s", c.Subject)
	case !ok:
		return s, fmt.Errorf("schema registry: subject %s has no version %d", c.Subject, version)
	}
	return s, nil
}

// guidPath is what registries that have no GUIDs do not have either.
const guidPath = "/schemas/guids/"

// call asks the registry again and again until it answers. What it does not have, and
// what it refuses, is Permanent.
func (c *Client) call(ctx context.Context, what string, f func(context.Context) error) error {
	p := retry.Policy{Log: c.log, What: "schema registry: " + what}
	return p.Do(ctx, func(ctx context.Context) error {
		err := f(ctx)
		if err == nil {
			return nil
		}
		err = fmt.Errorf("schema registry: %s: %w", what, err)
		var answer *sr.ResponseError
		if !errors.As(err, &answer) {
			return err // it did not answer
		}
		switch {
		case isMissing(err) && answer.ErrorCode == 0 && !strings.Contains(answer.URL, guidPath):
			return connectors.Permanent(fmt.Errorf("schema registry: %s: %s is no address of a registry: correct url", what, answer.URL))
		case answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden:
			return connectors.Permanent(fmt.Errorf("%w (check username and password, or token)", err))
		case answer.StatusCode == http.StatusUnprocessableEntity:
			return connectors.Permanent(fmt.Errorf("%w (the registry takes the schema, or a name in the request, for invalid)", err))
		case answer.StatusCode >= 500 || answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode == http.StatusRequestTimeout:
			return err
		}
		return connectors.Permanent(err)
	})
}

func isMissing(err error) bool {
	var answer *sr.ResponseError
	return errors.As(err, &answer) && answer.StatusCode == http.StatusNotFound
}

// Mark says of which schema a value is.
type Mark struct {
	ID     int
	ByGUID bool
	GUID   [16]byte
}

// String is the mark for messages.
func (m Mark) String() string {
	if m.ByGUID {
		return m.guid()
	}
	return strconv.Itoa(m.ID)
}

func (m Mark) guid() string {
	h := hex.EncodeToString(m.GUID[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
