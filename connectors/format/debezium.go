package format

import (
	"errors"

	"github.com/sluice-etl/sluice/connectors"
)

// debeziumConfig is the options of the format debezium.
type debeziumConfig struct {
	Strict   bool                `key:"strict" doc:"Check every row completely, as the format json does."`
	MaxSize  connectors.ByteSize `key:"max_size" doc:"Largest envelope that is decoded; a larger one is a record error."`
	MaxDepth int                 `key:"max_depth" doc:"Deepest nesting of lists and objects; what goes deeper is a record error."`
	// Format is what envelopes are written in.
	Format connectors.FormatConfig `key:"format" doc:"What envelopes are written in, such as {avro: {registry: {url: …}}}; JSON without it."`
	Key    fieldNames              `key:"key" doc:"The fields of the table's primary key: at any time there is at most one row for a key."`
}

func (c *debeziumConfig) json() *jsonConfig {
	return &jsonConfig{Strict: c.Strict, MaxSize: c.MaxSize, MaxDepth: c.MaxDepth}
}

func (c *debeziumConfig) strict() bool { return c.Strict }

// SchemaMarks implements marked.
func (c *debeziumConfig) SchemaMarks() (read, inHeaders bool) { return marksOf(c.Format) }

// Validate reports limits that make no sense.
func (c *debeziumConfig) Validate() error {
	err := c.json().Validate()
	if c.Format.Name == "" {
		return err
	}
	if c.Format.Name == "debezium" {
		return errors.Join(err, &connectors.FieldError{Key: "format", Msg: "envelopes in envelopes are not read"})
	}
	if fault := Check(c.Format); fault != nil {
		err = errors.Join(err, &connectors.FieldError{Key: "format", Msg: fault.Error()})
	}
	return err
}

// fieldNames is a list of fields, or a single one.
type fieldNames []string

// UnmarshalConfig reads both forms.
func (f *fieldNames) UnmarshalConfig(v any) error {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	for _, item := range list {
		name, ok := item.(string)
		if !ok || name == "" {
			return errors.New("a field or a list of fields is wanted")
		}
		*f = append(*f, name)
	}
	return nil
}

func init() {
	Register(Spec{
		Name:      "debezium",
		Doc:       "Changes of database tables, in the JSON envelopes of Debezium, as an updating stream of rows.",
		Example:   "{debezium: {key: [id]}}",
		NewConfig: func() any { return &debeziumConfig{MaxSize: defaultMaxSize, MaxDepth: defaultMaxDepth} },
		Decoder: func(config any, fields []Field, recordSpans bool) (Decoder, error) {
			return newJSONDecoder(config.(*debeziumConfig).json(), fields, recordSpans)
		},
		Input: func(config any) (Input, error) { return NewInput(config.(*debeziumConfig).Format) },
		Encoder: func(any, *connectors.Layout, EncoderOptions) (Encoder, error) {
			return nil, errors.New("the format debezium can only be read: write json, with changelog: true for the operation of each row")
		},
	})
}

// Expander takes records apart that hold several rows, or none. An instance serves
// one subtask.
type Expander interface {
	// Expand appends the rows that r holds to dst, two at most; their values are
	// parts of r's. A *SyntaxError says that the value cannot be read, any other error
	// that it holds no row that can be used.
	Expand(dst []connectors.Record, r *connectors.Record) ([]connectors.Record, error)
}

// NewExpander makes the expander of cfg's format; nil where a record is a row.
func NewExpander(cfg connectors.FormatConfig) (Expander, error) {
	_, config, err := configure(cfg)
	if err != nil {
		return nil, err
	}
	if c, ok := config.(*debeziumConfig); ok {
		return &envelopes{scanner: newScanner(c.MaxDepth), maxSize: int(c.MaxSize)}, nil
	}
	return nil, nil
}

// Updates reports whether cfg's format gives an updating stream, and the fields by
// which its rows are told apart; nil for unknown.
func Updates(cfg connectors.FormatConfig) (key []string, ok bool) {
	_, config, err := configure(cfg)
	if err != nil {
		return nil, false
	}
	c, ok := config.(*debeziumConfig)
	if !ok {
		return nil, false
	}
	return c.Key, true
}

// envelopes reads those of Debezium: {before, after, op, …}, bare or as the payload
// beside a schema.
type envelopes struct {
	scanner
	maxSize                    int
	before, after, op, payload []byte
}

// Why an envelope holds no row.
var (
	errNoEnvelope = errors.New("the value is no envelope of Debezium: it has no field op (a topic of unwrapped rows is read with format json)")
	errTruncate   = errors.New("the table was truncated (op t), which says nothing of its rows: start anew from a snapshot, or let on_error skip it")
	errUnknownOp  = errors.New("op is none of c, r, u and d")
	errNoAfter    = errors.New("after is null, and the row as it is now is needed")
	errNoBefore   = errors.New("before is null, and the row as it was is needed: let the database log it " +
		"(PostgreSQL: ALTER TABLE … REPLICA IDENTITY FULL; MySQL: binlog_row_image=FULL; SQL Server and Oracle: log all columns)")
)

// Expand implements Expander.
func (e *envelopes) Expand(dst []connectors.Record, r *connectors.Record) ([]connectors.Record, error) {
	if r.Tombstone() {
		return dst, nil // it follows a delete, so that the topic can be compacted
	}
	if len(r.Value) > e.maxSize {
		e.fail(e.maxSize, wantSmall)
		return dst, e.err()
	}
	e.before, e.after, e.op, e.payload = nil, nil, nil, nil
	if !e.read(r.Value) {
		return dst, e.err()
	}
	if e.op == nil && e.payload != nil {
		inner := e.payload
		if isNull(inner) {
			return dst, nil
		}
		if !e.read(inner) {
			return dst, e.err()
		}
	}
	return e.rows(dst, r)
}

func (e *envelopes) rows(dst []connectors.Record, r *connectors.Record) ([]connectors.Record, error) {
	row := func(op connectors.Op, value []byte) {
		out := *r
		out.Op, out.Value = op, value[:len(value):len(value)]
		dst = append(dst, out)
	}
	switch op := string(e.op); op {
	case `"c"`, `"r"`, `"u"`, `"d"`:
		old, now := op == `"u"` || op == `"d"`, op != `"d"`
		if old && isNull(e.before) {
			return dst, errNoBefore
		}
		if now && isNull(e.after) {
			return dst, errNoAfter
		}
		switch {
		case !old:
			row(connectors.Insert, e.after)
		case !now:
			row(connectors.Delete, e.before)
		default:
			row(connectors.UpdateBefore, e.before)
			row(connectors.UpdateAfter, e.after)
		}
		return dst, nil
	case `"t"`:
		return dst, errTruncate
	case "":
		return dst, errNoEnvelope
	}
	return dst, errUnknownOp
}

func isNull(b []byte) bool { return len(b) == 0 || b[0] == 'n' }

// read finds the parts of an envelope. Of a name that comes twice it takes the last.
func (e *envelopes) read(b []byte) bool {
	i := e.begin(b)
	if i < 0 {
		return false
	}
	if b[i] != '{' {
		return e.skip(b, i, 0) >= 0
	}
	i = space(b, i+1)
	for first := true; i >= len(b) || b[i] != '}'; first = false {
		if !first {
			if i >= len(b) || b[i] != ',' {
				return e.expected(b, i, wantComma) >= 0
			}
			i = space(b, i+1)
		}
		name := i
		value := e.skipKey(b, i)
		if value < 0 {
			return false
		}
		if i = e.skip(b, value, 1); i < 0 {
			return false
		}
		e.part(b[name:], b[value:i])
		i = space(b, i)
	}
	return e.end(b, i+1) >= 0
}

// part notes the value of a field of the envelope; name begins with its quote.
func (e *envelopes) part(name, value []byte) {
	is := func(s string) bool { return len(name) > len(s) && string(name[:len(s)]) == s }
	switch {
	case is(`"before"`):
		e.before = value
	case is(`"after"`):
		e.after = value
	case is(`"op"`):
		e.op = value
	case is(`"payload"`):
		e.payload = value
	}
}
