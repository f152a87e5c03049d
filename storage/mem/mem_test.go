package mem_test

import (
	"testing"

	"github.com/sluice-etl/sluice/storage"
	"github.com/sluice-etl/sluice/storage/mem"
	"github.com/sluice-etl/sluice/storage/storagetest"
)

func TestMemKeepsTheContract(t *testing.T) {
	storagetest.Run(t, func(*testing.T) storage.FS { return mem.New() })
}
