package hdfs

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// atEnd ends what tests with real services began.
var atEnd []func()

func TestMain(m *testing.M) {
	code := m.Run()
	for _, end := range atEnd {
		end()
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
