package mysql

import (
	"math"
	"slices"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
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
