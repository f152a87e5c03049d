//go:build failpoint

package cli

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// failpoint kills the process at the n-th time that the step named by
// SLUICE_FAILPOINT=name=n is reached, as kill -9 would.
func failpoint() func(name string) {
	want, count, _ := strings.Cut(os.Getenv("SLUICE_FAILPOINT"), "=")
	n, err := strconv.Atoi(count)
	if err != nil {
		n = 1
	}
	var mu sync.Mutex
	return func(name string) {
		if name != want {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if n--; n == 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
}
