package files

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/storage"
)

// part is one file in the making. The writer's goroutine fills it; when it is
// complete a goroutine of its own stages it; Prepares copy from it meanwhile.
type part struct {
	path string // the folder that partition_by made, with a slash; empty for the root
	name string
	form *form

	buf  []byte // rows that are not in back
	rows int    // how many they are

	back     backing // nil until bytes leave the buffer
	restored *joined // the first bytes, of a part that is gone on with; nil for others
	foreign  bool    // restored is of files that are not the job's own

	size    int64 // bytes in back
	raw     int64 // bytes of rows, before they were packed
	records int64
	began   time.Time
	last    time.Time
	touched uint64 // the batch that wrote to it last
	until   int64  // the watermark that completes it
	ends    bool   // there is one

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
	number   uint64 // of the checkpoint that it was written for; 0 for a restored one
	file     connectors.StateFile
}

// write puts bytes into the backing.
func (p *part) write(b []byte) error {
	n, err := p.back.Write(b)
	p.size += int64(n)
	if err != nil {
		err = fmt.Errorf("write file %s: %w", p.name, err)
	}
	return err
}

// expire notes that the file is complete once the watermark is at t.
func (p *part) expire(t int64) {
	if !p.ends || t > p.until {
		p.until, p.ends = t, true
	}
}

// stage waits for the readers and makes the part durable.
func (p *part) stage(ctx context.Context, failpoint func(string)) {
	if p.back == nil {
		p.staged, p.err = p.restored.stage(ctx)
		if p.err != nil {
			p.err = fmt.Errorf("stage file %s: %w", p.name, p.err)
		}
		return
	}
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

// adopt makes the segments of a restored checkpoint the part's first bytes. Where they
// are not the job's own, the next checkpoint fetches the bytes and holds them in a segment
// of its own: from then on nothing needs the other's.
func (p *part) adopt(j *joined, own bool) {
	p.restored, p.foreign = j, !own
	for _, f := range j.segments {
		if own {
			p.segments = append(p.segments, segment{from: p.size, to: p.size + f.Size, file: f})
		}
		p.size += f.Size
	}
}

// save makes the part's first size bytes durable in a checkpoint and returns the
// segments that hold them.
//
// Segments of checkpoints up to proven are taken over. A later one is not: its
// checkpoint may have failed and its files be gone. A new segment takes in those
// before it that are not larger than itself, so that a file that grows over many
// checkpoints has a number of segments that is logarithmic in its size.
func (p *part) save(ctx context.Context, files connectors.CheckpointFiles, at snapshot, number, proven uint64) ([]segment, error) {
	size := at.size
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
	file, err := p.copy(ctx, files, at.back, from, size)
	if err != nil {
		return nil, fmt.Errorf("write a segment of file %s into the checkpoint: %w", p.name, err)
	}
	p.segments = append(keep[:len(keep):len(keep)], segment{from: from, to: size, number: number, file: file})
	return p.segments, nil
}

func (s segment) size() int64 { return s.to - s.from }

// copy writes bytes of the part into a file of the checkpoint.
func (p *part) copy(ctx context.Context, files connectors.CheckpointFiles, back backing, from, to int64) (connectors.StateFile, error) {
	if p.restored != nil && from < p.restored.size() {
		if err := back.fetch(ctx); err != nil {
			return connectors.StateFile{}, err
		}
	}
	w, err := files.Create(ctx)
	if err != nil {
		return connectors.StateFile{}, err
	}
	n, err := io.CopyBuffer(onlyWriter{w}, io.NewSectionReader(back, from, to-from), make([]byte, min(bufferSize, to-from)))
	if err == nil && n != to-from {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		w.Abort()
		return connectors.StateFile{}, err
	}
	return w.Close()
}

// saved is the part as a checkpoint keeps it, of whose bytes segments hold all.
func (p *part) saved(segments []segment, at snapshot) *openPart {
	o := &openPart{
		Path: p.path, Ext: p.form.ext, Form: p.form.id, Detail: p.form.detail, Records: at.records, Raw: at.raw,
		Began: at.began.UnixMilli(), Last: at.last.UnixMilli(),
	}
	if at.ends {
		o.Until = &at.until
	}
	for _, s := range segments {
		o.Segments = append(o.Segments, s.file)
	}
	return o
}

// snapshot is how far a part belongs to a checkpoint.
type snapshot struct {
	part        *part
	back        backing
	size        int64
	records     int64
	raw         int64
	began, last time.Time
	until       int64
	ends        bool
}

func (p *part) snapshot() snapshot {
	return snapshot{part: p, back: p.back, size: p.size, records: p.records, raw: p.raw, began: p.began, last: p.last, until: p.until, ends: p.ends}
}
