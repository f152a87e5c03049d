package s3_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-etl/sluice/storage"
	"github.com/sluice-etl/sluice/storage/s3/s3test"
	"github.com/sluice-etl/sluice/storage/storagetest"
)

func TestS3KeepsTheContractUnderFaults(t *testing.T) {
	for _, c := range []struct {
		name   string
		server s3test.Behaviour
		faults float64
	}{
		{"of 5%", s3test.Behaviour{Seed: 5}, 0.05},
		{"of 20%, a second completion succeeds, pages of two", s3test.Behaviour{Seed: 21, CompleteAgain: true, PageSize: 2}, 0.2},
		{"of 20%, refusals after an answer has begun", s3test.Behaviour{Seed: 25, LateRefusals: true}, 0.2},
		{"of 20%, no conditions, one removal a request", s3test.Behaviour{Seed: 23, PutCondition: s3test.Ignored, CompleteCondition: s3test.Refused, NoBatchDelete: true}, 0.2},
	} {
		t.Run(c.name, func(t *testing.T) {
			within := func(t *testing.T, test func(t *testing.T)) { synctest.Test(t, test) }
			storagetest.RunWithin(t, within, func(t *testing.T) storage.FS {
				c.server.Seed += 1000
				server := s3test.New(c.server)
				f := server.Open(t, "s3://bucket/prefix", small())
				server.Set(s3test.Faults(c.faults)...)
				return f
			})
		})
	}
}

// open serves a bucket in the bubble of a test.
func open(t *testing.T, b s3test.Behaviour) (*s3test.Server, storage.FS) {
	t.Helper()
	server := s3test.New(b)
	return server, server.Open(t, "s3://bucket/p", small())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantIs(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got error %v, want one matching %v", err, want)
	}
}

func wantSays(t *testing.T, err error, want ...string) {
	t.Helper()
	for _, w := range want {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Fatalf("got error %v, want one that says %q", err, w)
		}
	}
}

func write(t *testing.T, f storage.FS, name string, data []byte) {
	t.Helper()
	must(t, storage.WriteFile(t.Context(), f, name, data))
}

func wantData(t *testing.T, f storage.FS, name string, want []byte) {
	t.Helper()
	got, err := storage.ReadFile(t.Context(), f, name, 1<<30)
	must(t, err)
	if !bytes.Equal(got, want) {
		t.Fatalf("%s holds %d other bytes than the %d that were written", name, len(got), len(want))
	}
}

var bytesOnce = sync.OnceValue(func() []byte {
	data := make([]byte, 20<<20)
	for i := range data {
		data[i] = byte(i>>16) ^ byte(i>>8) ^ byte(i*7)
	}
	return data
})

// pattern is data of which no two parts are alike.
func pattern(size int) []byte { return bytesOnce()[:size] }

func stage(t *testing.T, f storage.FS, name string, data []byte) storage.Staged {
	t.Helper()
	w, err := f.Stage(t.Context(), name)
	must(t, err)
	_, err = w.Write(data)
	must(t, err)
	s, err := w.Close()
	must(t, err)
	return s
}

// Each write whose answer is lost, or that is never carried out, is found out about,
// and done exactly once.
func TestUnknownOutcomes(t *testing.T) {
	big := pattern(5<<20 + 1)
	writes := map[string]struct {
		op   string
		data []byte
		do   func(t *testing.T, f storage.FS) error
	}{
		"claim":                {"PutObject", nil, func(t *testing.T, f storage.FS) error { return f.Claim(t.Context(), "x") }},
		"create in one":        {"PutObject", []byte("data"), func(t *testing.T, f storage.FS) error { return storage.WriteFile(t.Context(), f, "x", []byte("data")) }},
		"create, a part":       {"UploadPart", big, func(t *testing.T, f storage.FS) error { return storage.WriteFile(t.Context(), f, "x", big) }},
		"create, the end":      {"CompleteMultipartUpload", big, func(t *testing.T, f storage.FS) error { return storage.WriteFile(t.Context(), f, "x", big) }},
		"create, no uploading": {"CreateMultipartUpload", big, func(t *testing.T, f storage.FS) error { return storage.WriteFile(t.Context(), f, "x", big) }},
		"publish": {"CompleteMultipartUpload", []byte("rows"), func(t *testing.T, f storage.FS) error {
			return f.Publish(t.Context(), stage(t, f, "x", []byte("rows")))
		}},
		"publish an empty one": {"CompleteMultipartUpload", nil, func(t *testing.T, f storage.FS) error {
			return f.Publish(t.Context(), stage(t, f, "x", nil))
		}},
	}
	effects := map[string]s3test.Effect{"answer lost": s3test.LostAnswer, "never arrived": s3test.ResetBefore, "500": s3test.InternalError, "conflict": s3test.Conflict, "answer cut": s3test.CutAnswer}
	for what, w := range writes {
		for how, effect := range effects {
			for second, behaviour := range map[string]s3test.Behaviour{
				"is refused": {}, "succeeds": {CompleteAgain: true}, "does not meet its condition": {ConditionFirst: true},
			} {
				if second != "is refused" && w.op != "CompleteMultipartUpload" {
					continue
				}
				t.Run(fmt.Sprintf("%s: %s, a second completion %s", what, how, second), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						server, f := open(t, behaviour)
						server.Set(s3test.Rule{Op: w.op, Glob: "p/x", Nth: 1, Effect: effect}, s3test.Rule{Op: w.op, Glob: "p/x", Nth: 1, Effect: effect})
						must(t, w.do(t, f))
						wantData(t, f, "x", w.data)
						if n := len(server.Keys("bucket")); n != 1 {
							t.Fatalf("there are %d objects", n)
						}
					})
				})
			}
		}
	}
}

func TestATakenNameIsTakenAlsoUnderFaults(t *testing.T) {
	for name, effect := range map[string]s3test.Effect{"500": s3test.InternalError, "reset": s3test.ResetBefore, "answer lost": s3test.LostAnswer} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, f := open(t, s3test.Behaviour{})
				s, other := stage(t, f, "x", []byte("mine")), pattern(6<<20)
				write(t, f, "x", []byte("theirs"))
				server.Set(s3test.Rule{Op: "PutObject", Nth: 1, Effect: effect}, s3test.Rule{Op: "CompleteMultipartUpload", Nth: 1, Effect: effect})
				wantIs(t, f.Claim(t.Context(), "x"), fs.ErrExist)
				wantIs(t, f.Publish(t.Context(), s), fs.ErrExist)
				server.Set(s3test.Rule{Op: "CompleteMultipartUpload", Nth: 1, Effect: effect})
				wantIs(t, storage.WriteFile(t.Context(), f, "x", other), fs.ErrExist)
				wantData(t, f, "x", []byte("theirs"))
				if n := server.Uploads("bucket"); n != 1 {
					t.Fatalf("%d uploads are open, want the staged one", n)
				}
			})
		})
	}
}

// What is at a name can change between the answer to a write and the look at whose it is.
func TestWhoseANameIsIsLookedAtAfterwards(t *testing.T) {
	for _, c := range []struct {
		name   string
		server s3test.Behaviour
		look   int // the one that is slow
		change func(ctx context.Context, server *s3test.Server, f storage.FS) error
	}{
		{"on a server without conditions, another one has replaced it", s3test.Behaviour{PutCondition: s3test.Ignored}, 2,
			func(_ context.Context, server *s3test.Server, _ storage.FS) error {
				server.Put("bucket", "p/x", nil)
				return nil
			}},
		{"one that was taken is removed by then", s3test.Behaviour{}, 1,
			func(ctx context.Context, _ *s3test.Server, f storage.FS) error { return f.Remove(ctx, "x") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, f := open(t, c.server)
				if c.look == 1 {
					write(t, f, "x", []byte("theirs"))
				}
				_, err := storage.Probe(t.Context(), f)
				must(t, err)
				server.Set(s3test.Rule{Op: "HeadObject", Nth: c.look, Effect: s3test.Slow, Delay: 10 * time.Second})
				go func() {
					<-time.After(5 * time.Second)
					if err := c.change(t.Context(), server, f); err != nil {
						t.Error(err)
					}
				}()
				wantIs(t, f.Claim(t.Context(), "x"), fs.ErrExist)
			})
		})
	}
}

func TestWhatWasTakenAwayIsNotPublished(t *testing.T) {
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprintf("a second completion succeeds: %v", again), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, f := open(t, s3test.Behaviour{CompleteAgain: again})
				s := stage(t, f, "x", []byte("mine"))
				must(t, f.Discard(t.Context(), s))
				err := f.Publish(t.Context(), s)
				wantIs(t, err, fs.ErrNotExist)
				wantIs(t, err, storage.ErrVanished)
				if keys := server.Keys("bucket"); len(keys) != 0 {
					t.Fatalf("there is %q", keys)
				}
				write(t, f, "x", []byte("theirs"))
				if err := f.Publish(t.Context(), s); !errors.Is(err, fs.ErrNotExist) || errors.Is(err, storage.ErrVanished) {
					t.Fatalf("with an object of that name: %v", err)
				}
				wantData(t, f, "x", []byte("theirs"))
			})
		})
	}
}

// A server may drop the upload when it answers a completion with a conflict: what
// was to be published is lost then, and must not be taken for published.
func TestAnUploadThatGoesWhileItIsPublishedIsNotPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, f := open(t, s3test.Behaviour{})
		s := stage(t, f, "x", []byte("mine"))
		server.Set(
			s3test.Rule{Op: "CompleteMultipartUpload", Nth: 1, Effect: s3test.Conflict},
			s3test.Rule{Op: "CompleteMultipartUpload", Nth: 1, Effect: s3test.Slow, Delay: time.Minute},
		)
		go func() {
			<-time.After(30 * time.Second)
			if err := f.Discard(t.Context(), s); err != nil {
				t.Error(err)
			}
		}()
		wantIs(t, f.Publish(t.Context(), s), storage.ErrVanished)
	})
}

// Whether an object is there decides, so an answer about it that does not come leaves
// the outcome unknown.
func TestWhetherAnUploadWasPublishedIsUnknownWhileTheObjectCannotBeLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, f := open(t, s3test.Behaviour{})
		s := stage(t, f, "x", []byte("mine"))
		must(t, f.Publish(t.Context(), s))
		server.Set(s3test.Rule{Op: "HeadObject", Effect: s3test.Unavailable})
		if err := f.Publish(t.Context(), s); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("got %v", err)
		}
		server.Set()
		wantIs(t, f.Publish(t.Context(), s), fs.ErrNotExist)
	})
}

// One that ends a list by giving its first page again would be asked for ever.
func TestAListThatNeverEndsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, f := open(t, s3test.Behaviour{PageSize: 1, SamePage: true})
		for i := range 3 {
			server.Put("bucket", fmt.Sprintf("p/d/%d", i), nil)
		}
		s := stage(t, f, "x", pattern(16<<20))
		_, err := f.List(t.Context(), "d")
		wantSays(t, err, "ListObjectsV2", "again and again")
		_, err = f.Staged(t.Context(), "")
		wantSays(t, err, "ListParts", "again and again")
		wantSays(t, f.Publish(t.Context(), s), "ListParts", "again and again")
	})
}

func TestAFileThatCannotBeWrittenLeavesNoUpload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, f := open(t, s3test.Behaviour{})
		_, err := storage.Probe(t.Context(), f)
		must(t, err)
		server.Set(s3test.Rule{Op: "UploadPart", Nth: 2, Effect: s3test.Denied}, s3test.Rule{Op: "UploadPart", Nth: 2, Effect: s3test.Denied})
		w, err := f.Stage(t.Context(), "x")
		must(t, err)
		if _, err := w.Write(pattern(5<<20 + 1)); err != nil {
			t.Fatal(err)
		}
		_, err = w.Close()
		wantIs(t, err, fs.ErrPermission)
		wantIs(t, storage.WriteFile(t.Context(), f, "y", pattern(5<<20+1)), fs.ErrPermission)
		if n := server.Uploads("bucket"); n != 0 {
			t.Fatalf("%d uploads are left", n)
		}
	})
}

func TestAStagedFileOfManyPartsIsPublishedWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, f := open(t, s3test.Behaviour{PageSize: 1})
		s := stage(t, f, "x", pattern(16<<20))
		staged, err := f.Staged(t.Context(), "")
		must(t, err)
		if len(staged) != 1 || staged[0] != s {
			t.Fatalf("staged are %v, want %v", staged, s)
		}
		must(t, f.Publish(t.Context(), s))
		wantData(t, f, "x", pattern(16<<20))
	})
}

func TestAnUploadThatSomebodyChangedIsNotPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, f := open(t, s3test.Behaviour{})
		s := stage(t, f, "x", []byte("mine"))
		s.Size++
		wantSays(t, f.Publish(t.Context(), s), "has 4 bytes, and 5 were written")
	})
}

func TestWhatALostAnswerLeavesIsNotListedAndGoesWithItsFolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, f := open(t, s3test.Behaviour{})
		server.Set(s3test.Rule{Op: "CreateMultipartUpload", Nth: 1, Effect: s3test.LostAnswer})
		s := stage(t, f, "d/x", []byte("rows"))
		staged, err := f.Staged(t.Context(), "")
		must(t, err)
		if server.Uploads("bucket") != 2 || len(staged) != 1 || staged[0] != s {
			t.Fatalf("%d uploads, of which %v are staged", server.Uploads("bucket"), staged)
		}
		must(t, f.RemoveAll(t.Context(), "d"))
		if n := server.Uploads("bucket"); n != 0 {
			t.Fatalf("%d uploads are left", n)
		}
	})
}

// A crash is the end of a process: what it was writing is hidden, can be found and
// taken away, by their names.
func TestWhatACrashedWriterLeavesCanBeTakenAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, f := open(t, s3test.Behaviour{})
		w, err := f.Stage(t.Context(), "x")
		must(t, err)
		_, err = w.Write(pattern(6 << 20)) // a part is sent, the rest is not
		must(t, err)
		synctest.Wait()
		staged, err := f.Staged(t.Context(), "")
		must(t, err)
		if len(staged) != 1 || staged[0].Name != "x" || staged[0].Size != 5<<20 {
			t.Fatalf("staged are %v", staged)
		}
		must(t, f.Discard(t.Context(), staged[0]))
		if _, err := w.Close(); err == nil {
			t.Fatal("what was taken away was staged")
		}
		if n := server.Uploads("bucket"); n != 0 {
			t.Fatalf("%d uploads are left", n)
		}
	})
}

func TestAnOutageIsWaitedForAndALongOneReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, f := open(t, s3test.Behaviour{})
		must(t, f.Claim(t.Context(), "before"))
		server.SetDown(true)
		time.AfterFunc(40*time.Second, func() { server.SetDown(false) })
		must(t, f.Claim(t.Context(), "during"))
		server.SetDown(true)
		began := time.Now()
		err := f.Claim(t.Context(), "after")
		if took := time.Since(began); took < 50*time.Second || took > time.Minute {
			t.Fatalf("reported after %s", took)
		}
		wantSays(t, err, "PutObject", `"p/after"`, "bucket", "connection reset", "tries")
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) {
			t.Fatalf("an outage is reported as %v", err)
		}
		server.SetDown(false)
		must(t, f.Claim(t.Context(), "after"))
	})
}

func TestACancelledCallEndsInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, f := open(t, s3test.Behaviour{})
		server.SetDown(true)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		wantIs(t, f.Claim(ctx, "x"), context.DeadlineExceeded)
		if took := time.Since(began); took > 5*time.Second {
			t.Fatalf("ended after %s", took)
		}
	})
}

func TestARequestThatHangsIsGivenUpAndTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, f := open(t, s3test.Behaviour{})
		must(t, f.Claim(t.Context(), "before"))
		server.Set(s3test.Rule{Op: "PutObject", Nth: 1, Effect: s3test.Slow, Delay: time.Hour})
		began := time.Now()
		must(t, f.Claim(t.Context(), "x"))
		if took := time.Since(began); took < 30*time.Second || took > 35*time.Second {
			t.Fatalf("took %s", took)
		}
	})
}

func TestAServerThatComplainsIsAskedLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, f := open(t, s3test.Behaviour{})
		must(t, f.Claim(t.Context(), "before"))
		ask := func(seconds int) int {
			before := server.Requests("")
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(seconds)*time.Second)
			defer cancel()
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					for ctx.Err() == nil {
						_, _ = f.Stat(ctx, "before")
					}
				})
			}
			wg.Wait()
			return server.Requests("") - before
		}
		server.Set(s3test.Rule{Effect: s3test.Slow, Delay: 200 * time.Millisecond})
		if fast := ask(10); fast < 450 {
			t.Fatalf("10 callers asked %d times in 10 s", fast)
		}
		server.Set(s3test.Rule{Effect: s3test.SlowDown})
		ask(20) // until the rate is at its lowest
		if slow := ask(20); slow > 20*6 || slow < 20 {
			t.Fatalf("10 callers asked %d times in 20 s of SlowDown", slow)
		}
		server.Set(s3test.Rule{Effect: s3test.Slow, Delay: 200 * time.Millisecond})
		ask(60)
		if fast := ask(10); fast < 450 {
			t.Fatalf("a minute after it 10 callers asked %d times in 10 s", fast)
		}
	})
}

func TestPartsAreSentAtOnceAsManyAsAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := small()
		cfg.Concurrency = 4
		server := s3test.New(s3test.Behaviour{})
		f := server.Open(t, "s3://bucket/p", cfg)
		must(t, f.Claim(t.Context(), "probed"))
		server.Set(s3test.Rule{Op: "UploadPart", Effect: s3test.Slow, Delay: time.Second})
		began := time.Now()
		var wg sync.WaitGroup
		for i := range 2 {
			wg.Go(func() { write(t, f, fmt.Sprintf("x%d", i), pattern(20<<20)) })
		}
		wg.Wait()
		if took := time.Since(began); took != 2*time.Second {
			t.Fatalf("8 parts, 4 at once, took %s", took)
		}
		wantData(t, f, "x1", pattern(20<<20))
	})
}

func TestReadsGoOnWhereAConnectionBroke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, f := open(t, s3test.Behaviour{Seed: 3})
		data := pattern(9<<20 + 5)
		write(t, f, "x", data)
		server.Set(s3test.Rule{Op: "GetObject", Probability: 0.7, Effect: s3test.CutAnswer}, s3test.Rule{Op: "GetObject", Probability: 0.3, Effect: s3test.SlowDown})
		wantData(t, f, "x", data)
		r, err := f.Open(t.Context(), "x")
		must(t, err)
		defer func() { must(t, r.Close()) }()
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				got, off := make([]byte, 2<<20), int64(i)<<20
				n, err := r.ReadAt(got, off)
				if err != nil || !bytes.Equal(got, data[off:off+int64(n)]) {
					t.Errorf("reading at %d gave %d bytes, error %v", off, n, err)
				}
			})
		}
		wg.Wait()
		_, err = r.Seek(3<<20, io.SeekStart)
		must(t, err)
		got, err := io.ReadAll(r)
		must(t, err)
		if !bytes.Equal(got, data[3<<20:]) {
			t.Fatal("reading after a seek gave other bytes")
		}
	})
}

func TestAFileThatIsReplacedWhileItIsReadIsNoMixture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, f := open(t, s3test.Behaviour{})
		write(t, f, "x", pattern(3<<20))
		r, err := f.Open(t.Context(), "x")
		must(t, err)
		defer func() { must(t, r.Close()) }()
		server.Put("bucket", "p/x", make([]byte, 3<<20))
		_, err = io.ReadAll(r)
		wantSays(t, err, "was replaced while it was read")
		_, err = r.ReadAt(make([]byte, 10), 2<<20)
		wantSays(t, err, "was replaced while it was read")
	})
}
