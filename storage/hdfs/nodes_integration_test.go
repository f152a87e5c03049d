//go:build integration

package hdfs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"testing"

	"github.com/sluice-etl/sluice/storage"
)

// TestDatanodesThatFail: one of three hangs, one dies while it is written to, and then
// one of the two left while it is read from. It is the last of the tests on this HDFS.
func TestDatanodesThatFail(t *testing.T) {
	f := breakable(t, map[string]any{"datanode_timeout": "3s"})
	write := func(name string, data []byte) {
		t.Helper()
		if err := storage.WriteFile(t.Context(), f, name, data); err != nil {
			t.Fatal(err)
		}
		wantWhole(t, f, name, data)
	}
	small, data := random(100<<10), random(64<<20)

	run(t, "pause", "dn1")
	write("d/while one hangs", small)
	run(t, "resume", "dn1")
	f.cluster.nodes.forgive()

	done := begin(t, f, "d/big", data)
	run(t, "kill", "dn2")
	if _, err := f.Stat(t.Context(), "d/big"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("while it is written the file is there (%v)", err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	wantWhole(t, f, "d/big", data)
	// The dead one is handed out until it has been missed for ten minutes.
	f.cluster.nodes.forgive()
	for range 3 {
		write("d/"+token(), small)
	}

	r, err := f.Open(t.Context(), "d/big")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	head := make([]byte, 1<<20)
	if _, err := io.ReadFull(r, head); err != nil {
		t.Fatal(err)
	}
	run(t, "kill", "dn3")
	rest, err := io.ReadAll(r)
	if err != nil || !bytes.Equal(append(head, rest...), data) {
		t.Fatalf("after two of three datanodes died the file reads otherwise (%v)", err)
	}
}
