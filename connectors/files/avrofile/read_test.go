package avrofile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"slices"
	"testing"

	"github.com/twmb/avro/ocf"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/files/typed"
)

var columns = []connectors.Column{
	{Name: "id", Type: connectors.Type{Base: connectors.Integer}}, {Name: "text", Type: connectors.Type{Base: connectors.Text, Nullable: true}},
	{Name: "tags", Type: connectors.Type{Base: connectors.Sequence, Elem: &connectors.Type{Base: connectors.Text}}},
}

func file(t testing.TB, compression string, rows ...string) []byte {
	t.Helper()
	schema, err := Schema(columns)
	if err != nil {
		t.Fatal(err)
	}
	out, mark := Head(schema, compression, "")
	e, err := typed.NewEncoder(columns, typed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := NewPacker(compression, mark)
	for _, row := range rows { // a block each
		e.Begin([][]byte{[]byte(row)})
		data, err := e.Append(nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		if out, err = p.Pack(out, data, 1); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func read(data []byte, skip int64) (rows []string, err error) {
	r, err := Open(bytes.NewReader(data), 1<<20)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	r.Skip(skip)
	for {
		row, err := r.Next(nil)
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil || len(rows) > 1000 {
			return rows, err
		}
		rows = append(rows, string(row))
	}
}

var golden = []string{`{"id":1,"text":"a","tags":[]}`, `{"id":-2,"text":null,"tags":["x","y"]}`, `{"id":3,"text":"","tags":[""]}`}

func TestTheLibraryReadsWhatIsWritten(t *testing.T) {
	for _, compression := range Compressions {
		r, err := ocf.NewReader(bytes.NewReader(file(t, compression, golden...)))
		if err != nil {
			t.Fatal(err)
		}
		for i := range golden {
			var row map[string]any
			if err := r.Decode(&row); err != nil {
				t.Fatalf("%s, row %d: %v", compression, i, err)
			}
		}
		_ = r.Close()
	}
}

func TestReadingGoesOnFromAnyRow(t *testing.T) {
	data := file(t, "deflate", golden...)
	for i := range len(golden) + 1 {
		if got, err := read(data, int64(i)); err != nil || !slices.Equal(got, golden[i:]) {
			t.Errorf("from row %d: %q, %v", i, got, err)
		}
	}
}

func TestADamagedFileIsTold(t *testing.T) {
	data := file(t, "none", golden...)
	head, _ := read(data, 0)
	if len(head) != len(golden) {
		t.Fatal(head)
	}
	for cut := range data {
		got, err := read(data[:cut], 0)
		whole := slices.Equal(got, golden[:len(got)])
		if err != nil && !errors.Is(err, ErrDamaged) || err == nil && len(got) == len(golden) || !whole {
			t.Errorf("cut at %d: %q, %v", cut, got, err)
		}
	}
}

// FuzzOpen reads files of strangers: an error, never a panic and never without end.
func FuzzOpen(f *testing.F) {
	for _, compression := range Compressions {
		data := file(f, compression, golden...)
		f.Add(data)
		for i := range data {
			damaged := bytes.Clone(data)
			damaged[i] ^= 0xff
			f.Add(damaged)
		}
	}
	f.Fuzz(func(_ *testing.T, data []byte) { _, _ = read(data, 0) })
}

// A list of nulls takes no bytes but its count.
func TestFewBytesDoNotBecomeALongRow(t *testing.T) {
	head, mark := Head(`{"type":"record","name":"r","fields":[{"name":"f","type":{"type":"array","items":"null"}}]}`, "none", "")
	row := append(bytes.Repeat(binary.AppendVarint(nil, 1<<20), 100), 0)
	block, err := NewPacker("none", mark).Pack(nil, row, 1)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Open(bytes.NewReader(append(head, block...)), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := r.Next(nil); !errors.Is(err, ErrTooLong) || cap(out) > 4<<20 {
		t.Errorf("%d bytes, %v", len(out), err)
	}
}

func TestAHeadThatClaimsMoreThanThereIsMemory(t *testing.T) {
	head := append([]byte("Obj\x01"), 2, 2, 'k') // one entry, whose key has a byte
	head = binary.AppendVarint(head, math.MaxInt64)
	if _, err := Open(bytes.NewReader(head), 1<<20); !errors.Is(err, ErrDamaged) {
		t.Errorf("error %v", err)
	}
}
