//go:build unix

package socket_test

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/quotient-limiter/quotient/internal/cli/socket"
)

// The group is that of the socket, or of the folder that hides it. Nobody is told to join root's.
func TestJoining(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "quotad.sock")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	u, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	group, name := os.Getgid(), strconv.Itoa(os.Getgid())
	if os.Getuid() == 0 {
		if got, want := socket.Joining(path), "start quotad with --group, and a group of the user "+u.Username; got != want {
			t.Errorf("of root's group: %s, want %s", got, want)
		}
		group, name = 4711, "4711"
	} else if g, err := user.LookupGroupId(name); err == nil {
		name = g.Name
	}
	for _, of := range []string{path, dir} {
		if err := os.Chown(of, -1, group); err != nil {
			t.Fatal(err)
		}
	}
	want := "run as a user of the socket's group: usermod --append --groups " + name + " " + u.Username
	for what, at := range map[string]string{"the socket's": path, "the folder's": filepath.Join(dir, "hidden")} {
		if got := socket.Joining(at); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	if got := socket.Joining(filepath.Join(dir, "none", "quotad.sock")); got != "run as a user of the socket's group" {
		t.Errorf("of a socket of which nothing is known: %s", got)
	}
}
