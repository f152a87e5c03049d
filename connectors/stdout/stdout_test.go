package stdout

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/connectors"
	"github.com/sluice-etl/sluice/connectors/connectortest"
)

// screen is what was printed.
type screen struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(b)
}

func (s *screen) lines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(strings.Lines(s.buf.String()))
}

func TestStdoutKeepsTheContract(t *testing.T) {
	connectortest.TestSink(t, func(*testing.T) connectortest.Sink {
		s := new(screen)
		return connectortest.Sink{
			New: func() (connectors.Sink, error) { return New(s), nil },
			Read: func(context.Context) ([]string, error) {
				lines := s.lines()
				for i := range lines {
					lines[i] = strings.TrimSuffix(lines[i], "\n")
				}
				return lines, nil
			},
		}
	})
}

func rows(values ...string) *connectors.Rows {
	r := &connectors.Rows{Batch: new(connectors.Batch)}
	r.Batch.Size(len(values), 0)
	for i, v := range values {
		r.Sel, r.Values = append(r.Sel, uint16(i)), append(r.Values, []byte(v))
	}
	return r
}

func TestLinesAppearWithinATick(t *testing.T) {
	s := new(screen)
	w, err := New(s).Writer(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(t.Context(), rows(`{"a":1}`, "{ }")); err != nil {
		t.Fatal(err)
	}
	if len(s.lines()) != 0 {
		t.Error("lines are printed one by one")
	}
	if err := w.Tick(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if got := s.lines(); !slices.Equal(got, []string{"{\"a\":1}\n", "{ }\n"}) {
		t.Errorf("printed %q", got)
	}
}

func TestAReaderThatWentAwayStopsThePipeline(t *testing.T) {
	r, w := io.Pipe()
	_ = r.Close()
	wr, err := New(w).Writer(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := wr.Write(t.Context(), rows("1")); err != nil {
		t.Fatal(err)
	}
	if _, err := wr.Barrier(t.Context(), connectors.Barrier{}); !connectors.IsPermanent(err) || !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v", err)
	}
}
