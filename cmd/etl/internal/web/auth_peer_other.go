//go:build !linux

package web

import (
	"errors"
	"fmt"
	"net"
)

// peerUser is not known here.
func peerUser(*net.UnixConn) (int, error) {
	return 0, fmt.Errorf("the system does not tell who has opened the socket: %w", errors.ErrUnsupported)
}
