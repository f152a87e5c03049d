package clickhouse

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/deferred"
	"github.com/sluice-etl/sluice/connectors/deferred/table"
	"github.com/sluice-etl/sluice/connectors/format"
)

// rowEncoder makes rows of RowBinary, the form of the server's own types: no value passes
// through text, and rows put one behind the other are a block. A kept row is
//
//	what its columns are, 4 bytes; shape, a varint; the row
//
// What a value cannot be is found here, by the types that the table had at Open.
type rowEncoder struct {
	mapper  *table.Mapper
	columns []sinkColumn
	schema  uint32
	nested  nested
}

// Begin reads a batch.
func (e *rowEncoder) Begin(rows *connectors.Rows) error {
	e.mapper.Begin(rows)
	return nil
}

// Append appends the kept form of row i.
func (e *rowEncoder) Append(dst []byte, i int) ([]byte, error) {
	if _, err := e.mapper.Op(i); err != nil {
		return dst, err
	}
	shape := e.mapper.Shape(i)
	dst = binary.AppendUvarint(binary.LittleEndian.AppendUint32(dst, e.schema), shape)
	at := len(dst)
	e.nested.begin()
	for c := range e.columns {
		if !e.mapper.Has(shape, c) {
			continue
		}
		col := &e.columns[c]
		v := e.mapper.Value(i, c)
		if v.IsNull() && !col.codec.nullable {
			return dst, &deferred.Refused{Kind: "null", Reason: fmt.Sprintf("column %s must have a value: it is %s, and not Nullable(%s)", col.name, col.text, col.text)}
		}
		var err error
		if dst, err = col.codec.value(dst, v); err != nil {
			return dst, &deferred.Refused{Kind: "type", Reason: fmt.Sprintf("column %s (%s): %s", col.name, col.text, err)}
		}
		if !e.nested.fits(c, v) {
			return dst, &deferred.Refused{Kind: "nested", Reason: fmt.Sprintf("column %s must have as many values as those that its name begins like: they are one Nested", col.name)}
		}
	}
	if len(dst) == at {
		return dst, &deferred.Refused{Kind: "empty", Reason: "the row has no value for any column"}
	}
	return dst, nil
}

// nested keeps the arrays of a Nested at one length, which the server wants of all whose
// names are alike up to a dot: a.k and a.v.
type nested struct {
	first   []int // of each column: the first one of its Nested; -1 for none
	lengths []int // by the first column: of the arrays of a row, -1 where there was none yet
}

func newNested(cols []sinkColumn) nested {
	n := nested{first: make([]int, len(cols)), lengths: make([]int, len(cols))}
	seen := map[string]int{}
	for i := range cols {
		n.first[i] = -1
		name, _, dot := strings.Cut(cols[i].name, ".")
		if !dot || !strings.HasPrefix(cols[i].text, "Array(") {
			continue
		}
		if _, ok := seen[name]; !ok {
			seen[name] = i
		}
		n.first[i] = seen[name]
	}
	return n
}

func (n *nested) begin() {
	for i := range n.lengths {
		n.lengths[i] = -1
	}
}

// fits reports whether the array of a column is as long as those before it.
func (n *nested) fits(column int, list connectors.Value) bool {
	if n.first[column] < 0 {
		return true
	}
	want := &n.lengths[n.first[column]]
	if *want < 0 {
		*want = format.Len(list.Raw())
		return true
	}
	return *want == format.Len(list.Raw())
}

// schemaOf tells columns from any others: their names, order and types.
func schemaOf(cols []sinkColumn) uint32 {
	d := xxhash.New()
	for i := range cols {
		_, _ = fmt.Fprintf(d, "%q %q %t\n", cols[i].name, cols[i].text, cols[i].hasDefault)
	}
	return uint32(d.Sum64())
}

// keyLength is how many bytes of a kept row tell its columns; 0 for damage.
func keyLength(row []byte) int {
	if len(row) > 5 {
		if _, n := binary.Uvarint(row[4:]); n > 0 {
			return 4 + n
		}
	}
	return 0
}

func takeKey(key string) (schema uint32, shape uint64) {
	shape, _ = binary.Uvarint([]byte(key[4:]))
	return binary.LittleEndian.Uint32([]byte(key)), shape
}

// appendText appends text or bytes as RowBinary has them.
func appendText[T string | []byte](dst []byte, text T) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(text))), text...)
}
