package s3_test

import (
	"testing"
	"testing/synctest"

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
		{"none, in virtual time", s3test.Behaviour{}, 0},
		{"of 5%", s3test.Behaviour{Seed: 5}, 0.05},
		{"of 20%", s3test.Behaviour{Seed: 20}, 0.2},
		{"of 20%, a second completion succeeds", s3test.Behaviour{Seed: 21, CompleteAgain: true}, 0.2},
		{"of 20%, pages of two", s3test.Behaviour{Seed: 22, PageSize: 2}, 0.2},
		{"of 20%, no conditions", s3test.Behaviour{Seed: 23, PutCondition: s3test.Ignored, CompleteCondition: s3test.Ignored}, 0.2},
		{"of 20%, conditions refused, one removal a request", s3test.Behaviour{Seed: 24, PutCondition: s3test.Refused, CompleteCondition: s3test.Refused, NoBatchDelete: true}, 0.2},
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
