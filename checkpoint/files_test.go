package checkpoint_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/checkpoint/checkpointtest"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/storage/mem"
)

func TestStateFilesAreVerifiedWhileTheyAreRead(t *testing.T) {
	for _, size := range []int{0, 1, 4096, 3 << 20} {
		f := mem.New()
		p := start(t, newStore(t, f, checkpoint.StoreOptions{}), "")
		files := p.job.Files(7)
		data := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
		w, err := files.Create(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(w, bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
		file, err := w.Close()
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(file.Path, "../shared/1-7-") {
			t.Errorf("its path is %s", file.Path)
		}
		read := func() ([]byte, error) {
			r, err := files.Open(t.Context(), file)
			if err != nil {
				return nil, err
			}
			defer func() { _ = r.Close() }()
			return io.ReadAll(r)
		}
		if got, err := read(); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%d bytes: read %d, %v", size, len(got), err)
		}
		name := "orders/" + p.job.ID() + "/" + strings.TrimPrefix(file.Path, "../")
		for _, d := range checkpointtest.All(size) {
			if size == 0 && (d.Name == checkpointtest.Zero().Name || d.Name == checkpointtest.Truncate(0).Name) {
				continue
			}
			if err := d.Do(t.Context(), f, name); err != nil {
				t.Fatal(err)
			}
			var damage *checkpoint.DamageError
			if got, err := read(); !errors.As(err, &damage) || damage.File != name {
				t.Errorf("%d bytes, %s: read %d, %v", size, d.Name, len(got), err)
			}
			_ = f.Remove(t.Context(), name)
			if w, err := f.Create(t.Context(), name); err != nil {
				t.Fatal(err)
			} else if _, err := w.Write(data); err != nil {
				t.Fatal(err)
			} else if err := w.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestAFileReferenceThatLeavesTheCheckpointIsNotOpened(t *testing.T) {
	_, s := memory(t)
	p := start(t, s, "").take(1)
	for _, path := range []string{"../_metadata", "/etc/passwd", "../../owner-1", "../shared/../chk-1/_metadata", ""} {
		if _, err := p.job.Files(1).Open(t.Context(), connectors.StateFile{Path: path, Checksum: "crc32c:00000000"}); err == nil {
			t.Errorf("%q was opened", path)
		}
	}
}

func TestARestoredCheckpointIsOnlyRead(t *testing.T) {
	_, s := memory(t)
	start(t, s, "").take(1)
	if _, err := start(t, s, "").r.Files.Create(t.Context()); err == nil {
		t.Fatal("a file was created in it")
	}
}

func TestNoFileNameIsUsedTwice(t *testing.T) {
	f, s := memory(t)
	p := start(t, s, "")
	for range 50 {
		if _, err := p.metadata(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(names(t, f, "orders/"+p.job.ID()+"/shared")); got != 50 {
		t.Fatalf("50 files have %d names", got)
	}
}

func TestAnAbortedFileIsNotThere(t *testing.T) {
	f, s := memory(t)
	w, err := start(t, s, "").job.Files(1).Create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.Abort()
	for _, name := range names(t, f, "") {
		if strings.Contains(name, "shared") {
			t.Errorf("%s is there", name)
		}
	}
}
