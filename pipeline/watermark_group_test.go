package pipeline

import (
	"slices"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/spec"
)

// driftPair is two sources that wait for each other.
func driftPair(t *testing.T, w spec.Watermark, n int) (a, b *clockTest) {
	group := newClockGroup()
	return newClockTest(t, w, group, open(n)...), newClockTest(t, w, group, open(n)...)
}

func TestASplitThatIsAheadWaitsUntilTheOthersCome(t *testing.T) {
	a, b := driftPair(t, bounded(spec.Watermark{MaxDrift: 10 * time.Second, IdleAfter: 30 * time.Second}), 2)
	a.read(0, 5*second)
	a.read(1, 5*second)
	if want := []int{0, 1}; !slices.Equal(a.reader.paused, want) {
		t.Errorf("paused %v before the other source has a record, want %v", a.reader.paused, want)
	}
	b.read(0, 0)
	b.read(1, 0)
	a.pass(time.Second)
	if len(a.reader.paused) != 0 {
		t.Errorf("paused %v within the drift", a.reader.paused)
	}
	a.read(1, 10*second)
	if len(a.reader.paused) != 0 {
		t.Errorf("paused %v at the drift", a.reader.paused)
	}
	a.read(1, 10*second+1)
	if want := []int{1}; !slices.Equal(a.reader.paused, want) {
		t.Errorf("paused %v beyond the drift, want %v", a.reader.paused, want)
	}
	b.read(0, 100*second)
	b.read(1, 1*second)
	a.pass(time.Second)
	if len(a.reader.paused) != 0 || !slices.Equal(b.reader.paused, []int{0}) {
		t.Errorf("paused %v and %v", a.reader.paused, b.reader.paused)
	}
	if b.held() {
		t.Error("a reader that can pause is held")
	}
}

func TestIdleEndedAndEmptySplitsLetOthersGoOn(t *testing.T) {
	w := bounded(spec.Watermark{MaxDrift: 10 * time.Second, IdleAfter: 30 * time.Second})
	for name, release := range map[string]func(b *clockTest){
		"empty": func(b *clockTest) { b.reader.atEnd[0] = true; b.pass(0) },
		"idle": func(b *clockTest) {
			b.read(0, 0)
			b.reader.atEnd[0] = true
			b.pass(0)
			b.pass(30 * time.Second)
		},
		"at its end": func(b *clockTest) { b.read(0, 0); b.end() },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := driftPair(t, w, 1)
			a.read(0, 1000*second)
			if !slices.Equal(a.reader.paused, []int{0}) {
				t.Fatalf("paused %v", a.reader.paused)
			}
			release(b)
			a.pass(time.Second)
			if len(a.reader.paused) != 0 {
				t.Errorf("paused %v", a.reader.paused)
			}
		})
	}
}

func TestAPausedSplitIsNotIdle(t *testing.T) {
	a, b := driftPair(t, bounded(spec.Watermark{MaxDrift: 10 * time.Second, IdleAfter: 30 * time.Second}), 1)
	b.read(0, 0)
	a.read(0, 100*second)
	a.reader.atEnd[0] = true
	for range 10 {
		a.pass(time.Minute)
	}
	a.want("paused", 100*second, false)
	if !slices.Equal(a.reader.paused, []int{0}) {
		t.Errorf("paused %v", a.reader.paused)
	}
	b.read(0, 95*second)
	a.pass(time.Second)
	a.pass(29 * time.Second)
	a.pass(29 * time.Second)
	a.want("it goes on: its time begins", 100*second, false)
	a.pass(time.Second)
	a.want("idle", 100*second, true)
}

func TestSourcesWithoutADriftNeitherWaitNorHold(t *testing.T) {
	group := newClockGroup()
	a := newClockTest(t, bounded(spec.Watermark{MaxDrift: time.Second}), group, open(1)...)
	b := newClockTest(t, bounded(spec.Watermark{}), group, open(1)...)
	a.read(0, 1000*second)
	b.read(0, 0)
	a.pass(time.Second)
	if len(a.reader.paused)+len(b.reader.paused) != 0 {
		t.Errorf("paused %v and %v", a.reader.paused, b.reader.paused)
	}
}

func TestAReaderThatCannotPauseIsHeldWhenAllOfItIsAhead(t *testing.T) {
	group := newClockGroup()
	w := bounded(spec.Watermark{MaxDrift: 10 * time.Second, IdleAfter: time.Second})
	r := &clockReader{atEnd: map[int]bool{}}
	a := &clockTest{t: t, reader: r, now: clockEpoch}
	a.sourceClock = newSourceClock("a", w, struct {
		connectors.Reader
		connectors.Progress
	}{r, r}, group, 0)
	a.add(open(2), a.now)
	a.tick(a.now)
	b := newClockTest(t, w, group, open(1)...)
	b.read(0, 0)
	a.read(0, 100*second)
	if a.held() {
		t.Error("held, though one split has no record")
	}
	a.read(1, 50*second)
	if !a.held() {
		t.Error("not held, though both are ahead")
	}
	b.read(0, 45*second)
	a.pass(time.Second)
	if a.held() {
		t.Error("held, though one is not ahead any more")
	}
	if len(r.paused) != 0 {
		t.Errorf("paused %v", r.paused)
	}
}

func TestASplitOfAReaderThatDoesNotTellIsWaitedForForAWhile(t *testing.T) {
	group := newClockGroup()
	w := bounded(spec.Watermark{MaxDrift: 10 * time.Second, IdleAfter: 30 * time.Second})
	silent := newSourceClock("b", w, struct{ connectors.Reader }{&clockReader{}}, group, 0)
	silent.add(open(1), clockEpoch)
	silent.tick(clockEpoch)
	a := newClockTest(t, w, group, open(1)...)
	a.read(0, 1000*second)
	if !slices.Equal(a.reader.paused, []int{0}) {
		t.Errorf("paused %v while the other may still begin", a.reader.paused)
	}
	silent.tick(clockEpoch.Add(30 * time.Second))
	a.pass(30 * time.Second)
	if len(a.reader.paused) != 0 {
		t.Errorf("paused %v for one that does not begin", a.reader.paused)
	}
}
