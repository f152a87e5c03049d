package hdfs

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// spoolInMemory is how much of a file is kept in memory before it goes to disk.
const spoolInMemory = 1 << 20

// spool holds a file until HDFS has it, so that it can be written again from the
// start. Small ones are in memory. A file on disk has no name where the system
// allows that, so that a crash leaves nothing.
type spool struct {
	dir  string
	mem  []byte
	file *os.File
	name string // where the file could not be unlinked while it is open
	size int64
}

func (s *spool) Write(p []byte) (int, error) {
	if s.file == nil && len(s.mem)+len(p) <= spoolInMemory {
		s.mem = append(s.mem, p...)
		s.size += int64(len(p))
		return len(p), nil
	}
	if s.file == nil {
		if err := s.spill(); err != nil {
			return 0, err
		}
	}
	n, err := s.file.WriteAt(p, s.size)
	s.size += int64(n)
	if err != nil {
		return n, fmt.Errorf("keep the file locally until HDFS has it (storage.hdfs.spool_dir): %w", err)
	}
	return n, nil
}

func (s *spool) spill() error {
	file, err := os.CreateTemp(s.dir, "sluice-hdfs-*")
	if err != nil {
		return fmt.Errorf("make a local file for what goes to HDFS: set storage.hdfs.spool_dir to a folder with room: %w", err)
	}
	if os.Remove(file.Name()) != nil {
		s.name = file.Name()
	}
	s.file = file
	if _, err := file.WriteAt(s.mem, 0); err != nil {
		return fmt.Errorf("keep the file locally until HDFS has it (storage.hdfs.spool_dir): %w", err)
	}
	s.mem = nil
	return nil
}

// ReadAt reads what has been written.
func (s *spool) ReadAt(p []byte, off int64) (int, error) {
	if s.file != nil {
		return io.NewSectionReader(s.file, 0, s.size).ReadAt(p, off)
	}
	if off < 0 {
		return 0, errors.New("read before the start of the file")
	}
	if off >= int64(len(s.mem)) {
		return 0, io.EOF
	}
	n := copy(p, s.mem[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// reader reads it from the start.
func (s *spool) reader() io.Reader { return io.NewSectionReader(s, 0, s.size) }

// free gives memory and disk back.
func (s *spool) free() {
	if s.file != nil {
		_ = s.file.Close()
	}
	if s.name != "" {
		_ = os.Remove(s.name)
	}
	s.mem, s.file, s.name = nil, nil, ""
}
