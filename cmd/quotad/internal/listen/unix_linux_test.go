package listen

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
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
	l, err := Unix(path, strconv.Itoa(os.Getgid()), func(l net.Listener) net.Listener { return l })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if i, err := os.Stat(path); err != nil || i.Sys().(*syscall.Stat_t).Gid != uint32(os.Getgid()) || i.Mode().Perm() != 0o660 {
		t.Errorf("%v, %v", i, err)
	}
}
