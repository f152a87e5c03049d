package format

import (
	"testing"
	"time"

	"github.com/sluice-etl/sluice/connectors"
)

func TestDecodeAndEncodeDoNotAllocate(t *testing.T) {
	layouts := map[string]connectors.Layout{
		"untouched": {},
		"splice":    edits(set("eur", 2), set("price", 3), drop("extra"), rename("url", "link")),
		"map":       {Empty: true, Edits: []connectors.Edit{set("eur", 2), set("tag", 3)}},
	}
	fields := []Field{{Path: []string{"price"}, Slot: 0}, {Path: []string{"channel"}, Slot: 1}}
	for name, l := range layouts {
		for _, spans := range []bool{true, false} {
			d, err := NewDecoder(jsonFormat, fields, spans)
			if err != nil {
				t.Fatal(err)
			}
			e, err := NewEncoder(jsonFormat, &l, EncoderOptions{Lines: true})
			if err != nil {
				t.Fatal(err)
			}
			b, sel := bids(4)
			b.Records, sel = b.Records[:240], sel[:240]
			for i := range b.Records {
				switch i % 3 {
				case 0: // an escape, a missing field, another order, a line break
					b.Records[i].Value = []byte(`{"auction":1,"price":7,"channel":"a\tb","url":"x","extra":"y"}`)
				case 1:
					b.Records[i].Value = []byte("{\"price\":1.5,\n\"auction\":1,\"url\":[1,{\"a\":2}]}")
				}
			}
			rows := &connectors.Rows{Batch: b, Sel: sel}
			failRow := func(_ uint16, err *SyntaxError) { t.Error(err) }
			fail := func(_ int, err error) { t.Error(err) }
			round := func() {
				b.Arena.Reset()
				b.Scan = b.Scan[:0]
				d.Decode(b, sel, failRow)
				for i := range b.Records {
					b.Row(i)[2], b.Row(i)[3] = connectors.FloatValue(12.34), connectors.StringValue("google_x")
				}
				e.Encode(rows, fail)
			}
			// The arena doubles from batch to batch until one chunk holds a batch.
			for range 8 {
				round()
			}
			if n := testing.AllocsPerRun(10, round); n > 0 {
				t.Errorf("%s, spans %v: %v allocations a batch", name, spans, n)
			}
		}
	}
}

func TestPrimitivesDoNotAllocate(t *testing.T) {
	m := []byte(`{"a":1,"b":"xäy","c":[1,2,{"d":null}],"e":1.25,"f":12345678901234567890}`)
	list := []byte(`[1,"x",[2],{"a":3}]`)
	arena := &connectors.Arena{}
	arena.Grow(1)
	buf := make([]byte, 0, 256)
	sum := 0
	india := connectors.TimestampValue(time.Unix(0, 1).In(time.FixedZone("", 5*3600+1800)))
	for name, f := range map[string]func(){
		"lookup":   func() { Lookup(m, "e", arena) },
		"index":    func() { Index(list, 2, arena) },
		"len":      func() { sum += Len(m) + Len(list) },
		"elements": func() { Elements(list, arena, func(connectors.Value) bool { sum++; return true }) },
		"entries":  func() { Entries(m, arena, func(string, connectors.Value) bool { sum++; return true }) },
		"parse":    func() { _, _ = ParseValue(m, arena) },
		"number":   func() { Number("0.30000000000000004") },
		"time":     func() { buf, _ = AppendValue(buf[:0], india) },
		"append":   func() { buf, _ = AppendValue(buf[:0], connectors.FloatValue(0.1+0.2)) },
	} {
		if n := testing.AllocsPerRun(50, f); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
