package hdfs

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
)

func TestSpool(t *testing.T) {
	for _, size := range []int{0, 1, spoolInMemory, spoolInMemory + 1, 3*spoolInMemory + 7} {
		dir := t.TempDir()
		s := &spool{dir: dir}
		data := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
		for rest := data; len(rest) > 0; {
			n := min(len(rest), 100_003)
			if _, err := s.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		for range 2 { // a second try reads it again
			if got, err := io.ReadAll(s.reader()); err != nil || !bytes.Equal(got, data) {
				t.Fatalf("%d bytes come back as %d (%v)", size, len(got), err)
			}
		}
		if n, err := s.ReadAt(make([]byte, 4), int64(size)-2); size >= 2 && (n != 2 || !errors.Is(err, io.EOF)) {
			t.Fatalf("reading over the end gives %d bytes and %v", n, err)
		}
		if onDisk := s.file != nil; onDisk != (size > spoolInMemory) {
			t.Fatalf("%d bytes are on disk: %v", size, onDisk)
		}
		s.free()
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Fatalf("left behind: %v", left)
		}
	}
}

func TestASpoolWithoutAFolderSaysWhatToSet(t *testing.T) {
	s := &spool{dir: t.TempDir() + "/gone"}
	_, err := s.Write(make([]byte, spoolInMemory+1))
	if err == nil || !strings.Contains(err.Error(), "storage.hdfs.spool_dir") {
		t.Fatalf("got %v", err)
	}
}
