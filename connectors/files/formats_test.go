package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/connectortest"
	"github.com/sluice-etl/sluice/storage"
	"github.com/sluice-etl/sluice/storage/mem"
)

func pair(name string, t any) map[string]any { return map[string]any{name: t} }

// goldenColumns are of every type.
func goldenColumns() []any {
	return []any{
		pair("id", "int"), pair("i8", "int8?"), pair("u16", "uint16?"), pair("u32", "uint32?"), pair("f32", "float32?"), pair("f64", "float?"),
		pair("ok", "bool?"), pair("d9", "decimal(9, 2)?"), pair("d18", "decimal(18, 4)?"), pair("d38", "decimal(38, 10)?"), pair("text", "string?"), pair("raw", "bytes?"),
		pair("at", "timestamp?"), pair("local_at", "timestamp_local?"), pair("day", "date?"), pair("clock", "time?"), pair("took", "duration?"), pair("u", "uuid?"),
		pair("doc", "json?"), pair("tags", []any{"string?"}), pair("grid", []any{[]any{"int"}}),
		pair("item", []any{pair("sku", "string"), pair("prices", []any{"decimal(20, 3)"})}), pair("attrs", "dictionary(int?)"),
	}
}

const goldenFull = `{"id":9223372036854775807,"i8":-128,"u16":65535,"u32":4294967295,"f32":1.5,"f64":-2.5e-10,"ok":true,"d9":-1234567.89,"d18":12345678901234.5678,` +
	`"d38":-1234567890123456789012345678.0123456789,"text":"a \"quoted\", text\nof two lines","raw":"AP/+gA==","at":"2026-01-31T23:59:59.123456Z","local_at":"2026-01-31T23:59:59.5",` +
	`"day":"1969-12-31","clock":"23:59:59.999999","took":"1h30m0s","u":"00112233-4455-6677-8899-aabbccddeeff","doc":{"a":[1,null,"x"]},"tags":["a",null,""],` +
	`"grid":[[],[1,2],[3]],"item":{"sku":"s","prices":[0.001,-99999999999999999.999]},"attrs":{"x":1,"y":null}}`

// goldenLeast has the least integer, NaN and nulls, empty text and empty lists.
const goldenLeast = `{"id":-9223372036854775808,"i8":null,"u16":0,"u32":0,"f32":"NaN","f64":"-Infinity","ok":false,"d9":0.00,"d18":null,"d38":99999999999999999999999999.9999999999,"text":"","raw":"",` +
	`"at":"1969-12-31T23:59:59.999999Z","local_at":null,"day":null,"clock":null,"took":null,"u":null,"doc":null,"tags":[],"grid":[],"item":{"sku":"","prices":[]},"attrs":{}}`

// goldenAbsent lacks what may be null.
const goldenAbsent = `{"id":0,"tags":["x"],"grid":[[1]],"item":{"sku":"x","prices":[]},"attrs":{"k":5}}`

var goldenNulls = `{"id":0,"i8":null,"u16":null,"u32":null,"f32":null,"f64":null,"ok":null,"d9":null,"d18":null,"d38":null,"text":null,"raw":null,"at":null,"local_at":null,` +
	`"day":null,"clock":null,"took":null,"u":null,"doc":null,"tags":["x"],"grid":[[1]],"item":{"sku":"x","prices":[]},"attrs":{"k":5}}`

func formatWith(name string, cols []any, more map[string]any) connectors.FormatConfig {
	options := map[string]any{"columns": cols}
	for k, v := range more {
		options[k] = v
	}
	return connectors.FormatConfig{Name: name, Options: options}
}

// readBack reads files as the source does.
func readBack(t *testing.T, path string, f connectors.FormatConfig) []string {
	t.Helper()
	rows, err := readAll(t.Context(), path, f)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func readAll(ctx context.Context, path string, f connectors.FormatConfig) ([]string, error) {
	c := *newSourceConfig(kindFile).(*SourceConfig)
	c.Path, c.Format = path, f
	s, err := NewSource(c)
	if err != nil {
		return nil, err
	}
	splits, err := s.Splits(ctx, nil)
	if err != nil {
		if strings.Contains(err.Error(), "there is no file") {
			err = nil
		}
		return nil, err
	}
	return readRows(ctx, s, splits)
}

func readRows(ctx context.Context, s *Source, splits []connectors.Split) (rows []string, err error) {
	r, err := s.Reader(connectors.ReaderEnv{Budget: 4 << 20, Batches: new(connectors.BatchPool)}, splits)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for {
		b, err := r.Poll(ctx)
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return rows, err
		}
		for _, rec := range b.Records {
			rows = append(rows, string(rec.Value))
		}
		b.Recycle()
	}
}

func TestEveryTypeComesBackFromFilesOfColumns(t *testing.T) {
	for name, compressions := range map[string][]string{
		formatAvro: {"none", "deflate", "snappy", "zstd"}, formatParquet: {"none", "gzip", "zstd", "snappy", "lz4"}, formatCSV: {"none", "zstd"},
	} {
		for _, compression := range compressions {
			t.Run(name+"/"+compression, func(t *testing.T) {
				path := "mem://golden-" + name + "-" + compression
				store, err := storage.Open(path)
				if err != nil {
					t.Fatal(err)
				}
				f := formatWith(name, goldenColumns(), nil)
				b := newBench(t, store, func(c *SinkConfig) { c.Format, c.Compression = f, compression })
				b.write(goldenFull, goldenLeast)
				b.checkpoint(false)
				b.write(goldenAbsent)
				b.checkpoint(true)
				if files := b.visible(); len(files) != 1 {
					t.Fatalf("files %q", files)
				}
				if got, want := readBack(t, path, f), []string{goldenFull, goldenLeast, goldenNulls}; !slices.Equal(got, want) {
					t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			})
		}
	}
}

func TestRowsThatColumnsCannotHoldAreRefusedOneByOne(t *testing.T) {
	for value, want := range map[string]string{
		`{"id":1.5}`:          "column id: an integer is wanted",
		`{"id":null}`:         "column id: there is no value",
		`{}`:                  "column id: there is no value",
		`null`:                "tombstone",
		`{"id":1,"i8":128}`:   "column i8: the integer does not fit 8 bits",
		`{"id":1,"u16":-1}`:   "column u16",
		`{"id":1,"d9":1.234}`: "column d9: the number has more than 2 digits",
		`{"id":1,"d38":100000000000000000000000000000}`:  "column d38",
		`{"id":1,"at":"yesterday"}`:                      "column at: a point in time",
		`{"id":1,"at":"2026-01-31T00:00:00.1234567Z"}`:   "column at: the time is finer than a microsecond",
		`{"id":1,"raw":"%"}`:                             "column raw: bytes are wanted",
		`{"id":1,"tags":"x"}`:                            "column tags: a list is wanted",
		`{"id":1,"tags":[],"grid":[[1],["x"]]}`:          "column grid: element 1: element 0: an integer",
		`{"id":1,"tags":[],"grid":[],"item":{"sku":1}}`:  "column item: field sku",
		`{"id":1,"tags":[],"grid":[],"item":{"sku":""}}`: "column item: field prices: there is no value",
	} {
		b := newBench(t, mem.New(), func(c *SinkConfig) { c.Format = formatWith(formatParquet, goldenColumns(), nil) })
		err := b.writer.Write(t.Context(), rowsOf([]byte(goldenFull), []byte(value), []byte(goldenLeast)))
		refused, ok := err.(*connectors.RowsError) //nolint:errorlint // returned as it is
		if !ok || len(refused.Rows) != 1 || refused.Rows[0].Row != 1 || !strings.Contains(refused.Rows[0].Reason, want) {
			t.Errorf("%s: %v, want %s", value, err, want)
		}
		if c := b.checkpoint(true).Committables; c[0].Records != 2 {
			t.Errorf("%s: %d records are published", value, c[0].Records)
		}
	}
}

func TestFilesOfColumnsAreGoneOnWithFromAnyPosition(t *testing.T) {
	cols := []any{pair("id", "int"), pair("text", "string?")}
	for _, name := range laidOut {
		t.Run(name, func(t *testing.T) {
			path := "mem://positions-" + name
			store, err := storage.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			f := formatWith(name, cols, nil)
			b := newBench(t, store, func(c *SinkConfig) { c.Format = f })
			var want []string
			for i := range 2500 {
				want = append(want, fmt.Sprintf(`{"id":%d,"text":"line\n%d"}`, i, i))
			}
			for i := range 5 {
				b.write(want[i*500 : i*500+500]...)
				b.checkpoint(i == 4)
			}
			c := *newSourceConfig(kindFile).(*SourceConfig)
			c.Path, c.Format = path, f
			s, err := NewSource(c)
			if err != nil {
				t.Fatal(err)
			}
			splits, err := s.Splits(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			for at := 0; ; {
				if got, err := readRows(t.Context(), s, splits); err != nil || !slices.Equal(got, want[at:]) {
					t.Fatalf("%d rows come from position %d, want %d: %v", len(got), splits[0].Offset, len(want)-at, err)
				}
				r, err := s.Reader(connectors.ReaderEnv{Budget: 4 << 20, Batches: new(connectors.BatchPool)}, splits)
				if err != nil {
					t.Fatal(err)
				}
				batch, err := r.Poll(t.Context())
				if err != nil {
					break
				}
				at += len(batch.Records)
				splits[0] = r.Position(0, batch.Next)
				batch.Recycle()
				if err := r.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestSinksOfColumnsKeepTheContract(t *testing.T) {
	cols := []any{pair("partition", "int"), pair("offset", "int")}
	for _, name := range laidOut {
		t.Run(name, func(t *testing.T) {
			f := formatWith(name, cols, nil)
			connectortest.TestSink(t, func(t *testing.T) connectortest.Sink {
				path := "mem://contract-" + strings.ReplaceAll(strings.ToLower(t.Name()), "/", "-")
				target := storeTarget(kindFile, path, func(c *SinkConfig) { c.Format = f; c.Roll.Size = 4 << 10 })
				target.Ordered = false
				target.Read = func(ctx context.Context) ([]string, error) { return readAll(ctx, path, f) }
				return target
			})
		})
	}
}
