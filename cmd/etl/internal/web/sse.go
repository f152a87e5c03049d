package web

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// stream is an answer of server-sent events. One goroutine writes it.
type stream struct {
	w         http.ResponseWriter
	out       *http.ResponseController
	heartbeat *time.Ticker
	every     time.Duration     // of heartbeat
	sent      map[string][]byte // what was told last, by event
}

// streamTo begins a stream and has f write it, until f returns, who reads it leaves, or
// the server ends, which both end the context. Beyond the bound of streams it is refused.
func (h *Handler) streamTo(w http.ResponseWriter, r *http.Request, f func(context.Context, *stream) error) {
	select {
	case h.streams <- struct{}{}:
		defer func() { <-h.streams }()
	default:
		w.Header().Set("Retry-After", "10")
		refuse(w, problem(http.StatusServiceUnavailable, CodeBusy, fmt.Sprintf("%d streams are open, and no more are served: close one", cap(h.streams))))
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy would hold events back
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	s := &stream{
		w: w, out: http.NewResponseController(w),
		heartbeat: time.NewTicker(h.opts.Heartbeat), every: h.opts.Heartbeat, sent: map[string][]byte{},
	}
	defer s.heartbeat.Stop()
	if err := s.write([]byte("retry: 2000\n\n")); err != nil {
		return
	}
	_ = f(r.Context(), s) // who reads it has left
}

// send tells of an event; number is the one to go on behind, 0 for none.
func (s *stream) send(event string, number uint64, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	return s.sendText(event, number, text)
}

// sendNews is send of what has changed since it was told last.
func (s *stream) sendNews(event string, data any) error {
	text, err := json.Marshal(data)
	if err != nil || bytes.Equal(text, s.sent[event]) {
		return err
	}
	s.sent[event] = text
	return s.sendText(event, 0, text)
}

func (s *stream) sendText(event string, number uint64, text []byte) error {
	var b bytes.Buffer
	if number > 0 {
		b.WriteString("id: " + strconv.FormatUint(number, 10) + "\n")
	}
	b.WriteString("event: " + event + "\ndata: ")
	b.Write(text) // JSON has no line breaks
	b.WriteString("\n\n")
	return s.write(b.Bytes())
}

// beat gives a sign of life, by which proxies keep the connection, and this process
// learns that the other side is gone.
func (s *stream) beat() error { return s.write([]byte(":\n\n")) }

// write sends something at once. Where who reads it takes nothing for long, the server
// makes that an error.
func (s *stream) write(text []byte) error {
	if _, err := s.w.Write(text); err != nil {
		return err
	}
	s.heartbeat.Reset(s.every)
	return s.out.Flush()
}
