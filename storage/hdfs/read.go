package hdfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"

	"github.com/colinmarc/hdfs/v2"

	"github.com/sluice-etl/sluice/storage"
)

// Open reads a file.
func (f *FS) Open(ctx context.Context, name string) (storage.Reader, error) {
	p, err := f.path(ctx, name)
	if err != nil {
		return nil, err
	}
	e, err := f.stat(ctx, p)
	if err != nil {
		return nil, f.wrap("open", name, err)
	}
	return &reader{fs: f, ctx: ctx, name: name, path: p, size: e.size, id: e.id}, nil
}

// reader reads one file. Each way through it, in order or at offsets at once, has a
// client of its own, from its first byte to its last.
type reader struct {
	fs   *FS
	ctx  context.Context //nolint:containedctx // a reader lives within the call that made it
	name string
	path string
	size int64
	id   uint64

	seq sync.Mutex // of off
	off int64

	mu     sync.Mutex
	idle   []*stream
	closed bool
}

// stream is the file open at a place. A datanode that fails is left for another one
// by the library, as long as there is one.
type stream struct {
	client *client
	file   *hdfs.FileReader
	off    int64
}

func (s *stream) end(whole bool) {
	_ = s.file.Close()
	s.client.cluster.release(s.client, whole)
}

func (r *reader) Size() int64 { return r.size }

func (r *reader) Read(p []byte) (int, error) {
	r.seq.Lock()
	defer r.seq.Unlock()
	n, err := r.readSome(p, r.off)
	r.off += int64(n)
	return n, err
}

func (r *reader) Seek(offset int64, whence int) (int64, error) {
	r.seq.Lock()
	defer r.seq.Unlock()
	switch whence {
	case io.SeekCurrent:
		offset += r.off
	case io.SeekEnd:
		offset += r.size
	}
	if offset < 0 || whence < 0 || whence > io.SeekEnd {
		return 0, &fs.PathError{Op: "seek", Path: r.name, Err: fs.ErrInvalid}
	}
	r.off = offset
	return offset, nil
}

func (r *reader) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, &fs.PathError{Op: "read", Path: r.name, Err: fs.ErrInvalid}
	}
	done := 0
	for done < len(p) {
		n, err := r.readSome(p[done:], off+int64(done))
		done += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// readSome reads at least one byte, at the end io.EOF.
func (r *reader) readSome(p []byte, off int64) (n int, err error) {
	if off >= r.size {
		return 0, io.EOF
	}
	if len(p) == 0 {
		return 0, nil
	}
	err = r.fs.cluster.retry(r.ctx, r.fs.cluster.conf.retry, func() error {
		s, err := r.take(off)
		if err != nil {
			return err
		}
		stop := context.AfterFunc(r.ctx, s.client.kill)
		n, err = s.file.Read(p)
		alive := stop()
		s.off += int64(n)
		switch {
		case err != nil || !alive:
			s.end(false)
		case s.off >= r.size || !r.keep(s):
			s.end(true)
		}
		if n > 0 {
			return nil
		}
		if ctxErr := r.ctx.Err(); ctxErr != nil {
			return ctxErr
		}
		if err == nil {
			err = io.ErrNoProgress
		}
		return r.garbled(translate(err))
	})
	return n, r.fs.wrap("read", r.name, err)
}

// garbled says what to do where the library cannot read how datanodes protect their data.
func (r *reader) garbled(err error) error {
	if r.fs.cluster.conf.kerberos == nil {
		return err
	}
	for _, sign := range []string{"proto: ", "invalid response from datanode", "HMAC", "no available cipher"} {
		if strings.Contains(err.Error(), sign) {
			return final(fmt.Errorf("%s (%w)", protectionAdvice, err))
		}
	}
	return err
}

// maxStreams is how many places of a file are kept open that nobody reads at the moment.
const maxStreams = 2

// keep keeps a stream for who goes on where it stands.
func (r *reader) keep(s *stream) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || len(r.idle) >= maxStreams {
		return false
	}
	r.idle = append(r.idle, s)
	return true
}

// take takes the stream that stands at a place, moves an idle one there, or opens one.
func (r *reader) take(off int64) (*stream, error) {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil, final(&fs.PathError{Op: "read", Path: r.name, Err: fs.ErrClosed})
	}
	var s *stream
	if n := len(r.idle); n > 0 {
		i := n - 1
		for j, have := range r.idle {
			if have.off == off {
				i = j
			}
		}
		s = r.idle[i]
		r.idle = append(r.idle[:i], r.idle[i+1:]...)
	}
	r.mu.Unlock()
	if s == nil {
		var err error
		if s, err = r.open(); err != nil {
			return nil, err
		}
	}
	if s.off != off {
		if _, err := s.file.Seek(off, io.SeekStart); err != nil {
			s.end(false)
			return nil, err
		}
		s.off = off
	}
	return s, nil
}

func (r *reader) open() (*stream, error) {
	if err := r.ctx.Err(); err != nil {
		return nil, err
	}
	c, err := r.fs.cluster.acquire(r.ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(r.ctx, c.kill)
	file, err := c.Open(r.path)
	alive := stop()
	if err != nil {
		err = absent(translate(err))
		r.fs.cluster.release(c, alive && answered(err))
		return nil, err
	}
	s := &stream{client: c, file: file}
	status, ok := file.Stat().Sys().(*hdfs.FileStatus)
	if !ok || int64(status.GetLength()) != r.size || status.GetFileId() != r.id {
		s.end(alive)
		return nil, final(errors.New("the file was replaced while it was read"))
	}
	return s, nil
}

func (r *reader) Close() error {
	r.mu.Lock()
	idle := r.idle
	r.idle, r.closed = nil, true
	r.mu.Unlock()
	for _, s := range idle {
		s.end(true)
	}
	return nil
}
