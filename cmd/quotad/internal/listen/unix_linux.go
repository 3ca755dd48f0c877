package listen

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
)

// longest is the longest path of a socket in bytes, by the kernel.
const longest = 107

// healing is how often a process looks whether the path still leads to a process.
const healing = time.Second

// Unix returns a listener on a socket that its owner and the group may use, by its name or
// number; "" is the process's own group. The socket takes the path of another process, which
// keeps its connections, and logs that. If the process that has the path closes its socket,
// the newest other one has the path at once. After a crash it has the path within a second.
func Unix(path, group string, log *slog.Logger, bound Bound) (net.Listener, error) {
	gid, err := idOf(group)
	if err != nil {
		return nil, err
	}
	if i, err := os.Lstat(path); err == nil && i.Mode().Type() != os.ModeSocket {
		what := "a file"
		if i.IsDir() {
			what = "a directory"
		}
		return nil, fmt.Errorf("%s is %s, not a socket: remove it, or give another path", path, what)
	}
	s := &socket{path: path, log: log, ended: make(chan struct{})}
	if err := s.locked(func() error { return s.open(gid) }); err != nil {
		return nil, err
	}
	go s.heal()
	return bound(s), nil
}

// socket is a listener whose path another process may take. A name of its own keeps the
// socket reachable: the path is a second link to it. All links change under a lock.
type socket struct {
	net.Listener
	path, own string
	log       *slog.Logger
	file      os.FileInfo // of the socket
	closed    sync.Once   // then another file may look the same
	ended     chan struct{}
}

// Addr returns the path, which the kernel does not know.
func (s *socket) Addr() net.Addr { return &net.UnixAddr{Name: s.path, Net: "unix"} }

// locked calls f while no other process changes the names of sockets for the path.
func (s *socket) locked(f func() error) error {
	lock, err := os.OpenFile(s.path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("%w; the directory must exist and be writable", err)
	}
	defer lock.Close() // which unlocks it
	for {
		if err = unix.Flock(int(lock.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", lock.Name(), err)
	}
	return f()
}

// open listens at a new name, and leads the path there once the group may use it.
func (s *socket) open(gid int) error {
	all, err := s.served()
	if err != nil {
		return err
	}
	next := 1
	if len(all) > 0 {
		next = all[0] + 1
	}
	s.own = s.name(next)
	if extra := len(s.own) - len(s.path); len(s.own) > longest {
		return fmt.Errorf("%s: the path has %d bytes, the most is %d", s.path, len(s.path), longest-extra)
	}
	mask := syscall.Umask(0o177)
	l, err := net.Listen("unix", s.own)
	syscall.Umask(mask)
	if err != nil {
		return err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // then another process may have the name
	s.Listener = l
	if gid >= 0 {
		err = os.Chown(s.own, -1, gid)
	}
	if err == nil {
		err = os.Chmod(s.own, 0o660) //nolint:gosec // the group is the point
	}
	if err == nil {
		s.file, err = os.Lstat(s.own)
	}
	taken := !dead(s.path)
	if err == nil {
		err = s.lead(s.own)
	}
	if err != nil {
		return errors.Join(err, remove(s.own), l.Close())
	}
	if taken {
		s.log.Warn("the socket of a running process is taken", "path", s.path, "do", "end that process, unless it is to have the socket when this one ends")
	}
	return nil
}

// Close removes the socket. If its path leads here, it leads to the newest other one then.
func (s *socket) Close() error {
	var err error
	s.closed.Do(func() {
		close(s.ended)
		err = s.locked(func() error {
			err := remove(s.own)
			if i, missing := os.Lstat(s.path); missing == nil && os.SameFile(i, s.file) {
				err = errors.Join(err, s.restore())
			}
			return err
		})
		if errors.Is(err, fs.ErrNotExist) { // somebody has removed the directory
			err = nil
		}
	})
	return errors.Join(err, s.Listener.Close())
}

// giveWay leads the path to the newest socket of another process, unless it leads to one already. It returns false if
// there is none.
func (s *socket) giveWay() (another bool, err error) {
	err = s.locked(func() error {
		all, err := s.othersLocked()
		if another = len(all) > 0; !another {
			return err
		}
		if i, missing := os.Lstat(s.path); missing == nil && !os.SameFile(i, s.file) {
			return err
		}
		return errors.Join(err, s.lead(all[0]))
	})
	return another, err
}

// heal restores the path until Close, when the process that had it has crashed, or somebody has removed it. A socket
// without a name cannot have one again.
func (s *socket) heal() {
	tick := time.NewTicker(healing)
	defer tick.Stop()
	seldom := rate.Sometimes{Interval: time.Minute}
	for {
		select {
		case <-s.ended:
			return
		case <-tick.C:
		}
		if !dead(s.path) {
			continue
		}
		err := s.locked(func() error {
			if !dead(s.path) {
				return nil
			}
			if err := s.restore(); err != nil || !dead(s.path) {
				return err
			}
			return errors.New("its files were removed")
		})
		seldom.Do(func() {
			if err != nil {
				s.log.Warn("no program can reach the socket", "path", s.path, "error", err, "do", "restart quotad")
				return
			}
			s.log.Info("the path of the socket was gone, and is restored", "path", s.path)
		})
	}
}

// restore leads the path to the newest socket of a process. Without one it removes the path.
func (s *socket) restore() error {
	all, err := s.served()
	switch {
	case err != nil:
		return err
	case len(all) == 0:
		return remove(s.path)
	}
	return s.lead(s.name(all[0]))
}

// lead makes the path a link to the socket of a name, at once.
func (s *socket) lead(name string) error {
	next := s.path + ".next"
	if err := remove(next); err != nil { // of a crash
		return err
	}
	if err := os.Link(name, next); err != nil {
		return err
	}
	return os.Rename(next, s.path)
}

// name returns the name of a process's own, by number.
func (s *socket) name(number int) string { return fmt.Sprintf("%s.%d", s.path, number) }

// served returns the numbers of the sockets that processes have, the newest first. It
// removes those that crashes left.
func (s *socket) served() ([]int, error) {
	files, err := os.ReadDir(filepath.Dir(s.path))
	if err != nil {
		return nil, err
	}
	var all []int
	for _, f := range files {
		suffix, of := strings.CutPrefix(f.Name(), filepath.Base(s.path)+".")
		number, err := strconv.Atoi(suffix)
		if !of || err != nil || f.Type() != os.ModeSocket {
			continue
		}
		if !dead(s.name(number)) {
			all = append(all, number)
		} else if err := remove(s.name(number)); err != nil {
			return nil, err
		}
	}
	slices.Sort(all)
	slices.Reverse(all)
	return all, nil
}

// Beside returns the sockets of the other processes that serve the path of a listener, by their own names, the newest
// first. The listener is the one that Unix hands to its Bound.
func Beside(l net.Listener) (paths []string, err error) {
	s := l.(*socket)
	err = s.locked(func() error {
		paths, err = s.othersLocked()
		return err
	})
	return paths, err
}

// othersLocked returns the sockets of the other processes, the newest first. The lock is held.
func (s *socket) othersLocked() (paths []string, err error) {
	all, err := s.served()
	for _, number := range all {
		if name := s.name(number); name != s.own {
			paths = append(paths, name)
		}
	}
	return paths, err
}

// dead reports whether no process has a socket at the path. It connects with the wrong type:
// a process that listens does not notice, and may be as busy as it likes.
func dead(path string) bool {
	c, err := net.Dial("unixgram", path)
	if err == nil {
		_ = c.Close()
	}
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED)
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

// Peer names the process at the other end of a socket. Processes of another PID namespace have no
// number here, and are one client for each user.
func Peer(c net.Conn) (string, error) {
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return "", err
	}
	var peer *unix.Ucred
	if failed := raw.Control(func(fd uintptr) {
		peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); failed != nil || err != nil {
		return "", errors.Join(failed, err)
	}
	return fmt.Sprintf("process %d of user %d", peer.Pid, peer.Uid), nil
}
