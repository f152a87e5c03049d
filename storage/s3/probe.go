package s3

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/sluice-etl/sluice/storage"
)

// abilities are what a server was found to do.
type abilities struct {
	put      bool // takes the condition on PutObject
	complete bool // takes it on CompleteMultipartUpload
	list     bool // lists uploads by the beginning of their keys
	why      string
}

// probe is what was found out about a bucket. A server that ignores a condition
// replaces files without a word, so it is asked before the first write.
type probe struct {
	mu    sync.Mutex
	found *abilities
}

func (p *probe) get() *abilities {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.found
}

func (p *probe) set(a abilities) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.found = &a
}

// Probe tries whether the server gives a name to one of several writers.
func (f *FS) Probe(ctx context.Context) (storage.Capabilities, error) {
	can, err := f.abilities(ctx)
	if err != nil {
		return storage.Capabilities{}, err
	}
	return storage.Capabilities{Exclusive: can.why == "", Reason: can.why}, nil
}

func (f *FS) abilities(ctx context.Context) (abilities, error) {
	if can := f.b.probe.get(); can != nil {
		return *can, ctx.Err()
	}
	release, err := f.b.client.locks.take(ctx, f.b.name+"/probe")
	if err != nil {
		return abilities{}, cancelled(ctx, "probe", f.prefix)
	}
	defer release()
	if can := f.b.probe.get(); can != nil {
		return *can, ctx.Err()
	}
	can, err := f.try(ctx)
	if err != nil {
		return abilities{}, fmt.Errorf("find out what the server of %s can do: %w", f.URL(), err)
	}
	f.b.probe.set(can)
	return can, nil
}

// scratch begins the names of the objects that a probe makes and removes.
const scratch = storage.HiddenPrefix + "probe-"

func (f *FS) try(ctx context.Context) (can abilities, err error) {
	key := f.prefix + scratch + newToken()
	defer func() {
		// Where objects may be written and not removed, the scratch object stays.
		ctx, cancel := dropContext(ctx)
		defer cancel()
		_ = f.b.removeOne(ctx, key)
	}()
	var bad verdict
	if can.put, err = f.tryPut(ctx, key, &bad); err != nil {
		return can, err
	}
	if can.complete, err = f.tryComplete(ctx, key, &can, &bad); err != nil {
		return can, err
	}
	can.why = bad.text()
	return can, nil
}

// verdict collects what a server does not do.
type verdict []string

func (v *verdict) add(format string, args ...any) { *v = append(*v, fmt.Sprintf(format, args...)) }

func (v *verdict) text() string {
	if len(*v) == 0 {
		return ""
	}
	return "the S3 server " + strings.Join(*v, ", and ") + ": two processes at once could take the same name, so run one only"
}

// refuses reports whether a condition is not known, rather than not met.
func refuses(err error) bool {
	switch status(err) {
	case http.StatusNotImplemented, http.StatusMethodNotAllowed:
		return true
	case http.StatusBadRequest:
		return hasCode(err, "InvalidArgument", "InvalidRequest", "BadRequest", "NotImplemented", "UnsupportedArgument")
	}
	return false
}

// tryPut makes an object twice. The second time must be refused.
func (f *FS) tryPut(ctx context.Context, key string, bad *verdict) (bool, error) {
	const what = "a condition on PutObject (If-None-Match)"
	err := f.b.putOnce(ctx, key, newToken(), &buffer{}, true)
	if refuses(err) {
		bad.add("refuses %s with HTTP %d", what, status(err))
		return false, f.b.putOnce(ctx, key, newToken(), &buffer{}, false)
	}
	if err != nil && !unmet(err) { // which an answer that was lost leads to
		return false, err
	}
	switch err := f.b.putOnce(ctx, key, newToken(), &buffer{}, true); {
	case err == nil:
		bad.add("ignores %s", what)
		return false, nil
	case unmet(err):
		return true, nil
	default:
		return false, err
	}
}

// tryComplete completes an upload of a key that there is. It must be refused.
func (f *FS) tryComplete(ctx context.Context, key string, can *abilities, bad *verdict) (bool, error) {
	const what = "a condition on CompleteMultipartUpload (If-None-Match)"
	w := newParts(ctx, f.b, key, key)
	defer w.drop() //nolint:contextcheck // it has the one it began with
	if err := w.begin(ctx); err != nil {
		return false, err
	}
	sent, err := f.b.sendPart(ctx, key, w.id, 1, &buffer{})
	if err != nil {
		return false, err
	}
	open, err := f.b.uploads(ctx, f.prefix+scratch)
	if err != nil {
		return false, err
	}
	for _, u := range open {
		can.list = can.list || u.id == w.id
	}
	if !can.list {
		bad.add("does not list multipart uploads by the beginning of their keys, so that what a dead process staged cannot be taken away")
	}
	switch _, err := f.b.complete(ctx, key, w.id, []types.CompletedPart{sent}, true); {
	case unmet(err):
		return true, nil
	case err == nil, hasCode(err, "NoSuchUpload"):
		bad.add("ignores %s", what)
		return false, nil
	case refuses(err):
		bad.add("refuses %s with HTTP %d", what, status(err))
		return false, nil
	default:
		return false, err
	}
}
