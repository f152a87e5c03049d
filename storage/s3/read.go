package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/sluice-etl/sluice/storage"
)

// firstRead is how much of a file the request that opens it brings: all of a small one.
const firstRead = 1 << 20

// Open reads a file.
func (f *FS) Open(ctx context.Context, name string) (storage.Reader, error) {
	key, err := f.key(ctx, name)
	if err != nil {
		return nil, err
	}
	r := &reader{b: f.b, ctx: ctx, key: key, name: name}
	if err := r.open(); err != nil {
		return nil, err
	}
	return r, nil
}

// reader reads one version of an object. Where a connection breaks it asks for the
// rest.
type reader struct {
	b    *bucket
	ctx  context.Context //nolint:containedctx // a reader lives within the call that made it
	key  string
	name string
	size int64
	etag *string
	head []byte // the file's first bytes

	closed bool
	off    int64
	stream io.ReadCloser // the bytes from off on; nil for none
}

func (r *reader) open() error {
	err := r.b.do(r.ctx, "GetObject", r.key, func(ctx context.Context) error {
		out, err := r.b.get(ctx, r.key, "bytes=0-"+strconv.Itoa(firstRead-1), nil)
		if err != nil {
			return err
		}
		r.etag, r.size = out.ETag, aws.ToInt64(out.ContentLength)
		if out.ContentRange != nil {
			if r.size, err = wholeSize(*out.ContentRange); err != nil {
				_ = out.Body.Close()
				return err
			}
		}
		r.head = make([]byte, min(firstRead, r.size))
		_, err = io.ReadFull(out.Body, r.head)
		_ = out.Body.Close()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return errShort
		}
		return err
	})
	if err == nil {
		r.b.saw()
		return nil
	}
	if status(err) != http.StatusRequestedRangeNotSatisfiable {
		return err
	}
	// No range begins in an empty object.
	head, err := r.b.head(r.ctx, r.key)
	if err != nil {
		return err
	}
	if r.etag = head.ETag; aws.ToInt64(head.ContentLength) != 0 {
		return fmt.Errorf("s3: GetObject of %q in bucket %s: the server refuses a range of an object with %d bytes", r.key, r.b.name, aws.ToInt64(head.ContentLength))
	}
	return nil
}

// get asks for a range of an object, of one version if etag is given.
func (b *bucket) get(ctx context.Context, key, span string, etag *string) (*s3.GetObjectOutput, error) {
	api, err := b.client.sdk(ctx)
	if err != nil {
		return nil, err
	}
	return api.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.name, Key: &key, Range: &span, IfMatch: etag})
}

// wholeSize is the size in a header such as bytes 0-9/100.
func wholeSize(contentRange string) (int64, error) {
	_, after, _ := strings.Cut(contentRange, "/")
	n, err := strconv.ParseInt(after, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("the answer's range %q has no size", contentRange)
	}
	return n, nil
}

// Size is the size of the file.
func (r *reader) Size() int64 { return r.size }

// Read reads on.
func (r *reader) Read(p []byte) (int, error) {
	if err := r.usable(); err != nil {
		return 0, err
	}
	if len(p) == 0 {
		return 0, nil
	}
	if r.off >= r.size {
		return 0, io.EOF
	}
	if r.off < int64(len(r.head)) {
		n := copy(p, r.head[r.off:])
		r.off += int64(n)
		return n, nil
	}
	if r.stream != nil {
		if n, err := r.next(p); err == nil {
			r.off += int64(n)
			return n, nil
		}
	}
	var n int
	err := r.b.do(r.ctx, "GetObject", r.key, func(context.Context) (err error) {
		n, err = r.next(p)
		return err
	})
	r.off += int64(n)
	return n, r.changed(err)
}

// next reads from the stream, which it opens where there is none.
func (r *reader) next(p []byte) (int, error) {
	if r.stream == nil {
		out, err := r.b.get(r.ctx, r.key, fmt.Sprintf("bytes=%d-", r.off), r.etag)
		if err != nil {
			return 0, err
		}
		r.stream = out.Body
	}
	p = p[:min(int64(len(p)), r.size-r.off)]
	n, err := r.stream.Read(p)
	for n == 0 && err == nil {
		n, err = r.stream.Read(p)
	}
	if err != nil {
		r.leave()
	}
	if n > 0 {
		return n, nil
	}
	if errors.Is(err, io.EOF) {
		err = errShort
	}
	return 0, err
}

// leave drops the stream.
func (r *reader) leave() {
	if r.stream != nil {
		_ = r.stream.Close()
		r.stream = nil
	}
}

// ReadAt reads a range with a request of its own.
func (r *reader) ReadAt(p []byte, off int64) (n int, err error) {
	if err := r.usable(); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, &fs.PathError{Op: "read", Path: r.name, Err: fs.ErrInvalid}
	}
	if off >= r.size {
		return 0, io.EOF
	}
	want := p[:min(int64(len(p)), r.size-off)]
	if off < int64(len(r.head)) {
		n = copy(want, r.head[off:])
	}
	if n < len(want) {
		err = r.b.do(r.ctx, "GetObject", r.key, func(ctx context.Context) error {
			span := fmt.Sprintf("bytes=%d-%d", off+int64(n), off+int64(len(want))-1)
			out, err := r.b.get(ctx, r.key, span, r.etag)
			if err != nil {
				return err
			}
			m, err := io.ReadFull(out.Body, want[n:])
			_ = out.Body.Close()
			n += m
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return errShort
			}
			return err
		})
	}
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, r.changed(err)
}

// changed says what a refused version means.
func (r *reader) changed(err error) error {
	if unmet(err) {
		return fmt.Errorf("read %s: it was replaced while it was read: %w", r.name, err)
	}
	return err
}

// Seek sets where Read goes on.
func (r *reader) Seek(off int64, whence int) (int64, error) {
	if err := r.usable(); err != nil {
		return 0, err
	}
	at, err := seek(off, whence, r.off, r.size)
	if err != nil {
		return 0, &fs.PathError{Op: "seek", Path: r.name, Err: fs.ErrInvalid}
	}
	if at != r.off {
		r.leave()
		r.off = at
	}
	return at, nil
}

func (r *reader) usable() error {
	if r.closed {
		return &fs.PathError{Op: "read", Path: r.name, Err: fs.ErrClosed}
	}
	return r.ctx.Err()
}

// Close ends reading.
func (r *reader) Close() error {
	if r.closed {
		return &fs.PathError{Op: "close", Path: r.name, Err: fs.ErrClosed}
	}
	r.closed = true
	r.leave()
	return nil
}
