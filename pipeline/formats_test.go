package pipeline_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/format"
	_ "github.com/sluice-etl/sluice/connectors/format/csv"
	_ "github.com/sluice-etl/sluice/connectors/format/text"
	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
)

func runFormats(t *testing.T, in, out, steps string, records ...string) (got, bad []string, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := pipelinetest.New(t, "pipeline: formats\nparallelism: 1\nsource: {feed: {name: FEED-in, format: "+in+"}}\n"+steps+
			"on_error: {dead_letter: bad}\nsinks: {out: {collect: {name: TARGET-out, format: "+out+"}}, bad: {collect: {name: TARGET-bad}}}\n"+
			"checkpoint: {storage: STORAGE, interval: 1s}\nrestart: none\n")
		for _, r := range records {
			w.Feed("in", 1).Add(0, pipelinetest.Record{Value: r, Null: r == "NULL"})
		}
		w.Feed("in", 1).End()
		_, err = w.Run()
		for _, r := range w.Target("out").Rows() {
			if r.Tombstone {
				r.Value = "NULL"
			}
			got = append(got, r.Value)
		}
		for _, r := range w.Target("bad").Rows() {
			bad = append(bad, r.Headers["dead_letter.kind"]+": "+r.Headers["dead_letter.reason"]+" "+r.Value)
		}
	})
	return got, bad, err
}

const typedCSV = `{csv: {columns: [{id: int}, {price: "decimal(10, 2)"}, {note: "string?"}, {at: "timestamp?"}]}}`

func TestAFormatWithTypesIsReadAndWritten(t *testing.T) {
	tests := []struct {
		name, in, out, steps string
		records, want        []string
	}{
		{"as it is", typedCSV, "json", "", []string{"1,1.10,hi,", `2,3,"",2026-01-31T00:00:00Z`, "NULL"}, []string{
			`{"id":1,"price":1.10,"note":"hi","at":null}`, `{"id":2,"price":3.00,"note":"","at":"2026-01-31T00:00:00Z"}`, "NULL",
		}},
		{"back again", typedCSV, typedCSV, "", []string{"1,1.10,hi,", `2,3.00,"",2026-01-31T00:00:00Z`, "NULL", `3,0.00,"a ""b"", c",`}, []string{
			"1,1.10,hi,", `2,3.00,"",2026-01-31T00:00:00Z`, "NULL", `3,0.00,"a ""b"", c",`,
		}},
		{"fields have their types", typedCSV, "json", "transforms: [{map: {p: price + price, y: 'format_time(at, \"2006\")'}}]\n", []string{"1,1.10,,2026-01-31T00:00:00Z"}, []string{`{"p":2.20,"y":"2026"}`}},
		{"columns by the plan", typedCSV, "csv", "transforms: [{map: {p: price + price, id: id}}]\n", []string{"1,1.10,,"}, []string{"2.20,1"}},
		{"raw", "raw", "raw", "", []string{"\xff\x00", ""}, []string{"\xff\x00", ""}},
		{"text", "{text: {field: line}}", "{text: {field: up}}", "transforms: [{map: {up: upper(line)}}]\n", []string{"abc", ""}, []string{"ABC", ""}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, bad, err := runFormats(t, tt.in, tt.out, tt.steps, tt.records...)
			if err != nil || bad != nil {
				t.Fatal(err, bad)
			}
			equal(t, got, tt.want)
		})
	}
}

func TestAValueThatItsFormatDoesNotReadGoesToOnErrorAsItCame(t *testing.T) {
	got, bad, err := runFormats(t, typedCSV, "json", "transforms: [{filter: id > 0}]\n", "1,1.10,hi,", "x,1,hi,", "2,2,,", "1,2", `3,"1`, "4,4,,")
	if err != nil {
		t.Fatal(err)
	}
	equal(t, got, []string{`{"id":1,"price":1.10,"note":"hi","at":null}`, `{"id":2,"price":2.00,"note":null,"at":null}`, `{"id":4,"price":4.00,"note":null,"at":null}`})
	equal(t, bad, []string{
		"decode: field id: a number is wanted x,1,hi,",
		"decode: the row has 2 fields, and 4 columns are declared 1,2",
		`decode: invalid value at byte 2: the quote that begins here has no end 3,"1`,
	})
}

func TestARowThatASinksFormatDoesNotHoldGoesToOnError(t *testing.T) {
	got, bad, err := runFormats(t, "json", "{text: {field: a}}", "", `{"a":"x"}`, `{"a":1}`, `{"b":1}`, `{"a":null}`)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, got, []string{"x", "NULL"})
	equal(t, bad, []string{
		`encode: field a: text is wanted, not int (string(…) makes text of other values) {"a":1}`,
		`encode: there is no field a, and a text value is made of it {"b":1}`,
	})
}

func TestFaultsOfFormatsAreFoundAtLoad(t *testing.T) {
	for _, tt := range []struct{ name, in, out, steps, want string }{
		{"a field that the format does not have", typedCSV, "json", "transforms: [{filter: prize > 1}]\n", `did you mean "price"?`},
		{"no columns", "csv", "json", "", "CSV is read with columns"},
		{"a bad option", "{csv: {columns: [a], delimiter: '::'}}", "json", "", "one ASCII character is wanted"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := faultsOf(t, "pipeline: p\nsource: {feed: {name: x, format: "+tt.in+"}}\n"+tt.steps+
				"sink: {collect: {name: x, format: "+tt.out+"}}\ncheckpoint: {storage: \"mem://x\"}\n")
			if !strings.Contains(got, tt.want) {
				t.Errorf("got:\n%s\nwant %q", got, tt.want)
			}
		})
	}
}

// away is a format whose other system is not there at first.
type away struct{}

var awayCalls atomic.Int64

func (away) Start(context.Context, format.Env) error {
	if awayCalls.Add(1) < 3 {
		return errors.New("the registry does not answer")
	}
	return nil
}

func (away) JSON(_ context.Context, dst []byte, r *connectors.Record) ([]byte, error) {
	if string(r.Value) == "2" && awayCalls.Add(1) < 6 {
		return nil, errors.New("the registry does not answer")
	}
	return append(dst, `{"n":`+string(r.Value)+"}"...), nil
}

func init() {
	format.Register(format.Spec{
		Name: "zz-away", Doc: "A format of the tests.", NewConfig: func() any { return &struct{}{} },
		Input: func(any) (format.Input, error) { return away{}, nil },
	})
}

func TestASystemThatAFormatAsksIsWaitedForAndNoRecordIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		awayCalls.Store(0)
		w := pipelinetest.New(t, "pipeline: away\nparallelism: 1\nsource: {feed: {name: FEED-in, format: zz-away}}\non_error: skip\n"+
			"sink: {collect: {name: TARGET-out, exactly_once: true}}\ncheckpoint: {storage: STORAGE, interval: 1s}\n")
		w.Feed("in", 1).Append(0, "1", "2", "3")
		w.Feed("in", 1).End()
		if _, err := w.Run(); err != nil {
			t.Fatal(err)
		}
		equal(t, w.Target("out").Values(), []string{`{"n":1}`, `{"n":2}`, `{"n":3}`})
	})
}
