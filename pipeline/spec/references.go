package spec

import (
	"reflect"

	"github.com/sluice-etl/sluice/connectors"
)

// Reference is a name of a source or step that stands in a step's configuration.
type Reference struct {
	Path []string // keys below the configuration's block
	Ref  connectors.Ref
}

var refType = reflect.TypeFor[connectors.Ref]()

// References finds the references of a step's configuration, in the order of its
// fields, empty ones included.
func References(config any) []Reference {
	var out []Reference
	references(reflect.ValueOf(config), nil, &out)
	return out
}

func references(v reflect.Value, path []string, out *[]Reference) {
	switch {
	case v.Kind() == reflect.Pointer:
		if !v.IsNil() {
			references(v.Elem(), path, out)
		}
	case v.Kind() == reflect.Struct:
		for _, f := range fieldsOf(v.Type()) {
			if f.Key == "." {
				references(v.Field(f.Index), path, out)
				continue
			}
			references(v.Field(f.Index), below(path, f.Key), out)
		}
	case v.Kind() == reflect.String && v.Type() == refType:
		*out = append(*out, Reference{path, connectors.Ref(v.String())})
	}
}
