package listen

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/quotient-limiter/quotient/internal/testkit/await"
)

// A group may be a name or a number, also one without a name.
func TestGroup(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		group string
		want  int
		ok    bool
	}{
		{"", -1, true}, {"root", 0, true}, {"0", 0, true}, {"4000000001", 4000000001, true},
		{"-1", 0, false}, {"4294967295", 0, false}, {"no such group", 0, false},
	} {
		if got, err := idOf(c.group); got != c.want || (err == nil) != c.ok {
			t.Errorf("%q: %d, %v", c.group, got, err)
		}
	}
	path := filepath.Join(t.TempDir(), "s")
	l := listen(t, path)
	defer l.Close()
	if i, err := os.Stat(path); err != nil || i.Sys().(*syscall.Stat_t).Gid != uint32(os.Getgid()) || i.Mode().Perm() != 0o660 {
		t.Errorf("%v, %v", i, err)
	}
}

func listen(t *testing.T, path string) net.Listener {
	t.Helper()
	l, err := try(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if l.Addr().String() != path {
		t.Errorf("the address is %s, want %s", l.Addr(), path)
	}
	return l
}

func try(path string, log *slog.Logger) (net.Listener, error) {
	return Unix(path, strconv.Itoa(os.Getgid()), log, func(l net.Listener) net.Listener { return l })
}

// crash ends a process without Close.
func crash(l net.Listener) {
	s := l.(*socket)
	s.closed.Do(func() { close(s.ended) })
	_ = s.Listener.Close()
}

// reaches reports whether the path leads to a socket.
func reaches(path string, l net.Listener) bool {
	i, err := os.Lstat(path)
	return err == nil && os.SameFile(i, l.(*socket).file) && !dead(path)
}

// onlyTheLock fails the test if more than the lock is left beside the path.
func onlyTheLock(t *testing.T, path string) {
	t.Helper()
	if left, err := os.ReadDir(filepath.Dir(path)); len(left) != 1 || left[0].Name() != filepath.Base(path)+".lock" || err != nil {
		t.Errorf("%v are left, %v", left, err)
	}
}

// What stands at the path and is no socket is left alone, and named.
func TestAPathThatIsNoSocket(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, what := range map[string]string{file: "a file", dir: "a directory"} {
		l, err := try(path, slog.New(slog.DiscardHandler))
		if want := path + " is " + what + ", not a socket: remove it, or give another path"; err == nil || err.Error() != want {
			t.Errorf("%v, %v, want %s", l, err, want)
		}
	}
	if b, err := os.ReadFile(file); string(b) != "precious" {
		t.Errorf("the file has %q: %v", b, err)
	}
}

// The newest process has the path. Whichever ends first, the path leads to the other, and
// in the end nothing but the lock is left. Only the one that takes the socket says so.
func TestTheNewestHasTheSocket(t *testing.T) {
	t.Parallel()
	for name, oldEndsFirst := range map[string]bool{"the old one ends first": true, "the new one ends first": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "s")
			answers := func(l net.Listener) {
				t.Helper()
				c, err := net.Dial("unix", path)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				_ = l.(*socket).Listener.(*net.UnixListener).SetDeadline(time.Now().Add(time.Minute))
				served, err := l.Accept()
				if err != nil {
					t.Fatalf("the path leads to another: %v", err)
				}
				_ = served.Close()
			}
			end := func(l net.Listener) {
				t.Helper()
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			}
			var said [2]bytes.Buffer
			var all [2]net.Listener
			for n := range all {
				var err error
				if all[n], err = try(path, slog.New(slog.NewTextHandler(&said[n], nil))); err != nil {
					t.Fatal(err)
				}
				answers(all[n])
			}
			before, after := all[0], all[1]
			if said[0].Len() > 0 || strings.Count(said[1].String(), "the socket of a running process is taken") != 1 {
				t.Errorf("the first says %q, the second %q", said[0].String(), said[1].String())
			}
			if !oldEndsFirst {
				before, after = after, before
			}
			end(before)
			answers(after)
			_ = before.Close() // a second time, as a server does
			answers(after)
			end(after)
			onlyTheLock(t, path)
		})
	}
}

// A process that gives way has the path lead to another one, as long as there is one. By its own name it is reached as before.
func TestGivingWay(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	first := listen(t, path)
	gives := func(l net.Listener, want bool, to net.Listener) {
		t.Helper()
		if another, err := GiveWay(&Bounded{Listener: l}); another != want || err != nil || !reaches(path, to) {
			t.Errorf("another %v, %v; the path leads to the expected one: %v", another, err, reaches(path, to))
		}
	}
	gives(first, false, first)
	second := listen(t, path)
	gives(first, true, second)
	third := listen(t, path)
	gives(third, true, second)
	gives(first, true, second) // as the path does not lead to the first, it stays
	if !reaches(third.(*socket).own, third) {
		t.Error("the third is not reached by its own name")
	}
	if err := errors.Join(first.Close(), third.Close(), second.Close()); err != nil {
		t.Error(err)
	}
	onlyTheLock(t, path)
}

// After a crash of the process that has the path, the one that it replaced has the path
// again, and so it has after another one.
func TestACrashLosesNoSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	first := listen(t, path)
	crash(listen(t, path))
	third := listen(t, path) // sooner than the first has looked, as a rule
	if !reaches(path, third) {
		t.Error("the newest has no socket")
	}
	if err := third.Close(); err != nil || !reaches(path, first) {
		t.Errorf("the first has not the socket that the third has left: %v", err)
	}
	crash(listen(t, path))
	await.Until(t, "the first has the socket of the dead", func() bool { return reaches(path, first) })
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the first has the path that somebody removed", func() bool { return reaches(path, first) })
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	onlyTheLock(t, path)
}

// logged has the lines of a log.
type logged chan string

func (l logged) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// The log tells of a path that somebody removed that it is there again, and of a socket all of whose names are gone, which
// nobody can reach any more, what to do.
func TestTheLogTellsOfRemovedFiles(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	lines := make(logged, 10)
	for _, c := range []struct {
		remove func(own string) error
		want   string
	}{
		{func(string) error { return os.Remove(path) }, `level=INFO msg="the path of the socket was gone, and is restored" path=` + path},
		{func(own string) error { return errors.Join(os.Remove(path), os.Remove(own)) }, `level=WARN msg="no program can reach the socket" path=` + path + ` error="its files were removed" do="restart quotad"`},
		{func(string) error { return os.RemoveAll(filepath.Dir(path)) }, `level=WARN msg="no program can reach the socket" path=` + path + ` error="open ` + path + `.lock: no such file or directory; the directory must exist and be writable" do="restart quotad"`},
	} {
		l, err := try(path, slog.New(slog.NewTextHandler(lines, nil)))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.remove(l.(*socket).own); err != nil {
			t.Fatal(err)
		}
		if line := <-lines; !strings.HasSuffix(line, c.want+"\n") {
			t.Errorf("%q, want %q", line, c.want)
		}
		if err := l.Close(); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}
}

// A process that accepts nothing, so that it refuses connections for now, is not dead.
func TestABusyProcessIsNotDead(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	busy := listen(t, path)
	raw, err := busy.(*socket).Listener.(*net.UnixListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if failed := raw.Control(func(fd uintptr) { err = unix.Listen(int(fd), 0) }); failed != nil || err != nil {
		t.Fatal(failed, err)
	}
	for err == nil { // until the queue is full
		var c net.Conn
		if c, err = net.Dial("unix", path); err == nil {
			t.Cleanup(func() { _ = c.Close() })
		}
	}
	if !errors.Is(err, unix.EAGAIN) {
		t.Fatal(err)
	}
	next := listen(t, path)
	if err := next.Close(); err != nil || !reaches(path, busy) {
		t.Errorf("the busy process has not the socket again: %v", err)
	}
	if err := busy.Close(); err != nil {
		t.Error(err)
	}
	onlyTheLock(t, path)
}

// Processes that start and end at the same time all succeed, and the path leads to one that
// is left.
func TestManyTakeTheSocketAtOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	living := func(all []net.Listener) bool {
		return slices.ContainsFunc(all, func(l net.Listener) bool { return reaches(path, l) })
	}
	var old []net.Listener
	for range 20 {
		all := make([]net.Listener, 8)
		var group errgroup.Group
		for n := range all {
			group.Go(func() (err error) {
				all[n], err = try(path, slog.New(slog.DiscardHandler))
				return err
			})
		}
		for _, l := range old {
			group.Go(l.Close)
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
		if old = all; !living(old) {
			t.Fatal("the path leads to none that is left")
		}
	}
	for len(old) > 0 {
		if !living(old) {
			t.Fatalf("the path leads to none of the last %d", len(old))
		}
		last := slices.IndexFunc(old, func(l net.Listener) bool { return reaches(path, l) })
		if err := old[last].Close(); err != nil {
			t.Error(err)
		}
		old = slices.Delete(old, last, last+1)
	}
	onlyTheLock(t, path)
}

// A path that is too long is told by its length.
func TestTheLongestPath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, strings.Repeat("s", 104-len(dir)))
	if err := listen(t, path).Close(); err != nil {
		t.Error(err)
	}
	l, err := try(path+"s", slog.New(slog.DiscardHandler))
	if err == nil || !strings.HasSuffix(err.Error(), "the path has 106 bytes, the most is 105") {
		t.Errorf("%v, %v", l, err)
	}
}
