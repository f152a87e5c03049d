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
	Type string // AVRO, PROTOBUF or JSON
	Text string
	// References are the schemas that it refers to, each behind those that it refers to
	// itself.
	References []Reference
}

// Reference is a schema by the name that others refer to it by.
type Reference struct {
	Name string
	Text string
}

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
	var s sr.Schema
	id := m.ID
	err = c.call(ctx, "get schema "+m.String(), func(ctx context.Context) (err error) {
		if m.ByGUID {
			var found sr.SubjectSchema
			found, err = c.api.SchemaByGUID(ctx, m.guid())
			s, id = found.Schema, found.ID
			return err
		}
		s, err = c.api.SchemaByID(ctx, m.ID)
		return err
	})
	if err != nil {
		return Schema{}, err
	}
	return c.whole(ctx, id, s)
}

// whole adds the schemas that s refers to.
func (c *Client) whole(ctx context.Context, id int, s sr.Schema) (Schema, error) {
	out := Schema{ID: id, Type: s.Type.String(), Text: s.Schema}
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
		*out = append(*out, Reference{r.Name, s.Schema.Schema})
	}
	return nil
}

// Latest is the newest schema of a subject; ok is false where there is none.
func (c *Client) Latest(ctx context.Context, subject string) (out Schema, ok bool, err error) {
	var s sr.SubjectSchema
	err = c.call(ctx, "get the newest schema of subject "+subject, func(ctx context.Context) (err error) {
		s, err = c.api.SchemaByVersion(ctx, subject, -1)
		return err
	})
	if isMissing(err) {
		return Schema{}, false, nil
	}
	if err == nil {
		out, err = c.whole(ctx, s.ID, s.Schema)
	}
	return out, err == nil, err
}

// Register gives the id of a schema under a subject, which is registered where it is not
// there and the configuration lets it. readOnly lets nothing. An error that trying again
// cannot mend is Permanent.
func (c *Client) Register(ctx context.Context, subject, kind, text string, readOnly bool) (id int, err error) {
	s := sr.Schema{Schema: text}
	if err := s.Type.UnmarshalText([]byte(kind)); err != nil {
		return 0, err
	}
	ask := ctx
	if c.config.Normalize {
		ask = sr.WithParams(ctx, sr.Normalize)
	}
	err = c.call(ask, "look up the schema of subject "+subject, func(ctx context.Context) error {
		found, err := c.api.LookupSchema(ctx, subject, s)
		id = found.ID
		return err
	})
	if !isMissing(err) {
		return id, err
	}
	if !c.config.AutoRegister || readOnly {
		return 0, connectors.Permanent(fmt.Errorf("the subject %s does not have this schema, and auto_register is off: register it, "+
			"set registry.auto_register, or leave the schema out to write by the subject's newest", subject))
	}
	err = c.call(ask, "register the schema of subject "+subject, func(ctx context.Context) (err error) {
		id, err = c.api.RegisterSchema(ctx, subject, s, -1, -1)
		return err
	})
	var answer *sr.ResponseError
	if errors.As(err, &answer) && answer.StatusCode == http.StatusConflict {
		return 0, connectors.Permanent(fmt.Errorf("the registry refuses the schema of subject %s: it cannot follow the schemas that are there%s. "+
			"Make the change a compatible one (new fields with a default), or set the subject's compatibility", subject, c.reasons(ask, subject, s, answer)))
	}
	return id, err
}

// reasons are why a schema cannot follow those of a subject.
func (c *Client) reasons(ctx context.Context, subject string, s sr.Schema, refusal *sr.ResponseError) string {
	said := refusal.Message
	if res, err := c.api.CheckCompatibility(sr.WithParams(ctx, sr.Verbose), subject, -1, s); err == nil && len(res.Messages) > 0 {
		said = strings.Join(res.Messages, "; ")
	}
	const most = 2000
	if said = strings.TrimSuffix(strings.TrimSpace(said), "."); said == "" {
		return ""
	}
	if len(said) > most {
		said = said[:most] + "…"
	}
	return ": " + said
}

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
		case answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden:
			return connectors.Permanent(fmt.Errorf("%w (check username and password, or token)", err))
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
