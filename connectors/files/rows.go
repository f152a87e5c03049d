package files

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/files/avrofile"
	"github.com/sluice-etl/sluice/connectors/files/compress"
	"github.com/sluice-etl/sluice/connectors/files/csvfile"
	"github.com/sluice-etl/sluice/connectors/files/parquet"
	"github.com/sluice-etl/sluice/connectors/format"
)

var errTooLong = errors.New("the record is longer than max_line")

// rowFile reads the rows of a file that is no file of lines, as JSON.
type rowFile interface {
	// Next adds the next row to dst; io.EOF says that there is none. With an error that
	// is format.IsRefused, it has added what no row can be made of, and goes on behind it.
	Next(dst []byte) ([]byte, error)
	// Pos is the position behind the last row.
	Pos() int64
	Close() error
}

// countedRows makes positions of the numbers of rows.
type countedRows struct {
	rows interface {
		Next(dst []byte) ([]byte, error)
		Close() error
	}
	pos int64
}

func (n *countedRows) Next(dst []byte) ([]byte, error) {
	dst, err := n.rows.Next(dst)
	if err == nil {
		n.pos++
	}
	return dst, err
}

func (n *countedRows) Pos() int64   { return n.pos }
func (n *countedRows) Close() error { return n.rows.Close() }

// csvRows is a file whose bytes are held by its input.
type csvRows struct{ *csvfile.Reader }

func (csvRows) Close() error { return nil }

// rowsOf opens an input's rows at its position; nil where the file is one of lines.
func (in *input) rowsOf(s *Source) (rowFile, error) {
	from := in.split.Offset
	switch {
	case s.layout.avro != nil:
		r, err := avrofile.Open(in.file, int(s.config.MaxLine))
		if err != nil {
			return nil, in.unreadable(err)
		}
		r.Skip(from)
		return &countedRows{r, from}, nil
	case s.layout.parquet != nil:
		r, err := parquet.Open(in.file, in.file.Size(), int(s.config.MaxLine))
		if err != nil {
			return nil, in.unreadable(err)
		}
		r.Skip(from)
		return &countedRows{r, from}, nil
	case s.layout.csv != nil:
		return in.csv(s, from)
	}
	return nil, nil
}

// csv reads from the beginning, where the names are.
func (in *input) csv(s *Source, from int64) (rowFile, error) {
	text := io.LimitReader(in.file, in.split.Until)
	if in.zipped() {
		z, err := compress.NewReader(in.packed, in.file, in.limit)
		if err != nil {
			return nil, in.broken(0, err)
		}
		text, in.zip = z, z
	}
	r, err := csvfile.NewReader(text, s.layout.csv, int(s.config.MaxLine))
	if err == nil {
		err = r.Skip(from)
	}
	if err != nil {
		return nil, in.unreadable(err)
	}
	return csvRows{r}, nil
}

// unreadable reports rows that cannot be read. Only what the storage says is worth
// another try.
func (in *input) unreadable(err error) error {
	switch {
	case in.zipped():
		return in.broken(0, err)
	case errors.Is(err, csvfile.ErrTooLong), errors.Is(err, avrofile.ErrTooLong), errors.Is(err, parquet.ErrTooLarge), errors.Is(err, errTooLong):
		return connectors.Permanent(fmt.Errorf("read file %s: %w: raise it, or mend the file", in.split.ID, err))
	case in.file.err != nil:
		return fmt.Errorf("read file %s: %w", in.split.ID, in.file.err)
	}
	return connectors.Permanent(fmt.Errorf("read file %s: %w", in.split.ID, err))
}

// records reads some rows of a split; nil where there are none left.
func (r *reader) records(ctx context.Context, at int) (*connectors.Batch, error) {
	c := &r.splits[at]
	if c.in.stuck != nil {
		return nil, c.in.stuck
	}
	var block *block
	select {
	case block = <-r.free:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if cap(block.buf) < blockSize {
		block.buf = make([]byte, 0, blockSize)
	}
	block.refs.Store(1)
	buf := block.buf[:0]
	b := r.batches.Get()
	b.Split = at
	b.Hold(block)
	var err error
	for len(b.Records) < connectors.MaxBatch && len(buf) < blockSize/2 {
		from := len(buf)
		buf, err = c.in.rows.Next(buf)
		if format.IsRefused(err) {
			b.Refused = append(b.Refused, connectors.RowError{Row: len(b.Records), Kind: connectors.NoRow, Reason: err.Error()})
		} else if err != nil {
			break
		}
		if int64(len(buf)-from) > int64(r.source.config.MaxLine) {
			buf, err = buf[:from], fmt.Errorf("%w, at row %d", errTooLong, c.in.rows.Pos())
			break
		}
		b.Records = append(b.Records, connectors.Record{Value: buf[from:len(buf):len(buf)], Origin: &c.origin, Offset: c.pos, Time: c.time})
		c.pos = c.in.rows.Pos()
	}
	block.buf = buf
	if errors.Is(err, io.EOF) {
		c.eof, err = true, nil
		c.pos = max(c.pos, c.in.rows.Pos())
	}
	if err != nil {
		err = c.in.unreadable(err)
		c.in.stuck = err
	}
	if len(b.Records) == 0 {
		b.Recycle()
		return nil, err
	}
	b.Next, c.told = c.pos, c.pos // an error comes with the next call
	return b, nil
}
