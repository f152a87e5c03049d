// Package format turns encoded record values into slots and back: it reads the
// fields that a plan wants out of raw bytes in one pass, and writes values by
// splicing what changed into what did not.
//
// Formats join in a registry by name; json is the only one so far. Its reading
// and writing of single values is exported for the expression compiler.
package format

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
)

// Field asks a decoder for one field of each record.
type Field struct {
	// Path is the keys that lead to the field, each in the object that the one
	// before it names. An empty Path asks for the whole value.
	Path []string
	// Slot is where the field's value goes.
	Slot int
	// Exact asks for numbers as decimals, with their text as it is written.
	Exact bool
	// Others asks, in place of the value, which of its members no other Field reads or looks
	// into: for the name of the first one, as text. Where there is none it is absent.
	Others bool
}

// Decoder reads fields out of record values. An instance serves one subtask: it
// remembers what the last records looked like.
type Decoder interface {
	// Decode reads the rows sel of b and fills their slots. A field that a record
	// lacks stays absent, as do all fields of a tombstone. A row that cannot be read
	// is given to fail and left out of ok, which reuses the storage of sel; its
	// slots are undefined.
	Decode(b *connectors.Batch, sel []uint16, fail func(row uint16, err *SyntaxError)) (ok []uint16)
}

// Encoder writes record values of one layout. An instance serves one subtask.
type Encoder interface {
	// Encode sets rows.Values to the encoded value of each row, nil for a
	// tombstone. Values borrow from the record or lie in the batch's arena. A row
	// that cannot be written has the value nil and is given to fail by its position
	// in rows.Sel.
	//
	// A record that a step made anew has an empty value, not a nil one, and a
	// layout that is Empty.
	Encode(rows *connectors.Rows, fail func(i int, err error))
}

// Env is what the codecs of a format are given that may have to ask another system,
// such as a schema registry.
type Env struct {
	Log *slog.Logger
	// Topic is where a sink writes, where that is one fixed topic; empty otherwise. Of a
	// source each record says it.
	Topic string
	// Columns are the fields of a sink's rows where the plan knows their types; nil
	// where it does not.
	Columns []connectors.Column
	// ReadOnly says that nothing may be registered.
	ReadOnly bool
}

// Input turns record values of another format into JSON, the form in which records
// travel through a pipeline. An instance serves one subtask.
type Input interface {
	// Start connects; it does nothing where there is nothing to connect to.
	Start(ctx context.Context, env Env) error
	// JSON appends the record's value as JSON to dst. A *SyntaxError, or another error
	// marked by Refuse, says that this record cannot be read; any other one that nothing
	// can, since a system that must be asked does not answer before ctx ends.
	JSON(ctx context.Context, dst []byte, r *connectors.Record) ([]byte, error)
}

// Output turns JSON into record values of another format. An instance serves one subtask.
type Output interface {
	Start(ctx context.Context, env Env) error
	// Encode replaces rows.Values, which are JSON and nil for tombstones, by values that
	// lie in the batch's arena. A row that cannot be written has the value nil and is given to
	// fail by its position in rows.Sel, in ascending order. It sets rows.Headers where it
	// says something in headers. An error says that no row can be written.
	Encode(ctx context.Context, rows *connectors.Rows, fail func(i int, err error)) error
}

// refused marks an error as one of a single record.
type refused struct{ error }

func (r refused) Unwrap() error { return r.error }

// Refuse marks err as the fault of one record, which goes to on_error.
func Refuse(err error) error { return refused{err} }

// IsRefused reports whether err is the fault of one record.
func IsRefused(err error) bool {
	var (
		r refused
		s *SyntaxError
	)
	return errors.As(err, &r) || errors.As(err, &s)
}

// EncoderOptions says what kind of output an encoder writes for.
type EncoderOptions struct {
	// Lines is for formats with one record a line: raw line breaks between tokens
	// become spaces, a tombstone becomes null, and an empty value is a failure.
	Lines bool
}

// SyntaxError says where an encoded value is wrong. It holds no record data.
type SyntaxError struct {
	Offset int    // in bytes from the start of the value
	Msg    string // what was expected there
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("invalid value at byte %d: %s", e.Offset, e.Msg)
}

// Spec describes a format to the program.
type Spec struct {
	// Name is what the key format of a connector says, such as "json".
	Name string
	// Doc is what it is, in a sentence.
	Doc string
	// NewConfig returns a pointer to a configuration struct with defaults, tagged
	// like a connector's.
	NewConfig func() any
	// Decoder and Encoder make the two ways of the format from its configuration.
	Decoder func(config any, fields []Field, recordSpans bool) (Decoder, error)
	Encoder func(config any, layout *connectors.Layout, opts EncoderOptions) (Encoder, error)
	// Input and Output are set for formats that are no JSON: values pass through them
	// before the Decoder and behind the Encoder, which are those of JSON then. A format that
	// can only be read, or only be written, returns an error that says so.
	Input  func(config any) (Input, error)
	Output func(config any) (Output, error)
	// Columns are the fields of records so configured, where the configuration itself
	// says them, as an inline schema does; nil for formats that never do.
	Columns func(config any) ([]connectors.Column, error)
	// Schema is, in place of Columns, a JSON Schema that records so configured conform to;
	// nil where the configuration has none.
	Schema func(config any) []byte
	// Example is an example of the value of the key format, which validates.
	Example string
}

var formats = map[string]Spec{}

// Register makes a format known; a name taken twice or an incomplete
// description panics at the program's start.
func Register(s Spec) {
	if s.Input != nil && s.Decoder == nil && s.Encoder == nil {
		s.Decoder, s.Encoder = plainDecoder, plainEncoder
	}
	if _, taken := formats[s.Name]; taken || s.Name == "" || s.Doc == "" || s.NewConfig == nil || s.Decoder == nil || s.Encoder == nil {
		panic("format " + s.Name + " is registered twice or incompletely")
	}
	formats[s.Name] = s
}

// plainDecoder and plainEncoder are those of formats whose values come and go as JSON.
func plainDecoder(_ any, fields []Field, recordSpans bool) (Decoder, error) {
	return NewDecoder(connectors.FormatConfig{}, fields, recordSpans)
}

func plainEncoder(_ any, layout *connectors.Layout, opts EncoderOptions) (Encoder, error) {
	return NewEncoder(connectors.FormatConfig{}, layout, opts)
}

// Formats lists the formats, sorted by name.
func Formats() []Spec {
	return slices.SortedFunc(maps.Values(formats), func(a, b Spec) int { return cmp.Compare(a.Name, b.Name) })
}

// Strict reports whether the records of cfg are checked by decoding them, even
// where no field is wanted.
func Strict(cfg connectors.FormatConfig) bool {
	_, config, err := configure(cfg)
	if err != nil {
		return false
	}
	s, ok := config.(interface{ strict() bool })
	return ok && s.strict()
}

// marked is implemented by configurations of formats whose values can say by a mark of
// which schema they are.
type marked interface {
	// SchemaMarks reports whether values are read by their marks, and whether a sink writes
	// them into headers.
	SchemaMarks() (read, inHeaders bool)
}

// ReadsMarks reports whether a source of cfg's format reads marks of schemas, which are
// of the values as they came and of no other.
func ReadsMarks(cfg connectors.FormatConfig) bool {
	read, _ := marksOf(cfg)
	return read
}

// MarksInHeaders reports whether a sink of cfg's format says the schema of a value in a header.
func MarksInHeaders(cfg connectors.FormatConfig) bool {
	_, inHeaders := marksOf(cfg)
	return inHeaders
}

func marksOf(cfg connectors.FormatConfig) (read, inHeaders bool) {
	_, config, err := configure(cfg)
	if err != nil {
		return false, false
	}
	if m, ok := config.(marked); ok {
		return m.SchemaMarks()
	}
	return false, false
}

// Check reports whether cfg names a format and sets it up correctly.
func Check(cfg connectors.FormatConfig) error {
	_, _, err := configure(cfg)
	return err
}

// NewDecoder makes a decoder of cfg's format for the given fields. With
// recordSpans it leaves in Batch.Scan where the fields of each record are, which
// saves an encoder that edits the record a scan. The records of a batch must
// then keep their places.
//
// A strict format needs a decoder even where no field is wanted, since that is
// what checks the records.
func NewDecoder(cfg connectors.FormatConfig, fields []Field, recordSpans bool) (Decoder, error) {
	spec, config, err := configure(cfg)
	if err != nil {
		return nil, err
	}
	return spec.Decoder(config, fields, recordSpans)
}

// NewEncoder makes an encoder of cfg's format for values of one layout.
func NewEncoder(cfg connectors.FormatConfig, layout *connectors.Layout, opts EncoderOptions) (Encoder, error) {
	spec, config, err := configure(cfg)
	if err != nil {
		return nil, err
	}
	return spec.Encoder(config, layout, opts)
}

// NewInput makes what turns values of cfg's format into JSON; nil where they are JSON.
func NewInput(cfg connectors.FormatConfig) (Input, error) {
	spec, config, err := configure(cfg)
	if err != nil || spec.Input == nil {
		return nil, err
	}
	return spec.Input(config)
}

// NewOutput makes what turns JSON into values of cfg's format; nil where they are JSON.
func NewOutput(cfg connectors.FormatConfig) (Output, error) {
	spec, config, err := configure(cfg)
	if err != nil || spec.Output == nil {
		return nil, err
	}
	return spec.Output(config)
}

// Columns are the fields that cfg says records of its format have; nil where it does not.
func Columns(cfg connectors.FormatConfig) ([]connectors.Column, error) {
	spec, config, err := configure(cfg)
	if err != nil || spec.Columns == nil {
		return nil, err
	}
	return spec.Columns(config)
}

// JSONSchema is what records of cfg's format conform to; nil where it does not say.
func JSONSchema(cfg connectors.FormatConfig) []byte {
	spec, config, err := configure(cfg)
	if err != nil || spec.Schema == nil {
		return nil
	}
	return spec.Schema(config)
}

// OptionsOf is the struct that holds the options of a format; nil for an unknown one.
func OptionsOf(name string) reflect.Type {
	spec, ok := formats[name]
	if !ok {
		return nil
	}
	return reflect.TypeOf(spec.NewConfig()).Elem()
}

// configure finds the format and decodes its options. No name means json.
func configure(cfg connectors.FormatConfig) (Spec, any, error) {
	name := cmp.Or(cfg.Name, "json")
	spec, ok := formats[name]
	if !ok {
		known := slices.Sorted(maps.Keys(formats))
		return Spec{}, nil, fmt.Errorf("there is no format %q; there is %s", name, strings.Join(known, ", "))
	}
	config := spec.NewConfig()
	if err := decodeOptions(name, cfg.Options, config); err != nil {
		return Spec{}, nil, err
	}
	return spec, config, nil
}
