package api

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// peer returns the user and the process at the other end of a socket. Processes of another
// PID namespace have no number here, and are one client for each user.
func peer(c net.Conn) (owner, process string, err error) {
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return "", "", err
	}
	var peer *unix.Ucred
	if controlled := raw.Control(func(fd uintptr) {
		peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); controlled != nil {
		return "", "", controlled
	}
	if err != nil {
		return "", "", err
	}
	owner = fmt.Sprintf("user %d", peer.Uid)
	return owner, fmt.Sprintf("process %d of %s", peer.Pid, owner), nil
}
