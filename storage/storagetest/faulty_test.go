package storagetest_test

import (
	"context"
	"errors"
	"io/fs"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/storage"
	"github.com/sluice-etl/sluice/storage/mem"
	"github.com/sluice-etl/sluice/storage/storagetest"
)

func TestAFaultyFileSystemWithoutRulesKeepsTheContract(t *testing.T) {
	storagetest.Run(t, func(*testing.T) storage.FS { return storagetest.Faulty(mem.New(), 1) })
}

func TestFaults(t *testing.T) {
	boom := errors.New("boom")
	for _, c := range []struct {
		name  string
		rule  storagetest.Rule
		want  error
		there bool // after the call
		after bool // after a crash
	}{
		{"before", storagetest.Rule{Op: storagetest.OpClose}, storagetest.ErrInjected, false, false},
		{"after success", storagetest.Rule{Op: storagetest.OpClose, Effect: storagetest.FailAfter, Err: boom}, boom, true, true},
		{"partial", storagetest.Rule{Op: storagetest.OpWrite, Effect: storagetest.Partial}, storagetest.ErrInjected, false, false},
		{"lost on a crash", storagetest.Rule{Op: storagetest.OpClose, Effect: storagetest.LoseOnCrash}, nil, true, false},
		{"another name", storagetest.Rule{Glob: "other*"}, nil, true, true},
		{"a later one", storagetest.Rule{Op: storagetest.OpClose, Nth: 2}, nil, true, true},
		{"by the last element", storagetest.Rule{Op: storagetest.OpCreate, Glob: "f*"}, storagetest.ErrInjected, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			below := mem.New()
			f := storagetest.Faulty(below, 1, c.rule)
			err := storage.WriteFile(t.Context(), f, "d/file", []byte("data"))
			if !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			for _, want := range []bool{c.there, c.after} {
				if there, err := storage.Exists(t.Context(), below, "d/file"); err != nil || there != want {
					t.Fatalf("the file is there: %v, %v; want %v", there, err, want)
				}
				f.Crash()
			}
		})
	}
}

func TestALostRemovalComesBack(t *testing.T) {
	f := storagetest.Faulty(mem.New(), 1, storagetest.Rule{Op: storagetest.OpRemove, Effect: storagetest.LoseOnCrash})
	if err := storage.WriteFile(t.Context(), f, "a", []byte("data")); err != nil {
		t.Fatal(err)
	}
	if err := f.Remove(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Stat(t.Context(), "a"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("before the crash: %v", err)
	}
	f.Crash()
	if data, err := storage.ReadFile(t.Context(), f, "a", 10); err != nil || string(data) != "data" {
		t.Fatalf("after the crash: %q, %v", data, err)
	}
}

func TestProbabilityComesFromTheSeed(t *testing.T) {
	draw := func(seed uint64) (failed int) {
		f := storagetest.Faulty(mem.New(), seed, storagetest.Rule{Op: storagetest.OpStat, Probability: 0.3})
		for range 1000 {
			if _, err := f.Stat(t.Context(), "a"); errors.Is(err, storagetest.ErrInjected) {
				failed++
			}
		}
		return failed
	}
	if a, b := draw(7), draw(7); a != b || a < 200 || a > 400 {
		t.Fatalf("seed 7 failed %d and %d times of 1000", a, b)
	}
}

func TestSlowWaitsOnTheClock(t *testing.T) {
	f := storagetest.Faulty(mem.New(), 1, storagetest.Rule{Op: storagetest.OpClaim, Effect: storagetest.Slow, Delay: time.Hour})
	var waited time.Duration
	f.SetClock(func(_ context.Context, d time.Duration) error { waited += d; return nil })
	if err := f.Claim(t.Context(), "a"); err != nil || waited != time.Hour {
		t.Fatalf("waited %s, error %v", waited, err)
	}
}
