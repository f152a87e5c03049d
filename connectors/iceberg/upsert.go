package iceberg

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/compute"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/sluice-etl/sluice/connectors/deferred/table"
)

// rowBatch is rows on their way into files.
type rowBatch struct {
	// data are the rows to write; nil for none.
	data arrow.RecordBatch
	// keys are the keys whose older rows go, each once, those of data among them; nil
	// where rows are only added.
	keys arrow.RecordBatch
	// hashes are those of the keys.
	hashes []uint64
	// changes is how many rows were added, replaced or deleted.
	changes int64
}

func (r *rowBatch) release() {
	for _, b := range []arrow.RecordBatch{r.data, r.keys} {
		if b != nil {
			b.Release()
		}
	}
}

// newBatch leaves of rows what is to be written: without refused ones, and with keys only
// the last change of each. Op says what each row does; 0 is a refused one.
func newBatch(ctx context.Context, rows arrow.RecordBatch, op []table.Op, keys []int, seed maphash.Seed) (*rowBatch, error) {
	if len(keys) == 0 {
		write := places(op, table.Write)
		data, err := pick(ctx, rows, write, nil)
		return &rowBatch{data: data, changes: int64(len(write))}, err
	}
	last, hashes, err := lastChanges(rows, op, keys, seed)
	if err != nil {
		return nil, err
	}
	out := &rowBatch{hashes: hashes, changes: int64(len(last))}
	if out.keys, err = pick(ctx, rows, last, keys); err != nil {
		return nil, err
	}
	write := slices.DeleteFunc(last, func(i int64) bool { return op[i] != table.Write })
	if out.data, err = pick(ctx, rows, write, nil); err != nil {
		out.release()
		return nil, err
	}
	return out, nil
}

// places are the rows that do one thing.
func places(op []table.Op, want table.Op) []int64 {
	out := make([]int64, 0, len(op))
	for i, o := range op {
		if o == want {
			out = append(out, int64(i))
		}
	}
	return out
}

// lastChanges are the places of the last change of each key, in their order.
func lastChanges(rows arrow.RecordBatch, op []table.Op, keys []int, seed maphash.Seed) (last []int64, hashes []uint64, err error) {
	seen := make(map[string]struct{}, len(op))
	var key []byte
	for i := len(op) - 1; i >= 0; i-- {
		if op[i] == 0 {
			continue
		}
		key = key[:0]
		for _, c := range keys {
			if key, err = appendKey(key, rows.Column(c), i); err != nil {
				return nil, nil, err
			}
		}
		if _, later := seen[string(key)]; later {
			continue
		}
		seen[string(key)] = struct{}{}
		last, hashes = append(last, int64(i)), append(hashes, maphash.Bytes(seed, key))
	}
	slices.Reverse(last)
	return last, hashes, nil
}

// appendKey appends the value of a key column in row i: equal values alike, others not.
func appendKey(dst []byte, column arrow.Array, i int) ([]byte, error) {
	switch a := column.(type) {
	case *array.Boolean:
		if a.Value(i) {
			return append(dst, 1), nil
		}
		return append(dst, 0), nil
	case *array.Int32:
		return binary.BigEndian.AppendUint32(dst, uint32(a.Value(i))), nil
	case *array.Int64:
		return binary.BigEndian.AppendUint64(dst, uint64(a.Value(i))), nil
	case *array.Date32:
		return binary.BigEndian.AppendUint32(dst, uint32(a.Value(i))), nil
	case *array.Time64:
		return binary.BigEndian.AppendUint64(dst, uint64(a.Value(i))), nil
	case *array.Timestamp:
		return binary.BigEndian.AppendUint64(dst, uint64(a.Value(i))), nil
	case *array.Decimal128:
		n := a.Value(i)
		return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(dst, uint64(n.HighBits())), n.LowBits()), nil
	case *array.FixedSizeBinary:
		return append(dst, a.Value(i)...), nil
	case *extensions.UUIDArray:
		return appendKey(dst, a.Storage(), i)
	case *array.String:
		return append(binary.AppendUvarint(dst, uint64(len(a.Value(i)))), a.Value(i)...), nil
	case *array.Binary:
		return append(binary.AppendUvarint(dst, uint64(len(a.Value(i)))), a.Value(i)...), nil
	}
	return dst, fmt.Errorf("a column of %s cannot be a key", column.DataType())
}

// pick makes a batch of some rows and columns of another, all of them for nil; nil where
// there is no row.
func pick(ctx context.Context, from arrow.RecordBatch, rows []int64, columns []int) (arrow.RecordBatch, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	schema := from.Schema()
	if columns == nil {
		if int64(len(rows)) == from.NumRows() {
			from.Retain()
			return from, nil
		}
		for c := range schema.NumFields() {
			columns = append(columns, c)
		}
	}
	b := array.NewInt64Builder(memory.DefaultAllocator)
	defer b.Release()
	b.AppendValues(rows, nil)
	at := b.NewArray()
	defer at.Release()
	fields, out := make([]arrow.Field, 0, len(columns)), make([]arrow.Array, 0, len(columns))
	defer func() {
		for _, a := range out {
			a.Release()
		}
	}()
	for _, c := range columns {
		a, err := compute.TakeArray(ctx, from.Column(c), at)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", schema.Field(c).Name, err)
		}
		fields, out = append(fields, schema.Field(c)), append(out, a)
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), out, int64(len(rows))), nil
}

// inSteps orders the files of one commit, which come in the order of their rows. Deletes
// do not reach rows of their own snapshot: so where two have a key in common, which are
// batches of one subtask or rows that more than one writes, the later one gets a step, and
// with it a snapshot, behind the other's.
func inSteps(files []*fileSet) {
	if len(files) < 2 {
		return
	}
	newest := map[uint64]int{} // step of the last file with a key
	for _, f := range files {
		for _, h := range f.hashes {
			if step, ok := newest[h]; ok {
				f.Step = max(f.Step, step+1)
			}
		}
		for _, h := range f.hashes {
			newest[h] = f.Step
		}
	}
}
