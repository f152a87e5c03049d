package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"
)

// frameOf compresses data as a frame with the given options.
func frameOf(t testing.TB, data []byte, opts ...lz4.Option) []byte {
	t.Helper()
	var out bytes.Buffer
	w := lz4.NewWriter(&out)
	if err := w.Apply(opts...); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func decompress(src []byte) ([]byte, error) {
	return newDecompressor(newFetchPool(1<<20)).Decompress(src, kgo.CodecLz4)
}

// text is compressible data of n bytes; noise is not compressible.
func text(n int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, `{"auction":%d,"bidder":%d,"price":%d}`, i*7919%1000, i*104729%500, i*i%100000)
	}
	return b.Bytes()[:n]
}

func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func TestLZ4ReadsWhatEveryWriterOptionMakes(t *testing.T) {
	inputs := map[string][]byte{
		"empty": {}, "short": []byte("a"), "text": text(300_000), "noise": noise(300_000),
		"zeros": make([]byte, 5<<20), "mixed": append(text(70_000), append(noise(70_000), text(70_000)...)...),
	}
	sizes := []lz4.BlockSize{lz4.Block64Kb, lz4.Block256Kb, lz4.Block1Mb, lz4.Block4Mb}
	for name, data := range inputs {
		for _, size := range sizes {
			for _, sums := range []bool{false, true} {
				opts := []lz4.Option{lz4.BlockSizeOption(size), lz4.BlockChecksumOption(sums), lz4.ChecksumOption(!sums), lz4.SizeOption(uint64(len(data)))}
				got, err := decompress(frameOf(t, data, opts...))
				if err != nil || !bytes.Equal(got, data) {
					t.Errorf("%s, blocks of %v, sums %v: %d bytes, %v", name, size, sums, len(got), err)
				}
			}
		}
	}
}

// linkedFrame writes a frame whose blocks refer back into those before, which the
// library's writer does not make: the block is compressed behind its dictionary.
func linkedFrame(t testing.TB, blocks ...[]byte) []byte {
	t.Helper()
	out := binary.LittleEndian.AppendUint32(nil, lz4Magic)
	out = append(out, lz4Version, 4<<4, 0) // linked, blocks of 64 KiB, a sum that is not looked at
	for i, b := range blocks {
		raw := literals(b)
		if i > 0 && bytes.Equal(b, blocks[i-1]) {
			raw = backReference(len(b), len(b))
		}
		out = binary.LittleEndian.AppendUint32(out, uint32(len(raw)))
		out = append(out, raw...)
	}
	return binary.LittleEndian.AppendUint32(out, 0)
}

// literals is a block of literals alone.
func literals(b []byte) []byte {
	return append(sequence(nil, len(b)), b...)
}

func sequence(out []byte, literals int) []byte {
	if literals < 15 {
		return append(out, byte(literals)<<4)
	}
	out = append(out, 15<<4)
	return extend(out, literals-15)
}

func extend(out []byte, n int) []byte {
	for ; n >= 255; n -= 255 {
		out = append(out, 255)
	}
	return append(out, byte(n))
}

// backReference is a block of one match of n-5 bytes at a distance and five
// literals, as the end of a block demands.
func backReference(distance, n int) []byte {
	match := n - 5 - 4
	out := []byte{15}
	out = binary.LittleEndian.AppendUint16(out, uint16(distance))
	out = extend(out, match-15)
	out = append(out, 5<<4)
	return append(out, "tail."...)
}

func TestLZ4FollowsLinkedBlocks(t *testing.T) {
	block := append(text(20_000), "tail."...)
	got, err := decompress(linkedFrame(t, block, block, block))
	want := bytes.Repeat(block, 3)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d bytes, %v; want %d", len(got), err, len(want))
	}
	ref, err := (&referenceReader{}).read(linkedFrame(t, block, block, block))
	if err == nil && !bytes.Equal(ref, want) {
		t.Errorf("the library reads %d other bytes", len(ref))
	}
	// The same blocks in a frame that says they are independent.
	frame := linkedFrame(t, block, block)
	frame[4] |= lz4FlagIndependent
	if got, err := decompress(frame); err == nil {
		t.Errorf("a reference out of an independent block is followed: %d bytes", len(got))
	}
}

func TestLZ4ReadsFramesInARowAndSkipsSkippableOnes(t *testing.T) {
	skip := binary.LittleEndian.AppendUint32(nil, lz4SkipMagic+3)
	skip = append(binary.LittleEndian.AppendUint32(skip, 4), "skip"...)
	src := append(frameOf(t, []byte("one ")), skip...)
	src = append(src, frameOf(t, []byte("two"))...)
	got, err := decompress(src)
	if err != nil || string(got) != "one two" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestLZ4RefusesDamagedFrames(t *testing.T) {
	good := frameOf(t, text(100_000), lz4.BlockChecksumOption(true), lz4.ChecksumOption(true))
	for n := range good {
		if n%97 != 0 && n > 64 {
			continue
		}
		if got, err := decompress(good[:n]); err == nil {
			t.Errorf("cut to %d of %d bytes: no error, %d bytes out", n, len(good), len(got))
		}
	}
	dict := bytes.Clone(good)
	dict[4] |= lz4FlagDict
	if _, err := decompress(dict); !errors.Is(err, errLZ4Dict) {
		t.Errorf("dictionary: %v", err)
	}
	for name, change := range map[string]func(b []byte){
		"magic":      func(b []byte) { b[0] = 'x' },
		"version":    func(b []byte) { b[4] ^= lz4Version },
		"block size": func(b []byte) { b[5] = 3 << 4 },
		"reserved":   func(b []byte) { b[4] |= lz4FlagReserved },
	} {
		bad := bytes.Clone(good)
		change(bad)
		if _, err := decompress(bad); !errors.Is(err, errLZ4) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLZ4BoundsItsOutput(t *testing.T) {
	d := newDecompressor(newFetchPool(1 << 20))
	d.limit = 1 << 20
	for name, src := range map[string][]byte{
		"one frame":   frameOf(t, make([]byte, 1<<20+1)),
		"many frames": bytes.Repeat(frameOf(t, make([]byte, 300_000)), 4),
		"stored":      frameOf(t, noise(1<<20+1)),
	} {
		if _, err := d.Decompress(src, kgo.CodecLz4); !errors.Is(err, kgo.ErrMaxDecompress) {
			t.Errorf("%s: %v, want ErrMaxDecompress", name, err)
		}
	}
	if got, err := d.Decompress(frameOf(t, make([]byte, 1<<20)), kgo.CodecLz4); err != nil || len(got) != 1<<20 {
		t.Errorf("at the limit: %d bytes, %v", len(got), err)
	}
}

// referenceReader reads frames with the library.
type referenceReader struct{}

func (*referenceReader) read(src []byte) ([]byte, error) {
	var out bytes.Buffer
	_, err := out.ReadFrom(lz4.NewReader(bytes.NewReader(src)))
	return out.Bytes(), err
}

func TestLZ4AgreesWithTheLibrary(t *testing.T) {
	pool := newFetchPool(8 << 20)
	d := newDecompressor(pool)
	rapid.Check(t, func(rt *rapid.T) {
		unit := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(rt, "unit")
		data := bytes.Repeat(unit, rapid.IntRange(1, 1000).Draw(rt, "times"))
		size := rapid.SampledFrom([]lz4.BlockSize{lz4.Block64Kb, lz4.Block256Kb, lz4.Block1Mb, lz4.Block4Mb}).Draw(rt, "block")
		level := rapid.SampledFrom([]lz4.CompressionLevel{lz4.Fast, lz4.Level1, lz4.Level9}).Draw(rt, "level")
		src := frameOf(t, data, lz4.BlockSizeOption(size), lz4.CompressionLevelOption(level), lz4.BlockChecksumOption(rapid.Bool().Draw(rt, "sums")))
		got, err := d.Decompress(src, kgo.CodecLz4)
		if err != nil || !bytes.Equal(got, data) {
			rt.Fatalf("%d bytes of %d, %v", len(got), len(data), err)
		}
		pool.PutDecompressBytes(got)
	})
	if len(pool.lent) != 0 {
		t.Errorf("%d buffers are still lent out", len(pool.lent))
	}
}

func FuzzLZ4(f *testing.F) {
	f.Add(frameOf(f, []byte("hello, hello, hello")))
	f.Add(frameOf(f, text(2000), lz4.BlockChecksumOption(true), lz4.SizeOption(2000)))
	f.Add(frameOf(f, noise(2000)))
	f.Add(linkedFrame(f, []byte("one"), []byte("two")))
	f.Add([]byte(strings.Repeat("\x04\x22\x4d\x18", 4)))
	d := newDecompressor(newFetchPool(1 << 20))
	d.limit = 8 << 20
	f.Fuzz(func(t *testing.T, src []byte) {
		got, err := d.Decompress(src, kgo.CodecLz4)
		if err == nil {
			defer d.pool.PutDecompressBytes(got)
		}
		// What the library takes, with its sums, we take and read the same.
		want, refErr := (&referenceReader{}).read(src)
		if refErr == nil && len(src) > 0 && len(want) <= d.limit && err != nil && !legacy(src) {
			t.Fatalf("refused with %v, the library reads %d bytes", err, len(want))
		}
		if refErr == nil && err == nil && len(want) > 0 && !bytes.Equal(got, want) {
			t.Fatalf("%d bytes, the library reads %d others", len(got), len(want))
		}
	})
}

// legacy reports whether src may hold the frames of lz4's first format, which
// Kafka never used.
func legacy(src []byte) bool { return bytes.Contains(src, []byte{0x02, 0x21, 0x4C, 0x18}) }
