package deferred

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
)

// spool holds the rows that one subtask took between two barriers: in memory, or in a
// temporary file without a name, which no crash leaves behind.
type spool struct {
	rows    int64
	blocks  [][]byte
	size    int64 // bytes of blocks in memory
	file    *os.File
	written int64 // bytes in file
}

func (s *spool) add(block []byte) error {
	if s.file != nil {
		n, err := s.file.Write(block)
		s.written += int64(n)
		return spoolError(err)
	}
	s.blocks = append(s.blocks, block)
	s.size += int64(len(block))
	return nil
}

func spoolError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("keep rows in a temporary file in %s until the checkpoint: %w", os.TempDir(), err)
}

// spill moves what is in memory to a file.
func (s *spool) spill() error {
	tmp, err := os.CreateTemp("", "sluice-rows-")
	if err != nil {
		return spoolError(err)
	}
	if err := os.Remove(tmp.Name()); err != nil {
		_ = tmp.Close()
		return spoolError(err)
	}
	s.file = tmp
	for _, b := range s.blocks {
		if err := s.add(b); err != nil {
			return err
		}
	}
	s.blocks, s.size = nil, 0
	return nil
}

// reader reads the spool as a file of the checkpoint has it.
func (s *spool) reader() io.Reader {
	all := []io.Reader{strings.NewReader(fileMagic)}
	if s.file != nil {
		return io.MultiReader(append(all, io.NewSectionReader(s.file, 0, s.written))...)
	}
	for _, b := range s.blocks {
		all = append(all, bytes.NewReader(b))
	}
	return io.MultiReader(all...)
}

// save writes what a spool holds into a file of the checkpoint.
func save(w connectors.StateWriter, r io.Reader) (connectors.StateFile, error) {
	if _, err := io.CopyBuffer(struct{ io.Writer }{w}, r, make([]byte, 128<<10)); err != nil {
		w.Abort()
		return connectors.StateFile{}, err
	}
	return w.Close()
}

// free gives up the rows.
func (s *spool) free() {
	if s.file != nil {
		_ = s.file.Close() // it has no name, so it is gone
	}
	s.blocks, s.size = nil, 0
}
