package s3_test

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/sluice-etl/sluice/storage"
	"github.com/sluice-etl/sluice/storage/s3"
	"github.com/sluice-etl/sluice/storage/s3/s3test"
	"github.com/sluice-etl/sluice/storage/storagetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// small is a configuration whose parts are as small as S3 takes them, so that larger
// files are written in several.
func small() s3.Config {
	c := s3.NewConfig()
	c.PartSize = 5 << 20
	return c
}

func TestS3KeepsTheContract(t *testing.T) {
	for name, cfg := range map[string]func(*s3.Config){
		"with defaults":                          func(*s3.Config) {},
		"with all checksums, one part at a time": func(c *s3.Config) { c.Checksums, c.Concurrency = "when_supported", 1 },
	} {
		t.Run(name, func(t *testing.T) {
			storagetest.Run(t, func(t *testing.T) storage.FS {
				c := small()
				cfg(&c)
				return s3test.New(s3test.Behaviour{}).Open(t, "s3://bucket/some/prefix", c)
			})
		})
	}
}

func TestTheWholeBucketCanBeTheRoot(t *testing.T) {
	server := s3test.New(s3test.Behaviour{PageSize: 1})
	f := server.Open(t, "s3://bucket", small())
	write(t, f, "a/x", []byte("data"))
	write(t, f, "b", []byte("data"))
	infos, err := f.List(t.Context(), "")
	must(t, err)
	dirs, err := f.Dirs(t.Context(), "")
	must(t, err)
	if len(infos) != 2 || infos[0].Name != "a/x" || !slices.Equal(dirs, []string{"a"}) || f.URL() != "s3://bucket" {
		t.Fatalf("%s holds %v and the folders %q", f.URL(), infos, dirs)
	}
}

func TestWhatTheServerCanDoIsFoundOut(t *testing.T) {
	for _, c := range []struct {
		server s3test.Behaviour
		says   []string // empty: all is well
	}{
		{s3test.Behaviour{}, nil},
		{s3test.Behaviour{PutCondition: s3test.Ignored}, []string{"ignores a condition on PutObject"}},
		{s3test.Behaviour{PutCondition: s3test.Refused}, []string{"refuses a condition on PutObject", "501"}},
		{s3test.Behaviour{CompleteCondition: s3test.Ignored}, []string{"ignores a condition on CompleteMultipartUpload"}},
		{s3test.Behaviour{CompleteCondition: s3test.Refused}, []string{"refuses a condition on CompleteMultipartUpload"}},
		{s3test.Behaviour{ExactUploads: true}, []string{"does not list multipart uploads by the beginning"}},
		{s3test.Behaviour{PutCondition: s3test.Ignored, CompleteCondition: s3test.Refused}, []string{"PutObject", ", and refuses", "run one only"}},
	} {
		for _, faults := range []float64{0, 0.2} {
			t.Run(fmt.Sprintf("%q, faults %v", c.says, faults), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					server, f := open(t, c.server)
					server.Set(s3test.Faults(faults)...)
					can, err := storage.Probe(t.Context(), f)
					must(t, err)
					if can.Exclusive != (c.says == nil) {
						t.Fatalf("found %+v", can)
					}
					for _, want := range c.says {
						if !strings.Contains(can.Reason, want) {
							t.Fatalf("the reason is %q, want one that says %q", can.Reason, want)
						}
					}
					if keys := server.Keys("bucket"); len(keys) != 0 {
						t.Fatalf("the probe has left %q", keys)
					}
					wantOneOf(t, f)
				})
			})
		}
	}
}

// wantOneOf wants names to be given away once, one caller after another.
func wantOneOf(t *testing.T, f storage.FS) {
	t.Helper()
	must(t, f.Claim(t.Context(), "claim"))
	wantIs(t, f.Claim(t.Context(), "claim"), fs.ErrExist)
	write(t, f, "file", []byte("one"))
	wantIs(t, storage.WriteFile(t.Context(), f, "file", pattern(5<<20+1)), fs.ErrExist)
	wantIs(t, storage.WriteFile(t.Context(), f, "claim", []byte("x")), fs.ErrExist)
	one, two := stage(t, f, "rows", []byte("one")), stage(t, f, "rows", []byte("two"))
	must(t, f.Publish(t.Context(), one))
	wantIs(t, f.Publish(t.Context(), one), fs.ErrNotExist)
	wantIs(t, f.Publish(t.Context(), two), fs.ErrExist)
	wantData(t, f, "rows", []byte("one"))
}

func TestWhatAPersonMustMendIsSaidAndNotTriedAgain(t *testing.T) {
	calls := map[string]func(t *testing.T, f storage.FS) error{
		"claim":   func(t *testing.T, f storage.FS) error { return f.Claim(t.Context(), "x") },
		"stat":    func(t *testing.T, f storage.FS) error { _, err := f.Stat(t.Context(), "x"); return err },
		"open":    func(t *testing.T, f storage.FS) error { _, err := f.Open(t.Context(), "x"); return err },
		"list":    func(t *testing.T, f storage.FS) error { _, err := f.List(t.Context(), ""); return err },
		"staged":  func(t *testing.T, f storage.FS) error { _, err := f.Staged(t.Context(), ""); return err },
		"stage":   func(t *testing.T, f storage.FS) error { _, err := f.Stage(t.Context(), "x"); return err },
		"probe":   func(t *testing.T, f storage.FS) error { _, err := storage.Probe(t.Context(), f); return err },
		"remove":  func(t *testing.T, f storage.FS) error { return f.Remove(t.Context(), "x") },
		"remove2": func(t *testing.T, f storage.FS) error { return f.Remove(t.Context(), "x", "y") },
	}
	for _, c := range []struct {
		name   string
		server s3test.Behaviour
		bucket string
		rule   *s3test.Rule
		says   []string
	}{
		{"a missing bucket", s3test.Behaviour{}, "missing", nil, []string{"missing", "404", "NoSuchBucket", "make the bucket"}},
		{"a wrong access key", s3test.Behaviour{AccessKey: "other"}, "bucket", nil, []string{"bucket", "403", "InvalidAccessKeyId", "AWS_ACCESS_KEY_ID"}},
		{"no permission", s3test.Behaviour{}, "bucket", &s3test.Rule{Effect: s3test.Denied}, []string{"403", "AccessDenied", "request-1", "s3:PutObject"}},
		{"a clock that is wrong", s3test.Behaviour{}, "bucket", &s3test.Rule{Effect: s3test.Skewed}, []string{"403", "RequestTimeTooSkewed", "clock"}},
	} {
		for what, call := range calls {
			t.Run(c.name+", "+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					server := s3test.New(c.server)
					t.Cleanup(s3.Route(c.bucket, small(), server))
					server.MakeBucket("bucket")
					if c.rule != nil {
						server.Set(*c.rule)
					}
					f, err := storage.Open("s3://" + c.bucket + "/p")
					must(t, err)
					err = call(t, f)
					wantIs(t, err, fs.ErrPermission)
					wantSays(t, err, c.says...)
					if n := server.Requests(""); n > 8 {
						t.Fatalf("after %d requests", n)
					}
				})
			})
		}
	}
}

func TestManyFilesAreRemovedAndEachRefusalIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, f := open(t, s3test.Behaviour{})
		var names []string
		for i := range 2500 {
			names = append(names, fmt.Sprintf("d/%04d", i))
			server.Put("bucket", "p/"+names[i], nil)
		}
		server.Set(
			s3test.Rule{Op: "DeleteObjects.Key", Glob: "p/d/0007", Effect: s3test.Denied},
			s3test.Rule{Op: "DeleteObjects.Key", Glob: "p/d/1234", Effect: s3test.Denied},
			s3test.Rule{Op: "DeleteObjects.Key", Glob: "p/d/2*", Probability: 0.5, Effect: s3test.InternalError},
		)
		err := f.Remove(t.Context(), names...)
		wantIs(t, err, fs.ErrPermission)
		wantSays(t, err, `"p/d/0007"`, `"p/d/1234"`, "AccessDenied")
		left := server.Keys("bucket")
		slices.Sort(left)
		if !slices.Equal(left, []string{"p/d/0007", "p/d/1234"}) {
			t.Fatalf("%d files are left: %.300q", len(left), left)
		}
		server.Set()
		must(t, f.RemoveAll(t.Context(), "d"))
		if left := server.Keys("bucket"); len(left) != 0 {
			t.Fatalf("%q are left", left)
		}
	})
}

func TestObjectsOfOthersAreNoFilesAndGoWithTheirFolder(t *testing.T) {
	server, f := open(t, s3test.Behaviour{})
	for _, key := range []string{"p/d/", "p/d//x", "p/d/a\nb", "p/d/sub/", "p/d/.sluice-probe-1", "other/x", "pp"} {
		server.Put("bucket", key, nil)
	}
	write(t, f, "d/real", []byte("data"))
	infos, err := f.List(t.Context(), "")
	must(t, err)
	dirs, err := f.Dirs(t.Context(), "d")
	must(t, err)
	if len(infos) != 1 || infos[0].Name != "d/real" || !slices.Equal(dirs, []string{"sub"}) {
		t.Fatalf("listed are %v and the folders %q", infos, dirs)
	}
	must(t, f.RemoveAll(t.Context(), "d"))
	left := server.Keys("bucket")
	slices.Sort(left)
	if !slices.Equal(left, []string{"other/x", "pp"}) {
		t.Fatalf("%q are left", left)
	}
}

func TestObjectsAreEncryptedAsAsked(t *testing.T) {
	for sse, want := range map[string][]string{"none": {"", ""}, "sse-s3": {"AES256", ""}, "sse-kms": {"aws:kms", "alias/k"}} {
		cfg := small()
		if cfg.SSE = sse; sse == "sse-kms" {
			cfg.KMSKeyID = "alias/k"
		}
		server := s3test.New(s3test.Behaviour{})
		f := server.Open(t, "s3://bucket/p", cfg)
		must(t, f.Claim(t.Context(), "claim"))
		write(t, f, "large", pattern(6<<20))
		must(t, f.Publish(t.Context(), stage(t, f, "staged", nil)))
		for _, name := range []string{"claim", "large", "staged"} {
			h := server.Header("bucket", "p/"+name)
			got := []string{h.Get("X-Amz-Server-Side-Encryption"), h.Get("X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id")}
			if !slices.Equal(got, want) {
				t.Errorf("sse %s: %s was written with %q", sse, name, got)
			}
		}
	}
}
