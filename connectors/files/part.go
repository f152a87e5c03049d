package files

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/storage"
)

// part is one file in the making. The writer's goroutine fills it; when it is
// complete a goroutine of its own stages it; Prepares copy from it meanwhile.
type part struct {
	name string
	ext  string
	back backing // nil until bytes leave the writer's buffer

	size    int64 // bytes in back
	records int64
	began   time.Time
	last    time.Time
	gz      *gzip.Writer
	member  bool // gz has a member that is not ended

	// readers are the Prepares that may still have to read from back: it is staged
	// only when they are through.
	readers []chan struct{}

	// segments are the durable copies of back's first bytes. Prepares own them,
	// which run one at a time.
	segments []segment

	// done is closed by the writer when staging ended; staged and err may be read then.
	done   chan struct{}
	staged storage.Staged
	err    error
}

// segment is the range of a file's bytes that one file of a checkpoint holds.
type segment struct {
	from, to int64
	number   uint64 // of the checkpoint that it was written for
	file     connectors.StateFile
}

// counted is how bytes get into a part's backing.
type counted struct{ p *part }

func (c counted) Write(b []byte) (int, error) {
	n, err := c.p.back.Write(b)
	c.p.size += int64(n)
	if err != nil {
		err = fmt.Errorf("write file %s: %w", c.p.name, err)
	}
	return n, err
}

func (p *part) write(b []byte) error {
	if p.ext == extGzip {
		if p.gz == nil {
			p.gz = gzip.NewWriter(counted{p})
		}
		p.member = true
		_, err := p.gz.Write(b)
		return err
	}
	_, err := counted{p}.Write(b)
	return err
}

// settle ends a compressed stream, so that all bytes are in back and more can
// follow: a gzip file may have several members.
func (p *part) settle() error {
	if !p.member {
		return nil
	}
	p.member = false
	err := p.gz.Close()
	p.gz.Reset(counted{p})
	return err
}

// stage waits for the readers and makes the part durable.
func (p *part) stage(ctx context.Context, failpoint func(string)) {
	for _, r := range p.readers {
		select {
		case <-r:
		case <-ctx.Done():
			p.back.drop()
			p.err = ctx.Err()
			return
		}
	}
	if p.err = ctx.Err(); p.err != nil {
		p.back.drop()
		return
	}
	failpoint("stage.before")
	p.staged, p.err = p.back.stage(ctx)
	failpoint("stage.after")
	if p.err != nil {
		p.back.drop()
		p.err = fmt.Errorf("stage file %s: %w", p.name, p.err)
	}
}

// save makes the part's first size bytes durable in a checkpoint and returns the
// segments that hold them.
//
// Segments of checkpoints up to proven are taken over. A later one is not: its
// checkpoint may have failed and its files be gone. A new segment takes in those
// before it that are not larger than itself, so that a file that grows over many
// checkpoints has a number of segments that is logarithmic in its size.
func (p *part) save(ctx context.Context, files connectors.CheckpointFiles, size int64, number, proven uint64) ([]segment, error) {
	keep := p.segments
	for i, s := range keep {
		if s.number > proven {
			keep = keep[:i]
			break
		}
	}
	from := int64(0)
	if n := len(keep); n > 0 {
		from = keep[n-1].to
	}
	if size == from {
		return keep, nil
	}
	for len(keep) > 0 && keep[len(keep)-1].size() <= size-from {
		from = keep[len(keep)-1].from
		keep = keep[:len(keep)-1]
	}
	file, err := p.copy(ctx, files, from, size)
	if err != nil {
		return nil, fmt.Errorf("write a segment of file %s into the checkpoint: %w", p.name, err)
	}
	p.segments = append(keep[:len(keep):len(keep)], segment{from: from, to: size, number: number, file: file})
	return p.segments, nil
}

func (s segment) size() int64 { return s.to - s.from }

func (p *part) copy(ctx context.Context, files connectors.CheckpointFiles, from, to int64) (connectors.StateFile, error) {
	w, err := files.Create(ctx)
	if err != nil {
		return connectors.StateFile{}, err
	}
	n, err := io.CopyBuffer(onlyWriter{w}, io.NewSectionReader(p.back, from, to-from), make([]byte, min(bufferSize, to-from)))
	if err == nil && n != to-from {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		w.Abort()
		return connectors.StateFile{}, err
	}
	return w.Close()
}
