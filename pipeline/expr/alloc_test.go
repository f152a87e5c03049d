package expr

import (
	"testing"

	"github.com/sluice-etl/sluice/connectors"
)

// hot are expressions that must be evaluated without an allocation.
var hot = []struct{ text, rec string }{
	{`price > 10000 && channel == "Google"`, `{"price": 20000, "channel": "Google"}`},
	{`price * 0.908`, `{"price": 20000}`},
	{`lower(channel) + "_x"`, `{"channel": "Google"}`},
	{`channel matches "^channel-[0-9]+$"`, `{"channel": "channel-1234"}`},
	{`price > 1000000 ? "a" : price > 10000 ? "b" : price > 100 ? "c" : "d"`, `{"price": 20000}`},
	{`channel in ["Google", "Apple", "Baidu"] && (price % 2 == 0 || price > 100) && bidder != 7`, `{"price": 20000, "channel": "Apple", "bidder": 8}`},
	{`auction in [1007, 1020, 2001]`, `{"auction": 2001}`},
	{`user.id > 3 && user.name startsWith "a"`, `{"user": {"name": "ann", "id": 5}}`},
	{`tags[1] ?? "none"`, `{"tags": ["a", "b"]}`},
	{`{id: id, tags: [channel, upper(channel)]}`, `{"id": 3, "channel": "x"}`},
	{`filter(prices, # > 3 && # < 100)`, `{"prices": [1, 5, 50, 500]}`},
	{`sum(map(prices, # * 2))`, `{"prices": [1, 5, 50, 500]}`},
	{`string(auction) + ":" + string(price)`, `{"auction": 7, "price": 1.5}`},
	{`split_part(url, "/", 3)`, `{"url": "https://a.b/c/d"}`},
	{`decimal(price) * 3`, `{"price": 12.25}`},
	{`date_trunc("hour", t)`, `{"t": 1700000000000}`},
	{`meta.headers["h"] == "v2" && meta.partition >= 0`, `{}`},
	{`let x = price * 2; x > 10 ? x : -x`, `{"price": 3}`},
	{`split(channel, "-")`, `{"channel": "a-b-c"}`},
	{`unix_ms(t) - meta.offset`, `{"t": "2023-11-14T22:13:20Z"}`},
}

func TestHotExpressionsDoNotAllocate(t *testing.T) {
	for _, h := range hot {
		t.Run(h.text, func(t *testing.T) {
			scope, b := record(t, h.rec)
			p, err := Compile(h.text, scope, Options{})
			if err != nil {
				t.Fatal(err)
			}
			e := NewEnv()
			var fault *EvalError
			n := testing.AllocsPerRun(100, func() {
				b.Arena.Reset()
				_, fault = p.Eval(e, b, 0)
			})
			if n != 0 || fault != nil {
				t.Errorf("%v allocations, %v", n, fault)
			}
		})
	}
}

func BenchmarkEval(b *testing.B) {
	for _, h := range hot {
		b.Run(h.text, func(b *testing.B) {
			scope, one := record(b, h.rec)
			batch := many(one, 1024)
			p, err := Compile(h.text, scope, Options{})
			if err != nil {
				b.Fatal(err)
			}
			e, sel := NewEnv(), make([]uint16, 1024)
			fail := func(_ uint16, err *EvalError) { b.Fatal(err) }
			slot := batch.Stride - 1
			b.ReportAllocs()
			b.ResetTimer()
			for done := 0; done < b.N; done += len(sel) {
				for i := range sel {
					sel[i] = uint16(i)
				}
				batch.Arena.Reset()
				if p.Type() == Bool {
					p.Filter(e, batch, sel, fail)
				} else {
					p.Fill(e, batch, sel, slot, fail)
				}
			}
		})
	}
}

// many repeats the record of b n times.
func many(b *connectors.Batch, n int) *connectors.Batch {
	out := &connectors.Batch{}
	out.Size(n, b.Stride)
	for i := range n {
		out.Records[i] = b.Records[0]
		copy(out.Row(i), b.Row(0))
	}
	return out
}
