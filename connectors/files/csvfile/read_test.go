package csvfile

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/columns"
)

func readText(text string, o *Options) (rows []string, err error) {
	r, err := NewReader(strings.NewReader(text), o, 1000)
	if err != nil {
		return nil, err
	}
	for {
		row, err := r.Next(nil)
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
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
		{"what does not fit is left as it is", "n,ok\nx,true\n1\n1,true,3\n\"1\"2,true\n2,false\n", typed, []string{"x,true", "1", "1,true,3", `"1"2,true`, `{"n":2,"ok":false}`}},
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
	if _, err := readText("a\n\""+strings.Repeat("x", 2000), NewOptions()); !errors.Is(err, ErrTooLong) {
		t.Errorf("a quote that is not closed: %v", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add("a,b\n1,\"x\ny\"\n")
	f.Add("a\n\"\"\"")
	f.Fuzz(func(_ *testing.T, text string) { _, _ = readText(text, NewOptions()) })
}
