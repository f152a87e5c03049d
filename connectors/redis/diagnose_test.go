package redis

import (
	"testing"

	"github.com/sluice-etl/sluice/connectors"
)

func TestAServerThatLosesRowsIsTold(t *testing.T) {
	const info = "# Server\r\nredis_version:7.0.15\r\nrole:master\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\nloading:0\r\naof_enabled:1\r\n"
	for change, check := range map[[2]string]string{
		{"", ""}:                  "",
		{"role", "slave"}:         "server",
		{"aof_enabled", "0"}:      "durability",
		{"maxmemory", "1000"}:     "",
		{"maxmemory_policy", "x"}: "", // there is no limit
	} {
		values := parseInfo(info)
		if change[0] != "" {
			values[change[0]] = change[1]
		}
		wantTold(t, values, check)
	}
	values := parseInfo(info)
	values["maxmemory"], values["maxmemory_policy"] = "1000", "allkeys-lru"
	wantTold(t, values, "memory")
}

// wantTold wants the one check that is not well, or none.
func wantTold(t *testing.T, info map[string]string, check string) {
	t.Helper()
	told := ""
	judge(&connectors.Diagnosis{Report: func(f connectors.Finding) {
		if f.Level != connectors.LevelOK {
			told += f.Check
		}
	}}, info)
	if told != check {
		t.Errorf("%v: %q is told, want %q", info, told, check)
	}
}
