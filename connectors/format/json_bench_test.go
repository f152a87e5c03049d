package format

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
)

var jsonFormat = connectors.FormatConfig{Name: "json"}

// bids makes a batch of bids of about 212 bytes each.
func bids(stride int) (*connectors.Batch, []uint16) {
	b := connectors.NewBatchPool(1).Get()
	b.Size(connectors.MaxBatch, stride)
	sel := make([]uint16, connectors.MaxBatch)
	channels := []string{"Google", "Apple", "Facebook", "Baidu", "channel-4711"}
	for i := range b.Records {
		sel[i] = uint16(i)
		b.Records[i].Value = fmt.Appendf(nil, `{"auction":%d,"bidder":%d,"price":%d,"channel":"%s","url":"https://auctions.example/item.htm?query=%d","date_time":"2026-11-29T12:00:%02d.%03dZ","extra":"%060d"}`,
			1000+i, 2000+i*7, 100+i*7919%100000, channels[i%len(channels)], i%10, i%60, i%1000, i)
	}
	return b, sel
}

func perRecord(b *testing.B, batch *connectors.Batch) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(batch.Records)), "ns/record")
	b.ReportMetric(0, "ns/op")
}

func BenchmarkDecode(b *testing.B) {
	fields := []Field{{Path: []string{"price"}, Slot: 0}, {Path: []string{"channel"}, Slot: 1}}
	all := append([]Field{{Path: []string{"auction"}, Slot: 2}, {Path: []string{"bidder"}, Slot: 3}, {Path: []string{"url"}, Slot: 4}, {Path: []string{"date_time"}, Slot: 5}, {Path: []string{"extra"}, Slot: 6}}, fields...)
	for _, c := range []struct {
		name   string
		spans  bool
		strict bool
		fields []Field
	}{{"raw", false, false, fields}, {"spans", true, false, fields}, {"strict", false, true, fields}, {"none", false, false, nil}, {"all", false, false, all}} {
		b.Run(c.name, func(b *testing.B) {
			cfg := jsonFormat
			cfg.Options = map[string]any{"strict": c.strict}
			d, err := NewDecoder(cfg, c.fields, c.spans)
			if err != nil {
				b.Fatal(err)
			}
			batch, sel := bids(8)
			b.ReportAllocs()
			for b.Loop() {
				batch.Scan = batch.Scan[:0]
				d.Decode(batch, sel, func(_ uint16, err *SyntaxError) { b.Fatal(err) })
			}
			perRecord(b, batch)
		})
	}
}

// A record of about 1 KB with four levels and a list of five objects.
func BenchmarkDecodeNested(b *testing.B) {
	item := `{"sku":"ABC-1","qty":3,"price":19.99,"tags":["red","large","sale"],"dims":{"w":10,"h":20,"d":5},"note":"some longer text that goes on for a while"}`
	value := []byte(`{"id":12345,"user":{"name":"Jane Doe","address":{"city":"Berlin","geo":{"lat":52.5,"lon":13.4}}},"items":[` +
		strings.Repeat(item+",", 4) + item + `],"total":99.95,"meta":{"a":null,"b":true}}`)
	for _, c := range []struct {
		name string
		path []string
	}{{"top", []string{"total"}}, {"deep", []string{"user", "address", "geo", "lat"}}, {"list", []string{"items"}}} {
		b.Run(c.name, func(b *testing.B) {
			d, err := NewDecoder(jsonFormat, []Field{{Path: c.path, Slot: 0}}, false)
			if err != nil {
				b.Fatal(err)
			}
			batch, sel := bids(1)
			for i := range batch.Records {
				batch.Records[i].Value = value
			}
			for b.Loop() {
				d.Decode(batch, sel, func(_ uint16, err *SyntaxError) { b.Fatal(err) })
			}
			perRecord(b, batch)
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	set := []connectors.Edit{{Kind: connectors.EditSet, Name: "price_eur", Slot: 2}, {Kind: connectors.EditSet, Name: "tag", Slot: 3}}
	for _, c := range []struct {
		name   string
		spans  bool
		layout connectors.Layout
		value  connectors.Value
	}{
		{"splice", true, connectors.Layout{Edits: set}, connectors.FloatValue(11208.35)},
		{"splice ints", true, connectors.Layout{Edits: set}, connectors.IntValue(11208)},
		{"rescan", false, connectors.Layout{Edits: set}, connectors.IntValue(11208)},
		{"drop", true, connectors.Layout{Edits: []connectors.Edit{{Kind: connectors.EditDrop, Name: "channel"}}}, connectors.IntValue(1)},
		{"map", false, connectors.Layout{Empty: true, Edits: set}, connectors.IntValue(11208)},
		{"untouched", false, connectors.Layout{}, connectors.IntValue(1)},
	} {
		for _, lines := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/lines=%v", c.name, lines), func(b *testing.B) {
				d, err := NewDecoder(jsonFormat, []Field{{Path: []string{"price"}, Slot: 0}, {Path: []string{"channel"}, Slot: 1}}, c.spans)
				if err != nil {
					b.Fatal(err)
				}
				e, err := NewEncoder(jsonFormat, &c.layout, EncoderOptions{Lines: lines})
				if err != nil {
					b.Fatal(err)
				}
				batch, sel := bids(4)
				d.Decode(batch, sel, func(_ uint16, err *SyntaxError) { b.Fatal(err) })
				for i := range batch.Records {
					row := batch.Row(i)
					row[2], row[3] = c.value, connectors.StringValue("google_x")
				}
				rows := connectors.Rows{Batch: batch, Sel: sel}
				b.ReportAllocs()
				for b.Loop() {
					batch.Arena.Reset()
					e.Encode(&rows, func(_ int, err error) { b.Fatal(err) })
				}
				perRecord(b, batch)
			})
		}
	}
}

func BenchmarkAppendFloat(b *testing.B) {
	var values [1024]float64
	for i := range values {
		values[i] = float64(100+i*7919%100000) * 0.908
	}
	buf := make([]byte, 0, 64)
	i := 0
	for b.Loop() {
		buf = appendFloat(buf[:0], values[i&1023])
		i++
	}
}
