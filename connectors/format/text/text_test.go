package text_test

import (
	"bytes"
	"testing"
	"unicode/utf8"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format/formattest"
	_ "github.com/sluice-etl/sluice/connectors/format/text"
)

func TestEachBrokenRowIsRefused(t *testing.T) {
	for _, name := range []string{"text", "raw"} {
		out := formattest.Output(t, formattest.Config(name, nil), formattest.Env(""))
		encode := func(values ...string) (failed []int, got []string) {
			b := new(connectors.Batch)
			b.Size(len(values), 0)
			rows := &connectors.Rows{Batch: b}
			for i, v := range values {
				rows.Sel, rows.Values = append(rows.Sel, uint16(i)), append(rows.Values, []byte(v))
			}
			if err := out.Encode(t.Context(), rows, func(i int, err error) {
				failed = append(failed, i)
				if err.Error() == "" || rows.Values[i] != nil {
					t.Errorf("row %d: %v, %q", i, err, rows.Values[i])
				}
			}); err != nil {
				t.Fatal(err)
			}
			for _, v := range rows.Values {
				got = append(got, string(v))
			}
			return failed, got
		}
		if failed, got := encode(`{"value":"YWFh"}`, `{"value":"YmJi"}`, `{"value":"Y2Nj"}`); len(failed) != 0 || got[0] == "" {
			t.Errorf("%v %q", failed, got)
		}
		failed, got := encode(`{"value":"YWFh"`, `{"value":"YmJi"}`, `{"value":`, `5`, `[1]`)
		if len(failed) != 4 || got[1] == "" {
			t.Errorf("%s: refused %v, %q", name, failed, got)
		}
	}
}

func FuzzValues(f *testing.F) {
	f.Add([]byte("line \n\x00\u2028б"))
	f.Add([]byte("\xff\xc3("))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, name := range []string{"text", "raw"} {
			cfg := formattest.Config(name, nil)
			row, err := formattest.Read(formattest.Input(t, cfg), b)
			if err != nil {
				if name == "raw" || utf8.Valid(b) {
					t.Errorf("%s: %q: %v", name, b, err)
				}
				continue
			}
			if got, err := formattest.Write(formattest.Output(t, cfg, formattest.Env("")), row); err != nil || !bytes.Equal(got, b) {
				t.Errorf("%s: %q became %s and then %q, %v", name, b, row, got, err)
			}
		}
	})
}
