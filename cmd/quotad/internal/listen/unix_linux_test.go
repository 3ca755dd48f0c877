package listen

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
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
	l, err := Unix(path, strconv.Itoa(os.Getgid()), func(l net.Listener) net.Listener { return l })
	if err != nil {
		t.Fatal(err)
	}
	if l.Addr().String() != path {
		t.Errorf("the address is %s, want %s", l.Addr(), path)
	}
	return l
}

// The newest process has the path. Whichever ends first, the path leads to the other, and
// in the end nothing is left.
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
			before := listen(t, path)
			answers(before)
			after := listen(t, path)
			c, err := before.Accept() // the question whether it is alive
			if err != nil {
				t.Fatal(err)
			}
			_ = c.Close()
			answers(after)
			if !oldEndsFirst {
				before, after = after, before
			}
			end(before)
			answers(after)
			_ = before.Close() // a second time, as a server does
			answers(after)
			end(after)
			if left, err := os.ReadDir(filepath.Dir(path)); len(left) > 0 || err != nil {
				t.Errorf("%v are left, %v", left, err)
			}
		})
	}
}
