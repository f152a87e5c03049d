package hdfs

import (
	"testing"

	"pgregory.net/rapid"
)

func TestEncodedNames(t *testing.T) {
	for name, want := range map[string]string{
		"a/b":            "a/b",
		"hour=10:00":     "hour=10%3A00",
		"hour=10%3A00":   "hour=10%253A00",
		"50%":            "50%",
		"%25":            "%2525",
		"%3%3A:":         "%3%253A%3A",
		"dt=2026-11-30/": "dt=2026-11-30/",
	} {
		if got := encode(name); got != want || decode(got) != name {
			t.Errorf("encode(%q) = %q, want %q; decoded it is %q", name, got, want, decode(got))
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringOfN(rapid.SampledFrom([]rune("%:235Aa/ü")), 0, 12, -1).Draw(t, "name")
		if back := decode(encode(name)); back != name {
			t.Fatalf("%q comes back as %q", name, back)
		}
	})
}
