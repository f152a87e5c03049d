package deferred

import (
	"bytes"
	"context"
	"io"
	"testing"
)

func opener(data []byte) func(context.Context) (io.ReadCloser, error) {
	return func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
}

func FuzzBlock(f *testing.F) {
	f.Add([]byte{1, 2, 1, 1, 'a', 'b', 0, 0})
	f.Add([]byte{0, 1, 1, 'a', 2, 1, 't', 2, 4})
	f.Fuzz(func(_ *testing.T, raw []byte) {
		b := Block{raw: raw}
		if b.unpack() == nil {
			for i := range b.Rows {
				_ = b.Record(i)
			}
		}
	})
}
