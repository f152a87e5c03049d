package web

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// The ways to say who one is.
const (
	bearer    = "bearer"
	mutualTLS = "mutualTLS"
)

const aboutAPI = `Shows and steers the pipelines of one process.

Answers are JSON, and problems application/problem+json (RFC 9457) with a stable code. Fields may be added to answers within v1: read what you know, and
leave the rest. Times are RFC 3339. Live answers are server-sent events; where they have numbers, a client that comes back goes on behind the last one
by Last-Event-ID.

Over the process's Unix socket, which only its own user may open, nothing else is asked for. Over TCP it takes a bearer token or a client's certificate, each with a
role: read (look), operate (look at records, and steer), or admin (change what runs, and from where on). Each operation says which one it needs.`

// configuration is that of the library.
func configuration(version string) huma.Config {
	registry := huma.NewMapRegistry("#/components/schemas/", schemaName)
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info:    &huma.Info{Title: "Sluice API", Version: version, Description: aboutAPI, License: &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"}},
			Components: &huma.Components{Schemas: registry, SecuritySchemes: map[string]*huma.SecurityScheme{
				bearer:    {Type: "http", Scheme: "bearer", Description: "A token of the daemon's configuration."},
				mutualTLS: {Type: "mutualTLS", Description: "A certificate of the client that the daemon's configuration knows."},
			}},
			Tags: []*huma.Tag{
				{Name: tagPipelines, Description: "What runs, how it is, and what defines it."},
				{Name: tagActions, Description: "Steering pipelines. What a pipeline cannot do in its present phase is answered with 409."},
				{Name: tagCheckpoints, Description: "Checkpoints and savepoints."},
				{Name: tagLive, Description: "Events, logs, records and changes as they come."},
				{Name: tagDefinitions, Description: "Checking definitions before they run."},
				{Name: tagDaemon, Description: "The process as a whole."},
			},
		},
		Formats:       map[string]huma.Format{"application/json": jsonFormat, problemType: jsonFormat},
		DefaultFormat: "application/json",
	}
}

// schemaName is the name of a type in the description.
func schemaName(t reflect.Type, hint string) string {
	if t == reflect.TypeFor[Problem]() || t == reflect.TypeFor[*Problem]() {
		return "ProblemDetails" // api.Problem is one of a pipeline
	}
	return huma.DefaultSchemaNamer(t, hint)
}

// comments are what the sources say of each type and field that answers have, by
// package.Type and package.Type.Field: a test keeps them the same.
//
//go:embed comments.json
var comments []byte

// describe gives the description at /openapi.json, with what the sources say of fields.
func (h *Handler) describe() {
	texts := map[string]string{}
	if err := json.Unmarshal(comments, &texts); err != nil {
		panic(fmt.Errorf("comments.json: %w", err))
	}
	registry := h.api.OpenAPI().Components.Schemas
	for name, s := range registry.Map() {
		comment(s, registry.TypeFromRef("#/components/schemas/"+name), texts)
	}
	text, err := json.Marshal(h.api.OpenAPI())
	if err != nil {
		panic(fmt.Errorf("describe the API: %w", err))
	}
	h.mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(text) // who asked has left
	})
}

// comment gives a schema the texts of its type, and of its fields what the sources or
// else the glossary says.
func comment(s *huma.Schema, t reflect.Type, texts map[string]string) {
	if s.Description == "" {
		s.Description = texts[t.String()]
	}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			name = f.Name
		}
		p := s.Properties[name]
		if p == nil || f.Anonymous {
			continue
		}
		holder := t
		if len(f.Index) > 1 {
			holder = t.FieldByIndex(f.Index[:len(f.Index)-1]).Type
		}
		if p.Description == "" {
			p.Description = cmp.Or(texts[holder.String()+"."+f.Name], glossary[name])
		}
	}
}
