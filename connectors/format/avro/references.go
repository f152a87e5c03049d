package avro

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format/registry"
)

// load compiles the schema of the configuration with those that it refers to.
func (c *config) load(key, text string) error {
	var refs []registry.Reference
	var drafts []*registry.Draft
	for _, path := range c.References {
		fault := func(err error) error {
			return &connectors.FieldError{Key: "references", Msg: fmt.Sprintf("%s: %v", path, err)}
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return fault(err)
		}
		_, n, err := parseSchema(string(data), refs)
		if err != nil {
			return fault(err)
		}
		if n.name == "" {
			return fault(fmt.Errorf("it is a schema of %s, which has no name to refer to it by", n.kind))
		}
		drafts = append(drafts, draftOf(n.name, string(data), drafts))
		refs = append(refs, registry.Reference{Name: n.name, Text: string(data)})
	}
	var err error
	if c.schema, c.root, err = parseSchema(text, refs); err != nil {
		return &connectors.FieldError{Key: key, Msg: "no schema of Avro: " + err.Error()}
	}
	c.draft = draftOf("", text, drafts)
	return nil
}

// draftOf is a schema with those of the others whose types it names.
func draftOf(name, text string, others []*registry.Draft) *registry.Draft {
	d := &registry.Draft{Name: name, Type: "AVRO", Text: text}
	var schema any
	if json.Unmarshal([]byte(text), &schema) != nil {
		return d // it was compiled before
	}
	names := namesIn(schema, "", nil)
	for _, o := range others {
		if slices.Contains(names, o.Name) {
			d.References = append(d.References, o)
		}
	}
	return d
}

// namesIn appends the full names of the types that a schema refers to.
func namesIn(schema any, namespace string, names []string) []string {
	switch s := schema.(type) {
	case string:
		return append(names, s, fullName(s, namespace))
	case []any:
		for _, branch := range s {
			names = namesIn(branch, namespace, names)
		}
	case map[string]any:
		if name, ok := s["name"].(string); ok {
			if own, ok := s["namespace"].(string); ok {
				namespace = own
			}
			if before, _, nested := cutLast(name); nested {
				namespace = before
			}
		}
		fields, _ := s["fields"].([]any)
		for _, f := range fields {
			if f, ok := f.(map[string]any); ok {
				names = namesIn(f["type"], namespace, names)
			}
		}
		for _, key := range []string{"items", "values", "type"} {
			names = namesIn(s[key], namespace, names)
		}
	}
	return names
}
