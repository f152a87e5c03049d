package mem_test

import (
	"testing"

	"github.com/sluice-etl/sluice/storage"
	"github.com/sluice-etl/sluice/storage/mem"
	"github.com/sluice-etl/sluice/storage/storagetest"
)

func TestMemKeepsTheContract(t *testing.T) {
	storagetest.Run(t, func(*testing.T) storage.FS { return mem.New() })
}

func TestACrashLosesWhatIsNotClosed(t *testing.T) {
	f := mem.New()
	if err := storage.WriteFile(t.Context(), f, "closed", nil); err != nil {
		t.Fatal(err)
	}
	open, err := f.Create(t.Context(), "open")
	if err != nil {
		t.Fatal(err)
	}
	staging, err := f.Stage(t.Context(), "staging")
	if err != nil {
		t.Fatal(err)
	}
	f.Crash()
	if err := open.Close(); err == nil {
		t.Error("a file of the crashed process was closed")
	}
	if _, err := staging.Close(); err == nil {
		t.Error("a staged file of the crashed process was closed")
	}
	infos, err := f.List(t.Context(), "")
	if err != nil || len(infos) != 1 || infos[0].Name != "closed" {
		t.Errorf("left are %v, %v", infos, err)
	}
}

func TestRootsAreSharedByNameOnly(t *testing.T) {
	for _, c := range []struct {
		a, b   string
		shared bool
	}{
		{"mem://one", "mem://one", true}, {"mem://one/x", "mem://one/x", true}, {"mem://one/x", "mem://one/y", false}, {"mem://one", "mem://two", false},
	} {
		a, err := storage.Open(c.a)
		if err != nil {
			t.Fatal(err)
		}
		b, err := storage.Open(c.b)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Claim(t.Context(), "f"); err != nil {
			t.Fatal(err)
		}
		if there, err := storage.Exists(t.Context(), b, "f"); err != nil || there != c.shared {
			t.Errorf("%s and %s share files: %v, %v; want %v", c.a, c.b, there, err, c.shared)
		}
		if err := a.Remove(t.Context(), "f"); err != nil {
			t.Fatal(err)
		}
	}
}
