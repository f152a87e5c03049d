package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/colinmarc/hdfs/v2"
	"github.com/parquet-go/parquet-go"
)

const (
	fileSize   = 128 << 20 // of a file or object, as the sinks' roll.size
	fileBuffer = 256 << 10
	partSize   = 8 << 20
	// replicating is how long a file is left to be replicated before it is closed again.
	replicating = 10 * time.Millisecond
	// rowGroup is about as many rows as the sink has in a row group.
	rowGroup = 300_000
)

// syncer is a file in the making.
type syncer interface {
	io.Writer
	// sync makes what is written durable.
	sync() error
	// publish makes it visible, whole.
	publish() error
}

// lines writes records as lines of files, durable at each interval, visible when a file is full.
func (l *sinkLoop) lines(create func(n int) (syncer, error)) error {
	n, size := 0, 0
	var file syncer
	var buf *bufio.Writer
	return l.eachInterval(func(from int64, more func(int64) bool) error {
		last := from
		for i := from; more(i); i++ {
			if file == nil {
				var err error
				if file, err = create(n); err != nil {
					return err
				}
				buf, size = bufio.NewWriterSize(file, fileBuffer), 0
				n++
			}
			value, err := l.value(i)
			if err != nil {
				return err
			}
			_, _ = buf.Write(value) // errors stay for Flush
			_ = buf.WriteByte('\n')
			if size += len(value) + 1; size >= fileSize {
				if err := finish(buf, file); err != nil {
					return err
				}
				file = nil
			}
			last = i + 1
		}
		switch {
		case file == nil:
			return nil
		case last == l.count:
			return finish(buf, file)
		}
		if err := buf.Flush(); err != nil {
			return err
		}
		return file.sync()
	})
}

func finish(buf *bufio.Writer, file syncer) error {
	if err := buf.Flush(); err != nil {
		return err
	}
	return file.publish()
}

// localFile is a hidden file that is renamed when it is complete.
type localFile struct {
	*os.File
	name string
}

func (f *localFile) sync() error { return f.Sync() }

func (f *localFile) publish() error {
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), f.name)
}

func bareFile(_ context.Context, l *sinkLoop) error {
	return l.lines(func(n int) (syncer, error) {
		name := filepath.Join(l.dir, fmt.Sprintf("part-%d.jsonl", n))
		f, err := os.Create(filepath.Join(l.dir, fmt.Sprintf(".part-%d", n)))
		return &localFile{f, name}, err
	})
}

// hdfsFile is the same on HDFS.
type hdfsFile struct {
	*hdfs.FileWriter
	client       *hdfs.Client
	hidden, name string
}

func (f *hdfsFile) sync() error { return f.Flush() }

func (f *hdfsFile) publish() error {
	err := f.Close()
	for hdfs.IsErrReplicating(err) { // the library asks for another call
		<-time.After(replicating)
		err = f.Close()
	}
	if err != nil {
		return err
	}
	return f.client.Rename(f.hidden, f.name)
}

func hdfsClient() (*hdfs.Client, error) {
	return hdfs.NewClient(hdfs.ClientOptions{
		Addresses: []string{strings.TrimPrefix(os.Getenv("HDFS_URL"), "hdfs://")}, User: os.Getenv("HADOOP_USER_NAME"),
	})
}

func folderOf(run string) string { return "/bench-" + run }

func placeFolder(_ context.Context, _ options, run string, _ int64) (func(context.Context) error, error) {
	client, err := hdfsClient()
	if err != nil {
		return nil, err
	}
	if err := client.MkdirAll(folderOf(run), 0o755); err != nil {
		return nil, err
	}
	return func(context.Context) error {
		if err := client.RemoveAll(folderOf(run)); err != nil {
			return err
		}
		return client.Close()
	}, nil
}

func bareHDFS(_ context.Context, l *sinkLoop) error {
	client, err := hdfsClient()
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	return l.lines(func(n int) (syncer, error) {
		f := &hdfsFile{client: client, hidden: path.Join(folderOf(l.run), fmt.Sprintf(".part-%d", n)), name: path.Join(folderOf(l.run), fmt.Sprintf("part-%d", n))}
		f.FileWriter, err = client.Create(f.hidden)
		return f, err
	})
}

// upload is an object in the making, in parts.
type upload struct {
	ctx    context.Context //nolint:containedctx // of the run, for io.Writer takes none
	client *s3.Client
	target s3.UploadPartInput // bucket, key and id
	parts  []types.CompletedPart
	part   []byte
}

func s3Client(ctx context.Context) (*s3.Client, error) {
	c, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, err
	}
	return s3.NewFromConfig(c, func(o *s3.Options) { o.UsePathStyle = o.BaseEndpoint != nil }), nil
}

func newUpload(ctx context.Context, client *s3.Client, key string) (*upload, error) {
	bucket := aws.String(os.Getenv("S3_BUCKET"))
	made, err := client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: bucket, Key: &key, ChecksumAlgorithm: types.ChecksumAlgorithmCrc32})
	if err != nil {
		return nil, err
	}
	return &upload{ctx: ctx, client: client, target: s3.UploadPartInput{Bucket: bucket, Key: &key, UploadId: made.UploadId}}, nil
}

func (u *upload) Write(b []byte) (int, error) {
	u.part = append(u.part, b...)
	if len(u.part) < partSize {
		return len(b), nil
	}
	return len(b), u.send()
}

func (u *upload) send() error {
	in := u.target
	in.PartNumber, in.Body = aws.Int32(int32(len(u.parts)+1)), bytes.NewReader(u.part)
	sent, err := u.client.UploadPart(u.ctx, &in)
	if err != nil {
		return err
	}
	u.parts = append(u.parts, types.CompletedPart{ETag: sent.ETag, PartNumber: in.PartNumber, ChecksumCRC32: sent.ChecksumCRC32})
	u.part = u.part[:0]
	return nil
}

// sync does nothing: what is no whole part is in memory only, unlike the sink's.
func (u *upload) sync() error { return nil }

func (u *upload) publish() error {
	if err := u.send(); err != nil {
		return err
	}
	_, err := u.client.CompleteMultipartUpload(u.ctx, &s3.CompleteMultipartUploadInput{
		Bucket: u.target.Bucket, Key: u.target.Key, UploadId: u.target.UploadId, MultipartUpload: &types.CompletedMultipartUpload{Parts: u.parts},
	})
	return err
}

func prefixOf(run string) string { return "bench-" + run + "/" }

func placeObjects(ctx context.Context, _ options, run string, _ int64) (func(context.Context) error, error) {
	client, err := s3Client(ctx)
	if err != nil {
		return nil, err
	}
	bucket := aws.String(os.Getenv("S3_BUCKET"))
	return func(ctx context.Context) error {
		pages := s3.NewListObjectsV2Paginator(client, &s3.ListObjectsV2Input{Bucket: bucket, Prefix: aws.String(prefixOf(run))})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return err
			}
			for _, o := range page.Contents {
				if _, err := client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: bucket, Key: o.Key}); err != nil {
					return err
				}
			}
		}
		return nil
	}, nil
}

func bareS3(ctx context.Context, l *sinkLoop) error {
	client, err := s3Client(ctx)
	if err != nil {
		return err
	}
	return l.lines(func(n int) (syncer, error) {
		return newUpload(ctx, client, fmt.Sprintf("%spart-%d.jsonl", prefixOf(l.run), n))
	})
}

// bareS3Parquet writes one object, with snappy and row groups like the sink's.
func bareS3Parquet(ctx context.Context, l *sinkLoop) error {
	client, err := s3Client(ctx)
	if err != nil {
		return err
	}
	u, err := newUpload(ctx, client, prefixOf(l.run)+"part-0.parquet")
	if err != nil {
		return err
	}
	w := parquet.NewGenericWriter[bid](u, parquet.Compression(&parquet.Snappy), parquet.MaxRowsPerRowGroup(rowGroup))
	rows := make([]bid, 0, 1024)
	err = l.batches(int64(cap(rows)), func(from, to int64) error {
		rows = rows[:0]
		for i := from; i < to; i++ {
			rows = append(rows, *l.bid(i))
		}
		_, err := w.Write(rows)
		return err
	})
	if err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return u.publish()
}
