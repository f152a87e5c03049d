package postgres

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sluice-etl/sluice/connectors/deferred"
)

func join(names []string) string { return strings.Join(names, ", ") }

// copyReader is kept rows as what COPY reads.
type copyReader struct {
	ctx  context.Context //nolint:containedctx // io.Reader has none
	rows *deferred.Rows
	// line appends what is sent for a row, which has so many before it.
	line func(k *kept, before int64, dst []byte) []byte

	mu     sync.Mutex
	kept   kept // of the row in hand; a variable of its own would be an allocation per row
	buf    []byte
	rest   []byte // of buf, not read yet
	before int64
	err    error
}

// Read implements io.Reader.
func (r *copyReader) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.rest) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		r.fill()
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (r *copyReader) fill() {
	b, err := r.rows.Next(r.ctx)
	if err != nil {
		r.err = err
		return
	}
	r.buf = slices.Grow(r.buf[:0], len(b.Data))
	for i := range b.Rows {
		if r.kept, r.err = takeApart(b.Rows[i]); r.err != nil {
			return
		}
		r.buf = r.line(&r.kept, r.before, r.buf)
		r.before++
	}
	r.rest = r.buf
}

// copy runs a COPY of all rows. What went wrong with reading them is told from what the
// server says.
func (r *copyReader) copy(ctx context.Context, tx pgx.Tx, text string) error {
	_, err := tx.Conn().PgConn().CopyFrom(ctx, r, text)
	if failed := r.stop(); failed != nil && !errors.Is(failed, io.EOF) {
		return failed
	}
	return copyError(err)
}

// stop ends the reading, which can outlast a COPY whose connection broke, and tells how
// far it came.
func (r *copyReader) stop() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.err
	r.err, r.rest = os.ErrClosed, nil
	return err
}

// send runs a COPY of lines.
func (a *apply) send(ctx context.Context, text string, lines []byte) error {
	_, err := a.tx.Conn().PgConn().CopyFrom(ctx, bytes.NewReader(lines), text)
	return copyError(err)
}

// copyError adds the column that the server names to an error of COPY.
func copyError(err error) error {
	var e *pgconn.PgError
	if errors.As(err, &e) && e.ColumnName == "" {
		// COPY t, line 1, column name: "value"
		if _, behind, ok := strings.Cut(e.Where, ", column "); ok {
			e.ColumnName, _, _ = strings.Cut(behind, ":")
		}
	}
	return err
}
