//go:build integration

package hdfs

import (
	"os"
	"testing"

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
