// Package avrofile writes and reads Avro object container files.
package avrofile

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/klauspost/compress/zstd"
	"github.com/twmb/avro/ocf"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/files/typed"
)

// Compressions are the compressions of blocks, by the names that users write.
var Compressions = []string{"none", "deflate", "snappy", "zstd"}

// An attribute of a string that holds JSON, which other readers pass over.
const (
	contentType = "contentType"
	jsonContent = "application/json"
)

var magic = []byte("Obj\x01")

func codec(name string) (ocf.Codec, error) {
	switch name {
	case "none", "null", "":
		return nil, nil
	case "deflate":
		return ocf.DeflateCodec(-1), nil
	case "snappy":
		return ocf.SnappyCodec(), nil
	case "zstd", "zstandard":
		return ocf.ZstdCodec([]zstd.EOption{zstd.WithEncoderConcurrency(1)}, []zstd.DOption{zstd.WithDecoderConcurrency(1)})
	}
	return nil, fmt.Errorf("the blocks are compressed by %q, and this program knows null, deflate, snappy and zstandard", name)
}

var plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// CheckNames refuses columns whose names Avro does not take.
func CheckNames(cols []connectors.Column) error {
	for _, c := range cols {
		if !plainName.MatchString(c.Name) {
			return fmt.Errorf("column %q: Avro takes names of letters, digits and _, which do not begin with a digit: rename it", c.Name)
		}
		for t := &c.Type; t != nil; t = t.Elem {
			if err := CheckNames(t.Fields); err != nil {
				return err
			}
		}
	}
	return nil
}

// Schema is the schema of rows with these columns, as text.
func Schema(cols []connectors.Column) (string, error) {
	n := 0
	text, err := json.Marshal(record("row", cols, &n))
	return string(text), err
}

type dict = map[string]any

// record numbers the names of nested types, which must differ.
func record(name string, cols []connectors.Column, n *int) dict {
	fields := []any{}
	for i := range cols {
		t := typeOf(&cols[i].Type, n)
		f := dict{"name": cols[i].Name, "type": t}
		if cols[i].Type.Nullable {
			f["type"], f["default"] = []any{"null", t}, nil
		}
		fields = append(fields, f)
	}
	return dict{"type": "record", "name": name, "fields": fields}
}

func nullable(t *connectors.Type, n *int) any {
	if t.Nullable {
		return []any{"null", typeOf(t, n)}
	}
	return typeOf(t, n)
}

func typeOf(t *connectors.Type, n *int) any {
	switch t.Base {
	case connectors.Sequence:
		return dict{"type": "array", "items": nullable(t.Elem, n)}
	case connectors.Dictionary:
		return dict{"type": "map", "values": nullable(t.Elem, n)}
	case connectors.Struct:
		*n++
		return record(fmt.Sprintf("row_%d", *n), t.Fields, n)
	case connectors.Boolean:
		return "boolean"
	case connectors.Integer:
		if t.Bits == 8 || t.Bits == 16 || t.Bits == 32 && !t.Unsigned {
			return "int"
		}
		return "long"
	case connectors.Real:
		if t.Bits == 32 {
			return "float"
		}
		return "double"
	case connectors.Exact:
		*n++
		return dict{"type": "fixed", "name": fmt.Sprintf("decimal_%d", *n), "size": typed.DecimalSize(t.Precision), "logicalType": "decimal", "precision": t.Precision, "scale": t.Scale}
	case connectors.Instant:
		return dict{"type": "long", "logicalType": "timestamp-micros"}
	case connectors.Local:
		return dict{"type": "long", "logicalType": "local-timestamp-micros"}
	case connectors.Date:
		return dict{"type": "int", "logicalType": "date"}
	case connectors.TimeOfDay:
		return dict{"type": "long", "logicalType": "time-micros"}
	case connectors.UUID:
		*n++
		return dict{"type": "fixed", "name": fmt.Sprintf("uuid_%d", *n), "size": 16, "logicalType": "uuid"}
	case connectors.Binary:
		return "bytes"
	case connectors.Document, connectors.Dynamic:
		return dict{"type": "string", contentType: jsonContent}
	default:
		return "string"
	}
}

// Head is what a file begins with, and the mark between its blocks. Both follow from what
// is given, so that a file can be gone on with by another process.
func Head(schema, compression, salt string) (head []byte, mark [16]byte) {
	sum := sha256.Sum256([]byte(schema + "\x00" + compression + "\x00" + salt))
	copy(mark[:], sum[:])
	name := map[string]string{"none": "null", "zstd": "zstandard"}[compression]
	if name == "" {
		name = compression
	}
	head = binary.AppendVarint(bytes.Clone(magic), 2)
	for _, kv := range [][2]string{{"avro.schema", schema}, {"avro.codec", name}} {
		for _, s := range kv {
			head = append(binary.AppendVarint(head, int64(len(s))), s...)
		}
	}
	return append(append(head, 0), mark[:]...), mark
}

// Packer makes blocks of rows.
type Packer struct {
	codec ocf.Codec
	mark  [16]byte
}

// NewPacker makes a packer for files whose head has this mark.
func NewPacker(compression string, mark [16]byte) *Packer {
	c, _ := codec(compression) // the configuration is checked
	return &Packer{codec: c, mark: mark}
}

// Pack adds a block of n rows to dst.
func (p *Packer) Pack(dst, rows []byte, n int) ([]byte, error) {
	if p.codec != nil {
		var err error
		if rows, err = p.codec.Compress(rows); err != nil {
			return dst, err
		}
	}
	dst = binary.AppendVarint(binary.AppendVarint(dst, int64(n)), int64(len(rows)))
	return append(append(dst, rows...), p.mark[:]...), nil
}
