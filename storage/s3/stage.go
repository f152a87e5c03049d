package s3

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-etl/sluice/storage"
)

// A staged file is a multipart upload, whatever its size, so that publishing it uses
// something up that others can take away. Its token is the upload's id: that is all a
// listing of uploads tells, and the parts are asked for when they are needed.

// Stage starts a staged file.
func (f *FS) Stage(ctx context.Context, name string) (storage.StagedWriter, error) {
	key, err := f.key(ctx, name)
	if err != nil {
		return nil, err
	}
	w := &stagedWriter{newParts(ctx, f.b, key, name)}
	// At once, so that what forbids it is known before there is anything to write.
	if err := w.begin(ctx); err != nil {
		w.end()
		return nil, err
	}
	return w, nil
}

type stagedWriter struct{ parts }

// Write takes bytes, and sends parts that are full while it goes on.
func (w *stagedWriter) Write(p []byte) (int, error) {
	return w.write(p, func() error { return nil })
}

// Close makes all bytes durable, still hidden.
func (w *stagedWriter) Close() (storage.Staged, error) {
	if w.done {
		return storage.Staged{}, &fs.PathError{Op: "close", Path: w.name, Err: fs.ErrClosed}
	}
	w.done = true
	if err := w.finish(); err != nil {
		w.drop()
		return storage.Staged{}, err
	}
	w.end()
	return storage.Staged{Name: w.name, Token: w.id, Size: w.size}, nil
}

// Abort drops the staged file.
func (w *stagedWriter) Abort() {
	if !w.done {
		w.done = true
		w.drop()
	}
}

func (f *FS) checkStaged(ctx context.Context, s storage.Staged) (string, error) {
	key, err := f.key(ctx, s.Name)
	if err == nil && (s.Token == "" || strings.ContainsFunc(s.Token, func(r rune) bool { return r <= ' ' || r > '~' })) {
		err = fmt.Errorf("staged file %s: token %q is none of this storage", s.Name, s.Token)
	}
	return key, err
}

// Publish turns the upload into an object. The upload is looked for first: some servers
// answer a second completion of one upload with success, also where the object there
// is another one by now, and what is used up has to be told from what is published
// here. Within the process one upload is published by one call at a time.
func (f *FS) Publish(ctx context.Context, s storage.Staged) error {
	key, err := f.checkStaged(ctx, s)
	if err != nil {
		return err
	}
	can, err := f.abilities(ctx)
	if err != nil {
		return err
	}
	release, err := f.b.client.locks.take(ctx, f.b.name+"/upload/"+s.Token)
	if err != nil {
		return cancelled(ctx, "publish", key)
	}
	defer release()
	sent, size, err := f.b.listParts(ctx, key, s.Token)
	if errors.Is(err, fs.ErrNotExist) {
		return f.usedUp(ctx, s, key, false)
	}
	if err != nil {
		return err
	}
	if size != s.Size {
		return fmt.Errorf("publish %s: its upload has %d bytes, and %d were written: somebody has changed it", s.Name, size, s.Size)
	}
	if can.complete {
		return f.publish(ctx, s, key, sent, true)
	}
	return f.b.exclusively(ctx, "publish", s.Name, key, "", func(ctx context.Context) error {
		return f.publish(ctx, s, key, sent, false)
	})
}

// publish completes an upload, and finds out what a lost answer said. An upload that
// is still there has not been completed.
func (f *FS) publish(ctx context.Context, s storage.Staged, key string, sent []types.CompletedPart, conditional bool) error {
	maybe, err := f.b.complete(ctx, key, s.Token, sent, conditional)
	switch {
	case hasCode(err, "NoSuchUpload"):
	case unmet(err):
		if !maybe {
			return taken("publish", s.Name)
		}
		if _, _, gone := f.b.listParts(ctx, key, s.Token); gone == nil {
			return taken("publish", s.Name)
		} else if !errors.Is(gone, fs.ErrNotExist) {
			return gone
		}
	default:
		return err
	}
	return f.usedUp(ctx, s, key, maybe)
}

// usedUp tells what has become of an upload that is not there: nil where this call has
// published it, maybe saying that one of its tries may have. Without an object it may
// have been published and the object been taken since, or a rule of the bucket, or the
// server after a conflict, has dropped the upload.
func (f *FS) usedUp(ctx context.Context, s storage.Staged, key string, maybe bool) error {
	gone := &fs.PathError{Op: "publish", Path: s.Name, Err: fs.ErrNotExist}
	head, err := f.b.head(ctx, key)
	switch {
	case err == nil && maybe && aws.ToInt64(head.ContentLength) == s.Size:
		return nil
	case err == nil:
		return gone
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %w", storage.ErrVanished, gone)
	}
	return err
}

// listParts are the parts that an upload has, with the sum of their sizes.
func (b *bucket) listParts(ctx context.Context, key, id string) (sent []types.CompletedPart, size int64, err error) {
	var marker *string
	for {
		var out *s3.ListPartsOutput
		err := b.do(ctx, "ListParts", key, func(ctx context.Context) error {
			api, err := b.client.sdk(ctx)
			if err != nil {
				return err
			}
			out, err = api.ListParts(ctx, &s3.ListPartsInput{Bucket: &b.name, Key: &key, UploadId: &id, PartNumberMarker: marker})
			return err
		})
		if err != nil {
			return nil, 0, err
		}
		for _, p := range out.Parts {
			size += aws.ToInt64(p.Size)
			part := types.CompletedPart{ETag: p.ETag, PartNumber: p.PartNumber}
			if out.ChecksumAlgorithm == types.ChecksumAlgorithmCrc32 { // asked for when it was begun
				part.ChecksumCRC32 = p.ChecksumCRC32
			}
			sent = append(sent, part)
		}
		if !aws.ToBool(out.IsTruncated) || out.NextPartNumberMarker == nil || len(out.Parts) == 0 {
			return sent, size, nil
		}
		if aws.ToString(marker) == *out.NextPartNumberMarker {
			return nil, 0, b.stuck("ListParts")
		}
		marker = out.NextPartNumberMarker
	}
}

// Discard takes an upload away.
func (f *FS) Discard(ctx context.Context, s storage.Staged) error {
	key, err := f.checkStaged(ctx, s)
	if err != nil {
		return err
	}
	return f.b.abort(ctx, key, s.Token)
}

// Staged lists the staged files whose names are below a folder: the uploads that have
// a part. Among them are the files that are being written at this moment, or were when
// their process died; a server does not tell those apart. Uploads without a part are what
// a lost answer left.
func (f *FS) Staged(ctx context.Context, dir string) ([]storage.Staged, error) {
	prefix, err := f.folder(ctx, dir)
	if err != nil {
		return nil, err
	}
	var out []storage.Staged
	uploads, err := f.b.uploads(ctx, prefix)
	if err != nil {
		return nil, err
	}
	for _, u := range uploads {
		if name, ok := f.name(u.key); ok {
			out = append(out, storage.Staged{Name: name, Token: u.id, Size: -1})
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(f.b.client.config.Concurrency)
	for i := range out {
		g.Go(func() error {
			sent, size, err := f.b.listParts(ctx, f.prefix+out[i].Name, out[i].Token)
			if errors.Is(err, fs.ErrNotExist) || err == nil && len(sent) == 0 {
				return nil
			}
			out[i].Size = size
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	out = slices.DeleteFunc(out, func(s storage.Staged) bool { return s.Size < 0 })
	slices.SortFunc(out, func(a, b storage.Staged) int {
		return strings.Compare(a.Name+"\x00"+a.Token, b.Name+"\x00"+b.Token)
	})
	return out, nil
}

type upload struct{ key, id string }

// uploads are the multipart uploads of keys that begin with a prefix.
func (b *bucket) uploads(ctx context.Context, prefix string) (all []upload, err error) {
	in := &s3.ListMultipartUploadsInput{Bucket: &b.name, Prefix: &prefix, EncodingType: types.EncodingTypeUrl}
	for {
		var out *s3.ListMultipartUploadsOutput
		err := b.do(ctx, "ListMultipartUploads", prefix, func(ctx context.Context) error {
			api, err := b.client.sdk(ctx)
			if err != nil {
				return err
			}
			out, err = api.ListMultipartUploads(ctx, in)
			return err
		})
		if err != nil {
			return nil, err
		}
		b.saw()
		for _, u := range out.Uploads {
			key, err := decode(u.Key, out.EncodingType)
			if err != nil {
				return nil, err
			}
			if strings.HasPrefix(key, prefix) { // one that takes no prefix lists all
				all = append(all, upload{key, aws.ToString(u.UploadId)})
			}
		}
		if !aws.ToBool(out.IsTruncated) || aws.ToString(out.NextKeyMarker) == "" {
			return all, nil
		}
		next, err := decode(out.NextKeyMarker, out.EncodingType)
		if err != nil {
			return nil, err
		}
		if in.KeyMarker != nil && *in.KeyMarker == next && aws.ToString(in.UploadIdMarker) == aws.ToString(out.NextUploadIdMarker) {
			return nil, b.stuck("ListMultipartUploads")
		}
		in.KeyMarker, in.UploadIdMarker = &next, out.NextUploadIdMarker
	}
}

// stuck is the error of a list that would never end.
func (b *bucket) stuck(op string) error {
	return fmt.Errorf("s3: %s in bucket %s: the server gives the same page again and again", op, b.name)
}
