package files

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	keys "github.com/sluice-etl/sluice/pipeline/state"
)

// lookupFile makes a file with a content, and a lookup in it.
func lookupFile(t *testing.T, name, content string, columns []string, change func(*LookupConfig)) (*Lookup, string, *sharedLog, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if content != "none" {
		writeVersion(t, file, content)
	}
	c := newLookupConfig().(*LookupConfig)
	c.Path = file
	if change != nil {
		change(c)
	}
	l, err := NewLookup(*c, columns)
	if err != nil {
		return nil, file, nil, err
	}
	var log sharedLog
	err = l.Open(t.Context(), connectors.LookupEnv{
		Log: slog.New(slog.NewTextHandler(&log, nil)), Columns: columns, AppendKey: keys.AppendKey, Concurrency: 1,
	})
	t.Cleanup(func() { _ = l.Close() })
	return l, file, &log, err
}

// sharedLog is a log that is read while it is written.
type sharedLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *sharedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *sharedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// writeVersion replaces a file as a careful writer does.
func writeVersion(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file+".new", []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

func csvFile(c *LookupConfig) { c.Format = formatCSV }

func rowOf(l *Lookup, values ...connectors.Value) string {
	var key []byte
	for _, v := range values {
		key = keys.AppendKey(key, v)
	}
	return string(l.Table().Row(key))
}

func TestLookupFindsRowsByKey(t *testing.T) {
	i, s := connectors.IntValue, connectors.StringValue
	tests := []struct {
		name, file, content string
		columns             []string
		change              func(*LookupConfig)
		key                 []connectors.Value
		want                string
	}{
		{"json by an int", "a.jsonl", "{\"id\":1,\"n\":\"x\"}\n{\"id\":2,\"n\":\"y\"}\n", []string{"id"}, nil, []connectors.Value{i(2)}, `{"id":2,"n":"y"}`},
		{"numbers match by value", "a.jsonl", `{"id":2.0}`, []string{"id"}, nil, []connectors.Value{i(2)}, `{"id":2.0}`},
		{"a number is no text", "a.jsonl", `{"id":"2"}`, []string{"id"}, nil, []connectors.Value{i(2)}, ``},
		{"blank lines, blanks around and no last line break", "a.jsonl", "\n  {\"id\": 1}  \n\n{\"id\": 2}", []string{"id"}, nil, []connectors.Value{i(1)}, `{"id": 1}`},
		{"the last line of a key counts", "a.jsonl", "{\"id\":1,\"n\":1}\n{\"id\":1,\"n\":2}\n", []string{"id"}, nil, []connectors.Value{i(1)}, `{"id":1,"n":2}`},
		{"composite keys", "a.jsonl", "{\"a\":1,\"b\":\"x\"}\n{\"a\":1,\"b\":\"y\"}\n", []string{"b", "a"}, nil, []connectors.Value{s("y"), i(1)}, `{"a":1,"b":"y"}`},
		{"values of csv are strings", "a.csv", "code,name\nDE,Germany\nFR,\"Fr\"\"a\nnce\"\n", []string{"code"}, csvFile, []connectors.Value{s("FR")}, "{\"code\":\"FR\",\"name\":\"Fr\\\"a\\nnce\"}"},
		{"an int finds no string of csv", "a.csv", "id,n\n1,x\n", []string{"id"}, csvFile, []connectors.Value{i(1)}, ``},
		{"but a typed column", "a.csv", "id,n,on,p,q\n1,,true,1.10,2.5\n", []string{"id"}, func(c *LookupConfig) {
			c.Format, c.Types = formatCSV, map[string]string{"id": "int", "on": "bool", "p": "decimal", "q": "float"}
		}, []connectors.Value{connectors.FloatValue(1)}, `{"id":1,"n":"","on":true,"p":1.10,"q":2.5}`},
		{"an empty typed value is null", "a.csv", "id,n\n1,\n", []string{"id"}, func(c *LookupConfig) {
			c.Format, c.Types = formatCSV, map[string]string{"n": "int"}
		}, []connectors.Value{s("1")}, `{"id":"1","n":null}`},
		{"another delimiter, a byte order mark, CRLF", "a.csv", "\ufeffid;n\r\n1;x\r\n", []string{"id"}, func(c *LookupConfig) {
			c.Format, c.Delimiter = formatCSV, ";"
		}, []connectors.Value{s("1")}, `{"id":"1","n":"x"}`},
		{"without a header", "a.tsv", "1\tx\n", []string{"id"}, func(c *LookupConfig) {
			c.Format, c.Delimiter, c.Header, c.Columns = formatCSV, "\t", false, []string{"id", "n"}
		}, []connectors.Value{s("1")}, `{"id":"1","n":"x"}`},
		{"an empty file has no rows", "a.jsonl", "", []string{"id"}, nil, []connectors.Value{i(1)}, ``},
		{"a row with a null key is found by nothing", "a.jsonl", "{\"id\":null}\n{\"id\":1}", []string{"id"}, nil, []connectors.Value{connectors.NullValue()}, ``},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l, _, _, err := lookupFile(t, tt.file, tt.content, tt.columns, tt.change)
			if err != nil {
				t.Fatal(err)
			}
			if got := rowOf(l, tt.key...); got != tt.want {
				t.Errorf("row %s, want %s", got, tt.want)
			}
		})
	}
}

func TestLookupReadsCompressedFiles(t *testing.T) {
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, _ = w.Write([]byte(`{"id":1}`))
	_ = w.Close()
	l, _, _, err := lookupFile(t, "a.jsonl.gz", zipped.String(), []string{"id"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := rowOf(l, connectors.IntValue(1)); got != `{"id":1}` {
		t.Error(got)
	}
}

func TestLookupFileThatCannotBeUsedStopsTheStart(t *testing.T) {
	big := strings.Repeat(`{"id":1,"x":"`+strings.Repeat("y", 1000)+"\"}\n", 3000)
	tests := []struct {
		name, content string
		columns       []string
		change        func(*LookupConfig)
		want          []string
	}{
		{"no file", "none", []string{"id"}, nil, []string{"there is no file"}},
		{"no JSON", "{\"id\":1}\n{secret\n", []string{"id"}, nil, []string{"line 2", "byte 1"}},
		{"no object", "[1]\n", []string{"id"}, nil, []string{"line 1", "an object is wanted, not list"}},
		{"no such field", "{\"a\":1}\n", []string{"id"}, nil, []string{"no line has the field id"}},
		{"no such column", "idd,n\n1,2\n", []string{"id"}, csvFile, []string{"no column id", "did you mean idd"}},
		{"another delimiter", "id;n\n1;2\n", []string{"id"}, csvFile, []string{"no column id", "delimiter"}},
		{"two columns of a name", "id,id\n1,2\n", []string{"id"}, csvFile, []string{"two columns"}},
		{"a line too short", "id,n\n1\n", []string{"id"}, csvFile, []string{"line 2", "wrong number of fields"}},
		{"an open quote", "id,n\n1,\"secret\n", []string{"id"}, csvFile, []string{"line 2"}},
		{"no header", "", []string{"id"}, csvFile, []string{"empty"}},
		{"another type", "id,n\n1,2\nsecret,2\n", []string{"id"}, func(c *LookupConfig) {
			c.Format, c.Types = formatCSV, map[string]string{"id": "int"}
		}, []string{"line 3", `column "id" holds no int`}},
		{"a type of no column", "id,n\n1,2\n", []string{"id"}, func(c *LookupConfig) {
			c.Format, c.Types = formatCSV, map[string]string{"m": "int"}
		}, []string{"no column m", "types"}},
		{"too large", big, []string{"id"}, func(c *LookupConfig) { c.MaxSize = minTableSize }, []string{"max_size"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, file, _, err := lookupFile(t, "a", tt.content, tt.columns, tt.change)
			if err == nil || !connectors.IsPermanent(err) {
				t.Fatalf("error %v", err)
			}
			for _, want := range append(tt.want, file) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q says nothing of %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("error %q shows what the file holds", err)
			}
		})
	}
}

func TestLookupReadsANewVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, file, log, err := lookupFile(t, "a.jsonl", `{"id":1,"v":1}`, []string{"id"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		old := l.Table()
		after := func(d time.Duration, want string) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if got := rowOf(l, connectors.IntValue(1)); got != want {
				t.Errorf("row %s, want %s", got, want)
			}
		}
		writeVersion(t, file, `{"id":1,"v":22}`)
		after(time.Minute, `{"id":1,"v":22}`)
		if got := string(old.Row(keys.AppendKey(nil, connectors.IntValue(1)))); got != `{"id":1,"v":1}` {
			t.Errorf("a table in use changed to %s", got)
		}
		writeVersion(t, file, `{"id":1,"v":`)
		after(time.Minute, `{"id":1,"v":22}`)
		if n := strings.Count(log.String(), "cannot be used"); n != 1 {
			t.Errorf("a broken version is warned of %d times:\n%s", n, log)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		after(time.Minute, `{"id":1,"v":22}`)
		if n := strings.Count(log.String(), "cannot be found"); n != 1 {
			t.Errorf("a lost file is warned of %d times:\n%s", n, log)
		}
		writeVersion(t, file, `{"id":1,"v":4444}`)
		after(time.Minute, `{"id":1,"v":4444}`)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A writer that does not rename must not be caught in the middle.
func TestLookupWaitsForAFileThatIsBeingWritten(t *testing.T) {
	l, file, log, err := lookupFile(t, "a.jsonl", `{"id":1}`, []string{"id"}, func(c *LookupConfig) { c.Reload = 0 })
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		_, _ = fmt.Fprintf(f, "{\"id\":%d}\n", 2+i)
		l.look(context.Background())
		if rowOf(l, connectors.IntValue(1)) == "" {
			t.Fatal("a file that is being written was read")
		}
	}
	_ = f.Close()
	l.look(context.Background())
	if got := rowOf(l, connectors.IntValue(4)); got != `{"id":4}` || strings.Contains(log.String(), "WARN") {
		t.Errorf("row %s, log %s", got, log)
	}
}

func TestLookupConfigurationThatContradictsItselfIsRefused(t *testing.T) {
	tests := []struct {
		name   string
		change func(*LookupConfig)
		want   string
	}{
		{"two characters", func(c *LookupConfig) { c.Format, c.Delimiter = formatCSV, ";;" }, "one character"},
		{"a delimiter of json", func(c *LookupConfig) { c.Delimiter = ";" }, "format: csv"},
		{"types of json", func(c *LookupConfig) { c.Types = map[string]string{"a": "int"} }, "format: csv"},
		{"header and columns", func(c *LookupConfig) { c.Format, c.Columns = formatCSV, []string{"id"} }, "header: false"},
		{"neither", func(c *LookupConfig) { c.Format, c.Header = formatCSV, false }, "columns"},
		{"a wrong type", func(c *LookupConfig) { c.Format, c.Types = formatCSV, map[string]string{"a": "ints"} }, "did you mean int"},
		{"a column that is not there", func(c *LookupConfig) { c.Format, c.Header, c.Columns = formatCSV, false, []string{"a"} }, "no column id"},
		{"too small", func(c *LookupConfig) { c.MaxSize = 1 }, "2MiB"},
		{"another scheme", func(c *LookupConfig) { c.Path = "s3://b/k" }, "no path of file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, _, err := lookupFile(t, "a", "", []string{"id"}, tt.change)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %s", err, tt.want)
			}
		})
	}
}

func TestFindingARowAllocatesNothing(t *testing.T) {
	var content strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&content, "{\"id\":%d,\"name\":\"n%d\"}\n", i, i)
	}
	l, _, _, err := lookupFile(t, "a.jsonl", content.String(), []string{"id"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	key := keys.AppendKey(nil, connectors.IntValue(7777))
	if n := testing.AllocsPerRun(100, func() { _ = l.Table().Row(key) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	for i := range 10_000 {
		if want := fmt.Sprintf("{\"id\":%d,\"name\":\"n%d\"}", i, i); rowOf(l, connectors.IntValue(int64(i))) != want {
			t.Fatalf("row %d is %s", i, rowOf(l, connectors.IntValue(int64(i))))
		}
	}
}
