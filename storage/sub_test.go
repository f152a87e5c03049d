package storage_test

import (
	"context"
	"testing"

	"github.com/sluice-etl/sluice/storage"
	"github.com/sluice-etl/sluice/storage/mem"
)

// shared is a storage that gives names to several processes at once.
type shared struct{ storage.FS }

func (shared) Probe(context.Context) (storage.Capabilities, error) {
	return storage.Capabilities{Reason: "it does not look"}, nil
}

func TestAFolderCanNoMoreThanItsFileSystem(t *testing.T) {
	for _, f := range []storage.FS{shared{mem.New()}, storage.Sub(storage.Sub(shared{mem.New()}, "a"), "b")} {
		if can, err := storage.Probe(t.Context(), f); err != nil || can.Exclusive || can.Reason != "it does not look" {
			t.Errorf("%s: %+v, %v", f.URL(), can, err)
		}
	}
	if can, err := storage.Probe(t.Context(), storage.Sub(mem.New(), "a")); err != nil || !can.Exclusive {
		t.Errorf("got %+v, %v", can, err)
	}
}
