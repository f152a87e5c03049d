package jsonschema

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format/registry"
)

// load compiles the schema of the configuration with those that it refers to.
func (c *config) load(key, text string) error {
	var docs []Document
	var drafts []*registry.Draft
	for _, path := range c.References {
		fault := func(err error) error {
			return &connectors.FieldError{Key: "references", Msg: fmt.Sprintf("%s: %v", path, err)}
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return fault(err)
		}
		var head struct {
			ID string `json:"$id"`
		}
		if err := json.Unmarshal(data, &head); err != nil {
			return fault(fmt.Errorf("it is no JSON Schema: %w", err))
		}
		name := head.ID
		if name == "" {
			name = filepath.Base(path)
		}
		drafts = append(drafts, draftOf(name, string(data), drafts))
		docs = append(docs, Document{name, string(data)})
	}
	var err error
	if c.check, err = Compile(text, docs...); err != nil {
		return &connectors.FieldError{Key: key, Msg: "no JSON Schema: " + err.Error()}
	}
	c.draft = draftOf("", text, drafts)
	return nil
}

// draftOf is a schema with those of the others that it refers to.
func draftOf(name, text string, others []*registry.Draft) *registry.Draft {
	d := &registry.Draft{Name: name, Type: "JSON", Text: text}
	var schema any
	if json.Unmarshal([]byte(text), &schema) != nil {
		return d // Compile says so
	}
	for _, o := range others {
		if refersTo(schema, o.Name) {
			d.References = append(d.References, o)
		}
	}
	return d
}

// refersTo reports whether a part of a schema refers to a document or to a part of it.
func refersTo(schema any, name string) bool {
	switch s := schema.(type) {
	case []any:
		for _, part := range s {
			if refersTo(part, name) {
				return true
			}
		}
	case map[string]any:
		if ref, ok := s["$ref"].(string); ok {
			if document, _, _ := strings.Cut(ref, "#"); document == name {
				return true
			}
		}
		for _, part := range s {
			if refersTo(part, name) {
				return true
			}
		}
	}
	return false
}
