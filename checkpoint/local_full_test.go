package checkpoint

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/storage/mem"
)

// fullDisk takes some bytes and has no room then.
type fullDisk struct {
	*os.File
	room    int
	closing bool // it says so at the end only
}

var errNoRoom = errors.New("no space left on device")

func (d *fullDisk) Write(p []byte) (int, error) {
	if len(p) > d.room && !d.closing {
		n, _ := d.File.Write(p[:d.room])
		return n, errNoRoom
	}
	d.room -= len(p)
	return d.File.Write(p)
}

func (d *fullDisk) Close() error {
	if err := d.File.Close(); err != nil || !d.closing {
		return err
	}
	return errNoRoom
}

func TestAFullDiskLeavesNoCopyAndFailsNoCheckpoint(t *testing.T) {
	for _, closing := range []bool{false, true} {
		f := mem.New()
		var logged strings.Builder
		l := NewLocal(t.TempDir(), "orders", f.URL(), slog.New(slog.NewTextHandler(&logged, nil)))
		l.begin = func(name string) (io.WriteCloser, error) {
			file, err := beginCopy(name)
			return &fullDisk{File: file.(*os.File), room: 5, closing: closing}, err
		}
		w, err := l.wrap(&files{fs: f, dir: "orders/job/chk-1", id: ID{Generation: 1, Number: 1}}).Create(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if n, err := w.Write([]byte("1234")); n != 4 || err != nil {
				t.Fatal(n, err)
			}
		}
		file, err := w.Close()
		if err != nil {
			t.Fatal(err)
		}
		left, err := filepath.Glob(filepath.Join(l.dir, "*"))
		if hidden, _ := filepath.Glob(filepath.Join(l.dir, ".*")); err != nil || len(left)+len(hidden) > 0 {
			t.Errorf("left are %q and %q, %v", left, hidden, err)
		}
		if st := l.Stats(); st.Failures != 1 || strings.Count(logged.String(), "no space left") != 1 {
			t.Errorf("counted are %+v, logged is %s", st, logged.String())
		}
		r, err := l.wrap(&files{fs: f, dir: "orders/job/chk-1"}).Open(t.Context(), file)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); err != nil || string(got) != "123412341234" {
			t.Errorf("the file holds %q, %v", got, err)
		}
	}
}
