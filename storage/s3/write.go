package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/sluice-etl/sluice/storage"
)

// writerKey is the metadata that says which writer made an object. By it a writer
// whose answer was lost knows its own object.
const writerKey = "sluice-writer"

// Claim makes an empty file if there is none.
func (f *FS) Claim(ctx context.Context, name string) error {
	key, err := f.key(ctx, name)
	if err != nil {
		return err
	}
	can, err := f.abilities(ctx)
	if err != nil {
		return err
	}
	return f.b.put(ctx, "claim", name, key, newToken(), &buffer{}, can)
}

// put makes an object if there is none of its key.
func (b *bucket) put(ctx context.Context, op, name, key, token string, data *buffer, can abilities) error {
	if !can.put {
		return b.exclusively(ctx, op, name, key, token, func(ctx context.Context) error {
			return b.putOnce(ctx, key, token, data, false)
		})
	}
	err := b.putOnce(ctx, key, token, data, true)
	if unmet(err) {
		return b.mine(ctx, op, name, key, token)
	}
	return err
}

// mine tells a name that this writer has taken itself, by a try whose answer was
// lost, from one that another has.
func (b *bucket) mine(ctx context.Context, op, name, key, token string) error {
	head, err := b.head(ctx, key)
	switch {
	case err == nil && head.Metadata[writerKey] == token:
		return nil
	case err == nil, errors.Is(err, fs.ErrNotExist): // it was there a moment ago
		return taken(op, name)
	}
	return err
}

// exclusively writes to a server that takes no condition: it looks first, and looks
// afterwards who has won. Within the process that is exact; between processes it is
// not, which Probe says.
func (b *bucket) exclusively(ctx context.Context, op, name, key, token string, write func(ctx context.Context) error) error {
	release, err := b.client.locks.take(ctx, b.name+"/"+key)
	if err != nil {
		return cancelled(ctx, op, key)
	}
	defer release()
	switch _, err := b.head(ctx, key); {
	case err == nil:
		return taken(op, name)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := write(ctx); err != nil {
		return err
	}
	if token == "" {
		return nil
	}
	return b.mine(ctx, op, name, key, token)
}

func (b *bucket) putOnce(ctx context.Context, key, token string, data *buffer, conditional bool) error {
	return b.do(ctx, "PutObject", key, func(ctx context.Context) error {
		api, err := b.client.sdk(ctx)
		if err != nil {
			return err
		}
		in := &s3.PutObjectInput{
			Bucket: &b.name, Key: &key, Body: data.reader(), ContentLength: &data.size, Metadata: map[string]string{writerKey: token},
		}
		in.ServerSideEncryption, in.SSEKMSKeyId = b.client.config.encryption()
		if conditional {
			in.IfNoneMatch = aws.String("*")
		}
		_, err = api.PutObject(ctx, in)
		return err
	})
}

// encryption is what the server is asked for.
func (c *Config) encryption() (types.ServerSideEncryption, *string) {
	switch c.SSE {
	case "sse-s3":
		return types.ServerSideEncryptionAes256, nil
	case "sse-kms":
		if c.KMSKeyID != "" {
			return types.ServerSideEncryptionAwsKms, &c.KMSKeyID
		}
		return types.ServerSideEncryptionAwsKms, nil
	}
	return "", nil
}

// checksummed reports whether all bytes are sent with the SDK's checksums.
func (c *Config) checksummed() bool { return c.Checksums == "when_supported" }

// Create starts a file.
func (f *FS) Create(ctx context.Context, name string) (storage.Writer, error) {
	key, err := f.key(ctx, name)
	if err != nil {
		return nil, err
	}
	return &writer{parts: newParts(ctx, f.b, key, name), fs: f}, nil
}

// writer writes one file: in one request if it fits into a part, else as an upload of
// parts that is begun with the second one.
type writer struct {
	parts
	fs *FS
}

// Write takes bytes, and sends parts that are full while it goes on.
func (w *writer) Write(p []byte) (n int, err error) {
	return w.write(p, func() error { return w.begin(w.ctx) })
}

// Close makes the file visible.
func (w *writer) Close() error {
	if w.done {
		return &fs.PathError{Op: "close", Path: w.name, Err: fs.ErrClosed}
	}
	w.done = true
	can, err := w.fs.abilities(w.ctx)
	switch {
	case err != nil:
	case w.id == "":
		err = w.b.put(w.ctx, "create", w.name, w.key, w.token, &w.filling, can)
	default:
		if err = w.finish(); err == nil {
			err = w.complete(can)
		}
	}
	if err != nil {
		w.drop()
		return err
	}
	w.end()
	return nil
}

// complete turns the upload into the object.
func (w *writer) complete(can abilities) error {
	if !can.complete {
		return w.b.exclusively(w.ctx, "create", w.name, w.key, w.token, func(ctx context.Context) error {
			_, err := w.b.complete(ctx, w.key, w.id, w.completed(), false)
			return err
		})
	}
	_, err := w.b.complete(w.ctx, w.key, w.id, w.completed(), true)
	if unmet(err) {
		return w.b.mine(w.ctx, "create", w.name, w.key, w.token)
	}
	if hasCode(err, "NoSuchUpload") { // by an earlier try, or somebody took the upload away
		if mine := w.b.mine(w.ctx, "create", w.name, w.key, w.token); mine == nil {
			return nil
		}
		return fmt.Errorf("create %s: its upload is not there any more: somebody has removed it", w.name)
	}
	return err
}

// Abort drops the file.
func (w *writer) Abort() {
	if !w.done {
		w.done = true
		w.drop()
	}
}

var _ io.Writer = (*writer)(nil)
