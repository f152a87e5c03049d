package state_test

import (
	"encoding/hex"
	"math"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// TestKeysOfValuesNeverChange pins the encoding, the hash and the group of 128. Where
// one of these differs, no checkpoint that exists can be restored.
func TestKeysOfValuesNeverChange(t *testing.T) {
	berlin := time.FixedZone("", 3600)
	cases := []struct {
		name  string
		value connectors.Value
		hex   string
		hash  uint64
		group int
	}{
		{"null", connectors.NullValue(), "01", 0x8a4127811b21e730, 48},
		{"absent", connectors.Value{}, "01", 0x8a4127811b21e730, 48},
		{"false", connectors.BoolValue(false), "0200", 0x59f4df17e2373528, 40},
		{"true", connectors.BoolValue(true), "0201", 0xfc2f33e9edde6f4a, 74},
		{"int", connectors.IntValue(1), "030100000000000000", 0x7ddfa3d2edf5f6a7, 39},
		{"whole float", connectors.FloatValue(1), "030100000000000000", 0x7ddfa3d2edf5f6a7, 39},
		{"decimal with zeros", connectors.DecimalValue("1.00"), "030100000000000000", 0x7ddfa3d2edf5f6a7, 39},
		{"decimal with exponent", connectors.DecimalValue("0.1e1"), "030100000000000000", 0x7ddfa3d2edf5f6a7, 39},
		{"zero", connectors.IntValue(0), "030000000000000000", 0x72707b1835bd39c5, 69},
		{"negative zero", connectors.FloatValue(math.Copysign(0, -1)), "030000000000000000", 0x72707b1835bd39c5, 69},
		{"negative decimal zero", connectors.DecimalValue("-0.00"), "030000000000000000", 0x72707b1835bd39c5, 69},
		{"least int", connectors.IntValue(math.MinInt64), "030000000000000080", 0xc462ce63724d4a4b, 75},
		{"least int as a decimal", connectors.DecimalValue("-9223372036854775808"), "030000000000000080", 0xc462ce63724d4a4b, 75},
		{"least int as a float", connectors.FloatValue(-1 << 63), "030000000000000080", 0xc462ce63724d4a4b, 75},
		{"float", connectors.FloatValue(0.1), "049a9999999999b93f", 0x42a2fc317b60146b, 107},
		{"decimal of a float's value", connectors.DecimalValue("0.10"), "049a9999999999b93f", 0x42a2fc317b60146b, 107},
		{"float beyond ints", connectors.FloatValue(1 << 63), "04000000000000e043", 0xb34577390745c375, 117},
		{"decimal beyond ints", connectors.DecimalValue("9223372036854775808"), "04000000000000e043", 0xb34577390745c375, 117},
		{"decimal beyond ints and no float", connectors.DecimalValue("9223372036854775809.0"), "051339323233333732303336383534373735383039", 0x39f21e9697eccaa9, 41},
		{"decimal of many digits", connectors.DecimalValue("0.10000000000000000000100"), "0517302e313030303030303030303030303030303030303031", 0xcd7ddee3003076dc, 92},
		{"decimal of a large exponent", connectors.DecimalValue("-12.5e400"), "05092d312e323565343031", 0x4d2faeb34521f88f, 15},
		{"NaN", connectors.FloatValue(math.NaN()), "04010000000000f87f", 0x6d1a42f3687e038d, 13},
		{"infinity", connectors.FloatValue(math.Inf(1)), "04000000000000f07f", 0x3abb146162aa1197, 23},
		{"text", connectors.StringValue("1"), "060131", 0xef658e81c37ecb08, 8},
		{"empty text", connectors.StringValue(""), "0600", 0x99abe732a95a3b9e, 30},
		{"bytes", connectors.BytesValue([]byte("1")), "070131", 0x2ba6186531d41f44, 68},
		{"timestamp", connectors.TimestampValue(time.Date(2026, 11, 29, 12, 0, 0, 5, time.UTC)), "08c0130c6b0000000005000000", 0xab684758b089fccf, 79},
		{"timestamp elsewhere", connectors.TimestampValue(time.Date(2026, 11, 29, 13, 0, 0, 5, berlin)), "08c0130c6b0000000005000000", 0xab684758b089fccf, 79},
		{"duration", connectors.DurationValue(time.Second), "0900ca9a3b00000000", 0x478511e6d96fba41, 65},
		{"list", connectors.ListValue([]byte(`[1.0, "a", null]`)), "0a0c5b312c2261222c6e756c6c5d", 0xe74bce2949feddda, 90},
		{"map", connectors.MapValue([]byte(`{"b": 1e0, "a": {}, "b": 2}`)), "0b0e7b2261223a7b7d2c2262223a327d", 0xe23e937618760eb3, 51},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			k := state.MakeKey(state.AppendKey(nil, c.value), 128)
			if got := hex.EncodeToString(k.Bytes); got != c.hex || k.Hash != c.hash || k.Group != c.group {
				t.Errorf("{%q, %#016x, %d}, want %q, %#x, %d", got, k.Hash, k.Group, c.hex, c.hash, c.group)
			}
		})
	}
}
