package http

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/sluice-etl/sluice/connectors/connectortest"
)

// faulty is a transport whose service can be away, put requests off, and lose replies.
type faulty struct {
	http.RoundTripper

	mu       sync.Mutex
	down     bool
	requests int
	lose     int
	putOff   int
}

func (f *faulty) set(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

// RoundTrip implements http.RoundTripper.
func (f *faulty) RoundTrip(r *http.Request) (*http.Response, error) {
	var down, lost, later bool
	f.set(func() {
		down, later = f.down, f.putOff > 0
		if down {
			return
		}
		if later {
			f.putOff--
			return
		}
		f.requests++
		f.lose--
		lost = f.lose == 0
	})
	switch {
	case down:
		return nil, errors.New("connection refused")
	case later:
		return &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
	}
	resp, err := f.RoundTripper.RoundTrip(r)
	if lost && err == nil {
		_ = resp.Body.Close()
		return nil, errors.New("connection reset")
	}
	return resp, err
}

func (f *faulty) network() *connectortest.Network {
	return &connectortest.Network{
		Down:      func(down bool) { f.set(func() { f.down = down }) },
		Requests:  func() (n int) { f.set(func() { n = f.requests }); return n },
		LoseReply: func(n int) { f.set(func() { f.lose = n }) },
		Throttle:  func(n int) { f.set(func() { f.putOff = n }) },
	}
}
