package pipeline_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestAStartThatWaitsForAnotherSystemSaysForWhat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := steered(t, straight)
		fill(w.Feed("in", 2), 2, 0, 10)
		var up atomic.Bool
		w.Target("out").BeforeOpen = func() error {
			if up.Load() {
				return nil
			}
			return errors.New("nobody is there")
		}
		p := running(w)
		out := w.Options.Control.Outages()
		if len(out) != 1 || !out[0].Starting || !strings.Contains(out[0].Error, "nobody is there") || time.Since(out[0].Since) < time.Second {
			t.Fatalf("it waits for %+v", out)
		}
		up.Store(true)
		time.Sleep(10 * time.Second)
		if out := w.Options.Control.Outages(); len(out) != 0 {
			t.Errorf("it runs, and waits for %+v", out)
		}
		_, _ = w.Options.Control.Cancel(t.Context())
		_, _ = p.Wait()
	})
}
