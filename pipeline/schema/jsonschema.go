package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ParseJSON reads the types out of a JSON Schema: type, properties, required,
// items, format, contentEncoding, and references within the document. What else
// it demands, such as a range, is left to a step that validates.
func ParseJSON(data []byte) (*Type, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	var root json.RawMessage
	if err := dec.Decode(&root); err != nil {
		return nil, fmt.Errorf("it is no valid JSON: %w", err)
	}
	r := &jsonReader{root: root}
	t, err := r.read(root, "")
	if err != nil {
		return nil, err
	}
	if t.Base != Map || t.Fields == nil {
		return nil, errors.New("it describes no object with properties")
	}
	t.Nullable = false
	return t, nil
}

// maxNesting bounds how deep types are nested, so that one which refers to itself
// ends as any, and maxTypes how many there are.
const (
	maxNesting = 16
	maxTypes   = 10_000
)

type jsonReader struct {
	root  json.RawMessage
	depth int
	types int
}

// jsonType is what is read of one schema.
type jsonType struct {
	Ref        string            `json:"$ref"`
	Type       json.RawMessage   `json:"type"`
	Format     string            `json:"format"`
	Encoding   string            `json:"contentEncoding"`
	Properties json.RawMessage   `json:"properties"`
	Required   []string          `json:"required"`
	Items      json.RawMessage   `json:"items"`
	AnyOf      []json.RawMessage `json:"anyOf"`
	OneOf      []json.RawMessage `json:"oneOf"`
}

func (r *jsonReader) read(raw json.RawMessage, at string) (*Type, error) {
	if r.depth++; r.depth > maxNesting {
		r.depth--
		return &Type{Base: Any, Nullable: true}, nil
	}
	defer func() { r.depth-- }()
	if r.types++; r.types > maxTypes {
		return nil, fmt.Errorf("it describes more than %d values", maxTypes)
	}
	if s := string(bytes.TrimSpace(raw)); s == "true" || s == "{}" {
		return &Type{Base: Any, Nullable: true}, nil
	}
	var j jsonType
	if err := json.Unmarshal(raw, &j); err != nil {
		return nil, fmt.Errorf("%s is no schema: %w", place(at), err)
	}
	if j.Ref != "" {
		target, err := r.resolve(j.Ref, at)
		if err != nil {
			return nil, err
		}
		return r.read(target, at)
	}
	if list := append(j.AnyOf, j.OneOf...); len(list) > 0 {
		return r.union(list, at)
	}
	names, err := typeNames(j.Type, at)
	if err != nil {
		return nil, err
	}
	if names == nil && j.Properties != nil {
		names = []string{"object"}
	}
	nullable := slices.Contains(names, "null")
	names = slices.DeleteFunc(names, func(n string) bool { return n == "null" })
	if len(names) != 1 {
		if !slices.ContainsFunc(names, func(n string) bool { return n != "integer" && n != "number" }) && len(names) > 0 {
			return &Type{Base: Number, Nullable: nullable}, nil
		}
		return &Type{Base: Any, Nullable: true}, nil
	}
	t, err := r.single(names[0], &j, at)
	if err == nil {
		t.Nullable = t.Nullable || nullable
	}
	return t, err
}

func (r *jsonReader) single(name string, j *jsonType, at string) (*Type, error) {
	switch name {
	case "boolean":
		return &Type{Base: Bool}, nil
	case "integer":
		return &Type{Base: Int}, nil
	case "number":
		return &Type{Base: Number}, nil
	case "string":
		switch {
		case j.Format == "date-time":
			return &Type{Base: Timestamp}, nil
		case j.Encoding == "base64":
			return &Type{Base: Bytes}, nil
		}
		return &Type{Base: String}, nil
	case "array":
		t := &Type{Base: List}
		if j.Items != nil && !bytes.HasPrefix(bytes.TrimSpace(j.Items), []byte("[")) {
			elem, err := r.read(j.Items, at+"[]")
			if err != nil {
				return nil, err
			}
			t.Elem = elem
		}
		return t, nil
	case "object":
		return r.object(j, at)
	}
	return nil, fmt.Errorf("%s has the type %q, which JSON Schema does not have", place(at), name)
}

func (r *jsonReader) object(j *jsonType, at string) (*Type, error) {
	t := &Type{Base: Map}
	if j.Properties == nil {
		return t, nil
	}
	props, err := members(j.Properties)
	if err != nil {
		return nil, fmt.Errorf("the properties of %s: %w", place(at), err)
	}
	for _, p := range props {
		name := p.name
		if at != "" {
			name = at + "." + name
		}
		ft, err := r.read(p.value, name)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(j.Required, p.name) {
			ft.Nullable = true
		}
		t.Fields = append(t.Fields, Field{p.name, ft})
	}
	return t, nil
}

// union is a choice of schemas: one of them or null is that type, any other is
// of any type.
func (r *jsonReader) union(list []json.RawMessage, at string) (*Type, error) {
	var out *Type
	nullable := false
	for _, raw := range list {
		var j jsonType
		if json.Unmarshal(raw, &j) == nil && string(bytes.TrimSpace(j.Type)) == `"null"` {
			nullable = true
			continue
		}
		t, err := r.read(raw, at)
		if err != nil {
			return nil, err
		}
		if out != nil {
			t = Union(out, t)
		}
		out = t
	}
	if out == nil {
		return &Type{Base: Any, Nullable: true}, nil
	}
	out.Nullable = out.Nullable || nullable
	return out, nil
}

// resolve finds what a reference within the document leads to.
func (r *jsonReader) resolve(ref, at string) (json.RawMessage, error) {
	path, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil, fmt.Errorf("%s refers to %q: only references within the file, such as #/$defs/name, are followed", place(at), ref)
	}
	now := r.root
	for _, key := range strings.Split(strings.TrimPrefix(path, "/"), "/") {
		if key == "" {
			continue
		}
		key = strings.NewReplacer("~1", "/", "~0", "~").Replace(key)
		var m map[string]json.RawMessage
		if json.Unmarshal(now, &m) != nil || m[key] == nil {
			return nil, fmt.Errorf("%s refers to %q, which the file does not have", place(at), ref)
		}
		now = m[key]
	}
	return now, nil
}

// typeNames reads the key type: one name, or several.
func typeNames(raw json.RawMessage, at string) ([]string, error) {
	if raw == nil {
		return nil, nil
	}
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return []string{one}, nil
	}
	var list []string
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("the type of %s is neither a name nor a list of names", place(at))
	}
	return list, nil
}

func place(at string) string {
	if at == "" {
		return "the schema"
	}
	return "property " + at
}

type property struct {
	name  string
	value json.RawMessage
}

// members are those of a JSON object in their order.
func members(raw json.RawMessage) ([]property, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	open, err := dec.Token()
	if err != nil {
		return nil, err
	}
	if open != json.Delim('{') {
		return nil, errors.New("an object is wanted")
	}
	var out []property
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, err
		}
		p := property{}
		p.name, _ = name.(string)
		if err := dec.Decode(&p.value); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(out, func(o property) bool { return o.name == p.name }) {
			return nil, fmt.Errorf("%s is there twice", p.name)
		}
		out = append(out, p)
	}
	return out, nil
}
