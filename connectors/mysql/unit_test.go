package mysql

import (
	"slices"
	"testing"
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
