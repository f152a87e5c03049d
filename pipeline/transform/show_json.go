package transform

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// shownObject writes a JSON object whose members stay in their order.
type shownObject struct{ b []byte }

func (o *shownObject) name(name string) {
	sep := byte(',')
	if len(o.b) == 0 {
		sep = '{'
	}
	o.b = append(format.AppendString(append(o.b, sep), name), ':')
}

func (o *shownObject) value(name string, v connectors.Value) {
	o.name(name)
	o.b = appendShown(o.b, v)
}

func (o *shownObject) raw(name string, json []byte) {
	o.name(name)
	o.b = append(o.b, json...)
}

func (o *shownObject) int(name string, n int64) {
	o.name(name)
	o.b = strconv.AppendInt(o.b, n, 10)
}

func (o *shownObject) text(name, text string) {
	o.name(name)
	o.b = format.AppendString(o.b, text)
}

// time writes a time in milliseconds.
func (o *shownObject) time(name string, ms int64) {
	o.name(name)
	o.b = appendMillis(o.b, ms)
}

// bytes writes text as it is, and other bytes as base64 under a name that says so.
func (o *shownObject) bytes(name string, b []byte) {
	if utf8.Valid(b) {
		o.text(name, string(b))
		return
	}
	o.text(name+"_base64", base64.StdEncoding.EncodeToString(b))
}

func (o *shownObject) done() json.RawMessage {
	if len(o.b) == 0 {
		return json.RawMessage("{}")
	}
	return append(o.b, '}')
}

// shownList writes a JSON list: next before each element, which is then appended to b.
type shownList struct{ b []byte }

func (l *shownList) next() {
	sep := byte(',')
	if len(l.b) == 0 {
		sep = '['
	}
	l.b = append(l.b, sep)
}

func (l *shownList) done() json.RawMessage {
	if len(l.b) == 0 {
		return json.RawMessage("[]")
	}
	return append(l.b, ']')
}

// The times that RFC 3339 can say.
var (
	firstShown = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	lastShown  = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC).UnixMilli()
)

// appendMillis appends a time: as text in UTC, null for the ends of time, and as
// milliseconds where no calendar says it.
func appendMillis(dst []byte, ms int64) []byte {
	switch {
	case ms == math.MinInt64 || ms == math.MaxInt64:
		return append(dst, "null"...)
	case ms < firstShown || ms > lastShown:
		return strconv.AppendInt(dst, ms, 10)
	}
	dst = append(dst, '"')
	dst = time.UnixMilli(ms).UTC().AppendFormat(dst, "2006-01-02T15:04:05.000Z07:00")
	return append(dst, '"')
}

// AppendMillis appends a time as entries of state show it.
func AppendMillis(dst []byte, ms int64) []byte { return appendMillis(dst, ms) }

// showValues shows values that state.AppendValue wrote, by their names, up to the end of src.
func showValues(o *shownObject, src []byte, names []string) error {
	for _, name := range names {
		v, rest, err := state.ReadValue(src)
		if err != nil {
			return err
		}
		o.value(name, v)
		src = rest
	}
	if len(src) > 0 {
		return state.ErrCorrupt
	}
	return nil
}

// recordReader shows records that a step keeps whole.
type recordReader struct {
	stored *storedRows
	names  []string // of the fields beside the record
}

func newRecordReader(names []string) *recordReader {
	return &recordReader{stored: newStoredRows(make([]int, len(names))), names: names}
}

// show shows a stored record.
func (r *recordReader) show(src []byte) (json.RawMessage, error) {
	rec, err := r.stored.record(src)
	if err != nil {
		return nil, err
	}
	var o shownObject
	if rec.Origin != nil {
		o.bytes("topic", []byte(rec.Origin.Topic))
		o.int("partition", int64(rec.Origin.Partition))
		o.int("offset", rec.Offset)
	}
	o.time("time", rec.Time)
	if rec.Key != nil {
		o.bytes("key", rec.Key)
	}
	if len(rec.Headers) > 0 {
		var list shownList
		for _, h := range rec.Headers {
			var one shownObject
			one.bytes(h.Key, h.Value)
			list.next()
			list.b = append(list.b, one.done()...)
		}
		o.raw("headers", list.done())
	}
	switch {
	case rec.Value == nil:
		o.raw("value", []byte("null"))
	case json.Valid(rec.Value):
		o.raw("value", rec.Value)
	default:
		o.bytes("value", rec.Value)
	}
	if len(r.names) > 0 {
		var made shownObject
		for i, name := range r.names {
			made.value(name, r.stored.values[i])
		}
		o.raw("fields", made.done())
	}
	return o.done(), nil
}
