package listen

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"os/user"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/fair"
)

// Unix returns a listener on a socket that its owner and the group may use, by its name or
// number; "" is the process's own group. The socket replaces that of another process, which
// keeps its connections. If the new one closes first, the other has the path again.
func Unix(path, group string, bound Bound) (net.Listener, error) {
	gid, err := idOf(group)
	if err != nil {
		return nil, err
	}
	if i, err := os.Lstat(path); err == nil && i.Mode().Type() != os.ModeSocket {
		return nil, fmt.Errorf("%s: it is no socket; the path must be free", path)
	}
	own := fmt.Sprintf("%s.%x", path, rand.Uint32()) // until the group may use it
	mask := syscall.Umask(0o177)
	l, err := net.Listen("unix", own)
	syscall.Umask(mask)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; the directory must exist and be writable", path, errors.Unwrap(err))
	}
	if gid >= 0 {
		err = os.Chown(own, -1, gid)
	}
	if err == nil {
		err = os.Chmod(own, 0o660) //nolint:gosec // the group is the point
	}
	s := &socket{Listener: l, path: path}
	if err == nil {
		s.file, err = os.Lstat(own)
	}
	if err == nil {
		err = s.replace(own)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close()) // which removes own
	}
	return bound(s), nil
}

// socket is a listener whose path another process may replace.
type socket struct {
	net.Listener
	path   string
	file   os.FileInfo // of the socket
	closed sync.Once   // then another file may look the same
}

// Addr returns the path, which the kernel does not know.
func (s *socket) Addr() net.Addr { return &net.UnixAddr{Name: s.path, Net: "unix"} }

// before is the path of the socket that this one replaced.
func (s *socket) before() string { return s.path + ".before" }

// replace moves the socket to its path. One that a process serves there gets another path.
func (s *socket) replace(own string) error {
	err := remove(s.before())
	if c, failed := net.Dial("unix", s.path); failed == nil {
		_ = c.Close()
		err = errors.Join(err, os.Link(s.path, s.before()))
	}
	if err != nil {
		return err
	}
	return os.Rename(own, s.path)
}

// Close removes the socket, and puts the one before back that is still served.
func (s *socket) Close() error {
	var err error
	s.closed.Do(func() {
		switch {
		case s.isAt(s.path):
			if err = os.Rename(s.before(), s.path); errors.Is(err, fs.ErrNotExist) {
				err = remove(s.path)
			}
		case s.isAt(s.before()):
			err = remove(s.before())
		}
	})
	return errors.Join(err, s.Listener.Close())
}

func (s *socket) isAt(path string) bool {
	i, err := os.Lstat(path)
	return err == nil && os.SameFile(i, s.file)
}

// remove removes a file that need not exist.
func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
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
