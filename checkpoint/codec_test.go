package checkpoint_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/checkpoint/checkpointtest"
	"github.com/sluice-etl/sluice/connectors"
)

const someJob = "0123456789abcdef0123456789abcdef"

func sampleFile(name string) connectors.StateFile {
	return connectors.StateFile{Path: "../shared/" + name, Size: 10, Checksum: "crc32c:0badcafe"}
}

// sample uses every member of the metadata.
func sample() *checkpoint.Metadata {
	at := time.Date(2026, 11, 29, 18, 0, 0, 123456789, time.UTC)
	file := sampleFile("3-17-0011223344556677")
	return &checkpoint.Metadata{
		Format: checkpoint.FormatVersion, Pipeline: "orders", Job: someJob, Generation: 3, Number: 17,
		Kind: checkpoint.Periodic, Mode: "exactly_once", Triggered: at, Completed: at.Add(time.Second),
		Drained: true, Definition: "sha256:00", MaxParallelism: 128,
		Restored: &checkpoint.ID{Generation: 2, Number: 16},
		Operators: []checkpoint.Operator{
			{UID: "in", Kind: "source kafka", Parallelism: 2, Splits: []connectors.Split{
				{ID: "orders/0", Offset: 9007199254740993, Until: -1, Detail: json.RawMessage(`{"topic_id":"<&>","big":18446744073709551615}`)}}},
			{UID: "agg", Kind: "aggregate", Parallelism: 1, KeyGroups: []checkpoint.KeyGroups{{First: 0, Last: 127, File: file, Offset: 2, Length: 8}}},
			{UID: "out", Kind: "sink file", Parallelism: 1, Subtasks: []checkpoint.SubtaskState{
				{Subtask: 0, State: json.RawMessage(`{"seq":1.50}`), Files: []connectors.StateFile{sampleFile("3-16-aa")}}}},
		},
		Committables: []connectors.Committable{{Committer: "out", Checkpoint: checkpoint.ID{Generation: 3, Number: 17},
			Expires: at, Data: json.RawMessage(`[{"token":"ü\u2028"}]`)}},
	}
}

func encode(t *testing.T, m *checkpoint.Metadata) []byte {
	t.Helper()
	data, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestMetadataComesBackAsItWasAndAnyToolCanReadIt(t *testing.T) {
	data := encode(t, sample())
	got, err := checkpoint.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, sample()) {
		t.Errorf("got %+v, want %+v", got, sample())
	}
	var plain map[string]any
	if err := json.Unmarshal(data, &plain); err != nil {
		t.Fatalf("it is no JSON document: %v", err)
	}
	if plain["number"] != 17.0 || !strings.HasPrefix(plain["checksum"].(string), "sha256:") {
		t.Errorf("it reads as %v", plain)
	}
	if again := encode(t, got); !bytes.Equal(again, data) {
		t.Errorf("it is written differently the second time:\n%s\n%s", data, again)
	}
}

func TestEveryDamagedByteOfMetadataIsFound(t *testing.T) {
	data := encode(t, sample())
	check := func(d checkpointtest.Damage) {
		if m, err := checkpoint.Decode(d.Apply(data)); err == nil {
			t.Fatalf("%s: it was read as %+v", d.Name, m)
		}
	}
	for at := range data {
		for bit := range 8 {
			check(checkpointtest.FlipBit(at, bit))
		}
		check(checkpointtest.Flip(at))
		check(checkpointtest.Truncate(at))
		check(checkpointtest.Remove(at))
	}
	for _, d := range []checkpointtest.Damage{checkpointtest.Zero(), checkpointtest.Append(" "), checkpointtest.Append("\n"), checkpointtest.Swap(nil),
		checkpointtest.Swap(append([]byte(" "), data...)), checkpointtest.Swap(append(bytes.Clone(data), data...))} {
		check(d)
	}
}

func TestMetadataOfANewerProgramIsRefusedByName(t *testing.T) {
	data := encode(t, sample())
	body := bytes.Replace(data, []byte(`{"format":1,`), []byte(`{"format":2,"new":{},`), 1)
	_, err := checkpoint.Decode(checkpointtest.Reseal(body))
	var version *checkpoint.VersionError
	if !errors.As(err, &version) || version.Format != 2 || !strings.Contains(err.Error(), "newer program") {
		t.Fatalf("got %v", err)
	}
}

func TestImpossibleMetadataIsNeitherWrittenNorRead(t *testing.T) {
	for name, spoil := range map[string]func(m *checkpoint.Metadata){
		"format 0":              func(m *checkpoint.Metadata) { m.Format = 0 },
		"no pipeline":           func(m *checkpoint.Metadata) { m.Pipeline = "" },
		"pipeline that climbs":  func(m *checkpoint.Metadata) { m.Pipeline = "../x" },
		"job that is no id":     func(m *checkpoint.Metadata) { m.Job = "x" },
		"number 0":              func(m *checkpoint.Metadata) { m.Number = 0 },
		"generation 0":          func(m *checkpoint.Metadata) { m.Generation = 0 },
		"unknown kind":          func(m *checkpoint.Metadata) { m.Kind = "x" },
		"huge max parallelism":  func(m *checkpoint.Metadata) { m.MaxParallelism = 1 << 30 },
		"operator twice":        func(m *checkpoint.Metadata) { m.Operators[1].UID = "in" },
		"split without id":      func(m *checkpoint.Metadata) { m.Operators[0].Splits[0].ID = "" },
		"key groups backwards":  func(m *checkpoint.Metadata) { m.Operators[1].KeyGroups[0].First = 128 },
		"key groups beyond":     func(m *checkpoint.Metadata) { m.Operators[1].KeyGroups[0].Last = 128 },
		"range beyond its file": func(m *checkpoint.Metadata) { m.Operators[1].KeyGroups[0].Offset = 3 },
		"range that overflows":  func(m *checkpoint.Metadata) { m.Operators[1].KeyGroups[0].Offset = 1<<63 - 1 },
		"negative size":         func(m *checkpoint.Metadata) { m.Operators[2].Subtasks[0].Files[0].Size = -1 },
		"one file, two checksums": func(m *checkpoint.Metadata) {
			m.Operators[2].Subtasks[0].Files[0].Path = "../shared/3-17-0011223344556677"
			m.Operators[2].Subtasks[0].Files[0].Checksum = "crc32c:00000000"
		},
		"unknown checksum":         func(m *checkpoint.Metadata) { m.Operators[2].Subtasks[0].Files[0].Checksum = "md5:00000000" },
		"short checksum":           func(m *checkpoint.Metadata) { m.Operators[2].Subtasks[0].Files[0].Checksum = "crc32c:0000" },
		"committable of nobody":    func(m *checkpoint.Metadata) { m.Committables[0].Committer = "" },
		"committable of no number": func(m *checkpoint.Metadata) { m.Committables[0].Checkpoint.Number = 0 },
		"restored number 0":        func(m *checkpoint.Metadata) { m.Restored.Number = 0 },
		"negative subtask":         func(m *checkpoint.Metadata) { m.Operators[2].Subtasks[0].Subtask = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			m := sample()
			spoil(m)
			if _, err := m.Encode(); err == nil {
				t.Error("it was written")
			}
			body, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := checkpoint.Decode(checkpointtest.Reseal(body)); err == nil {
				t.Error("it was read")
			}
		})
	}
}

func TestFilePathsStayInTheCheckpointAndTheSharedFolder(t *testing.T) {
	for path, ok := range map[string]bool{
		"data": true, "sub/data": true, "../shared/x": true, "../shared/1-2-ab": true,
		"": false, ".": false, "..": false, "/etc/passwd": false, "../x": false, "../shared": false, "../shared/": false, "../shared/../x": false,
		"../shared/a/b": false, "../../shared/x": false, "a/../b": false, "a//b": false, "../shared/.": false, "../shared/..": false, "a\\b": false,
	} {
		t.Run(fmt.Sprintf("%q", path), func(t *testing.T) {
			m := sample()
			m.Operators[2].Subtasks[0].Files[0].Path = path
			if _, err := m.Encode(); (err == nil) != ok {
				t.Errorf("got %v, allowed should be %v", err, ok)
			}
		})
	}
}

func TestUnknownMembersAreRefused(t *testing.T) {
	body := bytes.Replace(encode(t, sample()), []byte(`{"format":1,`), []byte(`{"format":1,"surprise":1,`), 1)
	if _, err := checkpoint.Decode(checkpointtest.Reseal(body)); err == nil || !strings.Contains(err.Error(), "surprise") {
		t.Fatalf("got %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	data, err := sample().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"format":1}`))
	f.Add([]byte(`{}`))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		// As it is, and with the checksum put right, so that what is behind it is reached.
		for _, d := range [][]byte{data, checkpointtest.Reseal(data)} {
			m, err := checkpoint.Decode(d)
			if err != nil {
				continue
			}
			if _, err := m.Encode(); err != nil {
				t.Fatalf("what was read cannot be written: %v", err)
			}
		}
	})
}
