package parquet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// written is a file of rows as another program's writer has it.
func written[T any](t *testing.T, rows []T, options ...parquet.WriterOption) []byte {
	t.Helper()
	var out bytes.Buffer
	w := parquet.NewGenericWriter[T](&out, options...)
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// readFrom reads a file from a row on.
func readFrom(file []byte, row int64, maxLine int) (rows []string, err error) {
	r, err := Open(bytes.NewReader(file), int64(len(file)), maxLine)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	r.Skip(row)
	for {
		b, err := r.Next(nil)
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return rows, err
		}
		rows = append(rows, string(b))
	}
}

// forged is a file of one column in which the last row group's page of a number has another
// header.
func forged(t *testing.T, file []byte, page int, change func(*format.PageHeader)) []byte {
	t.Helper()
	f, err := parquet.OpenFile(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	meta := f.Metadata()
	m := &meta.RowGroups[len(meta.RowGroups)-1].Columns[0].MetaData
	at := m.DataPageOffset
	if m.DictionaryPageOffset != 0 {
		at = m.DictionaryPageOffset
	}
	end := at + m.TotalCompressedSize
	var size int
	for ; ; page-- {
		var h header
		if h, size, err = parseHeader(file[at:]); err != nil {
			t.Fatal(err)
		}
		if page == 0 {
			break
		}
		at += int64(size) + h.packed
	}
	var h format.PageHeader
	protocol := new(thrift.CompactProtocol)
	if err := thrift.Unmarshal(protocol, file[at:at+int64(size)], &h); err != nil {
		t.Fatal(err)
	}
	change(&h)
	head, err := thrift.Marshal(protocol, &h)
	if err != nil {
		t.Fatal(err)
	}
	longer := int64(len(head) - size)
	if at < m.DataPageOffset {
		m.DataPageOffset += longer
	}
	m.TotalCompressedSize += longer
	footer, err := thrift.Marshal(protocol, meta)
	if err != nil {
		t.Fatal(err)
	}
	out := slices.Concat(file[:at], head, file[at+int64(size):end], footer)
	return append(binary.LittleEndian.AppendUint32(out, uint32(len(footer))), "PAR1"...)
}

type text struct {
	A string `parquet:"a,snappy"`
}

type code struct {
	A string `parquet:"a,dict,snappy"`
}

func TestPagesTakeNoMoreMemoryThanTheyAreAllowed(t *testing.T) {
	plain := written(t, []text{{"one"}, {"two"}, {"three"}}, parquet.MaxRowsPerRowGroup(2))
	coded := written(t, []code{{"one"}, {"two"}, {"one"}})
	none := func(*format.PageHeader) {}
	for _, c := range []struct {
		name   string
		file   []byte
		page   int
		change func(*format.PageHeader)
		want   string
	}{
		{"as it was", plain, 0, none, ""},
		{"with a dictionary", coded, 0, none, ""},
		{"bytes", plain, 0, func(h *format.PageHeader) { h.CompressedPageSize = math.MaxInt32 }, "a page claims 2147483647 bytes"},
		{"bytes of a dictionary", coded, 0, func(h *format.PageHeader) { h.CompressedPageSize = math.MaxInt32 }, "a page claims 2147483647 bytes"},
		{"less than none", plain, 0, func(h *format.PageHeader) { h.UncompressedPageSize = -1 }, "a page claims"},
		{"unpacked bytes", plain, 0, func(h *format.PageHeader) { h.UncompressedPageSize = math.MaxInt32 }, ErrTooLarge.Error()},
		{"unpacked bytes of a dictionary", coded, 0, func(h *format.PageHeader) { h.UncompressedPageSize = math.MaxInt32 }, ErrTooLarge.Error()},
		{"values", plain, 0, func(h *format.PageHeader) { h.DataPageHeaderV2.V.NumValues = math.MaxInt32 }, ErrTooLarge.Error()},
		{"values of a dictionary", coded, 0, func(h *format.PageHeader) { h.DictionaryPageHeader.V.NumValues = math.MaxInt32 }, ErrTooLarge.Error()},
		{"values behind a dictionary", coded, 1, func(h *format.PageHeader) { h.DataPageHeaderV2.V.NumValues = math.MaxInt32 }, ErrTooLarge.Error()},
		{"a dictionary over the data", coded, 0, func(h *format.PageHeader) { h.CompressedPageSize++ }, "column a: its dictionary reaches into its pages of data"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := forged(t, c.file, c.page, c.change)
			for from := range int64(2) {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				_, err := readFrom(file, from, 1<<20)
				runtime.ReadMemStats(&after)
				if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
					t.Errorf("from row %d: error %v, want %q", from, err, c.want)
				}
				if took := after.TotalAlloc - before.TotalAlloc; took > 64<<20 {
					t.Errorf("from row %d: %d bytes of memory are taken", from, took)
				}
			}
		})
	}
}

func TestFootersTakeNoMoreMemoryThanTheirFileHas(t *testing.T) {
	whole := written(t, []text{{"one"}})
	claim := binary.LittleEndian.AppendUint32(whole[:len(whole)-8:len(whole)-8], math.MaxUint32)
	footer := []byte{0x15, 2, 0x19, 0xfc, 0xff, 0xff, 0xff, 0xff, 7} // a schema of 2147483647 elements
	list := binary.LittleEndian.AppendUint32(append([]byte("PAR1"), footer...), uint32(len(footer)))
	for name, file := range map[string][]byte{"length": append(claim, "PAR1"...), "elements": append(list, "PAR1"...)} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := readFrom(file, 0, 1<<20)
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%s: no error", name)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 64<<20 {
			t.Errorf("%s: %d bytes of memory are taken: %v", name, took, err)
		}
	}
}

// strict fails as a storage does that is asked for what no file has.
type strict struct {
	*bytes.Reader
	asked []int64 // offsets that no file has
}

func (s *strict) ReadAt(b []byte, off int64) (int, error) {
	if off < 0 || off > s.Size() {
		s.asked = append(s.asked, off)
	}
	return s.Reader.ReadAt(b, off)
}

// An offset that is damaged is not asked of the storage: its error would be taken for one
// that passes.
func TestOffsetsOutsideOfTheFileAreNotAskedFor(t *testing.T) {
	for _, offset := range []int64{-5, 1 << 40} {
		file := written(t, []text{{"one"}})
		f, err := parquet.OpenFile(bytes.NewReader(file), int64(len(file)))
		if err != nil {
			t.Fatal(err)
		}
		meta := f.Metadata()
		meta.RowGroups[0].Columns[0].MetaData.DataPageOffset = offset
		meta.RowGroups[0].Columns[0].MetaData.DictionaryPageOffset = 0
		in := &strict{Reader: bytes.NewReader(withFooter(t, file, meta))}
		r, err := Open(in, in.Size(), 1<<20)
		if err == nil {
			_, err = r.Next(nil)
		}
		if err == nil || errors.Is(err, io.EOF) || len(in.asked) > 0 {
			t.Errorf("offset %d: %v, with reads at %v", offset, err, in.asked)
		}
	}
}

// A row group that says of itself that it has more rows than its pages is damaged: what is
// missing is not taken for its end.
func TestRowsThatAreMissingAreAnError(t *testing.T) {
	file := written(t, []text{{"one"}, {"two"}})
	f, err := parquet.OpenFile(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	meta := f.Metadata()
	meta.NumRows, meta.RowGroups[0].NumRows = 3, 3
	for _, from := range []int64{0, 1, 2} {
		if rows, err := readFrom(withFooter(t, file, meta), from, 1<<20); err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("from %d: %q, %v", from, rows, err)
		}
	}
}

// withFooter is a file with another footer.
func withFooter(t *testing.T, file []byte, meta *format.FileMetaData) []byte {
	t.Helper()
	footer, err := thrift.Marshal(new(thrift.CompactProtocol), meta)
	if err != nil {
		t.Fatal(err)
	}
	end := len(file) - trailerSize - int(binary.LittleEndian.Uint32(file[len(file)-trailerSize:]))
	out := append(file[:end:end], footer...)
	return append(binary.LittleEndian.AppendUint32(out, uint32(len(footer))), "PAR1"...)
}

func TestPagesOfEveryKindAreReadFromAnyRow(t *testing.T) {
	type row struct {
		ID   int64    `parquet:"id"`
		Code string   `parquet:"code,dict"`
		Note string   `parquet:"note,zstd"`
		Tags []string `parquet:"tags,list"`
	}
	var rows []row
	for i := range 3000 {
		r := row{int64(i), fmt.Sprint("code", i%50), strings.Repeat(fmt.Sprint("note ", i), 20), nil}
		if i%3 == 0 {
			r.Tags = []string{"x", fmt.Sprint(i)}
		}
		if i == 1700 {
			r.Note = strings.Repeat("long", 50_000) // in the statistics of its page too
		}
		rows = append(rows, r)
	}
	for name, options := range map[string][]parquet.WriterOption{
		"version 1": {parquet.DataPageVersion(1), parquet.PageBufferSize(4 << 10), parquet.MaxRowsPerRowGroup(1000)},
		"version 2": {parquet.DataPageVersion(2), parquet.PageBufferSize(4 << 10), parquet.MaxRowsPerRowGroup(2000), parquet.DataPageStatistics(true)},
	} {
		file := written(t, rows, options...)
		for _, from := range []int64{0, 1, 999, 1000, 1701, 2999} {
			got, err := readFrom(file, from, 1<<20)
			if err != nil || len(got) != len(rows)-int(from) || !strings.HasPrefix(got[0], fmt.Sprintf(`{"id":%d,"code":"code%d",`, from, from%50)) {
				t.Errorf("%s, from row %d: %d rows, %v", name, from, len(got), err)
			}
		}
	}
}

// counted counts the requests to a store.
type counted struct {
	*bytes.Reader
	n int
}

func (c *counted) ReadAt(b []byte, off int64) (int, error) {
	c.n++
	return c.Reader.ReadAt(b, off)
}

func TestPagesAreLookedAtWithoutRequestsOfTheirOwn(t *testing.T) {
	var rows []text
	for i := range 20_000 {
		rows = append(rows, text{fmt.Sprint(i, " ", i*7919)})
	}
	file := written(t, rows, parquet.PageBufferSize(8<<10))
	through, alone := &counted{Reader: bytes.NewReader(file)}, &counted{Reader: bytes.NewReader(file)}
	r, err := Open(through, int64(len(file)), 1<<20)
	for err == nil {
		_, err = r.Next(nil)
	}
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	f, err := parquet.OpenFile(alone, int64(len(file)), parquet.SkipBloomFilters(true), parquet.SkipPageIndex(true))
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]parquet.Row, 64)
	for in := f.RowGroups()[0].Rows(); err == nil; {
		_, err = in.ReadRows(buf)
	}
	if through.n > alone.n+alone.n/10 { // a header that is cut between two of them is read again
		t.Errorf("%d requests, and %d without", through.n, alone.n)
	}
}

func TestHeadersOfPages(t *testing.T) {
	statistics := format.Statistics{Max: bytes.Repeat([]byte("x"), 300), NullCount: 1 << 40, MinValue: []byte("a")}
	for _, h := range []format.PageHeader{
		{Type: format.DataPage, UncompressedPageSize: 1 << 20, CompressedPageSize: 7, CRC: -5, DataPageHeader: thrift.New(format.DataPageHeader{NumValues: 9, Statistics: statistics})},
		{Type: format.DictionaryPage, UncompressedPageSize: 1, DictionaryPageHeader: thrift.New(format.DictionaryPageHeader{NumValues: 1 << 30})},
		{Type: format.DataPageV2, CompressedPageSize: math.MaxInt32, DataPageHeaderV2: thrift.New(format.DataPageHeaderV2{NumValues: 3, NumNulls: 1, IsCompressed: thrift.New(true), Statistics: statistics})},
	} {
		b, err := thrift.Marshal(new(thrift.CompactProtocol), &h)
		if err != nil {
			t.Fatal(err)
		}
		got, size, err := parseHeader(append(bytes.Clone(b), "behind"...))
		values := h.DataPageHeader.V.NumValues + h.DictionaryPageHeader.V.NumValues + h.DataPageHeaderV2.V.NumValues
		want := header{unpacked: int64(h.UncompressedPageSize), packed: int64(h.CompressedPageSize), values: int64(values)}
		if err != nil || size != len(b) || got != want {
			t.Errorf("%+v of %d bytes, %v; want %+v of %d", got, size, err, want, len(b))
		}
		for n := range b {
			if _, _, err := parseHeader(b[:n]); !errors.Is(err, errShort) {
				t.Fatalf("%d of %d bytes: %v", n, len(b), err)
			}
		}
	}
}

func FuzzHeader(f *testing.F) {
	f.Add([]byte("\x15\x04\x15\x10\x15\x12\x4c\x15\x04\x15\x00\x12\x00\x00"))
	f.Add(bytes.Repeat([]byte{0x1c}, 100))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, size, err := parseHeader(b); err == nil && size > len(b) {
			t.Errorf("%d of %d bytes", size, len(b))
		}
	})
}
