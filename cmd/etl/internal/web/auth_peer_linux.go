package web

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// peerUser is the number of the user that has opened a connection to the socket.
func peerUser(conn *net.UnixConn) (int, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var failure error
	err = raw.Control(func(fd uintptr) {
		cred, failure = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, failure); err != nil {
		return 0, err
	}
	return int(cred.Uid), nil
}
