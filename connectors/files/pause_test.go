package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-etl/sluice/connectors"
)

// TestFileSourceSwitchesBetweenManyFiles pauses at random over more files than there
// are blocks for, so that files are left open, closed and opened anew.
func TestFileSourceSwitchesBetweenManyFiles(t *testing.T) {
	dir := t.TempDir()
	want := map[string][]string{}
	for i := range 12 {
		name, pad := filepath.Join(dir, fmt.Sprintf("%02d.jsonl", i)), fmt.Sprintf(`,"of":%d,"pad":"%s"`, i, strings.Repeat("z", 300))
		text, lines := numbered(2000+100*i, pad)
		if i%3 == 0 {
			name, text = name+".gz", zip(t, text)
		}
		write(t, name, text)
		want[name] = lines
	}
	for _, blocks := range []int64{minBlocks, 5} {
		t.Run(fmt.Sprintf("%d blocks", blocks), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(blocks), 1))
			s, err := NewSource(sourceConfig(dir, nil))
			if err != nil {
				t.Fatal(err)
			}
			splits, err := s.Splits(context.Background(), nil)
			if err != nil {
				t.Fatal(err)
			}
			opened, err := s.Reader(connectors.ReaderEnv{Budget: blocks * blockSize, Batches: connectors.NewBatchPool(4)}, splits)
			if err != nil {
				t.Fatal(err)
			}
			r := opened.(*reader)
			got := map[string][]string{}
			for n := 0; ; n++ {
				open := unread(splits, got, want)
				// The one that goes on may have given its last line since.
				if n%3 == 0 || !slices.ContainsFunc(open, func(i int) bool { return !r.splits[i].paused }) || len(open) == 0 {
					r.Pause(somePaused(rng, len(splits), open))
				}
				b, err := r.Poll(context.Background())
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if r.splits[b.Split].paused {
					t.Fatal("a paused file is read")
				}
				for i := range b.Records {
					got[splits[b.Split].ID] = append(got[splits[b.Split].ID], string(b.Records[i].Value))
				}
				b.Recycle()
				if r.opened > int(blocks)-1 {
					t.Fatalf("%d files are open with %d blocks", r.opened, blocks)
				}
			}
			for id, lines := range want {
				if !slices.Equal(got[id], lines) {
					t.Errorf("%s: %d lines of %d, or others", id, len(got[id]), len(lines))
				}
			}
			for i := range splits {
				if sp := r.Position(i, r.splits[i].pos); sp.Until != sp.Offset {
					t.Errorf("%s is read to its end at %d and told to end at %d", sp.ID, sp.Offset, sp.Until)
				}
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// unread lists the splits that have lines left.
func unread(splits []connectors.Split, got, want map[string][]string) []int {
	var open []int
	for i, sp := range splits {
		if len(got[sp.ID]) < len(want[sp.ID]) {
			open = append(open, i)
		}
	}
	return open
}

// somePaused pauses some of n splits, but not all that have lines left.
func somePaused(rng *rand.Rand, n int, open []int) []int {
	if len(open) == 0 {
		return nil
	}
	keep := open[rng.IntN(len(open))]
	var paused []int
	for i := range n {
		if i != keep && rng.IntN(2) == 0 {
			paused = append(paused, i)
		}
	}
	return paused
}
