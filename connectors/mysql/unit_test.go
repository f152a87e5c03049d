package mysql

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/deferred"
	"github.com/sluice-etl/sluice/connectors/deferred/table"
)

func TestNamesAndTextsAreQuoted(t *testing.T) {
	if got := quote("a`b", "c d"); got != "`a``b`.`c d`" {
		t.Errorf("name %s", got)
	}
	if got := string(appendQuoted(nil, []byte("it's \\ \x00 ü"))); got != `'it\'s \\ \0 ü'` {
		t.Errorf("text %s", got)
	}
	if got := labels(`enum('a','it''s','x,y','')`); !slices.Equal(got, []string{"a", "it's", "x,y", ""}) {
		t.Errorf("labels %q", got)
	}
}

func TestAddresses(t *testing.T) {
	for address, want := range map[string]string{
		"mysql://u:p%40@db:3307/shop": "u:p@db:3307/shop", "mysql://u@db/shop?tls=true": "u:db:3306/shop tls",
		"postgres://u@db/shop": "", "mysql://db": "", "mysql://u@db/shop?loc=x": "",
	} {
		c := newSinkConfig().(*SinkConfig)
		c.URL, c.Table = address, "t"
		cfg, err := c.parse()
		if (err != nil) != (want == "") || (c.Validate() != nil) != (want == "") {
			t.Errorf("%s: %v", address, err)
		}
		if err != nil {
			continue
		}
		got := cfg.User + ":" + cfg.Passwd
		got = got + cfg.Addr + "/" + cfg.DBName
		if cfg.TLS != nil {
			got += " tls"
		}
		if got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

func TestFloatsAreTheNearestNumbers(t *testing.T) {
	for _, c := range []struct {
		bits int
		v    connectors.Value
		want string
	}{
		{64, connectors.IntValue(9007199254740993), "9.007199254740992e+15"}, {32, connectors.IntValue(16777217), "1.6777216e+07"}, {32, connectors.FloatValue(0.1), "1e-01"},
		{64, connectors.FloatValue(math.NaN()), "refused"}, {64, connectors.FloatValue(math.Inf(-1)), "refused"}, {32, connectors.FloatValue(1e39), "refused"},
	} {
		got, err := appendReal(c.bits)(nil, c.v)
		if refused := c.want == "refused"; (err != nil) != refused || !refused && string(got) != c.want {
			t.Errorf("%d bits: %s, %v, want %s", c.bits, got, err, c.want)
		}
	}
}

func TestKeptRowsThatAreNone(t *testing.T) {
	for _, row := range []string{"", "w", "w\x00", "w\x00(1", "w\xff\xff)", "w)"} {
		if _, err := takeApart([]byte(row)); !connectors.IsPermanent(err) {
			t.Errorf("%q: %v", row, err)
		}
	}
}

func TestTextsThatColumnsDoNotTake(t *testing.T) {
	for _, c := range []struct {
		write appendFunc
		text  string
		ok    bool
	}{
		{appendText(3, 0), "äöü", true}, {appendText(3, 0), "äöüß", false}, {appendText(0, 4), "äö", true}, {appendText(0, 4), "äö!", false},
		{appendText(0, 0), "\xff", false}, {appendJSON, "ä", true}, {appendJSON, "\xff", false}, {appendOther, "\xff", false},
	} {
		if got, err := c.write(nil, connectors.StringValue(c.text)); (err == nil) != c.ok {
			t.Errorf("%q: %s, %v", c.text, got, err)
		}
	}
}

func TestARowLargerThanAStatementIsRefused(t *testing.T) {
	m, err := table.NewMapper([]table.Column{{Column: connectors.Column{Name: "a", Type: connectors.Type{Base: connectors.Text}}}}, table.Options{Mode: table.Insert})
	if err != nil {
		t.Fatal(err)
	}
	e := &rowEncoder{mapper: m, columns: []sinkColumn{{name: "a", write: appendText(0, 0)}}, most: 20}
	b := new(connectors.Batch)
	b.Size(2, 0)
	rows := &connectors.Rows{Batch: b, Layout: &connectors.Layout{}, Sel: []uint16{0, 1}, Values: [][]byte{[]byte(`{"a": "short"}`), []byte(`{"a": "longer than twenty bytes"}`)}}
	if err := e.Begin(rows); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Append(nil, 0); err != nil {
		t.Error(err)
	}
	var refused *deferred.Refused
	if _, err := e.Append(nil, 1); !errors.As(err, &refused) || refused.Kind != "too_large" {
		t.Errorf("error %v", err)
	}
}

func TestYearsThatColumnsHaveNoTextFor(t *testing.T) {
	for _, write := range []appendFunc{appendLocal(0), appendDate} {
		for ms, ok := range map[int64]bool{253402300800000: false, 253402300799999: true, -62135596800001: false, -62135596800000: true} {
			if got, err := write(nil, connectors.TimestampValue(time.UnixMilli(ms))); (err == nil) != ok {
				t.Errorf("%d: %s, %v", ms, got, err)
			}
		}
	}
}
