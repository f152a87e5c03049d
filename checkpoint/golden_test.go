package checkpoint_test

import (
	"encoding/json"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/storage/local"
)

// golden is the sample as the first program with format 1 wrote it, with its two state files. Every
// later program must read it as it lies there; the folder is never written again.
func golden() *checkpoint.Metadata {
	m := sample()
	m.Operators[1].KeyGroups[0].File = connectors.StateFile{Path: "../shared/3-17-0011223344556677", Size: 10, Checksum: "crc32c:280c069e"}
	m.Operators[2].Subtasks[0] = checkpoint.SubtaskState{State: json.RawMessage(`{"seq":1.50}`),
		Files: []connectors.StateFile{{Path: "../shared/3-16-8899aabbccddeeff", Size: 9, Checksum: "crc32c:e3069283"}}}
	return m
}

func TestCheckpointsOfEveryReleaseStayReadable(t *testing.T) {
	dir := filepath.Join("testdata", "format-1", someJob, "chk-17")
	r, err := checkpoint.Verify(t.Context(), dir)
	if err != nil || len(r.Faults) != 0 || !r.Committed || r.Files != 2 {
		t.Fatalf("got %+v, %v", r, err)
	}
	if !reflect.DeepEqual(r.Meta, golden()) {
		t.Errorf("it is read as %+v", r.Meta)
	}
	f, err := local.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, newStore(t, f, checkpoint.StoreOptions{}), dir)
	for path, want := range map[string]string{"../shared/3-17-0011223344556677": "0123456789", "../shared/3-16-8899aabbccddeeff": "123456789"} {
		for _, file := range p.r.Meta.Files() {
			if got := p.read(file); file.Path == path && got != want {
				t.Errorf("%s holds %q, want %q", path, got, want)
			}
		}
	}
}
