package connectors

import "testing"

func TestAppendLineKeepsOneValueOnOneLine(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"plain", `{"a":1}`, "{\"a\":1}\n"},
		{"empty", "", "\n"},
		{"line break between tokens", "{\n\"a\":1,\r\n\"b\":2}", "{ \"a\":1,  \"b\":2}\n"},
		{"escaped line break stays", `{"a":"x\ny"}`, "{\"a\":\"x\\ny\"}\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := string(AppendLine([]byte("x\n"), []byte(c.in))); got != "x\n"+c.want {
				t.Errorf("got %q, want %q after the first line", got, c.want)
			}
		})
	}
	if got := string(AppendLine(nil, nil)); got != "null\n" {
		t.Errorf("a tombstone became %q", got)
	}
	buf := make([]byte, 0, 1<<10)
	v := []byte(`{"a":1}`)
	if n := testing.AllocsPerRun(100, func() { buf = AppendLine(buf[:0], v) }); n != 0 {
		t.Errorf("%v allocations a line", n)
	}
}
