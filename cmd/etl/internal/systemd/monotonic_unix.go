//go:build unix

package systemd

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// monotonic is the machine's monotonic clock, in microseconds, which the service manager
// tells a reload from the one before by.
func monotonic() (int64, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, fmt.Errorf("read the monotonic clock: %w", err)
	}
	return ts.Nano() / 1000, nil
}
