package format

import (
	"errors"
	"fmt"

	"github.com/sluice-etl/sluice/connectors"
)

// jsonConfig is the options of the format json.
type jsonConfig struct {
	Strict   bool                `key:"strict" doc:"Check every record completely, also what no step reads: numbers, escapes, control characters and UTF-8, as RFC 8259 has them."`
	MaxSize  connectors.ByteSize `key:"max_size" doc:"Largest value that is decoded; a larger one is a record error."`
	MaxDepth int                 `key:"max_depth" doc:"Deepest nesting of lists and objects; what goes deeper is a record error."`
}

const (
	defaultMaxSize  = 64 << 20
	defaultMaxDepth = 1000
	// Positions in a value are kept in 31 bits.
	largestMaxSize  = 1 << 30
	largestMaxDepth = 100_000
)

func init() {
	Register(Spec{
		Name:      "json",
		Doc:       "JSON values, by RFC 8259.",
		Example:   "{json: {strict: true}}",
		NewConfig: func() any { return &jsonConfig{MaxSize: defaultMaxSize, MaxDepth: defaultMaxDepth} },
		Decoder: func(config any, fields []Field, recordSpans bool) (Decoder, error) {
			return newJSONDecoder(config.(*jsonConfig), fields, recordSpans)
		},
		Encoder: func(config any, layout *connectors.Layout, opts EncoderOptions) (Encoder, error) {
			return newJSONEncoder(config.(*jsonConfig), layout, opts)
		},
	})
}

func (c *jsonConfig) strict() bool { return c.Strict }

// Validate reports limits that make no sense.
func (c *jsonConfig) Validate() error {
	var faults []error
	if c.MaxSize < 1 || c.MaxSize > largestMaxSize {
		faults = append(faults, &connectors.FieldError{Key: "max_size", Msg: "a size from 1B to " + connectors.ByteSize(largestMaxSize).String() + " is wanted"})
	}
	if c.MaxDepth < 1 || c.MaxDepth > largestMaxDepth {
		faults = append(faults, &connectors.FieldError{Key: "max_depth", Msg: fmt.Sprintf("a number from 1 to %d is wanted", largestMaxDepth)})
	}
	return errors.Join(faults...)
}
