//go:build integration

package s3_test

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-etl/sluice/storage"
	"github.com/sluice-etl/sluice/storage/s3"
	"github.com/sluice-etl/sluice/storage/storagetest"
)

// need is a variable that deploy/services/s3.sh env gives.
func need(t testing.TB, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		t.Fatalf(`%s is not set: start a server with deploy/services/s3.sh start and eval "$(deploy/services/s3.sh env)"`, name)
	}
	return v
}

var prefixes atomic.Int64

// address is a place of the real server that no other test uses.
func address(t testing.TB) string {
	t.Helper()
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-'
	}, t.Name())
	return fmt.Sprintf("s3://%s/%s-%d-%d", need(t, "S3_BUCKET"), name, time.Now().UnixNano(), prefixes.Add(1))
}

func server(t testing.TB) s3.Config {
	t.Helper()
	c := small()
	c.Endpoint = need(t, "S3_ENDPOINT")
	need(t, "AWS_SECRET_ACCESS_KEY")
	t.Cleanup(s3.CloseIdle)
	return c
}

func openAt(t testing.TB, address string, cfg s3.Config) storage.FS {
	t.Helper()
	f, err := s3.New(address, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestARealServerKeepsTheContract(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.FS { return openAt(t, address(t), server(t)) })
}
