//go:build integration

package hdfs

import (
	"net/url"
	"os"
	"testing"

	"github.com/sluice-etl/sluice/storage"
	"github.com/sluice-etl/sluice/storage/storagetest"
)

// address is the HDFS that integration tests run on.
func address(t testing.TB) string {
	t.Helper()
	a := os.Getenv("HDFS_URL")
	if a == "" {
		t.Fatal("set HDFS_URL to the address of an HDFS to test on, such as hdfs://127.0.0.1:19000")
	}
	return a
}

// fresh is a new folder on an HDFS.
func fresh(t testing.TB, at string) *FS {
	t.Helper()
	u, err := url.Parse(at + "/sluice-test/" + token())
	if err != nil {
		t.Fatal(err)
	}
	f, err := open(u)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.(*FS).cluster.forget() })
	return f.(*FS)
}

func TestHDFSKeepsTheContract(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.FS { return fresh(t, address(t)) })
}
