// Package s3 keeps files as objects of Amazon S3, and of servers that speak its
// protocol. A name is given away by conditional writes (If-None-Match: *), a staged
// file is a multipart upload that is not completed yet, and what an answer that was
// lost had said is found out by looking at the object.
package s3

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/sluice-etl/sluice/storage"
)

func init() {
	storage.Register("s3", func(u *url.URL) (storage.FS, error) { return open(u, clientFor) })
	storage.RegisterSettings("s3", storage.Settings{Known: known(), Apply: apply})
}

// FS is the objects of one bucket whose keys begin with a prefix.
type FS struct {
	b      *bucket
	prefix string // empty, or with a slash at its end
}

var _ storage.Prober = (*FS)(nil)

// New is the file system of an address with a configuration of its own, beside the
// program's settings. It does no I/O.
func New(address string, cfg Config) (*FS, error) {
	u, err := storage.Parse(address)
	if err != nil {
		return nil, err
	}
	return open(u, func(string) *client { return shared(cfg) })
}

func open(u *url.URL, by func(bucket string) *client) (*FS, error) {
	if u.Host == "" || u.Port() != "" {
		return nil, fmt.Errorf("storage address s3://%s%s: write s3://bucket/prefix; the server stands in storage.s3.endpoint or AWS_ENDPOINT_URL_S3", u.Host, u.Path)
	}
	if err := checkBucket(u.Host); err != nil {
		return nil, fmt.Errorf("storage address %s: %w", u, err)
	}
	prefix := strings.Trim(u.Path, "/")
	if err := storage.CheckDir(prefix); err != nil {
		return nil, fmt.Errorf("storage address %s: %w", u, err)
	}
	if prefix != "" {
		prefix += "/"
	}
	return &FS{b: by(u.Host).bucket(u.Host), prefix: prefix}, nil
}

// URL is the address of the root.
func (f *FS) URL() string {
	u := url.URL{Scheme: "s3", Host: f.b.name}
	if f.prefix != "" {
		u.Path = "/" + strings.TrimSuffix(f.prefix, "/")
	}
	return u.String()
}

// key is where a name is kept.
func (f *FS) key(ctx context.Context, name string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if err := storage.CheckName(name); err != nil {
		return "", err
	}
	if key := f.prefix + name; len(key) <= maxKey {
		return key, nil
	}
	return "", fmt.Errorf("storage name %.40q… is too long: with its prefix it may have %d bytes", name, maxKey)
}

const maxKey = 1024

// folder is what the keys in a folder begin with.
func (f *FS) folder(ctx context.Context, dir string) (string, error) {
	if dir == "" {
		return f.prefix, ctx.Err()
	}
	key, err := f.key(ctx, dir)
	return key + "/", err
}

// name is the reverse of key. Keys that no file here can have, such as the markers of
// folders that other programs make, are left out.
func (f *FS) name(key string) (string, bool) {
	name, ok := strings.CutPrefix(key, f.prefix)
	return name, ok && storage.CheckName(name) == nil
}

// Stat describes a file.
func (f *FS) Stat(ctx context.Context, name string) (storage.Info, error) {
	key, err := f.key(ctx, name)
	if err != nil {
		return storage.Info{}, err
	}
	head, err := f.b.head(ctx, key)
	if err != nil {
		return storage.Info{}, err
	}
	return storage.Info{Name: name, Size: aws.ToInt64(head.ContentLength), Modified: aws.ToTime(head.LastModified)}, nil
}

// head describes an object. The answer to HEAD has no body, so that a missing bucket
// looks like a missing object, and what else is wrong is not said: another request
// finds that out.
func (b *bucket) head(ctx context.Context, key string) (out *s3.HeadObjectOutput, err error) {
	err = b.do(ctx, "HeadObject", key, func(ctx context.Context) error {
		api, err := b.client.sdk(ctx)
		if err != nil {
			return err
		}
		out, err = api.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &b.name, Key: &key})
		return err
	})
	switch at := status(err); {
	case err == nil:
		b.saw()
	case at == http.StatusNotFound && !b.known():
		if bucketErr := b.exists(ctx); bucketErr != nil {
			return nil, bucketErr
		}
		b.saw()
	case at == http.StatusForbidden, at == http.StatusBadRequest, at == http.StatusMovedPermanently:
		if why := b.why(ctx, key); why != nil {
			return nil, why
		}
	}
	return out, err
}

// exists reports whether there is the bucket: an error says that it is not, or that
// it could not be found out. A list's refusal has words, unlike that of HeadBucket.
func (b *bucket) exists(ctx context.Context) error {
	return b.do(ctx, "ListObjectsV2", "", func(ctx context.Context) error {
		api, err := b.client.sdk(ctx)
		if err != nil {
			return err
		}
		_, err = api.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &b.name, MaxKeys: aws.Int32(1)})
		return err
	})
}

// why asks for an object in a way whose refusal has words.
func (b *bucket) why(ctx context.Context, key string) error {
	return b.do(ctx, "GetObject", key, func(ctx context.Context) error {
		api, err := b.client.sdk(ctx)
		if err != nil {
			return err
		}
		out, err := api.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.name, Key: &key, Range: aws.String("bytes=0-0")})
		if err == nil {
			_ = out.Body.Close()
		}
		return err
	})
}

func (b *bucket) saw() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = true
}

func (b *bucket) known() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seen
}

// newToken names one writer, for good.
func newToken() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
