package socket_test

import (
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/quotient-limiter/quotient/internal/cli/socket"
)

// Where a folder is closed to its group too, or is root's, the folder is named: no group of the socket helps.
func TestJoiningThroughAClosedFolder(t *testing.T) {
	u, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	top := t.TempDir()
	folder := filepath.Join(top, "closed")
	t.Cleanup(func() { _ = os.Chmod(folder, 0o700) }) // so that it can be removed
	if err := os.Mkdir(folder, 0); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 { // who may enter all: as another user, for files, this thread may not
		for f := top; f != os.TempDir() && f != "/"; f = filepath.Dir(f) {
			if err := os.Chmod(f, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := syscall.Setfsuid(65534); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = syscall.Setfsuid(0) }()
	}
	want := "give " + folder + ", which " + u.Username + " may not enter, a group of the user " + u.Username + ", and mode 0750"
	if got := socket.Joining(filepath.Join(folder, "in", "quotad.sock")); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
