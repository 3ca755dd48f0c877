package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal returns both ends of a new terminal: what is written to keyboard is
// read from screen.
func terminal(t *testing.T) (keyboard, screen *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { keyboard.Close() })
	if err := unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	screen, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { screen.Close() })
	return keyboard, screen
}

func TestDeleteAsks(t *testing.T) {
	b := newBench(t, server)
	for _, test := range []struct {
		answer string
		code   int
		exists bool
	}{
		{"y\n", exitDone, false}, {"YES\n", exitDone, false},
		{"n\n", exitFailed, true}, {"\n", exitFailed, true}, {"yesterday\n", exitFailed, true},
	} {
		b.call("set", "a", "5/s")
		keyboard, screen := terminal(t)
		if _, err := keyboard.WriteString(test.answer); err != nil {
			t.Fatal(err)
		}
		b.stdin = screen
		_, stderr := b.want(test.code, "delete", "a")
		if !strings.Contains(stderr, "Delete the policy of a (5/s, revision ") {
			t.Errorf("%q: the question is missing: %s", test.answer, stderr)
		}
		code, _, _ := b.call("get", "a")
		if (code == exitDone) != test.exists {
			t.Errorf("%q: get exits %d, exists must be %v", test.answer, code, test.exists)
		}
	}
}

func TestPasswordPrompt(t *testing.T) {
	b := newBench(t, server) // without authentication any password will do
	keyboard, screen := terminal(t)
	if _, err := keyboard.WriteString("secret\n"); err != nil {
		t.Fatal(err)
	}
	b.stdin = screen
	_, stderr := b.want(exitDone, "list", "--user", "ann")
	if !strings.HasPrefix(stderr, "Password of etcd user ann: \n") || strings.Contains(stderr, "secret") {
		t.Errorf("prompt: %q", stderr)
	}
}
