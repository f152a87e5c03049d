package format

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
)

// SchemaText is a schema with those that it refers to, as a schema registry has them: what
// ReadAs puts in the place of the text that a file has.
type SchemaText struct {
	Text string
	// References are in an order in which each stands behind those that it refers to itself.
	References []Reference
}

// Reference is a schema by the name that others refer to it by.
type Reference struct {
	Name string
	Text string
}

// ErrReferences says that a format cannot take a SchemaText that refers to others.
var ErrReferences = errors.New("it refers to other schemas, which this format takes from files only: write schema_file")

// Alone is the text of a schema that refers to no other.
func (s SchemaText) Alone() (string, error) {
	if len(s.References) > 0 {
		return "", ErrReferences
	}
	return s.Text, nil
}

// kindOf is what registries call the schemas of a format.
var kindOf = map[string]string{"avro": "AVRO", "protobuf": "PROTOBUF", "json_schema": "JSON"}

// ReadAs is cfg with a schema by which values are read, whatever they are written with. ok
// is false where values of the format have none. kind is what a registry calls the schema's.
func ReadAs(cfg connectors.FormatConfig, kind string, s SchemaText) (_ connectors.FormatConfig, ok bool, err error) {
	want, ok := kindOf[cfg.Name]
	if !ok {
		return cfg, false, nil
	}
	if kind != want {
		return cfg, true, fmt.Errorf("it is of %s, and the format is %s", kind, cfg.Name)
	}
	for _, key := range []string{"schema", "schema_file", "descriptors"} {
		if cfg.Options[key] != nil {
			return cfg, true, fmt.Errorf("the format has a %s of its own: keep one of them", key)
		}
	}
	options := maps.Clone(cfg.Options)
	if options == nil {
		options = map[string]any{}
	}
	options["schema"] = s
	cfg.Options = options
	return cfg, true, Check(cfg)
}

// decodeOptions fills the configuration struct that config points to from the
// options of a format and validates it. All faults are returned together, those
// of one key as *connectors.FieldError.
func decodeOptions(format string, options map[string]any, config any) error {
	faults := setOptions(format, "", options, reflect.ValueOf(config).Elem())
	if v, ok := config.(connectors.Validator); ok && len(faults) == 0 {
		return v.Validate()
	}
	return errors.Join(faults...)
}

// setOptions fills a struct, the one of the format or of a block within it, whose keys
// begin with prefix.
func setOptions(format, prefix string, options map[string]any, target reflect.Value) (faults []error) {
	fields := connectors.Fields(target.Type())
	for _, key := range slices.Sorted(maps.Keys(options)) {
		at := slices.IndexFunc(fields, func(f connectors.Field) bool { return f.Key == key })
		if at < 0 {
			faults = append(faults, unknownOption(format, prefix+key, fields))
			continue
		}
		field := target.Field(fields[at].Index)
		if block, ok := structOf(field); ok {
			if m, isMap := options[key].(map[string]any); isMap {
				faults = append(faults, setOptions(format, prefix+key+".", m, block)...)
				continue
			}
		}
		if err := setOption(field, options[key]); err != nil {
			faults = append(faults, &connectors.FieldError{Key: prefix + key, Msg: err.Error()})
			continue
		}
		if allowed := fields[at].Enum; allowed != nil && !slices.Contains(allowed, field.String()) {
			faults = append(faults, &connectors.FieldError{Key: prefix + key, Msg: "one of " + strings.Join(allowed, ", ") + " is wanted"})
		}
	}
	for _, f := range fields {
		if _, given := options[f.Key]; f.Required && !given {
			faults = append(faults, &connectors.FieldError{Key: prefix + f.Key, Msg: "is missing"})
		}
	}
	return faults
}

// structOf is the struct that a field holds options in, made where the field is a pointer.
func structOf(field reflect.Value) (reflect.Value, bool) {
	if _, own := field.Addr().Interface().(connectors.ConfigValue); own {
		return field, false
	}
	switch {
	case field.Kind() == reflect.Struct:
		return field, true
	case field.Kind() == reflect.Pointer && field.Type().Elem().Kind() == reflect.Struct:
		if field.IsNil() {
			field.Set(reflect.New(field.Type().Elem()))
		}
		return field.Elem(), true
	}
	return field, false
}

// DecodeOptions is decodeOptions for options that stand at the key format and are of
// another layer, as of whole files.
func DecodeOptions(format string, options map[string]any, config any) error {
	return decodeOptions(format, options, config)
}

func unknownOption(format, key string, fields []connectors.Field) error {
	keys := make([]string, len(fields))
	for i, f := range fields {
		keys[i] = f.Key
	}
	return &connectors.FieldError{
		Key:  key,
		Msg:  "format " + format + " has no such option",
		Help: "it has " + strings.Join(keys, ", "),
	}
}

func setOption(field reflect.Value, v any) error {
	if own, ok := field.Addr().Interface().(connectors.ConfigValue); ok {
		return own.UnmarshalConfig(v)
	}
	given := reflect.ValueOf(v)
	switch {
	case field.Kind() == reflect.Bool && given.Kind() == reflect.Bool:
		field.SetBool(given.Bool())
	case field.Kind() == reflect.Int && given.CanInt():
		field.SetInt(given.Int())
	case field.Kind() == reflect.String && given.Kind() == reflect.String:
		field.SetString(given.String())
	case field.Kind() == reflect.Slice && field.Type().Elem().Kind() == reflect.String:
		return setTexts(field, v)
	default:
		return fmt.Errorf("%s is wanted", optionKinds[field.Kind()])
	}
	return nil
}

var optionKinds = map[reflect.Kind]string{
	reflect.Bool:   "true or false",
	reflect.Int:    "a whole number",
	reflect.String: "a text",
	reflect.Slice:  "a text or a list of texts", reflect.Struct: "a map of options", reflect.Pointer: "a map of options",
}

// setTexts sets a list of texts, for which a single one can stand.
func setTexts(field reflect.Value, v any) error {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	for _, item := range list {
		text, ok := item.(string)
		if !ok {
			return fmt.Errorf("%s is wanted", optionKinds[reflect.Slice])
		}
		field.Set(reflect.Append(field, reflect.ValueOf(text)))
	}
	return nil
}

// InFolder is cfg with the files that its options name taken from a folder, where their
// paths are relative. They are the options with the tag file.
func InFolder(cfg connectors.FormatConfig, folder string) connectors.FormatConfig {
	spec, ok := formats[cmp.Or(cfg.Name, "json")]
	if !ok || len(cfg.Options) == 0 {
		return cfg
	}
	t := reflect.TypeOf(spec.NewConfig()).Elem()
	options := maps.Clone(cfg.Options)
	for _, f := range connectors.Fields(t) {
		given, has := options[f.Key]
		switch {
		case !has:
		case f.Type == reflect.TypeFor[connectors.FormatConfig]():
			var inner connectors.FormatConfig
			if inner.UnmarshalConfig(given) == nil && inner.Options != nil {
				options[f.Key] = map[string]any{inner.Name: InFolder(inner, folder).Options}
			}
		case t.Field(f.Index).Tag.Get("file") == "true":
			options[f.Key] = inFolder(given, folder)
		}
	}
	cfg.Options = options
	return cfg
}

func inFolder(given any, folder string) any {
	switch v := given.(type) {
	case string:
		if !filepath.IsAbs(v) {
			return filepath.Join(folder, v)
		}
	case []any:
		out := slices.Clone(v)
		for i := range out {
			out[i] = inFolder(out[i], folder)
		}
		return out
	}
	return given
}
