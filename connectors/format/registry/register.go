package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/sluice-etl/sluice/connectors"
)

// Draft is a schema that a sink writes by.
type Draft struct {
	// Name is what others refer to it by; empty for the sink's own.
	Name string
	Type string // AVRO, PROTOBUF or JSON
	Text string
	// References are those that it refers to itself. One that several refer to is the same
	// pointer.
	References []*Draft
}

// Register gives the schema of a subject that is d, which is registered where it is not
// there and the configuration lets it, behind those that it refers to. readOnly lets
// nothing. An error that trying again cannot mend is Permanent.
func (c *Client) Register(ctx context.Context, subject string, d *Draft, readOnly bool) (Schema, error) {
	found, err := c.settle(ctx, subject, d, readOnly, map[*Draft]sr.SchemaReference{})
	return Schema{ID: found.ID, GUID: found.GUID, Type: d.Type, Text: d.Text}, err
}

// settle registers d and what it refers to; done are the drafts that it has been through.
func (c *Client) settle(ctx context.Context, subject string, d *Draft, readOnly bool, done map[*Draft]sr.SchemaReference) (found sr.SubjectSchema, err error) {
	s := sr.Schema{Schema: d.Text}
	if err := s.Type.UnmarshalText([]byte(d.Type)); err != nil {
		return found, err
	}
	for _, r := range d.References {
		ref, ok := done[r]
		if !ok {
			ref = sr.SchemaReference{Name: r.Name, Subject: c.config.ReferenceSubject(r.Name)}
			under, err := c.settle(ctx, ref.Subject, r, readOnly, done)
			if err != nil {
				return found, fmt.Errorf("%s, which the schema of subject %s refers to: %w", r.Name, subject, err)
			}
			ref.Version = under.Version
			done[r] = ref
		}
		s.References = append(s.References, ref)
	}
	if found, err = c.lookUp(ctx, subject, s); !isMissing(err) {
		return found, err
	}
	if !c.config.AutoRegister || readOnly {
		return found, connectors.Permanent(fmt.Errorf("the subject %s does not have this schema, and auto_register is off: register it, "+
			"set registry.auto_register, or leave the schema out to write by the subject's newest", subject))
	}
	if err := c.add(ctx, subject, s); err != nil {
		return found, err
	}
	return c.lookUp(ctx, subject, s)
}

func (c *Client) normalized(ctx context.Context) context.Context {
	if c.config.Normalize {
		return sr.WithParams(ctx, sr.Normalize)
	}
	return ctx
}

func (c *Client) lookUp(ctx context.Context, subject string, s sr.Schema) (found sr.SubjectSchema, err error) {
	err = c.call(c.normalized(ctx), "look up the schema of subject "+subject, func(ctx context.Context) (err error) {
		found, err = c.api.LookupSchema(ctx, subject, s)
		return err
	})
	return found, err
}

// add registers a schema under a subject that does not have it.
func (c *Client) add(ctx context.Context, subject string, s sr.Schema) error {
	ask := c.normalized(ctx)
	err := c.call(ask, "register the schema of subject "+subject, func(ctx context.Context) error {
		_, err := c.api.RegisterSchema(ctx, subject, s, -1, -1)
		return err
	})
	var answer *sr.ResponseError
	if errors.As(err, &answer) && answer.StatusCode == http.StatusConflict {
		return connectors.Permanent(fmt.Errorf("the registry refuses the schema of subject %s: it cannot follow the schemas that are there%s. "+
			"Make the change a compatible one (new fields with a default), or set the subject's compatibility", subject, c.reasons(ask, subject, s, answer)))
	}
	return err
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
