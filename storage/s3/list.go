package s3

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-etl/sluice/storage"
)

// deleteBatch is how many keys one request removes at most.
const deleteBatch = 1000

// refusalsShown is how many refused keys of a request an error names.
const refusalsShown = 10

// List describes the files below a folder.
func (f *FS) List(ctx context.Context, dir string) ([]storage.Info, error) {
	return f.list(ctx, dir, "")
}

// Files describes the files directly in a folder.
func (f *FS) Files(ctx context.Context, dir string) ([]storage.Info, error) {
	return f.list(ctx, dir, "/")
}

func (f *FS) list(ctx context.Context, dir, delimiter string) ([]storage.Info, error) {
	prefix, err := f.folder(ctx, dir)
	if err != nil {
		return nil, err
	}
	var out []storage.Info
	err = f.b.pages(ctx, prefix, delimiter, func(key string, o types.Object) {
		if name, ok := f.name(key); ok {
			out = append(out, storage.Info{Name: name, Size: aws.ToInt64(o.Size), Modified: aws.ToTime(o.LastModified)})
		}
	}, nil)
	slices.SortFunc(out, func(a, b storage.Info) int { return strings.Compare(a.Name, b.Name) })
	return out, err
}

// Dirs names the folders directly in a folder: those that hold a file.
func (f *FS) Dirs(ctx context.Context, dir string) ([]string, error) {
	prefix, err := f.folder(ctx, dir)
	if err != nil {
		return nil, err
	}
	var out []string
	err = f.b.pages(ctx, prefix, "/", nil, func(common string) {
		if name := strings.TrimSuffix(strings.TrimPrefix(common, prefix), "/"); storage.CheckName(name) == nil {
			out = append(out, name)
		}
	})
	slices.Sort(out)
	return slices.Compact(out), err
}

// pages calls one for every key that begins with a prefix, and common for every
// prefix of keys up to the next delimiter.
func (b *bucket) pages(ctx context.Context, prefix, delimiter string, one func(key string, o types.Object), common func(prefix string)) error {
	in := &s3.ListObjectsV2Input{Bucket: &b.name, Prefix: &prefix, EncodingType: types.EncodingTypeUrl}
	if delimiter != "" {
		in.Delimiter = &delimiter
	}
	for {
		var out *s3.ListObjectsV2Output
		err := b.do(ctx, "ListObjectsV2", prefix, func(ctx context.Context) error {
			api, err := b.client.sdk(ctx)
			if err != nil {
				return err
			}
			out, err = api.ListObjectsV2(ctx, in)
			return err
		})
		if err != nil {
			return err
		}
		b.saw()
		for _, o := range out.Contents {
			key, err := decode(o.Key, out.EncodingType)
			if err != nil {
				return err
			}
			if one != nil {
				one(key, o)
			}
		}
		for _, p := range out.CommonPrefixes {
			dir, err := decode(p.Prefix, out.EncodingType)
			if err != nil {
				return err
			}
			if common != nil {
				common(dir)
			}
		}
		if !aws.ToBool(out.IsTruncated) || aws.ToString(out.NextContinuationToken) == "" {
			return nil
		}
		if aws.ToString(in.ContinuationToken) == *out.NextContinuationToken {
			return b.stuck("ListObjectsV2")
		}
		in.ContinuationToken = out.NextContinuationToken
	}
}

// decode gives back a key that the server has encoded, since XML cannot hold all of them.
func decode(s *string, encoding types.EncodingType) (string, error) {
	if encoding != types.EncodingTypeUrl {
		return aws.ToString(s), nil
	}
	key, err := url.QueryUnescape(aws.ToString(s))
	if err != nil {
		return "", fmt.Errorf("s3: the server lists a key that cannot be read, %q: %w", aws.ToString(s), err)
	}
	return key, nil
}

// Remove removes files.
func (f *FS) Remove(ctx context.Context, names ...string) error {
	keys := make([]string, len(names))
	for i, name := range names {
		key, err := f.key(ctx, name)
		if err != nil {
			return err
		}
		keys[i] = key
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return f.b.remove(ctx, keys)
}

// RemoveAll removes a folder with all that is in it, staged files too.
func (f *FS) RemoveAll(ctx context.Context, dir string) error {
	key, err := f.key(ctx, dir)
	if err != nil {
		return err
	}
	var keys []string
	if err := f.b.pages(ctx, key+"/", "", func(key string, _ types.Object) { keys = append(keys, key) }, nil); err != nil {
		return err
	}
	if err := f.b.remove(ctx, keys); err != nil {
		return err
	}
	uploads, err := f.b.uploads(ctx, key+"/")
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(f.b.client.config.Concurrency)
	for _, u := range uploads {
		g.Go(func() error { return f.b.abort(ctx, u.key, u.id) })
	}
	return g.Wait()
}

// remove removes objects, many at once.
func (b *bucket) remove(ctx context.Context, keys []string) error {
	if len(keys) == 1 {
		return b.removeOne(ctx, keys[0])
	}
	var errs []error
	for batch := range slices.Chunk(keys, deleteBatch) {
		err := b.removeBatch(ctx, batch)
		if status(err) == http.StatusNotImplemented || hasCode(err, "MethodNotAllowed") {
			err = b.removeEach(ctx, batch)
		}
		if ctx.Err() != nil {
			return err
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (b *bucket) removeOne(ctx context.Context, key string) error {
	err := b.do(ctx, "DeleteObject", key, func(ctx context.Context) error {
		api, err := b.client.sdk(ctx)
		if err != nil {
			return err
		}
		_, err = api.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &b.name, Key: &key})
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// removeEach is for servers that remove only one object a request.
func (b *bucket) removeEach(ctx context.Context, keys []string) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(b.client.config.Concurrency)
	for _, key := range keys {
		g.Go(func() error { return b.removeOne(ctx, key) })
	}
	return g.Wait()
}

// removeBatch removes up to deleteBatch objects. Keys that the server refuses for now
// are asked for again; the others' refusals are returned.
func (b *bucket) removeBatch(ctx context.Context, keys []string) error {
	var refused []error
	err := b.do(ctx, "DeleteObjects", "", func(ctx context.Context) error {
		api, err := b.client.sdk(ctx)
		if err != nil {
			return err
		}
		in := &s3.DeleteObjectsInput{Bucket: &b.name, Delete: &types.Delete{Quiet: aws.Bool(true)}}
		for _, key := range keys {
			in.Delete.Objects = append(in.Delete.Objects, types.ObjectIdentifier{Key: &key})
		}
		// Older servers know no other checksum than MD5.
		out, err := api.DeleteObjects(ctx, in, s3.WithAPIOptions(smithyhttp.AddContentChecksumMiddleware))
		if err != nil {
			return err
		}
		var again []string
		var last error
		for _, e := range out.Errors {
			one := &Error{Bucket: b.name, Key: aws.ToString(e.Key), Op: "DeleteObjects", Code: aws.ToString(e.Code), cause: errors.New(aws.ToString(e.Message))}
			one.judgeOne()
			switch {
			case one.missing():
			case one.kind == transient:
				again, last = append(again, one.Key), one
			default:
				refused = append(refused, one)
			}
		}
		if keys = again; len(again) > 0 {
			return last
		}
		return nil
	})
	if more := len(refused) - refusalsShown; more > 0 {
		refused = append(refused[:refusalsShown], fmt.Errorf("s3: DeleteObjects in bucket %s: and %d more keys were refused", b.name, more))
	}
	return errors.Join(append(refused, err)...)
}

// judgeOne decides about one key of a request for many, which has no status.
func (e *Error) judgeOne() {
	e.judge()
	if slices.Contains(slowCodes, e.Code) {
		e.kind, e.slow = transient, true
	}
}
