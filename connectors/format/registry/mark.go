package registry

import (
	"encoding/binary"
	"errors"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
)

// Header is the name of the header that holds the mark of a value.
const Header = "__value_schema_id"

// The first byte of a mark.
const (
	magicID   = 0 // an id in four bytes follows
	magicGUID = 1 // a GUID in 16 bytes
)

var (
	errNoMark = errors.New("the value has no mark of a schema: neither the header " + Header +
		" nor a zero byte and an id before it; values without a mark are read with a schema and no registry")
	errBadMark = errors.New("the header " + Header + " holds no mark of a schema")
)

// Split takes the mark of a record's schema off: of the header, or of the value itself.
// index is what stands behind the mark in the header, nil where there is none; payload is
// the value without a mark.
func Split(r *connectors.Record) (m Mark, index, payload []byte, err error) {
	for i := range r.Headers {
		h := &r.Headers[i]
		if h.Key != Header {
			continue
		}
		m, rest, ok := cut(h.Value)
		if !ok {
			return m, nil, nil, format.Refuse(errBadMark)
		}
		return m, rest, r.Value, nil
	}
	m, payload, ok := cut(r.Value)
	if !ok || m.ByGUID {
		return m, nil, nil, format.Refuse(errNoMark)
	}
	return m, nil, payload, nil
}

func cut(b []byte) (m Mark, rest []byte, ok bool) {
	switch {
	case len(b) >= 5 && b[0] == magicID:
		return Mark{ID: int(binary.BigEndian.Uint32(b[1:]))}, b[5:], true
	case len(b) >= 17 && b[0] == magicGUID:
		return Mark{ByGUID: true, GUID: [16]byte(b[1:17])}, b[17:], true
	}
	return m, nil, false
}

// AppendMark appends the mark of a schema, which stands before a value.
func AppendMark(dst []byte, id int) []byte {
	return binary.BigEndian.AppendUint32(append(dst, magicID), uint32(id))
}

// maxIndex is how deep the message of a value lies in others.
const maxIndex = 100

// Index reads which message of a schema of Protobuf a value is of.
func Index(b []byte) (index []int, rest []byte, err error) {
	return new(sr.ConfluentHeader).DecodeIndex(b, maxIndex)
}

// AppendIndexMark is AppendMark with a message of the schema.
func AppendIndexMark(dst []byte, id int, index []int) ([]byte, error) {
	return new(sr.ConfluentHeader).AppendEncode(dst, id, index)
}
