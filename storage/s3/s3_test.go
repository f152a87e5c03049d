package s3_test

import (
	"testing"

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
	storagetest.Run(t, func(t *testing.T) storage.FS {
		return s3test.New(s3test.Behaviour{}).Open(t, "s3://bucket/some/prefix", small())
	})
}
