package pipeline

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/pipeline/expr"
	"github.com/sluice-etl/sluice/pipeline/transform"
)

// Letter is a dead letter as its sink keeps it.
type Letter struct {
	// Place and At are where the letter is: the split of the sink's target and the position.
	Place string `json:"place"`
	At    int64  `json:"at"`

	Topic      *string   `json:"topic"` // nil where a step made the record
	Partition  *int32    `json:"partition"`
	Offset     *int64    `json:"offset"`
	Step       string    `json:"step"`
	Expression string    `json:"expression,omitempty"`
	Reason     string    `json:"reason"`
	Kind       string    `json:"kind"`
	Time       time.Time `json:"time"`
	Attempt    int       `json:"attempt"`

	record connectors.Record // as it came at first, without origin
}

const letterPrefix = "dead_letter."

// parseLetter reads a record of a sink of dead letters; false where it is none.
func parseLetter(r *connectors.Record, row bool) (*Letter, bool) {
	if row {
		return letterOfRow(r)
	}
	for i := len(r.Headers) - 1; i >= 0; i-- {
		// The last one counts: what failed can have been a dead letter of another pipeline.
		if r.Headers[i].Key == letterPrefix+"step" {
			l := &Letter{record: *r, Attempt: 1}
			l.record.Headers = r.Headers[:i:i]
			return l, l.readHeaders(r.Headers[i:])
		}
	}
	return nil, false
}

func (l *Letter) readHeaders(headers []connectors.Header) bool {
	for _, h := range headers {
		text := string(h.Value)
		switch strings.TrimPrefix(h.Key, letterPrefix) {
		case "step":
			l.Step = text
		case "reason":
			l.Reason = text
		case "kind":
			l.Kind = text
		case "expression":
			l.Expression = text
		case "time":
			l.Time, _ = time.Parse(time.RFC3339Nano, text)
		case "attempt":
			l.Attempt, _ = strconv.Atoi(text)
		case "topic":
			l.Topic = &text
		case "partition":
			if n, err := strconv.ParseInt(text, 10, 32); err == nil {
				p := int32(n)
				l.Partition = &p
			}
		case "offset":
			if n, err := strconv.ParseInt(text, 10, 64); err == nil {
				l.Offset = &n
			}
		}
	}
	return true
}

// letterOfRow reads a dead letter that was written as a row.
func letterOfRow(r *connectors.Record) (*Letter, bool) {
	var row letterRow
	if json.Unmarshal(r.Value, &row) != nil || row.Step == "" || row.Time.IsZero() {
		return nil, false
	}
	l := &Letter{
		Topic: row.Topic, Partition: row.Partition, Offset: row.Offset, Step: row.Step, Expression: row.Expression,
		Reason: row.Reason, Kind: row.Kind, Time: row.Time, Attempt: max(row.Attempt, 1),
	}
	l.record.Time = row.Time.UnixMilli()
	if row.Timestamp != nil {
		l.record.Time = row.Timestamp.UnixMilli()
	}
	var okKey, okValue bool
	l.record.Key, okKey = fromText(row.Key, row.KeyBase64)
	l.record.Value, okValue = fromText(row.Value, row.Base64)
	for _, h := range row.Headers {
		v, ok := fromText(h.Value, h.Base64)
		okKey = okKey && ok
		l.record.Headers = append(l.record.Headers, connectors.Header{Key: h.Key, Value: v})
	}
	return l, okKey && okValue
}

// fromText is textOrBase64 the other way round.
func fromText(text *string, encoded bool) ([]byte, bool) {
	switch {
	case text == nil:
		return nil, true
	case encoded:
		b, err := base64.StdEncoding.DecodeString(*text)
		return b, err == nil
	}
	return []byte(*text), true
}

// original is the record as its source gave it at first.
func (l *Letter) original() connectors.Record {
	r := l.record
	r.Origin = &connectors.Origin{Topic: *l.Topic, Letter: &connectors.Letter{Step: l.Step, Attempt: l.Attempt}}
	if l.Partition != nil {
		r.Origin.Partition = *l.Partition
	}
	if l.Offset != nil {
		r.Offset = *l.Offset
	}
	r.Op, r.Mark = connectors.Insert, connectors.NoMark
	return r
}

// LetterFilter chooses dead letters; the zero LetterFilter takes all.
type LetterFilter struct {
	// Where is an expression over the letter: meta.headers has the dead_letter.… headers
	// beside those of the record, and fields are those of its value.
	Where string
	Steps []string
	Kinds []string
	// Since and Before bound the time of the failure; zero for no bound.
	Since, Before time.Time
}

// letterFilter is a LetterFilter at work.
type letterFilter struct {
	LetterFilter
	prog   *expr.Program // nil without Where
	env    *expr.Env
	decode format.Decoder // nil where no field is read
	batch  connectors.Batch
	stride int
}

func newLetterFilter(f LetterFilter) (*letterFilter, error) {
	out := &letterFilter{LetterFilter: f}
	if f.Where == "" {
		return out, nil
	}
	base := transform.NewBase()
	prog, err := expr.Compile(f.Where, transform.NewView(base), expr.Options{Want: expr.Bool, Name: "--where"})
	if err != nil {
		return nil, fmt.Errorf("--where: %w", err)
	}
	out.prog, out.env, out.stride = prog, expr.NewEnv(), base.Stride()
	if len(base.Fields()) > 0 {
		out.decode, err = format.NewDecoder(connectors.FormatConfig{}, base.Fields(), false)
	}
	return out, err
}

// takes reports whether a letter is chosen.
func (f *letterFilter) takes(l *Letter) bool {
	switch {
	case len(f.Steps) > 0 && !slices.Contains(f.Steps, l.Step), len(f.Kinds) > 0 && !slices.Contains(f.Kinds, l.Kind):
		return false
	case !f.Since.IsZero() && l.Time.Before(f.Since), !f.Before.IsZero() && !l.Time.Before(f.Before):
		return false
	case f.prog == nil:
		return true
	}
	b := &f.batch
	b.Arena.Reset()
	b.Scan = b.Scan[:0]
	b.Size(1, f.stride)
	b.Records[0] = l.record
	if l.Topic != nil {
		b.Records[0] = l.original()
	}
	b.Records[0].Headers = append(b.Records[0].Headers[:len(b.Records[0].Headers):len(b.Records[0].Headers)], l.headers()...)
	sel := []uint16{0}
	if f.decode != nil {
		// What is no JSON has no fields.
		f.decode.Decode(b, sel, func(uint16, *format.SyntaxError) { b.SetStride(f.stride) })
	}
	return len(f.prog.Filter(f.env, b, []uint16{0}, func(uint16, *expr.EvalError) {})) == 1
}

// headers are what is known of the failure, as headers.
func (l *Letter) headers() []connectors.Header {
	e := &connectors.RecordError{Step: l.Step, Expr: l.Expression, Reason: l.Reason, Kind: l.Kind}
	if l.Topic != nil {
		r := l.original()
		e.Origin, e.Offset = r.Origin, r.Offset
	}
	out := deadLetterHeaders(e)
	for i := range out {
		switch out[i].Key {
		case letterPrefix + "time":
			out[i].Value = []byte(l.Time.UTC().Format(time.RFC3339Nano))
		case letterPrefix + "attempt":
			out[i].Value = strconv.AppendInt(nil, int64(l.Attempt), 10)
		}
	}
	return out
}
