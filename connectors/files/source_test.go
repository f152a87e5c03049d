package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/connectortest"
	"github.com/sluice-etl/sluice/storage"
)

func sourceConfig(path string, change func(*SourceConfig)) SourceConfig {
	c := *newSourceConfig(kindFile).(*SourceConfig)
	c.Path = path
	if change != nil {
		change(&c)
	}
	return c
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func zip(t *testing.T, text string) string {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func numbered(n int, pad string) (text string, lines []string) {
	for i := range n {
		lines = append(lines, fmt.Sprintf(`{"n":%d%s}`, i, pad))
	}
	return strings.Join(lines, "\n") + "\n", lines
}

func TestFileSourceKeepsTheContract(t *testing.T) {
	short, shortLines := numbered(2500, "")
	long, longLines := numbered(120, `,"pad":"`+strings.Repeat("x", 9000)+`"`)
	huge := `"` + strings.Repeat("y", blockSize) + `"`
	connectortest.TestSource(t, func(t *testing.T) connectortest.Source {
		dir := t.TempDir()
		want := map[string][]string{}
		add := func(name, text string, lines ...string) {
			write(t, filepath.Join(dir, name), text)
			want[filepath.Join(dir, name)] = lines
		}
		add("a-short.jsonl", short, shortLines...)
		add("b-empty.jsonl", "")
		add("c-long.jsonl", long, longLines...)
		add("d-odd.jsonl", "\xef\xbb\xbf1\r\n\r\n2\n\n\n3\r\n\n  \n4", "1", "2", "3", "  ", "4")
		add("e-huge.jsonl", "1\n"+huge+"\n2", "1", huge, "2")
		add("f/g/zipped.jsonl.gz", zip(t, short)+zip(t, "last"), append(shortLines[:len(shortLines):len(shortLines)], "last")...)
		add("g-blank.jsonl", "\n\n\r\n")
		write(t, filepath.Join(dir, "_SUCCESS"), "no data")
		write(t, filepath.Join(dir, ".hidden", "x.jsonl"), "no data")
		return connectortest.Source{
			New:  func() (connectors.Source, error) { return NewSource(sourceConfig(dir, nil)) },
			Want: want,
		}
	})
}

func TestFileSourceFindsFiles(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a.jsonl", "b.jsonl", "b.txt", "day=1/c.jsonl", "day=2/d.jsonl"} {
		write(t, filepath.Join(dir, name), "{}\n")
	}
	for _, c := range []struct {
		path string
		want []string
	}{
		{"a.jsonl", []string{"a.jsonl"}},
		{"*.jsonl", []string{"a.jsonl", "b.jsonl"}},
		{"b.*", []string{"b.jsonl", "b.txt"}},
		{"day=*/*.jsonl", []string{"day=1/c.jsonl", "day=2/d.jsonl"}},
		{"day=[2-9]/d.jsonl", []string{"day=2/d.jsonl"}},
		{"day=1", []string{"day=1/c.jsonl"}},
		{"day=1/", []string{"day=1/c.jsonl"}},
		{"", []string{"a.jsonl", "b.jsonl", "b.txt", "day=1/c.jsonl", "day=2/d.jsonl"}},
	} {
		for _, prefix := range []string{dir, "file://" + dir} {
			t.Run(prefix[:4]+" "+c.path, func(t *testing.T) {
				s, err := NewSource(sourceConfig(prefix+"/"+c.path, nil))
				if err != nil {
					t.Fatal(err)
				}
				splits, err := s.Splits(context.Background(), nil)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, split := range splits {
					got = append(got, strings.TrimPrefix(split.ID, dir+"/"))
				}
				if strings.Join(got, " ") != strings.Join(c.want, " ") {
					t.Errorf("got %q, want %q", got, c.want)
				}
			})
		}
	}
	for _, path := range []string{"missing.jsonl", "missing/", "*.csv"} {
		s, err := NewSource(sourceConfig(filepath.Join(dir, path), nil))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Splits(context.Background(), nil); !connectors.IsPermanent(err) || !strings.Contains(err.Error(), path[:3]) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// readTo reads until stop says so or the source ends, and returns the error.
func readTo(t *testing.T, s *Source, splits []connectors.Split, stop func(n int) bool) ([]connectors.Split, []string, error) {
	t.Helper()
	r, err := s.Reader(connectors.ReaderEnv{Batches: connectors.NewBatchPool(4)}, splits)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var values []string
	for !stop(len(values)) {
		b, err := r.Poll(context.Background())
		if err != nil {
			return splits, values, err
		}
		for i := range b.Records {
			values = append(values, string(b.Records[i].Value))
		}
		splits[b.Split] = r.Position(b.Split, b.Next)
		b.Recycle()
	}
	return splits, values, nil
}

func toEnd(int) bool { return false }

func TestFileSourceRefusesFilesThatChanged(t *testing.T) {
	text, _ := numbered(3000, "")
	for _, c := range []struct {
		name   string
		change func(path string) error
		want   string // in the error; empty for none
	}{
		{"unchanged", func(string) error { return nil }, ""},
		{"grown", func(path string) error {
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteString("{}\n")
			return errors.Join(err, f.Close())
		}, ""},
		{"shrunk", func(path string) error { return os.Truncate(path, 100) }, "shrunk"},
		{"gone", os.Remove, "gone"},
		{"touched", func(path string) error { return os.Chtimes(path, time.Time{}, time.Unix(1, 0)) }, "changed"},
		{"rewritten longer", func(path string) error { return os.WriteFile(path, bytes.Repeat([]byte("x"), 2*len(text)), 0o644) }, "no line begins"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "in.jsonl")
			write(t, path, text)
			s, err := NewSource(sourceConfig(path, nil))
			if err != nil {
				t.Fatal(err)
			}
			splits, err := s.Splits(context.Background(), nil)
			if err != nil {
				t.Fatal(err)
			}
			splits, before, err := readTo(t, s, splits, func(n int) bool { return n > 0 })
			if err != nil {
				t.Fatal(err)
			}
			if err := c.change(path); err != nil {
				t.Fatal(err)
			}
			_, after, err := readTo(t, s, splits, toEnd)
			if c.want == "" {
				if !errors.Is(err, io.EOF) || len(before)+len(after) != 3000 {
					t.Errorf("%d records, then %v", len(before)+len(after), err)
				}
				return
			}
			if !connectors.IsPermanent(err) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v, want a permanent error that names the file and says %q", err, c.want)
			}
		})
	}
}

func TestFileSourceStopsAtALineThatIsTooLong(t *testing.T) {
	for _, c := range []struct {
		name, text string
		ok         bool
		at         string
	}{
		{"of the limit", "1\n" + strings.Repeat("x", 1<<10) + "\r\n2", true, ""},
		{"in the middle", "1\n" + strings.Repeat("x", 1<<10+1) + "\n2", false, "byte 2 "},
		{"at the end", "12\n" + strings.Repeat("x", 1<<10+1), false, "byte 3 "},
		{"over many blocks", "123\n" + strings.Repeat("x", 3*blockSize) + "\n2", false, "byte 4 "},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "in.jsonl")
			write(t, path, c.text)
			s, err := NewSource(sourceConfig(path, func(c *SourceConfig) { c.MaxLine = 1 << 10 }))
			if err != nil {
				t.Fatal(err)
			}
			splits, err := s.Splits(context.Background(), nil)
			if err != nil {
				t.Fatal(err)
			}
			_, values, err := readTo(t, s, splits, toEnd)
			if c.ok {
				if !errors.Is(err, io.EOF) || len(values) != 3 {
					t.Errorf("%d lines, then %v", len(values), err)
				}
				return
			}
			if !connectors.IsPermanent(err) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), c.at) || !strings.Contains(err.Error(), "max_line") {
				t.Errorf("got %v, want the file and %q", err, c.at)
			}
			if len(values) != 1 {
				t.Errorf("%d lines came before it", len(values))
			}
		})
	}
}

func TestFileSourceNamesDamagedCompression(t *testing.T) {
	text, _ := numbered(20000, "")
	whole := zip(t, text)
	for _, c := range []struct{ name, data string }{
		{"no gzip", text},
		{"cut off", whole[:len(whole)/2]},
		{"flipped", whole[:len(whole)-6] + "\x00\x00" + whole[len(whole)-4:]},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "in.jsonl.gz")
			write(t, path, c.data)
			s, err := NewSource(sourceConfig(path, nil))
			if err != nil {
				t.Fatal(err)
			}
			splits, err := s.Splits(context.Background(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := readTo(t, s, splits, toEnd); !connectors.IsPermanent(err) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestFileSourceWaitsForBatchesToComeBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "in.jsonl")
	text, _ := numbered(3000, `,"pad":"`+strings.Repeat("x", 3000)+`"`)
	write(t, path, text)
	s, err := NewSource(sourceConfig(path, nil))
	if err != nil {
		t.Fatal(err)
	}
	splits, err := s.Splits(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Reader(connectors.ReaderEnv{Budget: 1, Batches: connectors.NewBatchPool(4)}, splits)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var held []*connectors.Batch
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		b, err := r.Poll(ctx)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && len(held) > 0 {
			break
		}
		if err == nil {
			held = append(held, b)
		}
	}
	bytesHeld := 0
	for _, b := range held {
		for i := range b.Records {
			bytesHeld += len(b.Records[i].Value)
		}
		b.Recycle()
	}
	if bytesHeld > minBlocks*blockSize+blockSize/2 {
		t.Errorf("%d bytes were handed out beyond a budget of two blocks", bytesHeld)
	}
	if b, err := r.Poll(context.Background()); err != nil || len(b.Records) == 0 {
		t.Errorf("after the batches came back: %v", err)
	}
}

func TestFileSourcePollDoesNotAllocate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "in.jsonl")
	text, _ := numbered(70_000, `,"pad":"`+strings.Repeat("x", 100)+`"`)
	write(t, path, text)
	s, err := NewSource(sourceConfig(path, nil))
	if err != nil {
		t.Fatal(err)
	}
	splits, err := s.Splits(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Reader(connectors.ReaderEnv{Budget: 1, Batches: connectors.NewBatchPool(4)}, splits)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx := context.Background()
	poll := func() {
		b, err := r.Poll(ctx)
		if err != nil {
			t.Fatal(err)
		}
		b.Recycle()
	}
	for range 10 {
		poll()
	}
	if n := testing.AllocsPerRun(40, poll); n != 0 {
		t.Errorf("%v allocations a batch", n)
	}
}

func TestFileSourceRefusesWrongKeys(t *testing.T) {
	c := sourceConfig("s3://bucket/x", func(c *SourceConfig) {
		c.Compression, c.MaxLine, c.Format.Name = "brotli", 1, "xml"
	})
	err := c.Validate()
	for _, want := range []string{"path:", "s3:", "compression:", "max_line:", "format:"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
}

func TestFileSourceReachesTheEndOfFilesThatEndInEmptyLines(t *testing.T) {
	for _, text := range []string{"1\n\n\r\n", "\n\n", "", "1"} {
		path := filepath.Join(t.TempDir(), "in.jsonl")
		write(t, path, text)
		s, err := NewSource(sourceConfig(path, nil))
		if err != nil {
			t.Fatal(err)
		}
		splits, err := s.Splits(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		splits, _, err = readTo(t, s, splits, toEnd)
		if !errors.Is(err, io.EOF) || splits[0].Offset != int64(len(text)) || splits[0].Until != int64(len(text)) {
			t.Errorf("%q ends at %d of %d, %v", text, splits[0].Offset, splits[0].Until, err)
		}
	}
}

func BenchmarkPoll(b *testing.B) {
	path := filepath.Join(b.TempDir(), "in.jsonl")
	line := `{"pad":"` + strings.Repeat("x", 201) + "\"}\n"
	if err := os.WriteFile(path, []byte(strings.Repeat(line, 500_000)), 0o644); err != nil {
		b.Fatal(err)
	}
	s, err := NewSource(sourceConfig(path, nil))
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	splits, err := s.Splits(ctx, nil)
	if err != nil {
		b.Fatal(err)
	}
	pool := connectors.NewBatchPool(4)
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; {
		r, err := s.Reader(connectors.ReaderEnv{Batches: pool}, splits)
		if err != nil {
			b.Fatal(err)
		}
		for n < b.N {
			batch, err := r.Poll(ctx)
			if err != nil {
				break
			}
			n += len(batch.Records)
			batch.Recycle()
		}
		if err := r.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// linesOf is what the source must make of a text, in the plainest way.
func linesOf(text string) []string {
	var out []string
	for line := range strings.SplitSeq(strings.TrimPrefix(text, "\xef\xbb\xbf"), "\n") {
		if line = strings.TrimSuffix(line, "\r"); line != "" {
			out = append(out, line)
		}
	}
	return out
}

func FuzzFileSourceReadsLinesFromEveryPosition(f *testing.F) {
	for _, text := range []string{"", "1", "1\n2\r\n\n3", "\xef\xbb\xbf\n\r\n\r", "\r\r\n\n"} {
		f.Add(text)
	}
	store, err := storage.Open("mem://fuzz")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ctx := context.Background()
		if err := store.Remove(ctx, "in"); err != nil {
			t.Fatal(err)
		}
		if err := storage.WriteFile(ctx, store, "in", []byte(text)); err != nil {
			t.Fatal(err)
		}
		s, err := NewSource(sourceConfig("mem://fuzz/in", nil))
		if err != nil {
			t.Fatal(err)
		}
		splits, err := s.Splits(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		splits, got, err := readTo(t, s, splits, toEnd)
		if !errors.Is(err, io.EOF) || !slices.Equal(got, linesOf(text)) || splits[0].Offset != int64(len(text)) {
			t.Fatalf("%q became %q at %d: %v", text, got, splits[0].Offset, err)
		}
		for at := range len(text) {
			if at == 0 || text[at-1] != '\n' {
				continue
			}
			splits[0].Offset = int64(at)
			if _, got, err := readTo(t, s, splits, toEnd); !errors.Is(err, io.EOF) || !slices.Equal(got, linesOf("\n"+text[at:])) {
				t.Fatalf("%q from %d became %q: %v", text, at, got, err)
			}
		}
	})
}
