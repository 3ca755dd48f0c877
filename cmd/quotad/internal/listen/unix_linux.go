package listen

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/fair"
)

// Unix returns a listener on a socket that its owner and the group may use, by its name or
// number; "" is the process's own group. A socket that a dead process has left is replaced.
func Unix(path, group string, bound Bound) (net.Listener, error) {
	gid, err := idOf(group)
	if err != nil {
		return nil, err
	}
	if c, err := net.Dial("unix", path); err == nil {
		_ = c.Close()
		return nil, fmt.Errorf("%s: another process serves it; one quotad serves a host", path)
	} else if i, _ := os.Lstat(path); errors.Is(err, syscall.ECONNREFUSED) && i != nil && i.Mode().Type() == os.ModeSocket {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	before := syscall.Umask(0o177) // nobody connects before the group is set
	l, err := net.Listen("unix", path)
	syscall.Umask(before)
	if err != nil {
		return nil, fmt.Errorf("%w; the path must be free, and its directory exist and be writable", err)
	}
	if gid >= 0 {
		err = os.Chown(path, -1, gid)
	}
	if err == nil {
		err = os.Chmod(path, 0o660) //nolint:gosec // the group is the point
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return bound(l), nil
}

// idOf returns the number of a group; -1 for "".
func idOf(group string) (int, error) {
	if group == "" {
		return -1, nil
	}
	id := group // a container has names for few groups
	if g, err := user.LookupGroup(group); err == nil {
		id = g.Gid
	}
	n, err := strconv.ParseUint(id, 10, 32)
	if err != nil || n == math.MaxUint32 { // which chown takes for none
		return 0, fmt.Errorf("group %q is neither the name of a group here nor a number below %d", group, uint32(math.MaxUint32))
	}
	return int(n), nil
}

// Peer returns the user and the process at the other end of a socket. Processes of another
// PID namespace have no number here, and are one client for each user.
func Peer(c net.Conn) (fair.Client, error) {
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return fair.Client{}, err
	}
	var peer *unix.Ucred
	if failed := raw.Control(func(fd uintptr) {
		peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); failed != nil || err != nil {
		return fair.Client{}, errors.Join(failed, err)
	}
	user := fmt.Sprintf("user %d", peer.Uid)
	return fair.Client{User: user, Process: fmt.Sprintf("process %d of %s", peer.Pid, user)}, nil
}
