package local

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestErrorsOfWritesSayWhatToDo(t *testing.T) {
	f, err := New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		errno syscall.Errno
		want  string
	}{
		{syscall.ENOSPC, "is full; free space"},
		{syscall.EDQUOT, "is full; free space"},
		{syscall.EROFS, "is mounted read-only"},
		{syscall.EACCES, "change its owner or its permissions"},
	}
	for _, tt := range tests {
		err := f.explain(&os.PathError{Op: "write", Path: "/x", Err: tt.errno})
		if !errors.Is(err, tt.errno) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), f.root) {
			t.Errorf("%v: got %v", tt.errno, err)
		}
	}
	exists := &os.PathError{Op: "open", Path: "/x", Err: fs.ErrExist}
	if got := f.explain(exists); got.Error() != exists.Error() || f.explain(nil) != nil {
		t.Errorf("got %v", got)
	}
}
