package state_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/state"
)

// memFiles keeps files without checking them, so that tests can damage them.
type memFiles struct {
	mu     sync.Mutex
	files  [][]byte
	failAt int // the write that fails, counted from 1
	writes int
	open   int
}

var errDisk = errors.New("the disk is full")

func (f *memFiles) Create(context.Context) (connectors.StateWriter, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open++
	return &memWriter{files: f}, nil
}

func (f *memFiles) Open(_ context.Context, s connectors.StateFile) (io.ReadCloser, error) {
	var i int
	if _, err := fmt.Sscanf(s.Path, "file-%d", &i); err != nil || i >= len(f.files) {
		return nil, fmt.Errorf("open %s: there is none", s.Path)
	}
	return io.NopCloser(bytes.NewReader(f.files[i])), nil
}

type memWriter struct {
	files *memFiles
	buf   []byte
}

func (w *memWriter) Write(b []byte) (int, error) {
	w.files.mu.Lock()
	defer w.files.mu.Unlock()
	if w.files.writes++; w.files.writes == w.files.failAt {
		return 0, errDisk
	}
	w.buf = append(w.buf, b...)
	return len(b), nil
}

func (w *memWriter) Close() (connectors.StateFile, error) {
	w.files.open--
	w.files.files = append(w.files.files, w.buf)
	return connectors.StateFile{Path: fmt.Sprintf("file-%d", len(w.files.files)-1), Size: int64(len(w.buf))}, nil
}

func (w *memWriter) Abort() { w.files.open-- }

// flat is an entry as tests compare it.
type flat struct {
	table, key, value string
	ns                int64
}

func flatten(e state.Entry) flat {
	return flat{e.Table, string(e.Key.Bytes), string(e.Value), e.NS}
}

func (e flat) entry(groups int) state.Entry {
	return state.Entry{Table: e.table, NS: e.ns, Key: state.MakeKey([]byte(e.key), groups), Value: []byte(e.value)}
}

func writeForm(t testing.TB, files connectors.CheckpointFiles, compression string, groups int, all []flat) ([]state.Piece, error) {
	t.Helper()
	byGroup := map[int][]state.Entry{}
	for _, f := range all {
		e := f.entry(groups)
		byGroup[e.Key.Group] = append(byGroup[e.Key.Group], e)
	}
	return state.WriteNeutral(t.Context(), files, state.Form{Compression: compression}, 0, groups-1, func(g int, emit func(state.Entry) error) error {
		for _, e := range byGroup[g] {
			if err := emit(e); err != nil {
				return err
			}
		}
		return nil
	})
}

func readForm(t testing.TB, files connectors.CheckpointFiles, pieces []state.Piece, first, last, groups int) (all []flat, err error) {
	t.Helper()
	err = state.ReadNeutral(t.Context(), files, pieces, first, last, groups, func(e state.Entry) error {
		all = append(all, flatten(e))
		return nil
	})
	return all, err
}

func sorted(all []flat) []string {
	var out []string
	for _, f := range all {
		out = append(out, fmt.Sprintf("%q %d %q %q", f.table, f.ns, f.key, f.value))
	}
	slices.Sort(out)
	return out
}

var someEntries = []flat{
	{"counts", "a", "1", 0}, {"counts", "b", "", 0}, {"counts", "c", "3", -60000}, {"", "", "x", 1 << 40}, {"counts", "d", strings.Repeat("z", 300), -60000},
}

// TestTheNeutralFormNeverChanges pins the bytes of a section. Savepoints that users keep
// are made of them.
func TestTheNeutralFormNeverChanges(t *testing.T) {
	const golden = "534c5354" + "01010000" + "00000000" + "00000000" + "25000000" + "25000000" + "334e7360" + "9c0a7aac" +
		"0006636f756e7473" + "0100" + "03610131" + "036200" + "01bfa907" + "03630133" + "0000" + "01808080808040" + "020178" +
		"534c5354" + "01020000" + "00000000" + "01000000" + "01000000" + "01000000" + "4ec4e795" + "8218456e" + "04"
	files := &memFiles{}
	if _, err := writeForm(t, files, "none", 1, someEntries[:4]); err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(files.files[0]); got != golden {
		t.Errorf("got %s", got)
	}
}

func TestWhatIsWrittenInTheNeutralFormIsReadAgain(t *testing.T) {
	const groups = 16
	large := slices.Clone(someEntries)
	for i := range 300 {
		large = append(large, flat{"big", fmt.Sprint(i), strings.Repeat(string(rune('a'+i%26)), i%7*1000), int64(i % 5)})
	}
	large = append(large, flat{"big", strings.Repeat("k", 1<<18), strings.Repeat("v", 1<<20), 9})
	for _, compression := range []string{"none", "zstd", ""} {
		for _, all := range [][]flat{nil, someEntries, large} {
			files := &memFiles{}
			pieces, err := writeForm(t, files, compression, groups, all)
			if err != nil {
				t.Fatal(err)
			}
			got, err := readForm(t, files, pieces, 0, groups-1, groups)
			if err != nil || !slices.Equal(sorted(got), sorted(all)) {
				t.Errorf("%s, %d entries: %d come back, %v", compression, len(all), len(got), err)
			}
			var parts []flat
			for first := 0; first < groups; first += 5 {
				part, err := readForm(t, files, pieces, first, min(first+4, groups-1), groups)
				if err != nil {
					t.Fatal(err)
				}
				parts = append(parts, part...)
			}
			if !slices.Equal(sorted(parts), sorted(all)) {
				t.Errorf("%s, %d entries: in parts %d come back", compression, len(all), len(parts))
			}
			for i, p := range pieces {
				if p.First != p.Last || p.Format != "" || i > 0 && pieces[i-1].Last >= p.First {
					t.Errorf("piece %d is %+v", i, p)
				}
			}
		}
	}
}

func TestMuchStateIsWrittenToSeveralFilesAndLittleToOne(t *testing.T) {
	const groups = 8
	for _, size := range []int{10, 400 << 10} {
		files := &memFiles{}
		pieces, err := state.WriteNeutral(t.Context(), files, state.Form{}, 0, groups-1, func(g int, emit func(state.Entry) error) error {
			for i := range 8 {
				if err := emit(state.Entry{Table: "t", Key: state.MakeKey(fmt.Appendf(nil, "%d-%d", g, i), groups), Value: make([]byte, size)}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil || len(pieces) != groups {
			t.Fatalf("%d pieces, %v", len(pieces), err)
		}
		if n := len(files.files); size == 10 && n != 1 || n > 4 {
			t.Errorf("%d files", n)
		}
	}
}

func TestAnyDamageOfAFileIsFound(t *testing.T) {
	const groups = 3
	for _, compression := range []string{"none", "zstd"} {
		files := &memFiles{}
		pieces, err := writeForm(t, files, compression, groups, someEntries)
		if err != nil {
			t.Fatal(err)
		}
		data := files.files[0]
		refused := func(what string, damaged []byte) {
			t.Helper()
			_, err := readForm(t, &memFiles{files: [][]byte{damaged}}, pieces, 0, groups-1, groups)
			if err == nil || !strings.Contains(err.Error(), "file-0") || !strings.Contains(err.Error(), "key group") {
				t.Errorf("%s: %v", what, err)
			}
		}
		for i := range data {
			damaged := slices.Clone(data)
			damaged[i] ^= 1 << (i % 8)
			refused(fmt.Sprintf("%s: byte %d flipped", compression, i), damaged)
			refused(fmt.Sprintf("%s: cut at %d", compression, i), data[:i])
		}
	}
}

func TestPiecesThatAreWrongAreRefused(t *testing.T) {
	const groups = 3
	files := &memFiles{}
	pieces, err := writeForm(t, files, "none", groups, someEntries)
	if err != nil || len(pieces) < 2 {
		t.Fatal(len(pieces), err)
	}
	for name, change := range map[string]func(p []state.Piece){
		"of another form":        func(p []state.Piece) { p[0].Format = "tables" },
		"of several groups":      func(p []state.Piece) { p[0].Last++ },
		"before the file":        func(p []state.Piece) { p[0].Offset = -1 },
		"behind the file":        func(p []state.Piece) { p[0].Offset = p[0].File.Size },
		"without a length":       func(p []state.Piece) { p[0].Length = 0 },
		"longer than the file":   func(p []state.Piece) { p[0].Length = 1 << 62 },
		"of a negative length":   func(p []state.Piece) { p[0].Length = -1 },
		"one byte short":         func(p []state.Piece) { p[0].Length-- },
		"one byte long":          func(p []state.Piece) { p[0].Length++ },
		"of another group":       func(p []state.Piece) { p[0].First, p[0].Last = 2, 2 },
		"somewhere else":         func(p []state.Piece) { p[0].Offset++ },
		"into another":           func(p []state.Piece) { p[1].Offset = p[0].Offset + 1 },
		"in a file that is gone": func(p []state.Piece) { p[0].File.Path = "file-9" },
	} {
		changed := slices.Clone(pieces)
		change(changed)
		if _, err := readForm(t, files, changed, 0, groups-1, groups); err == nil || !strings.Contains(err.Error(), "file-") {
			t.Errorf("a piece %s: %v", name, err)
		}
	}
	if _, err := readForm(t, files, pieces, 0, groups-1, 2*groups+1); err == nil || !strings.Contains(err.Error(), "max_parallelism") {
		t.Errorf("another number of key groups: %v", err)
	}
	twice := append(slices.Clone(pieces), pieces...)
	for i := range pieces {
		twice[i].File.Path = "file-1"
	}
	_, err = state.OpenMemory(t.Context(), state.Options{Last: groups - 1, Groups: groups, Restore: &state.Restore{
		Pieces: twice, Files: &memFiles{files: [][]byte{files.files[0], files.files[0]}},
	}})
	if err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("a key twice: %v", err)
	}
}

func TestFailuresWhileFormIsWrittenOrReadAreToldAndLeaveNothingOpen(t *testing.T) {
	for n := 1; n <= 4; n++ {
		files := &memFiles{failAt: n}
		pieces, err := writeForm(t, files, "zstd", 2, someEntries)
		if !errors.Is(err, errDisk) || pieces != nil || files.open != 0 {
			t.Errorf("write %d fails: %v, %v, %d open", n, pieces, err, files.open)
		}
	}
	files := &memFiles{}
	if _, err := writeForm(t, files, "lzma", 2, someEntries); err == nil || !strings.Contains(err.Error(), "lzma") {
		t.Error(err)
	}
	pieces, err := writeForm(t, files, "zstd", 2, someEntries)
	if err != nil {
		t.Fatal(err)
	}
	if err := state.ReadNeutral(t.Context(), files, pieces, 0, 1, 2, func(state.Entry) error { return errDisk }); !errors.Is(err, errDisk) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errDisk)
	s := openMemory(t, 2, nil)
	s.Table("t").Put(0, intKey(1, 2), nil)
	if _, err := fork(t, s).Write(ctx, &memFiles{}, state.Form{}); !errors.Is(err, errDisk) {
		t.Errorf("a cancelled write ends with %v", err)
	}
}

// FuzzReadNeutral reads sections that are damaged, with checksums that are right.
func FuzzReadNeutral(f *testing.F) {
	for _, compression := range []string{"none", "zstd"} {
		files := &memFiles{}
		if _, err := writeForm(f, files, compression, 1, someEntries); err != nil {
			f.Fatal(err)
		}
		f.Add(files.files[0])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		table := crc32.MakeTable(crc32.Castagnoli)
		for at := 0; at+32 <= len(data); {
			h := data[at : at+32]
			stored := int(binary.LittleEndian.Uint32(h[16:]))
			if end := at + 32 + stored; end <= len(data) {
				binary.LittleEndian.PutUint32(h[24:], crc32.Checksum(data[at+32:end], table))
			}
			binary.LittleEndian.PutUint32(h[28:], crc32.Checksum(h[:28], table))
			at += 32 + stored
		}
		p := state.Piece{File: connectors.StateFile{Path: "file-0", Size: int64(len(data))}, Length: int64(len(data))}
		all, err := readForm(t, &memFiles{files: [][]byte{data}}, []state.Piece{p}, 0, 0, 1)
		if err != nil {
			return
		}
		files := &memFiles{}
		pieces, err := writeForm(t, files, "none", 1, all)
		if err != nil {
			t.Fatal(err)
		}
		again, err := readForm(t, files, pieces, 0, 0, 1)
		if err != nil || !slices.Equal(sorted(all), sorted(again)) {
			t.Fatalf("%d entries come back as %d, %v", len(all), len(again), err)
		}
	})
}
