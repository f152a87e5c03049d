package format

import (
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
)

func TestFormatsAreListedWithTheirOptions(t *testing.T) {
	all := Formats()
	if len(all) != 2 || all[0].Name != "debezium" || all[1].Name != "json" || all[1].Doc == "" {
		t.Fatalf("%+v", all)
	}
}

func TestConfigurationFaultsAreSaid(t *testing.T) {
	for _, c := range []struct {
		cfg  connectors.FormatConfig
		want []string
	}{
		{connectors.FormatConfig{}, nil},
		{connectors.FormatConfig{Name: "json", Options: map[string]any{"strict": true, "max_size": "10MB", "max_depth": int64(50)}}, nil},
		{connectors.FormatConfig{Name: "jsn"}, []string{`there is no format "jsn"; there is debezium, json`}},
		{connectors.FormatConfig{Name: "json", Options: map[string]any{"stict": true, "max_depth": "x", "strict": 1, "max_size": "much"}},
			[]string{"stict: format json has no such option (it has strict, max_size, max_depth)", "max_depth: a whole number is wanted", "strict: true or false is wanted", `max_size: "much" is no size`}},
		{connectors.FormatConfig{Name: "json", Options: map[string]any{"max_size": int64(0), "max_depth": int64(0)}},
			[]string{"max_size: a size from 1B to 1GiB is wanted", "max_depth: a number from 1 to 100000 is wanted"}},
	} {
		err := Check(c.cfg)
		if (err == nil) != (len(c.want) == 0) {
			t.Errorf("%v: %v", c.cfg, err)
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%v: %v lacks %q", c.cfg, err, w)
			}
		}
	}
}

func TestStrictFormatsAreKnown(t *testing.T) {
	for _, c := range []struct {
		cfg  connectors.FormatConfig
		want bool
	}{
		{connectors.FormatConfig{}, false},
		{jsonFormat, false},
		{strictFormat(), true},
		{connectors.FormatConfig{Name: "no such"}, false},
	} {
		if got := Strict(c.cfg); got != c.want {
			t.Errorf("%v: %v", c.cfg, got)
		}
	}
}

func TestSlotsHaveToBeThere(t *testing.T) {
	if _, err := NewDecoder(jsonFormat, []Field{{Path: []string{"a"}, Slot: -1}}, false); err == nil {
		t.Error("a field without a slot is taken")
	}
	if _, err := NewEncoder(jsonFormat, &connectors.Layout{Edits: []connectors.Edit{set("a", -1)}}, EncoderOptions{}); err == nil {
		t.Error("a set without a slot is taken")
	}
}
