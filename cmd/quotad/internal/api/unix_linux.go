package api

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// ListenUnix adds a listener on a socket that its owner and the group may use; "" is the process's
// own group. A socket that a dead process has left is replaced.
func (s *Server) ListenUnix(path, group string) error {
	gid := -1
	if group != "" {
		g, err := user.LookupGroup(group)
		if err != nil {
			return fmt.Errorf("--group: %w", err)
		}
		if gid, err = strconv.Atoi(g.Gid); err != nil {
			return fmt.Errorf("--group: %w", err)
		}
	}
	if c, err := net.Dial("unix", path); err == nil {
		_ = c.Close()
		return fmt.Errorf("--socket %s: another process serves it; one quotad serves a host", path)
	} else if i, _ := os.Lstat(path); errors.Is(err, syscall.ECONNREFUSED) && i != nil && i.Mode().Type() == os.ModeSocket {
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("--socket: %w", err)
		}
	}
	before := syscall.Umask(0o177) // nobody connects before the group is set
	inner, err := net.Listen("unix", path)
	syscall.Umask(before)
	if err != nil {
		return fmt.Errorf("--socket: %w", err)
	}
	if gid >= 0 {
		err = os.Chown(path, -1, gid)
	}
	if err == nil {
		err = os.Chmod(path, 0o660) //nolint:gosec // the group is the point
	}
	if err != nil {
		return errors.Join(fmt.Errorf("--socket: %w", err), inner.Close())
	}
	s.listeners = append(s.listeners, &bounded{inner, s.clients, peer})
	return nil
}

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
