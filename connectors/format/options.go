package format

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
)

// decodeOptions fills the configuration struct that config points to from the
// options of a format and validates it. All faults are returned together, those
// of one key as *connectors.FieldError.
func decodeOptions(format string, options map[string]any, config any) error {
	target := reflect.ValueOf(config).Elem()
	fields := connectors.Fields(target.Type())
	var faults []error
	for _, key := range slices.Sorted(maps.Keys(options)) {
		at := slices.IndexFunc(fields, func(f connectors.Field) bool { return f.Key == key })
		if at < 0 {
			faults = append(faults, unknownOption(format, key, fields))
			continue
		}
		if err := setOption(target.Field(fields[at].Index), options[key]); err != nil {
			faults = append(faults, &connectors.FieldError{Key: key, Msg: err.Error()})
		}
	}
	if v, ok := config.(connectors.Validator); ok && len(faults) == 0 {
		return v.Validate()
	}
	return errors.Join(faults...)
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
	default:
		return fmt.Errorf("%s is wanted", optionKinds[field.Kind()])
	}
	return nil
}

var optionKinds = map[reflect.Kind]string{
	reflect.Bool:   "true or false",
	reflect.Int:    "a whole number",
	reflect.String: "a text",
}
