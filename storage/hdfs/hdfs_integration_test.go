//go:build integration

package hdfs

import (
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/sluice-etl/sluice/storage"
	"github.com/sluice-etl/sluice/storage/storagetest"
)

// fresh is a new folder on the HDFS that integration tests share.
func fresh(t testing.TB) *FS {
	t.Helper()
	a := os.Getenv("HDFS_URL")
	if a == "" {
		t.Fatal("set HDFS_URL to the address of an HDFS to test on, such as hdfs://127.0.0.1:19000")
	}
	return at(t, defaults(), a)
}

func TestHDFSKeepsTheContract(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.FS { return fresh(t) })
}

func write(t *testing.T, f *FS, name string, data []byte) error {
	t.Helper()
	return storage.WriteFile(t.Context(), f, name, data)
}

func TestAFileOfSeveralBlocks(t *testing.T) {
	f := fresh(t)
	data := random(300 << 20)
	if err := write(t, f, "big", data); err != nil {
		t.Fatal(err)
	}
	wantWhole(t, f, "big", data)
}

// send sends the namenode a request that the program has no use for.
func send(t *testing.T, f *FS, method, name string, fields map[protoreflect.Name]any) {
	t.Helper()
	if err := f.cluster.call(t.Context(), func(c *client) error {
		_, err := c.ask(method, name, fields)
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// TestWhatACrashLeftIsRemoved: a day later, and staged files never.
func TestWhatACrashLeftIsRemoved(t *testing.T) {
	f := fresh(t)
	for name, age := range map[string]time.Duration{tempPrefix + token(): 25 * time.Hour, tempPrefix + token(): 23 * time.Hour, stagedPrefix + token() + "~x": 1000 * time.Hour} {
		p := f.root + "/d/" + name
		if err := f.put(t.Context(), &spool{}, p); err != nil {
			t.Fatal(err)
		}
		old := uint64(time.Now().Add(-age).UnixMilli())
		send(t, f, "setTimes", "SetTimes", map[protoreflect.Name]any{"src": p, "mtime": old, "atime": old})
	}
	if got := hiddenIn(t, f, "d"); len(got) != 3 {
		t.Fatalf("before: %q", got)
	}
	f.cluster.swept = map[string]time.Time{} // as another process
	if err := write(t, f, "d/new", nil); err != nil {
		t.Fatal(err)
	}
	if got := hiddenIn(t, f, "d"); len(got) != 2 {
		t.Fatalf("after: %q", got)
	}
}

func TestRefusals(t *testing.T) {
	f := fresh(t)
	if err := f.Claim(t.Context(), "full/a"); err != nil {
		t.Fatal(err)
	}
	send(t, f, "setQuota", "SetQuota", map[protoreflect.Name]any{"path": f.root + "/full", "namespaceQuota": uint64(2), "storagespaceQuota": uint64(math.MaxInt64)})
	if err := f.Claim(t.Context(), "full/b"); !errors.Is(err, errQuota) {
		t.Errorf("with the quota used up: %v", err)
	}
	other := fresh(t)
	other.root, other.cluster.conf.user = f.root, "somebody"
	for what, err := range map[string]error{"claim": other.Claim(t.Context(), "x"), "create": write(t, other, "x", nil), "remove": other.Remove(t.Context(), "full/a")} {
		if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "as user somebody") {
			t.Errorf("%s without permission: %v", what, err)
		}
	}
	if err := write(t, f, "full/a/below", nil); !errors.Is(err, errNoFolder) || errors.Is(err, fs.ErrExist) {
		t.Errorf("below a file: %v", err)
	}
}

// TestAnotherNamenodeIsTried: the first of the name service is not there.
func TestAnotherNamenodeIsTried(t *testing.T) {
	shared := fresh(t)
	conf := defaults()
	conf.nameservices = map[string][]string{"prod": {"127.0.0.1:1", shared.host}}
	f := at(t, conf, "hdfs://prod")
	if err := write(t, f, "a", []byte("x")); err != nil {
		t.Fatal(err)
	}
	wantWhole(t, f, "a", []byte("x"))
	if first := f.cluster.addresses()[0]; first != shared.host {
		t.Errorf("the next connection begins with %s", first)
	}
}

// TestANameThatIsTakenAfterALostAnswer: whose it is is told by the file's number.
func TestANameThatIsTakenAfterALostAnswer(t *testing.T) {
	f := fresh(t)
	for _, mine := range []bool{true, false} {
		name := f.root + "/" + token()
		made, err := f.upload(t.Context(), f.root, &spool{})
		if err != nil {
			t.Fatal(err)
		}
		other := made
		if !mine {
			if other, err = f.upload(t.Context(), f.root, &spool{}); err != nil {
				t.Fatal(err)
			}
		}
		// The first rename happens, and its answer is lost.
		lost := true
		err = f.moveBy(t.Context(), made, name, func(c *client) error {
			if !lost {
				return c.rename(made.path, name)
			}
			lost = false
			if err := c.rename(other.path, name); err != nil {
				t.Fatal(err)
			}
			return io.ErrUnexpectedEOF
		})
		if mine && err != nil || !mine && !errors.Is(err, fs.ErrExist) {
			t.Errorf("mine %v: %v", mine, err)
		}
	}
}
