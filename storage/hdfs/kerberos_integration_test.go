//go:build integration

package hdfs

import (
	"testing"

	"github.com/sluice-etl/sluice/storage"
	"github.com/sluice-etl/sluice/storage/storagetest"
)

func TestASecuredHDFSKeepsTheContract(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.FS { return breakable(t, nil) })
}
