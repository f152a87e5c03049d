package s3

import (
	"errors"
	"io"
	"sync"
)

// chunkSize is what buffers grow by. Small files take one chunk.
const chunkSize = 256 << 10

var chunks = sync.Pool{New: func() any { return new([chunkSize]byte) }}

// buffer holds the bytes of one part in chunks that are used again.
type buffer struct {
	chunks []*[chunkSize]byte
	size   int64
}

// write copies what fits below limit, and returns how much that is.
func (b *buffer) write(p []byte, limit int64) int {
	n := 0
	for len(p) > 0 && b.size < limit {
		at := int(b.size % chunkSize)
		if at == 0 {
			b.chunks = append(b.chunks, chunks.Get().(*[chunkSize]byte))
		}
		m := copy(b.chunks[len(b.chunks)-1][at:], p[:min(int64(len(p)), limit-b.size)])
		b.size += int64(m)
		n += m
		p = p[m:]
	}
	return n
}

// free gives the chunks back. Nobody may read them any more.
func (b *buffer) free() {
	for _, c := range b.chunks {
		chunks.Put(c)
	}
	b.chunks, b.size = nil, 0
}

// reader reads the buffer from its beginning.
func (b *buffer) reader() io.ReadSeeker { return &bufferReader{b: b} }

type bufferReader struct {
	b   *buffer
	off int64
}

func (r *bufferReader) Read(p []byte) (int, error) {
	if r.off >= r.b.size {
		return 0, io.EOF
	}
	c, at := r.b.chunks[r.off/chunkSize], r.off%chunkSize
	n := copy(p, c[at:min(chunkSize, at+r.b.size-r.off)])
	r.off += int64(n)
	return n, nil
}

func (r *bufferReader) Seek(off int64, whence int) (int64, error) {
	at, err := seek(off, whence, r.off, r.b.size)
	if err == nil {
		r.off = at
	}
	return at, err
}

// seek is the new offset of a reader.
func seek(off int64, whence int, now, size int64) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		off += now
	case io.SeekEnd:
		off += size
	case io.SeekStart:
	default:
		return 0, errors.New("seek: whence is none of the three")
	}
	if off < 0 {
		return 0, errors.New("seek: before the beginning")
	}
	return off, nil
}
