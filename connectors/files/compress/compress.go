// Package compress packs and unpacks the bytes of files, in pieces that stand for
// themselves: a file is any number of members or frames, one after the other, as the
// formats allow.
package compress

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// The names of the compressions.
const (
	None   = "none"
	Gzip   = "gzip"
	Zstd   = "zstd"
	Snappy = "snappy"
	LZ4    = "lz4"
)

// Names are all of them.
var Names = []string{None, Gzip, Zstd, Snappy, LZ4}

var endings = map[string]string{None: "", Gzip: ".gz", Zstd: ".zst", Snappy: ".sz", LZ4: ".lz4"}

// Ending is what the names of such files end in, with a dot.
func Ending(name string) string { return endings[name] }

// ByName is the compression that a file's name tells of.
func ByName(file string) string {
	for name, ending := range endings {
		if ending != "" && strings.HasSuffix(file, ending) {
			return name
		}
	}
	return None
}

// Packer makes pieces. It serves one goroutine.
type Packer struct {
	name string
	out  bytes.Buffer
	gz   *gzip.Writer
	zs   *zstd.Encoder
	sz   *s2.Writer
	lz   *lz4.Writer
}

// NewPacker makes a packer of one of Names.
func NewPacker(name string) *Packer { return &Packer{name: name} }

// Pack adds the compressed piece to dst.
func (p *Packer) Pack(dst, data []byte, _ int) ([]byte, error) {
	switch p.name {
	case Gzip:
		if p.gz == nil {
			p.gz = gzip.NewWriter(&p.out)
		}
		p.gz.Reset(p.begin())
		return p.finish(dst, data, p.gz)
	case Zstd:
		if p.zs == nil {
			p.zs, _ = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(true)) // fails for bad options only
		}
		return p.zs.EncodeAll(data, dst), nil
	case Snappy:
		if p.sz == nil {
			p.sz = s2.NewWriter(&p.out, s2.WriterSnappyCompat(), s2.WriterConcurrency(1))
		}
		p.sz.Reset(p.begin())
		return p.finish(dst, data, p.sz)
	case LZ4:
		if p.lz == nil {
			p.lz = lz4.NewWriter(&p.out)
		}
		p.lz.Reset(p.begin())
		return p.finish(dst, data, p.lz)
	}
	return append(dst, data...), nil
}

func (p *Packer) begin() *bytes.Buffer {
	p.out.Reset()
	return &p.out
}

func (p *Packer) finish(dst, data []byte, w io.WriteCloser) ([]byte, error) {
	if _, err := w.Write(data); err != nil {
		return dst, err
	}
	if err := w.Close(); err != nil {
		return dst, err
	}
	return append(dst, p.out.Bytes()...), nil
}

// maxWindow bounds what a reader has in memory of a zstd frame.
const maxWindow = 128 << 20

// ErrTooLarge is reported where more comes out than was allowed.
var ErrTooLarge = errors.New("more comes out of it than is allowed")

// ErrDamaged is reported of compressed bytes that are not what they should be, so that
// reading again brings the same.
var ErrDamaged = errors.New("its compressed bytes are damaged")

// NewReader reads what is compressed in r, and refuses to give out more than limit
// bytes, 0 for any number. Close it.
func NewReader(name string, r io.Reader, limit int64) (io.ReadCloser, error) {
	in := &tracked{in: r}
	out, err := newReader(name, in)
	if err != nil {
		return nil, in.explain(err)
	}
	return &reader{ReadCloser: out, in: in, left: limit, limit: limit}, nil
}

func newReader(name string, r io.Reader) (io.ReadCloser, error) {
	switch name {
	case Gzip:
		z, err := gzip.NewReader(r)
		if errors.Is(err, io.EOF) { // an empty file
			return io.NopCloser(bytes.NewReader(nil)), nil
		}
		return z, err
	case Zstd:
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, err
		}
		return z.IOReadCloser(), nil
	case Snappy:
		return io.NopCloser(s2.NewReader(r, s2.ReaderMaxBlockSize(4<<20))), nil
	case LZ4:
		return io.NopCloser(lz4.NewReader(r)), nil
	default:
		return io.NopCloser(r), nil
	}
}

// tracked tells errors of the storage from those of what was read.
type tracked struct {
	in  io.Reader
	err error
}

func (t *tracked) Read(p []byte) (int, error) {
	n, err := t.in.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		t.err = err
	}
	return n, err
}

func (t *tracked) explain(err error) error {
	if t.err != nil {
		return t.err
	}
	return fmt.Errorf("%w: %w", ErrDamaged, err)
}

// reader ends with an error where there is more than a limit.
type reader struct {
	io.ReadCloser
	in          *tracked
	left, limit int64
}

func (r *reader) Read(p []byte) (int, error) {
	if r.limit > 0 && int64(len(p)) > r.left {
		p = p[:r.left+1]
	}
	n, err := r.ReadCloser.Read(p)
	if r.limit > 0 && int64(n) > r.left {
		return int(r.left), fmt.Errorf("%w, which is %d bytes", ErrTooLarge, r.limit)
	}
	r.left -= int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		err = r.in.explain(err)
	}
	return n, err
}
