package deferred

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/sluice-etl/sluice/connectors"
)

// Rows reads the kept rows of a checkpoint, those of each subtask in the order in which
// they were taken: the same rows in the same order in each process that commits it. A
// checkpoint of any size takes the memory of one block.
type Rows struct {
	parts []part
	count int64

	next  int // among parts
	open  io.ReadCloser
	from  *part
	read  int64 // rows of the open part
	block Block
}

// part is the rows of one subtask.
type part struct {
	what string // for errors
	open func(ctx context.Context) (io.ReadCloser, error)
	rows int64
}

// Len is the number of rows.
func (r *Rows) Len() int64 { return r.count }

// Next gives the next rows, until io.EOF.
func (r *Rows) Next(ctx context.Context) (*Block, error) {
	for {
		if r.open == nil {
			if r.next == len(r.parts) {
				return nil, io.EOF
			}
			if err := r.begin(ctx, &r.parts[r.next]); err != nil {
				return nil, err
			}
			r.next++
		}
		err := r.block.read(r.open)
		if err == nil {
			r.read += int64(len(r.block.Rows))
			return &r.block, nil
		}
		if !errors.Is(err, io.EOF) {
			return nil, damaged(r.from.what, err)
		}
		if r.read != r.from.rows {
			return nil, damaged(r.from.what, fmt.Errorf("%w: there are %d rows, the checkpoint says %d", errDamaged, r.read, r.from.rows))
		}
		r.close()
	}
}

func (r *Rows) begin(ctx context.Context, p *part) error {
	f, err := p.open(ctx)
	if err != nil {
		return fmt.Errorf("open %s: %w", p.what, err)
	}
	magic := make([]byte, len(fileMagic))
	if _, err := io.ReadFull(f, magic); err != nil || string(magic) != fileMagic {
		_ = f.Close()
		if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("%w, or of another version of this program", errDamaged)
		}
		return damaged(p.what, err)
	}
	r.open, r.from, r.read = f, p, 0
	return nil
}

// Rewind goes back to the first row.
func (r *Rows) Rewind() {
	r.close()
	r.next = 0
}

func (r *Rows) close() {
	if r.open != nil {
		_ = r.open.Close() // it was read to its end, or nobody wants the rest
		r.open = nil
	}
}

// fileParts are the rows of a committable as the files of its checkpoint hold them.
func fileParts(files connectors.CheckpointFiles, c connectors.Committable, d *committableData) ([]part, error) {
	if len(d.Rows) != len(c.Files) {
		return nil, connectors.Permanent(fmt.Errorf("read the committable of checkpoint %d: it names %d files and has %d", c.Checkpoint.Number, len(d.Rows), len(c.Files)))
	}
	parts := make([]part, 0, len(c.Files))
	for i, f := range c.Files {
		parts = append(parts, part{
			what: "kept rows " + f.Path, rows: d.Rows[i],
			open: func(ctx context.Context) (io.ReadCloser, error) { return files.Open(ctx, f) },
		})
	}
	return parts, nil
}
