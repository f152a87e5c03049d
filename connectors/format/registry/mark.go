package registry

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

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

// Marker marks the values of a sink, which are all of one schema.
type Marker struct {
	// Prefix is what stands before each value; empty where the mark is in a header.
	Prefix []byte
	// Headers is what connectors.Rows.Headers become: the mark, or what takes away that of
	// the value that a record came with.
	Headers []connectors.Header
}

// Marker makes the marks of a schema. index says which message of a schema of Protobuf the
// values are of; nil for other schemas. A mark in a header is the schema's GUID, or its id
// where the registry gives no GUIDs; readers take both.
func (c *Config) Marker(s Schema, index []int) (Marker, error) {
	mark := binary.BigEndian.AppendUint32([]byte{magicID}, uint32(s.ID))
	if c.Mark == inHeader && s.GUID != "" {
		guid, err := hex.DecodeString(strings.ReplaceAll(s.GUID, "-", ""))
		if err != nil || len(guid) != 16 {
			return Marker{}, connectors.Permanent(fmt.Errorf("schema registry: schema %d has the GUID %q, which is none", s.ID, s.GUID))
		}
		mark = append([]byte{magicGUID}, guid...)
	}
	if index != nil {
		whole, err := new(sr.ConfluentHeader).AppendEncode(nil, 0, index)
		if err != nil {
			return Marker{}, connectors.Permanent(err)
		}
		mark = append(mark, whole[5:]...)
	}
	if c.Mark == inHeader {
		return Marker{Headers: []connectors.Header{{Key: Header, Value: mark}}}, nil
	}
	return Marker{Prefix: mark, Headers: []connectors.Header{{Key: Header}}}, nil
}

// maxIndex is how deep the message of a value lies in others.
const maxIndex = 100

// Index reads which message of a schema of Protobuf a value is of.
func Index(b []byte) (index []int, rest []byte, err error) {
	return new(sr.ConfluentHeader).DecodeIndex(b, maxIndex)
}
