package csvfile

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/columns"
	"github.com/sluice-etl/sluice/connectors/format"
)

func readText(text string, o *Options) (rows []string, err error) {
	r, err := NewReader(strings.NewReader(text), o, 1000)
	if err != nil {
		return nil, err
	}
	for {
		row, err := r.Next(nil)
		switch {
		case errors.Is(err, io.EOF):
			return rows, nil
		case format.IsRefused(err):
			row = append([]byte("refused: "), row...)
		case err != nil:
			return rows, err
		}
		rows = append(rows, string(row))
	}
}

func TestRecordsAreTakenApartByRFC4180(t *testing.T) {
	typed := NewOptions()
	typed.Columns = columns.List{
		{Name: "n", Type: connectors.Type{Base: connectors.Integer}}, {Name: "ok", Type: connectors.Type{Base: connectors.Boolean}},
	}
	null := NewOptions()
	null.Null, null.Delimiter = `\N`, ";"
	bare := NewOptions()
	bare.Header = false
	bare.Columns = columns.List{{Name: "a", Type: connectors.Type{Base: connectors.Text}}}
	for _, c := range []struct {
		name, text string
		opts       *Options
		want       []string
	}{
		{"quotes, delimiters and line breaks", "a,b\r\n\"x,\"\"y\"\"\",\"1\r\n2\"\r\n", NewOptions(), []string{`{"a":"x,\"y\"","b":"1\r\n2"}`}},
		{"null is empty, and empty text is quoted", "a,b\n,\"\"\n", NewOptions(), []string{`{"a":null,"b":""}`}},
		{"a text for null", "a;b\n\\N;\"\\N\"\n;x", null, []string{`{"a":null,"b":"\\N"}`, `{"a":"","b":"x"}`}},
		{"types", "ok,n,x\ntrue,9223372036854775807,1\n", typed, []string{`{"ok":true,"n":9223372036854775807,"x":"1"}`}},
		{"what does not fit is refused as it is", "n,ok\nx,true\n1\n1,true,3\n\"1\"2,true\n2,false\n", typed, []string{"refused: x,true", "refused: 1", "refused: 1,true,3", `refused: "1"2,true`, `{"n":2,"ok":false}`}},
		{"a quote within a field that has none around it", "a,b\n1,5\" disk\n2,x\"\"\n3,\"y\"\n", NewOptions(), []string{`{"a":"1","b":"5\" disk"}`, `{"a":"2","b":"x\"\""}`, `{"a":"3","b":"y"}`}},
		{"text behind a closing quote", "a,b\n1,\"x\"y\"z\n2,\"v\" \n3,\"w\"\r\n", NewOptions(), []string{`refused: 1,"x"y"z`, `refused: 2,"v" `, `{"a":"3","b":"w"}`}},
		{"a quote that is not closed takes the lines up to the next one", "a,b\n1,\"x\n2,\"y\"\n3,z\n", NewOptions(), []string{"refused: 1,\"x\n2,\"y\"", `{"a":"3","b":"z"}`}},
		{"a quote that is not closed at the end", "a,b\n1,x\n2,\"y\n", NewOptions(), []string{`{"a":"1","b":"x"}`, "refused: 2,\"y\n"}},
		{"without a header", "x\n\n\"y\"", bare, []string{`{"a":"x"}`, `{"a":"y"}`}},
		{"a mark of the encoding", "\xef\xbb\xbfa\nx\n", NewOptions(), []string{`{"a":"x"}`}},
		{"empty", "", NewOptions(), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, err := readText(c.text, c.opts); err != nil || !slices.Equal(got, c.want) {
				t.Errorf("got %q, %v; want %q", got, err, c.want)
			}
		})
	}
	_, err := readText("a\nx\n\""+strings.Repeat("x\n", 1000), NewOptions())
	if !errors.Is(err, ErrTooLong) || !strings.Contains(err.Error(), "which begins at byte 4 with a quote that is not closed") {
		t.Errorf("a quote that is not closed: %v", err)
	}
}

// A field can lie across the pieces in which a file is read.
func TestQuotesAreSeenAcrossTheBuffer(t *testing.T) {
	o := NewOptions()
	o.Header, o.Columns = false, columns.List{{Name: "a", Type: connectors.Type{Base: connectors.Text}}, {Name: "b", Type: connectors.Type{Base: connectors.Text}}}
	for n := bufferSize - 4; n <= bufferSize+1; n++ {
		for _, c := range []struct{ behind, a, b string }{
			{`,"1` + "\n" + `2"`, "", "1\n2"}, {`x,"3""` + "\n" + `"`, "x", "3\"\n"}, {`"y,z"`, `"y`, `z"`},
		} {
			long := strings.Repeat("x", n)
			r, err := NewReader(strings.NewReader(long+c.behind+"\nlast,row\n"), o, 2*bufferSize)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{string(row(long+c.a, c.b)), `{"a":"last","b":"row"}`} {
				if got, err := r.Next(nil); err != nil || string(got) != want {
					t.Fatalf("%d bytes and %q: %.20q … %q, %v", n, c.behind, got, got[max(0, len(got)-40):], err)
				}
			}
		}
	}
}

func row(a, b string) []byte {
	out := append(format.AppendString([]byte(`{"a":`), a), `,"b":`...)
	return append(format.AppendString(out, b), '}')
}

func TestAFirstLineThatCannotNameFieldsIsAnError(t *testing.T) {
	for text, want := range map[string]string{
		"a,b,a\n": `"a" stands there twice`, "a,\xe9\n": "it is not UTF-8", "\xff\xfea\x00\n\x00": "it is not UTF-8", "a,\"b\n": "a quote is not closed",
	} {
		if _, err := readText(text, NewOptions()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if rows, err := readText("a,,\n1,2,3\n", NewOptions()); err != nil || len(rows) != 1 {
		t.Errorf("columns without a name: %q, %v", rows, err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add("a,b\n1,\"x\ny\"\n")
	f.Add("a\n\"\"\"")
	f.Fuzz(func(_ *testing.T, text string) { _, _ = readText(text, NewOptions()) })
}
