package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/pipeline/pipelinetest"
)

// far is another side that the lookups of tests ask, by its name.
type far struct {
	mu     sync.Mutex
	opens  int
	closes int
	calls  atomic.Int64
	open   func(try int) error
	find   func(ctx context.Context, call int64) error
}

var fars sync.Map // name to *far

type farConfig struct {
	Name string `key:"name" required:"true" doc:"Which one."`
}

type farLookup struct{ *far }

func (l farLookup) Open(context.Context, connectors.LookupEnv) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.opens++
	if l.far.open != nil {
		return l.far.open(l.opens)
	}
	return nil
}

func (l farLookup) MaxKeys() int { return 100 }

func (l farLookup) Find(ctx context.Context, keys []connectors.LookupKey, answers []connectors.Answer) error {
	if l.far.find != nil {
		if err := l.far.find(ctx, l.calls.Add(1)); err != nil {
			return err
		}
	}
	for i, k := range keys {
		if n := k.Values[0].Int(); n%2 == 0 {
			answers[i].Row = fmt.Appendf(nil, `{"half":%d}`, n/2)
		}
	}
	return nil
}

func (l farLookup) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closes++
	return nil
}

func init() {
	connectors.RegisterLookup(connectors.LookupSpec{
		Name: "far", Doc: "Another side of tests.", Concurrency: 4, NewConfig: func() any { return &farConfig{} },
		New: func(config any, _ []string) (connectors.Lookup, error) {
			side, _ := fars.Load(config.(*farConfig).Name)
			f, _ := side.(*far)
			if f == nil {
				f = &far{}
			}
			return farLookup{f}, nil
		},
	})
}

// lookingUp is a world whose records are looked up at a far side of that name.
func lookingUp(t *testing.T, name string, side *far, more string) *pipelinetest.World {
	t.Helper()
	fars.Store(name, side)
	return pipelinetest.New(t, `
pipeline: lookups
parallelism: 1
source: {feed: {name: FEED-in}}
transforms:
  - name: look
    lookup: {far: {name: `+name+`}, on: [n], as: row`+more+`}
  - set: {half: row?.half}
sink: {collect: {name: TARGET-out}}
checkpoint: {storage: STORAGE, interval: 1s}
restart: {fixed: {attempts: 3, delay: 1s}}
`)
}

func TestALookupThatIsNotThereYetIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		side := &far{open: func(try int) error {
			if try < 4 {
				return errors.New("connection refused")
			}
			return nil
		}}
		w := lookingUp(t, "waited", side, "")
		feed := w.Feed("in", 1)
		feed.Append(0, `{"n":2}`, `{"n":3}`)
		feed.End()
		if _, err := w.Run(); err != nil {
			t.Fatal(err)
		}
		equal(t, w.Target("out").Values(), []string{`{"n":2,"row":{"half":1},"half":1}`, `{"n":3,"row":null,"half":null}`})
		if side.opens != 4 || side.closes != 4 {
			t.Errorf("opened %d times, closed %d times", side.opens, side.closes)
		}
	})
}

func TestALookupThatCannotWorkStopsThePipeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		side := &far{open: func(int) error { return connectors.Permanent(errors.New("no such table")) }}
		w := lookingUp(t, "refused", side, "")
		w.Feed("in", 1).End()
		_, err := w.Run()
		if !connectors.IsPermanent(err) || !strings.Contains(err.Error(), "step look: lookup far: open: no such table") {
			t.Errorf("error %v", err)
		}
		if side.closes != side.opens {
			t.Errorf("opened %d times, closed %d times", side.opens, side.closes)
		}
	})
}

func TestALookupThatFailsForAWhileRestartsThePipelineAndLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		side := &far{find: func(ctx context.Context, call int64) error {
			switch {
			case call > 3 && call < 6:
				<-ctx.Done()
				return ctx.Err()
			case call >= 6 && call < 11:
				return errors.New("status 503")
			}
			return nil
		}}
		w := lookingUp(t, "failing", side, ", cache: {size: 0}, retries: 1, timeout: 500ms")
		feed := w.Feed("in", 1)
		var want []string
		for i := range 20 {
			half := "null"
			row := "null"
			if i%2 == 0 {
				half = fmt.Sprint(i / 2)
				row = `{"half":` + half + `}`
			}
			want = append(want, fmt.Sprintf(`{"n":%d,"row":%s,"half":%s}`, i, row, half))
		}
		go func() {
			for i := range 20 {
				feed.Append(0, fmt.Sprintf(`{"n":%d}`, i))
				time.Sleep(200 * time.Millisecond)
			}
			feed.End()
		}()
		sum, err := w.Run()
		if err != nil {
			t.Fatal(err)
		}
		equal(t, w.Target("out").Values(), want)
		if sum.Restarts == 0 || side.opens != sum.Restarts+1 || side.closes != side.opens {
			t.Errorf("%d restarts, opened %d times, closed %d times", sum.Restarts, side.opens, side.closes)
		}
	})
}

func TestABarrierWaitsForTheCallsBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		side := &far{find: func(ctx context.Context, _ int64) error { time.Sleep(2500 * time.Millisecond); return nil }}
		w := lookingUp(t, "slow", side, ", timeout: 5s")
		feed := w.Feed("in", 1)
		feed.Append(0, `{"n":2}`)
		go func() {
			time.Sleep(4 * time.Second)
			feed.End()
		}()
		if _, err := w.Run(); err != nil {
			t.Fatal(err)
		}
		equal(t, w.Target("out").Values(), []string{`{"n":2,"row":{"half":1},"half":1}`})
	})
}
