package pipeline

import (
	"sync"
	"time"
)

// tickEvery is how often writers are told the time when nothing else happens.
const tickEvery = 200 * time.Millisecond

// A task whose source has given nothing for so many ticks is told the time at every
// fifth only: a service may have hundreds that wait.
const (
	restAfter = 25
	restEvery = 5
)

// startTicking interrupts the source's waits from time to time, so that control
// is reached without traffic.
func (t *task) startTicking() (stop func()) {
	ticker := time.NewTicker(tickEvery)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		read, idle := int64(0), 0
		for {
			select {
			case <-ticker.C:
				idle++
				if n := t.counts.records.Load(); n != read {
					if idle > restAfter {
						ticker.Reset(tickEvery)
					}
					read, idle = n, 0
				}
				if idle == restAfter {
					ticker.Reset(restEvery * tickEvery)
				}
				t.interrupt()
			case <-done:
				return
			}
		}
	})
	return func() {
		ticker.Stop()
		close(done)
		wg.Wait()
	}
}
