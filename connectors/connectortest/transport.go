package connectortest

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
)

// Transport is a transport to a service that can be away, put requests off with status
// 429, and lose replies to requests that it has executed.
type Transport struct {
	http.RoundTripper

	mu       sync.Mutex
	down     bool
	requests int
	lose     int
	putOff   int
}

func (t *Transport) set(do func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	do()
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	var down, lost, later bool
	t.set(func() {
		down, later = t.down, t.putOff > 0
		if down {
			return
		}
		if later {
			t.putOff--
			return
		}
		t.requests++
		t.lose--
		lost = t.lose == 0
	})
	switch {
	case down:
		return nil, errors.New("connection refused")
	case later:
		return &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
	}
	resp, err := t.RoundTripper.RoundTrip(r)
	if lost && err == nil {
		_ = resp.Body.Close()
		return nil, errors.New("connection reset")
	}
	return resp, err
}

// Network are the transport's hooks.
func (t *Transport) Network() *Network {
	return &Network{
		Down:      func(down bool) { t.set(func() { t.down = down }) },
		Requests:  func() (n int) { t.set(func() { n = t.requests }); return n },
		LoseReply: func(n int) { t.set(func() { t.lose = n }) },
		Throttle:  func(n int) { t.set(func() { t.putOff = n }) },
	}
}
