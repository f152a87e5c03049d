package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

// failed is a record with everything that a letter keeps, and what was wrong with it.
func failed() (connectors.Record, *connectors.RecordError) {
	r := connectors.Record{
		Key: []byte("k\xff"), Value: []byte("v\xfe"), Time: 1700000000123,
		// It was a dead letter of another pipeline before.
		Headers: []connectors.Header{{Key: "dead_letter.step", Value: []byte("theirs")}, {Key: "dead_letter.attempt", Value: []byte("9")}, {Key: "h", Value: []byte("\xfd")}, {Key: "h"}},
	}
	e := &connectors.RecordError{
		Origin: &connectors.Origin{Topic: "in", Partition: 3, Letter: &connectors.Letter{Step: "ours", Attempt: 1}}, Offset: 42,
		Step: "ours", Expr: "a / b", Reason: "it is divided by zero", Kind: "division",
	}
	return r, e
}

func TestLettersAreReadAsTheyWereWritten(t *testing.T) {
	record, e := failed()
	asHeaders := record
	asHeaders.Headers = append(slices.Clone(record.Headers), deadLetterHeaders(e)...)
	row, err := deadLetterRow(&record, e)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		record connectors.Record
		row    bool
	}{{"headers", asHeaders, false}, {"a row", connectors.Record{Value: row}, true}} {
		l, ok := parseLetter(&c.record, c.row)
		if !ok {
			t.Fatalf("%s: it is no letter", c.name)
		}
		got := l.original()
		want := record
		want.Origin, want.Offset, want.Mark = &connectors.Origin{Topic: "in", Partition: 3, Letter: &connectors.Letter{Step: "ours", Attempt: 2}}, 42, connectors.NoMark
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: the record is %+v, want %+v", c.name, got, want)
		}
		if l.Step != "ours" || l.Expression != "a / b" || l.Reason != e.Reason || l.Kind != "division" || l.Attempt != 2 || time.Since(l.Time) > time.Hour {
			t.Errorf("%s: the letter is %+v", c.name, l)
		}
	}
}

func TestWhatIsNoLetter(t *testing.T) {
	for _, text := range []string{
		`{`, `{}`, `{"step":"a"}`, `{"time":"2026-01-01T00:00:00Z"}`, `{"step":"a","time":"2026-01-01T00:00:00Z","value":"?","value_base64":true}`,
		`{"step":"a","time":"2026-01-01T00:00:00Z","headers":[{"key":"h","value":"?","base64":true}]}`,
	} {
		if _, ok := parseLetter(&connectors.Record{Value: []byte(text)}, true); ok {
			t.Errorf("%s is taken for one", text)
		}
	}
	if _, ok := parseLetter(&connectors.Record{Headers: []connectors.Header{{Key: "step"}}}, false); ok {
		t.Error("a record is taken for one")
	}
	l, ok := parseLetter(&connectors.Record{Value: []byte(`{"step":"a","time":"2026-01-01T00:00:00Z","value":"v"}`)}, true)
	if !ok || l.Attempt != 1 || l.record.Time != l.Time.UnixMilli() {
		t.Errorf("one that says no more is %+v", l)
	}
}

func TestLettersAreChosen(t *testing.T) {
	record, e := failed()
	record.Headers = append(record.Headers, deadLetterHeaders(e)...)
	l, _ := parseLetter(&record, false)
	at := l.Time
	for _, c := range []struct {
		name   string
		filter LetterFilter
		want   bool
	}{
		{"all", LetterFilter{}, true},
		{"its step", LetterFilter{Steps: []string{"x", "ours"}}, true},
		{"another step", LetterFilter{Steps: []string{"theirs"}}, false},
		{"its kind", LetterFilter{Kinds: []string{"division"}}, true},
		{"another kind", LetterFilter{Kinds: []string{"type"}}, false},
		{"since then", LetterFilter{Since: at}, true},
		{"since later", LetterFilter{Since: at.Add(1)}, false},
		{"before then", LetterFilter{Before: at}, false},
		{"before later", LetterFilter{Before: at.Add(1)}, true},
		{"a condition", LetterFilter{Where: `meta.offset == 42 and meta.headers["dead_letter.kind"] == "division" and meta.headers["dead_letter.attempt"] == "2"`}, true},
		{"its time", LetterFilter{Where: fmt.Sprintf("meta.headers[%q] == %q", "dead_letter.time", at.UTC().Format(time.RFC3339Nano))}, true},
		{"a field of what is no JSON", LetterFilter{Where: "n == 1"}, false},
	} {
		f, err := newLetterFilter(c.filter)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // a filter goes over many
			if got := f.takes(l); got != c.want {
				t.Errorf("%s: %v", c.name, got)
			}
		}
	}
}

// pile is a source of dead letters in one split, whose buffers are used again.
type pile struct {
	connectors.Source
	records []connectors.Record
	began   int64 // where the last reader did
}

func (p *pile) Splits(context.Context, []connectors.Split) ([]connectors.Split, error) {
	return []connectors.Split{{ID: "letters/0", Until: int64(len(p.records))}}, nil
}

func (p *pile) Reader(_ connectors.ReaderEnv, splits []connectors.Split) (connectors.Reader, error) {
	p.began = splits[0].Offset
	return &pileReader{pile: p, at: splits[0].Offset, split: splits[0]}, nil
}

type pileReader struct {
	connectors.Reader
	pile  *pile
	split connectors.Split
	at    int64
	buf   []byte
}

func (r *pileReader) Poll(context.Context) (*connectors.Batch, error) {
	end := min(r.at+2, int64(len(r.pile.records)))
	if r.at >= end {
		return nil, io.EOF
	}
	b := connectors.NewBatchPool(1).Get()
	b.Size(int(end-r.at), 0)
	r.buf = r.buf[:0]
	for i := range b.Records {
		rec := r.pile.records[r.at+int64(i)]
		from := len(r.buf)
		r.buf = append(r.buf, rec.Value...)
		rec.Value = r.buf[from:]
		rec.Offset = r.at + int64(i)
		b.Records[i] = rec
	}
	r.at = end
	b.Next = end
	return b, nil
}

func (r *pileReader) Position(_ int, next int64) connectors.Split {
	s := r.split
	s.Offset = next
	return s
}

func (*pileReader) Close() error { return nil }

// letterOf is a letter of topic in, at an offset, that failed in a step; of a record that
// a step made for the topic "".
func letterOf(topic, step, value string) connectors.Record {
	e := &connectors.RecordError{Step: step, Kind: "k", Reason: "r"}
	if topic != "" {
		e.Origin = &connectors.Origin{Topic: topic}
	}
	return connectors.Record{Value: []byte(value), Headers: deadLetterHeaders(e)}
}

// took is what a reader gives out of letters, and where it stands behind them: at most so
// many polls.
func took(t *testing.T, s *letterSource, restored []connectors.Split, polls int) (values []string, at connectors.Split) {
	t.Helper()
	splits, err := s.Splits(t.Context(), restored)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Reader(connectors.ReaderEnv{Batches: connectors.NewBatchPool(8)}, splits)
	if err != nil {
		t.Fatal(err)
	}
	next := splits[0].Offset
	var records []connectors.Record
	for range polls {
		b, err := r.Poll(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, b.Records...)
		next = b.Next
	}
	for i := range records { // the buffers of the first ones were used again meanwhile
		values = append(values, string(records[i].Value))
	}
	return values, r.Position(0, next)
}

func TestLettersAreGivenOutOnceInWhateverOrderTheyAreChosen(t *testing.T) {
	const all = 100
	p := &pile{records: []connectors.Record{
		letterOf("in", "a", "1"), letterOf("in", "b", "2"), {Value: []byte("none")}, letterOf("in", "a", "3"), letterOf("", "a", "made"), letterOf("in", "b", "4"), letterOf("in", "a", "5"),
	}}
	only := func(steps ...string) *letterSource {
		return &letterSource{inner: connectors.ReadBack{Source: p}, filter: LetterFilter{Steps: steps}}
	}
	check := func(what string, got []string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	values, at := took(t, only("b"), nil, all)
	check("one step", values, "2", "4")
	values, half := took(t, only("a"), []connectors.Split{at}, 3)
	check("the other one, up to a crash", values, "1", "3")
	values, _ = took(t, only(), []connectors.Split{half}, all)
	check("the rest", values, "5")
	values, at = took(t, only(), []connectors.Split{at}, all)
	check("both, once", values, "1", "3", "5")
	values, _ = took(t, only(), []connectors.Split{at}, all)
	check("again", values)
	if p.began == 0 {
		t.Error("what is in is read again from the beginning")
	}
	anew := only()
	anew.inner.Same = func(_, _ connectors.Split) bool { return false }
	values, _ = took(t, anew, []connectors.Split{at}, all)
	check("of a file that was made anew", values, "1", "2", "3", "4", "5")
	listed := only("a")
	listed.made = true
	values, _ = took(t, listed, nil, all)
	check("with those that steps made", values, "1", "3", "made", "5")
}

func TestAPositionTellsOnlyWhatCameBeforeIt(t *testing.T) {
	p := &pile{records: []connectors.Record{letterOf("in", "a", "1"), letterOf("in", "a", "2"), letterOf("in", "a", "3")}}
	s := &letterSource{inner: connectors.ReadBack{Source: p}}
	splits, err := s.Splits(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Reader(connectors.ReaderEnv{Batches: connectors.NewBatchPool(8)}, splits)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := r.Poll(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for next, want := range map[int64]string{0: "1 2 3", 1: "2 3", 2: "3"} {
		got, _ := took(t, s, []connectors.Split{r.Position(0, next)}, 10)
		if strings.Join(got, " ") != want {
			t.Errorf("from position %d on: %q, want %s", next, got, want)
		}
	}
}

func TestLettersOfOneOfSeveralSources(t *testing.T) {
	p := &pile{records: []connectors.Record{letterOf("letters", "a", "1"), letterOf("letters/0", "a", "2"), letterOf("other", "a", "3"), letterOf("", "a", "made")}}
	s := &letterSource{inner: connectors.ReadBack{Source: p}, only: p, made: true}
	if got, _ := took(t, s, nil, 10); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("given out are %q", got)
	}
}

func TestSpansThatTouchAreOne(t *testing.T) {
	got := merged([]span{{5, 9}, {0, 2}, {6, 7}, {2, 3}, {11, 12}})
	if want := []span{{0, 3}, {5, 9}, {11, 12}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if within(got, 3) || !within(got, 2) || !within(got, 8) || within(got, 9) {
		t.Errorf("%v holds the wrong ones", got)
	}
}

func TestWhatSeveralSourcesBroughtInIsJoined(t *testing.T) {
	of := func(id string, spans ...span) connectors.Split {
		return connectors.Split{ID: id, Detail: letterDetail{Done: spans}.encode()}
	}
	got := joined(joined(nil, []connectors.Split{of("a", span{0, 2})}), []connectors.Split{of("a", span{4, 5}, span{2, 3}), of("b", span{7, 8})})
	if want := []connectors.Split{of("a", span{0, 3}, span{4, 5}), of("b", span{7, 8})}; !reflect.DeepEqual(got, want) {
		t.Errorf("%s, want %s", got[0].Detail, want[0].Detail)
	}
}
