package connectors

import (
	"fmt"
	"reflect"
	"strings"
)

// KeyDoc is one key of a configuration as users are told of it.
type KeyDoc struct {
	Path     string   `json:"key"` // dotted, below the block; "." for the value of the block itself
	Type     string   `json:"type"`
	Default  string   `json:"default,omitempty"`
	Required bool     `json:"required,omitempty"`
	Secret   bool     `json:"secret,omitempty"`
	Enum     []string `json:"enum,omitempty"`
	Doc      string   `json:"doc"`
}

// TypeNamer is implemented by configuration types that say themselves what stands
// for them in a pipeline file, such as "list of columns".
type TypeNamer interface{ TypeName() string }

// KeysOf describes the keys of the configuration struct that config points to, with the
// defaults that it holds. Those of a nested block follow each other with its key before them.
func KeysOf(config any) []KeyDoc {
	v := reflect.ValueOf(config)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return nil
	}
	return appendKeys(nil, "", v.Elem())
}

func appendKeys(out []KeyDoc, prefix string, v reflect.Value) []KeyDoc {
	for _, f := range Fields(v.Type()) {
		if f.Key == "" {
			continue
		}
		field := v.Field(f.Index)
		if isBlock(field.Type()) {
			out = appendKeys(out, prefix+f.Key+".", field)
			continue
		}
		if t := field.Type(); t.Kind() == reflect.Slice && isBlock(t.Elem()) {
			out = append(out, KeyDoc{Path: prefix + f.Key, Type: "list of blocks", Required: f.Required, Doc: f.Doc})
			out = appendKeys(out, prefix+f.Key+"[].", reflect.New(t.Elem()).Elem())
			continue
		}
		k := KeyDoc{Path: prefix + f.Key, Type: typeName(f.Type), Required: f.Required, Secret: f.Secret, Enum: f.Enum, Doc: f.Doc}
		if !f.Secret && !f.Required {
			k.Default = defaultText(field)
		}
		out = append(out, k)
	}
	return out
}

// isBlock reports whether a type is a block of keys.
func isBlock(t reflect.Type) bool {
	if t.Kind() != reflect.Struct {
		return false
	}
	fields := Fields(t)
	return len(fields) > 0 && fields[0].Key != ""
}

// defaultText is a default as a file would have it; empty for none.
func defaultText(v reflect.Value) string {
	if v.IsZero() {
		return ""
	}
	switch x := v.Interface().(type) {
	case FormatConfig:
		return x.Name
	case TimeSpan:
		return spanText(x)
	case fmt.Stringer:
		return x.String()
	}
	switch v.Kind() {
	case reflect.Struct, reflect.Pointer, reflect.Map:
		return "" // its doc tells
	case reflect.Slice:
		var list []string
		for i := range v.Len() {
			list = append(list, fmt.Sprint(v.Index(i)))
		}
		return "[" + strings.Join(list, ", ") + "]"
	}
	return fmt.Sprint(v.Interface())
}

// spanText leaves out the zeros that Go's form ends in: 1m and not 1m0s.
func spanText(d TimeSpan) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// typeName is a type in the words of the pipeline language.
func typeName(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		return typeName(t.Elem())
	}
	switch x := reflect.Zero(t).Interface().(type) {
	case TypeNamer:
		return x.TypeName()
	case Expr:
		return "expression"
	case Template:
		return "text with {expressions}"
	case Assignments:
		return "map of expressions"
	case Keys:
		return "fields, or map of expressions"
	case TimeSpan:
		return "duration"
	case ByteSize:
		return "size"
	case FormatConfig:
		return "format"
	}
	switch t.Kind() {
	case reflect.Slice:
		return "list of " + typeName(t.Elem())
	case reflect.Map:
		return "map of " + typeName(t.Elem())
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "integer"
	case reflect.Float64:
		return "number"
	case reflect.Interface:
		return "any value"
	}
	return "text or block"
}
