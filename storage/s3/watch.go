package s3

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// Times of connections that no setting changes.
const (
	expectTimeout = time.Second
	idleTimeout   = 30 * time.Second
)

// errStalled is a request that was given up because nothing moved.
var errStalled = errors.New("no byte moved within storage.s3.request_timeout")

type patienceKey struct{}

// withPatience lets the server think for as long as d before it answers.
func withPatience(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, patienceKey{}, d)
}

// watched gives up a request when no byte of it or of its answer has moved for a
// while, so that a large part on a slow line goes on and a dead connection does not.
// After it has returned, the body of the request is not read any more, as its bytes
// are used again.
type watched struct {
	next     http.RoundTripper
	patience time.Duration
}

func (w *watched) closeIdle() {
	if t, ok := w.next.(*http.Transport); ok {
		t.CloseIdleConnections()
	}
}

// Do sends a request.
func (w *watched) Do(req *http.Request) (*http.Response, error) {
	patience := w.patience
	if d, ok := req.Context().Value(patienceKey{}).(time.Duration); ok {
		patience = d
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	dog := &watchdog{ctx: ctx, cancel: cancel, patience: patience}
	dog.timer = time.AfterFunc(patience, func() { cancel(errStalled) })
	req = req.WithContext(ctx)
	var sent *sentBody
	if req.Body != nil && req.Body != http.NoBody {
		sent = &sentBody{dog: dog, in: req.Body}
		req.Body = sent
	}
	resp, err := w.next.RoundTrip(req)
	if sent != nil {
		_ = sent.Close() // the transport may still be reading
	}
	if err != nil {
		dog.stop()
		return nil, dog.explain(err)
	}
	dog.timer.Stop()
	resp.Body = &watchedBody{dog: dog, in: resp.Body}
	return resp, nil
}

type watchdog struct {
	ctx      context.Context //nolint:containedctx // of one request
	cancel   context.CancelCauseFunc
	patience time.Duration
	timer    *time.Timer
}

func (d *watchdog) stop() {
	d.timer.Stop()
	d.cancel(nil)
}

// explain tells a request that was given up here from one that its caller ended.
func (d *watchdog) explain(err error) error {
	if errors.Is(context.Cause(d.ctx), errStalled) {
		return errStalled
	}
	return err
}

// sentBody is the body of a request, until it is closed.
type sentBody struct {
	dog *watchdog

	mu   sync.Mutex
	in   io.ReadCloser
	done bool
}

func (b *sentBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.done {
		return 0, http.ErrBodyReadAfterClose
	}
	b.dog.timer.Reset(b.dog.patience)
	return b.in.Read(p)
}

func (b *sentBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.done {
		return nil
	}
	b.done = true
	return b.in.Close()
}

// watchedBody is the body of an answer. Only while somebody reads is it the server
// that takes its time.
type watchedBody struct {
	dog *watchdog
	in  io.ReadCloser
}

func (b *watchedBody) Read(p []byte) (int, error) {
	b.dog.timer.Reset(b.dog.patience)
	n, err := b.in.Read(p)
	b.dog.timer.Stop()
	if err != nil && !errors.Is(err, io.EOF) {
		err = b.dog.explain(err)
	}
	return n, err
}

func (b *watchedBody) Close() error {
	err := b.in.Close()
	b.dog.stop()
	return err
}
