package listen

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// Unix returns a listener on a socket that its owner and the group may use; "" is the
// process's own group. A socket that a dead process has left is replaced.
func Unix(path, group string) (net.Listener, error) {
	gid := -1
	if group != "" {
		g, err := user.LookupGroup(group)
		if err != nil {
			return nil, err
		}
		if gid, err = strconv.Atoi(g.Gid); err != nil {
			return nil, err
		}
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
		return nil, err
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
	return l, nil
}
