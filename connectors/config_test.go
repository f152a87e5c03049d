package connectors

import (
	"testing"
	"time"
)

func TestDurationsAndSizesThatAreNoNumbersAreRefused(t *testing.T) {
	for _, s := range []string{"NaN", "NaNMiB", "Inf", "-1MiB", ""} {
		if n, err := ParseByteSize(s); err == nil {
			t.Errorf("size %q is %d", s, n)
		}
	}
	for _, s := range []string{"NaNd", "Infd", "d", "1"} {
		if d, err := ParseDuration(s); err == nil {
			t.Errorf("duration %q is %s", s, d)
		}
	}
	for s, want := range map[string]time.Duration{"1d12h": 36 * time.Hour, "-1d12h": -36 * time.Hour, "1.5d": 36 * time.Hour} {
		if d, err := ParseDuration(s); err != nil || d != want {
			t.Errorf("duration %q is %s, %v", s, d, err)
		}
	}
}
