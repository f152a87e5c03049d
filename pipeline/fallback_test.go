package pipeline_test

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/checkpoint"
	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
	"github.com/sluice-etl/sluice/storage"
	_ "github.com/sluice-etl/sluice/storage/local"
)

// spoil replaces a file by other bytes of its length.
func spoil(t *testing.T, f storage.FS, name string) {
	t.Helper()
	ctx := context.Background()
	data, err := storage.ReadFile(ctx, f, name, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Remove(ctx, name); err != nil {
		t.Fatal(err)
	}
	if err := storage.WriteFile(ctx, f, name, []byte(strings.Repeat("x", len(data)))); err != nil {
		t.Fatal(err)
	}
}

// newestOf is the newest checkpoint of a world's current job.
func newestOf(t *testing.T, w *pipelinetest.World) checkpoint.Found {
	t.Helper()
	store, err := checkpoint.NewStore(w.Storage(), w.Plan().Spec.Name, checkpoint.StoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	survey, err := store.Survey(context.Background())
	if err != nil || len(survey.Checkpoints) == 0 {
		t.Fatalf("no checkpoint: %v", err)
	}
	return survey.Checkpoints[0]
}

// crashedBeforeCommit leaves a world whose newest checkpoint is complete and not
// published, with some before it that are.
func crashedBeforeCommit(t *testing.T, w *pipelinetest.World) {
	t.Helper()
	feed := w.Feed("in", 2)
	feed.Append(0, `{"k": "a", "v": 1, "t": 1000}`)
	reached := make(chan struct{})
	var down, once atomic.Bool
	for _, name := range []string{"out", "once"} {
		w.Target(name).BeforeCommit = func(connectors.CheckpointID) error {
			if !down.Load() {
				return nil
			}
			if once.CompareAndSwap(false, true) {
				close(reached)
			}
			return errors.New("target is down")
		}
	}
	p := w.Start()
	time.Sleep(250 * time.Millisecond)
	down.Store(true)
	feed.Append(1, `{"k": "a", "v": 2, "t": 2000}`)
	<-reached
	p.Crash()
	down.Store(false)
}

func TestAnOlderCheckpointTakesThePlaceOfADamagedOneThatIsNotPublished(t *testing.T) {
	for name, c := range map[string]struct{ blind, metadata, refused bool }{
		"state damaged":                                {},
		"metadata damaged":                             {metadata: true},
		"state damaged, a sink without witness":        {blind: true},
		"metadata damaged, what it published is known": {blind: true, metadata: true, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := pipelinetest.New(t, matched)
				w.Target("out").Blind, w.Target("once").Blind = c.blind, c.blind
				crashedBeforeCommit(t, w)
				f := newestOf(t, w)
				dir := path.Join("matched", f.Job, path.Base(f.Path))
				if c.metadata {
					spoil(t, w.Storage(), dir+"/_metadata")
				} else {
					spoil(t, w.Storage(), path.Join(dir, f.Meta.Files()[0].Path))
				}
				log := logTo(w)
				w.Feed("in", 2).End()
				_, err := w.Run()
				if c.refused {
					if !connectors.IsPermanent(err) {
						t.Fatalf("error %v", err)
					}
					wantTexts(t, err.Error(), "may have published checkpoint", "--accept-duplicates")
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				wantTexts(t, log.String(), "cannot be restored", "is damaged")
				if rows := w.Target("out").Values(); !strings.Contains(rows[len(rows)-1], `"n":2,"s":3`) {
					t.Errorf("the last row is %s", rows[len(rows)-1])
				}
				if n := len(w.Target("once").Values()); n != 2 {
					t.Errorf("%d rows were published, want 2", n)
				}
			})
		})
	}
}

func TestADamagedCheckpointWhoseResultsArePublishedIsNotReplaced(t *testing.T) {
	for _, blind := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := stoppedWorld(t, matched)
			w.Target("out").Blind, w.Target("once").Blind = blind, blind
			feed := w.Feed("in", 2)
			p := w.Start()
			feed.Append(1, `{"k": "a", "v": 2, "t": 2000}`)
			time.Sleep(150 * time.Millisecond)
			p.Crash()
			// All that came after the row was published go.
			for newestOf(t, w).Number > 2 {
				f := newestOf(t, w)
				dir := path.Join("matched", f.Job, path.Base(f.Path))
				n := 0
				if f.Meta != nil {
					n = len(slices.DeleteFunc(f.Meta.Committables, func(c connectors.Committable) bool { return c.Empty }))
				}
				if n > 0 {
					spoil(t, w.Storage(), dir+"/_metadata")
					break
				}
				if err := w.Storage().RemoveAll(context.Background(), dir); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := w.Run(); !connectors.IsPermanent(err) {
				t.Errorf("blind %v: error %v", blind, err)
			}
		})
	}
}

func TestFilesOfAnotherHostAreWarnedOf(t *testing.T) {
	yaml := strings.Replace(straight, "STORAGE", "file://"+t.TempDir(), 1)
	w := pipelinetest.New(t, yaml)
	feed := w.Feed("in", 1)
	fill(feed, 1, 0, 10)
	feed.End()
	log := logTo(w)
	if _, err := w.Run(); err != nil || strings.Contains(log.String(), "another host") {
		t.Fatalf("error %v, log:\n%s", err, log.String())
	}
	fs, err := storage.Open(w.Plan().Spec.Checkpoint.Storage)
	if err != nil {
		t.Fatal(err)
	}
	store, err := checkpoint.NewStore(fs, "straight", checkpoint.StoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	survey, err := store.Survey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	owner := survey.Owners[survey.Highest]
	owner.Host, owner.PID, owner.Restored = "elsewhere", 1, nil
	if err := store.TakeGeneration(t.Context(), survey.Highest+1); err != nil {
		t.Fatal(err)
	}
	if err := store.WriteOwner(t.Context(), survey.Highest+1, owner); err != nil {
		t.Fatal(err)
	}
	w.Options.From = "none"
	if _, err := w.Run(); err != nil {
		t.Fatal(err)
	}
	wantTexts(t, log.String(), "another host ran this pipeline last", "last_host=elsewhere")
}
