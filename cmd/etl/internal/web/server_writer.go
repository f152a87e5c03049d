package web

import (
	"io"
	"net/http"
	"time"
)

// answerWriter notes the status of an answer, and gives up on who does not take it.
type answerWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	status  int // 0 before the answer has begun
}

// Unwrap is for http.ResponseController.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader notes the status.
func (w *answerWriter) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write fails where who asked takes nothing for a while.
func (w *answerWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	defer w.stall()()
	return w.ResponseWriter.Write(p)
}

// FlushError fails as Write does.
func (w *answerWriter) FlushError() error {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	defer w.stall()()
	return w.control.Flush()
}

// Flush is for who does not look at errors.
func (w *answerWriter) Flush() { _ = w.FlushError() }

// stall bounds how long a call may wait for who asked. Between calls there is no bound:
// a stream may have nothing to say.
func (w *answerWriter) stall() (done func()) {
	_ = w.control.SetWriteDeadline(time.Now().Add(stalledWithin)) // without deadlines the rest works
	return func() { _ = w.control.SetWriteDeadline(time.Time{}) }
}

// finish bounds what is left to be sent, after the handler.
func (w *answerWriter) finish() {
	_ = w.control.SetWriteDeadline(time.Now().Add(stalledWithin))
}

// body is the body of a request, bounded in bytes and in time.
func (w *answerWriter) body(r *http.Request) io.ReadCloser {
	_ = w.control.SetWriteDeadline(time.Time{}) // that of the last request of the connection
	if r.Body == nil || r.Body == http.NoBody {
		return r.Body
	}
	_ = w.control.SetReadDeadline(time.Now().Add(bodyWithin))
	return &timedBody{http.MaxBytesReader(w.ResponseWriter, r.Body, mostServedBody), w.control}
}

// timedBody takes the bound in time away once it has been read: the answer may take longer.
type timedBody struct {
	io.ReadCloser
	control *http.ResponseController
}

// Read reads on.
func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}
