package immediate

import (
	"errors"
	"strconv"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/placeholder"
)

// IDs makes the ids of rows from where their records come from: topic-partition-offset, which
// is the same when a restart reads the record again. Where a step made several rows of one
// record, which come one after another, the later ones get -1, -2 and so on behind it. It
// serves one writer.
type IDs struct {
	origin *connectors.Origin
	offset int64
	more   int
}

// Append appends the id of the next row. ok is false where its record was made by a step
// and comes from nowhere.
func (x *IDs) Append(dst []byte, r *connectors.Record) (id []byte, ok bool) {
	if r.Origin == nil {
		return dst, false
	}
	if x.origin != nil && *x.origin == *r.Origin && x.offset == r.Offset {
		x.more++
	} else {
		x.origin, x.offset, x.more = r.Origin, r.Offset, 0
	}
	dst = append(dst, r.Origin.Topic...)
	dst = strconv.AppendInt(append(dst, '-'), int64(r.Origin.Partition), 10)
	dst = strconv.AppendInt(append(dst, '-'), r.Offset, 10)
	if x.more > 0 {
		dst = strconv.AppendInt(append(dst, '-'), int64(x.more), 10)
	}
	return dst, true
}

// Text appends a value as it stands in a name or key: text as it is, anything else as in
// JSON without quotes. Null has no place in one.
func Text(dst []byte, v connectors.Value) ([]byte, error) {
	if v.IsNull() {
		return dst, errNull
	}
	s, err := placeholder.Plain(v)
	return append(dst, s...), err
}

var errNull = errors.New("it is null")
