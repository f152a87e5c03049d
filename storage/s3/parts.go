package s3

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

const (
	maxParts = 10000
	// assembling is how long a server may need to make an object of its parts without a
	// word; Amazon's sends blanks meanwhile.
	assembling = 10 * time.Minute
	// dropTimeout bounds the removal of what is given up, lateTimeout that of a caller
	// whose context has ended.
	dropTimeout = 10 * time.Second
	lateTimeout = time.Second
)

// dropContext is what the removal of something given up runs under.
func dropContext(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := dropTimeout
	if ctx.Err() != nil {
		limit = lateTimeout
	}
	return context.WithTimeout(context.WithoutCancel(ctx), limit)
}

// parts sends the bytes of one file in parts of one size, which some servers insist
// on. One part is being filled; those that are full are sent beside it, as many at
// once as the process may, after which writing waits.
type parts struct {
	b     *bucket
	ctx   context.Context //nolint:containedctx // a writer lives within the call that made it
	key   string
	name  string
	token string // of this writer
	id    string // of the upload; empty before it is begun
	done  bool   // closed or aborted

	filling buffer
	size    int64
	number  int32 // of the last part that was sent off
	sending sync.WaitGroup
	stop    context.CancelFunc

	mu   sync.Mutex
	sent []types.CompletedPart
	err  error
}

func (w *parts) write(p []byte, begin func() error) (n int, err error) {
	if w.done {
		return 0, &fs.PathError{Op: "write", Path: w.name, Err: fs.ErrClosed}
	}
	limit := w.b.client.config.PartSize
	for len(p) > 0 {
		if err := w.failed(); err != nil {
			return n, err
		}
		if w.filling.size == limit {
			if err := begin(); err != nil {
				return n, err
			}
			if err := w.send(); err != nil {
				return n, err
			}
		}
		m := w.filling.write(p, limit)
		n, p = n+m, p[m:]
		w.size += int64(m)
	}
	return n, nil
}

func newParts(ctx context.Context, b *bucket, key, name string) parts {
	ctx, stop := context.WithCancel(ctx)
	return parts{b: b, ctx: ctx, stop: stop, key: key, name: name, token: newToken()}
}

// failed is the first error of a part, or the end of the context.
func (w *parts) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	return w.ctx.Err()
}

// begin starts the upload, once. Where its answer is lost another one is started; the
// first one stays behind without a part.
func (w *parts) begin(ctx context.Context) error {
	if w.id != "" {
		return nil
	}
	return w.b.do(ctx, "CreateMultipartUpload", w.key, func(ctx context.Context) error {
		api, err := w.b.client.sdk(ctx)
		if err != nil {
			return err
		}
		in := &s3.CreateMultipartUploadInput{Bucket: &w.b.name, Key: &w.key, Metadata: map[string]string{writerKey: w.token}}
		in.ServerSideEncryption, in.SSEKMSKeyId = w.b.client.config.encryption()
		if w.b.client.config.checksummed() {
			in.ChecksumAlgorithm = types.ChecksumAlgorithmCrc32
		}
		out, err := api.CreateMultipartUpload(ctx, in)
		if err == nil && aws.ToString(out.UploadId) == "" {
			err = errors.New("the answer names no upload")
		}
		if err == nil {
			w.id = *out.UploadId
		}
		return err
	})
}

// send sends the part that was being filled.
func (w *parts) send() error {
	if w.number == maxParts {
		return fmt.Errorf("write %s: it is larger than %d parts of %d bytes: raise storage.s3.part_size", w.name, maxParts, w.b.client.config.PartSize)
	}
	if err := w.b.client.slots.Acquire(w.ctx, 1); err != nil {
		return w.failed()
	}
	w.number++
	number, part := w.number, w.filling
	w.filling = buffer{}
	w.sending.Go(func() {
		defer w.b.client.slots.Release(1)
		defer part.free()
		sent, err := w.b.sendPart(w.ctx, w.key, w.id, number, &part)
		w.mu.Lock()
		defer w.mu.Unlock()
		if err == nil {
			w.sent = append(w.sent, sent)
		} else if w.err == nil {
			w.err = err
			w.stop()
		}
	})
	return nil
}

func (b *bucket) sendPart(ctx context.Context, key, id string, number int32, part *buffer) (sent types.CompletedPart, err error) {
	err = b.do(ctx, "UploadPart", key, func(ctx context.Context) error {
		api, err := b.client.sdk(ctx)
		if err != nil {
			return err
		}
		out, err := api.UploadPart(ctx, &s3.UploadPartInput{
			Bucket: &b.name, Key: &key, UploadId: &id, PartNumber: &number, Body: part.reader(), ContentLength: &part.size,
		})
		if err == nil {
			sent = types.CompletedPart{ETag: out.ETag, PartNumber: &number}
			if b.client.config.checksummed() { // what was asked for at the beginning has to be given at the end, and nothing else
				sent.ChecksumCRC32 = out.ChecksumCRC32
			}
		}
		return err
	})
	return sent, err
}

// finish sends what is left and waits for all parts. An upload has at least one, if
// an empty one.
func (w *parts) finish() error {
	err := w.failed()
	if err == nil && (w.filling.size > 0 || w.number == 0) {
		err = w.send()
	}
	w.sending.Wait()
	if err == nil {
		err = w.failed()
	}
	return err
}

func (w *parts) completed() []types.CompletedPart {
	slices.SortFunc(w.sent, func(x, y types.CompletedPart) int { return int(*x.PartNumber - *y.PartNumber) })
	return w.sent
}

// end lets go of what the writer holds in this process.
func (w *parts) end() {
	w.stop()
	w.sending.Wait()
	w.filling.free()
}

// drop gives the file up, and takes its upload away.
func (w *parts) drop() {
	ctx, cancel := dropContext(w.ctx)
	defer cancel()
	w.end()
	if w.id == "" {
		return
	}
	_ = w.b.abort(ctx, w.key, w.id) // what stays behind is hidden, and removed with its folder
}

// abort takes an upload away; one that is not there is no error.
func (b *bucket) abort(ctx context.Context, key, id string) error {
	err := b.do(ctx, "AbortMultipartUpload", key, func(ctx context.Context) error {
		api, err := b.client.sdk(ctx)
		if err != nil {
			return err
		}
		_, err = api.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &b.name, Key: &key, UploadId: &id})
		return err
	})
	if hasCode(err, "NoSuchUpload") {
		return nil
	}
	return err
}

// complete makes an object of an upload. maybe says that a try may have done so whose
// answer was lost.
func (b *bucket) complete(ctx context.Context, key, id string, sent []types.CompletedPart, conditional bool) (maybe bool, err error) {
	ctx = withPatience(ctx, max(assembling, b.client.config.RequestTimeout))
	err = b.do(ctx, "CompleteMultipartUpload", key, func(ctx context.Context) error {
		api, err := b.client.sdk(ctx)
		if err != nil {
			return err
		}
		in := &s3.CompleteMultipartUploadInput{
			Bucket: &b.name, Key: &key, UploadId: &id, MultipartUpload: &types.CompletedMultipartUpload{Parts: sent},
		}
		if conditional {
			in.IfNoneMatch = aws.String("*")
		}
		_, err = api.CompleteMultipartUpload(ctx, in)
		if err != nil {
			e := classify(b.name, "CompleteMultipartUpload", key, err)
			maybe = maybe || e.unknown
			err = e
		}
		return err
	})
	return maybe, err
}
