package kafka

import (
	"encoding/binary"
	"errors"

	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kgo"
)

// maxDecompressed bounds what one record batch may decompress to. A broker takes
// batches of a megabyte by default, so that only a hostile one comes near.
const maxDecompressed = 256 << 20

var errLZ4 = errors.New("lz4 frame is damaged")
var errLZ4Dict = errors.New("lz4 frame needs a dictionary, which kafka does not know")

// decompressor decodes lz4 itself, block by block into pooled buffers, and
// leaves the other codecs to the client. It skips the frame's own xxh32 sums:
// the CRC32C of the record batch, which the client has checked, covers the same
// bytes. It is safe for concurrent use.
type decompressor struct {
	pool   *fetchPool
	others kgo.Decompressor
	limit  int
}

func newDecompressor(pool *fetchPool) *decompressor {
	return &decompressor{pool: pool, others: kgo.DefaultDecompressor(pool), limit: maxDecompressed}
}

// Decompress implements kgo.Decompressor.
func (d *decompressor) Decompress(src []byte, codec kgo.CompressionCodecType) ([]byte, error) {
	if codec != kgo.CodecLz4 {
		return d.others.Decompress(src, codec)
	}
	out, err := d.frames(src)
	if err != nil {
		d.pool.giveBack(out)
		return nil, err
	}
	return d.pool.lend(out), nil
}

const (
	lz4Magic     = 0x184D2204
	lz4SkipMagic = 0x184D2A50 // to 0x184D2A5F
	lz4Window    = 64 << 10

	lz4FlagDict            = 1 << 0
	lz4FlagReserved        = 1 << 1
	lz4FlagContentChecksum = 1 << 2
	lz4FlagContentSize     = 1 << 3
	lz4FlagBlockChecksum   = 1 << 4
	lz4FlagIndependent     = 1 << 5
	lz4Version             = 1 << 6
	lz4VersionMask         = 3 << 6
)

// frames decodes all frames of src. The buffer it returns is the pool's, with an
// error too.
func (d *decompressor) frames(src []byte) ([]byte, error) {
	out := d.pool.take(4 * len(src))[:0]
	if len(src) == 0 {
		return out, errLZ4
	}
	for len(src) > 0 {
		if len(src) < 4 {
			return out, errLZ4
		}
		magic := binary.LittleEndian.Uint32(src)
		src = src[4:]
		var err error
		switch {
		case magic == lz4Magic:
			src, out, err = d.frame(src, out)
		case magic&^0xF == lz4SkipMagic:
			src, err = skipFrame(src)
		default:
			err = errLZ4
		}
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

func skipFrame(src []byte) ([]byte, error) {
	if len(src) < 4 {
		return nil, errLZ4
	}
	n := binary.LittleEndian.Uint32(src)
	if uint64(n) > uint64(len(src)-4) {
		return nil, errLZ4
	}
	return src[4+n:], nil
}

// lz4Frame is what the descriptor of a frame says.
type lz4Frame struct {
	flags    byte
	blockMax int
}

func parseDescriptor(src []byte) (f lz4Frame, rest []byte, err error) {
	if len(src) < 3 {
		return f, nil, errLZ4
	}
	flags, bd := src[0], src[1]
	size := 3 // both flag bytes and the descriptor's own checksum
	switch {
	case flags&lz4VersionMask != lz4Version, flags&lz4FlagReserved != 0, bd&0x8F != 0, bd>>4 < 4:
		return f, nil, errLZ4
	case flags&lz4FlagDict != 0:
		return f, nil, errLZ4Dict
	}
	if flags&lz4FlagContentSize != 0 {
		size += 8
	}
	if len(src) < size {
		return f, nil, errLZ4
	}
	return lz4Frame{flags, 1 << (8 + 2*(bd>>4))}, src[size:], nil
}

// frame decodes the rest of a frame, from its descriptor on.
func (d *decompressor) frame(src, out []byte) (rest, grown []byte, err error) {
	f, src, err := parseDescriptor(src)
	if err != nil {
		return nil, out, err
	}
	start := len(out)
	for {
		if len(src) < 4 {
			return nil, out, errLZ4
		}
		head := binary.LittleEndian.Uint32(src)
		src = src[4:]
		if head == 0 {
			break
		}
		n := int(head &^ (1 << 31))
		if n > len(src) || n > f.blockMax {
			return nil, out, errLZ4
		}
		window := len(out)
		if f.flags&lz4FlagIndependent == 0 {
			window = max(start, len(out)-lz4Window)
		}
		if out, err = d.block(src[:n], out, window, f.blockMax, head>>31 != 0); err != nil {
			return nil, out, err
		}
		src = src[n:]
		if f.flags&lz4FlagBlockChecksum != 0 {
			if len(src) < 4 {
				return nil, out, errLZ4
			}
			src = src[4:]
		}
	}
	if f.flags&lz4FlagContentChecksum != 0 {
		if len(src) < 4 {
			return nil, out, errLZ4
		}
		src = src[4:]
	}
	return src, out, nil
}

// block appends one decoded block. Matches may reach back to out[window:]. The
// size of a block stands nowhere: a buffer that turns out too small is doubled,
// up to what the frame allows.
func (d *decompressor) block(src, out []byte, window, blockMax int, stored bool) ([]byte, error) {
	if stored {
		if len(out)+len(src) > d.limit {
			return out, kgo.ErrMaxDecompress
		}
		out = d.pool.grow(out, len(out)+len(src))
		return append(out, src...), nil
	}
	for {
		room := out[len(out):min(cap(out), len(out)+blockMax, d.limit)]
		if len(room) > 0 {
			n, err := lz4.UncompressBlockWithDict(src, room, out[window:])
			if err == nil && n >= 0 && n <= len(room) {
				return out[:len(out)+n], nil
			}
		}
		switch {
		case len(room) >= blockMax:
			return out, errLZ4
		case len(out)+len(room) >= d.limit:
			return out, kgo.ErrMaxDecompress
		}
		out = d.pool.grow(out, min(d.limit, max(2*cap(out), len(out)+2*len(room))))
	}
}
