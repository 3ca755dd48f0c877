package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/quotient-limiter/quotient/internal/await"
)

// cleared ends the last line of a screen.
const cleared = "\x1b[K\x1b[J"

// TestTopOnATerminal runs top on a real terminal: it shows the fleet, follows a
// change of size, quits on q and leaves the terminal as it was.
func TestTopOnATerminal(t *testing.T) {
	b := newBench(t, server)
	b.want(exitDone, "set", "p", "100/s")
	b.join(server, "p", 1)
	keyboard, screen := terminal(t)
	size := func(rows, columns uint16) {
		t.Helper()
		if err := unix.IoctlSetWinsize(int(keyboard.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}); err != nil {
			t.Fatal(err)
		}
	}
	size(24, 100)
	before, err := unix.IoctlGetTermios(int(screen.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	var shown lockedBuffer
	go func() { // ends with the terminal
		buffer := make([]byte, 4096)
		for {
			n, err := keyboard.Read(buffer)
			if err != nil {
				return
			}
			_, _ = shown.Write(buffer[:n])
		}
	}()
	done := make(chan int, 1)
	go func() {
		done <- run([]string{"top", "p", "--interval", "100ms"}, screen, screen, os.Stderr, func(name string) string { return b.env[name] })
	}()
	seen := func(what string) {
		t.Helper()
		await.Until(t, fmt.Sprintf("top shows %q", what), func() bool {
			select {
			case code := <-done:
				t.Fatalf("top ended with %d: %q", code, shown.String())
			default:
			}
			return strings.Contains(shown.String(), what)
		})
	}
	seen("worker-0")
	seen("q quit  < > sort by")
	size(24, 10) // the last line is cut
	seen("q quit  <…" + cleared)
	if _, err := keyboard.WriteString("/nobody\r"); err != nil {
		t.Fatal(err)
	}
	seen(`filter "n…` + cleared)
	if _, err := keyboard.WriteString("q"); err != nil {
		t.Fatal(err)
	}
	if code := <-done; code != exitDone {
		t.Errorf("exit %d", code)
	}
	seen2 := shown.String()
	if !strings.Contains(seen2, "\x1b[?1049h") {
		t.Error("top does not leave the old screen alone")
	}
	after, err := unix.IoctlGetTermios(int(screen.Fd()), unix.TCGETS)
	if err != nil || *after != *before {
		t.Errorf("the terminal is not as it was: %+v, was %+v, %v", after, before, err)
	}
	await.Until(t, "top gives the screen back", func() bool { return strings.HasSuffix(shown.String(), "\x1b[?1049l") })
}
