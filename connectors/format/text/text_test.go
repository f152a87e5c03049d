package text_test

import (
	"testing"

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
