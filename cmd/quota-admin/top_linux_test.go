package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/quotient-limiter/quotient/internal/embedded"
	"github.com/quotient-limiter/quotient/internal/testkit/await"
	"github.com/quotient-limiter/quotient/internal/testkit/etcdtest"
)

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
	top := exec.Command(os.Args[0], "top", "p", "--interval", "100ms")
	top.Env = append(os.Environ(), asTool+"=1", "TERM=xterm")
	for name, value := range b.env {
		top.Env = append(top.Env, name+"="+value)
	}
	top.Stdin, top.Stdout, top.Stderr = screen, screen, os.Stderr
	top.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Pdeathsig: syscall.SIGKILL}
	if err := top.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- top.Wait() }()
	seen := func(what string) {
		t.Helper()
		await.Until(t, fmt.Sprintf("top shows %q", what), func() bool {
			select {
			case err := <-done:
				t.Fatalf("top ended: %v: %q", err, shown.String())
			default:
			}
			return strings.Contains(shown.String(), what)
		})
	}
	seen("worker-0")
	seen("quit") // blanks are not always sent
	drawn := len(shown.String())
	size(24, 10)
	await.Until(t, "top is drawn anew", func() bool { return strings.Contains(shown.String()[drawn:], "quit") })
	if _, err := keyboard.WriteString("/nobody\rq"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if !strings.Contains(shown.String(), "\x1b[?1049h") {
		t.Error("top does not leave the old screen alone")
	}
	after, err := unix.IoctlGetTermios(int(screen.Fd()), unix.TCGETS)
	if err != nil || *after != *before {
		t.Errorf("the terminal is not as it was: %+v, was %+v, %v", after, before, err)
	}
	await.Until(t, "top gives the screen back", func() bool { return strings.Contains(shown.String(), "\x1b[?1049l") })
}

// A log of top tells of an outage, and goes on after it.
func TestTopOutlastsAnOutage(t *testing.T) {
	cluster, _ := etcdtest.New(t, embedded.Options{})
	b := newBench(t, cluster)
	b.want(exitDone, "set", "p", "100/s")
	var out, errs lockedBuffer
	done := make(chan int, 1)
	go func() {
		done <- run([]string{"top", "p", "--interval", "100ms", "--command-timeout", "500ms"}, strings.NewReader(""), &out, &errs, func(name string) string { return b.env[name] })
	}()
	tables := func() int { return strings.Count(out.String(), "total 100/s") }
	await.Until(t, "a table", func() bool { return tables() > 0 })
	cluster.Stop(0)
	await.Until(t, "the outage", func() bool { return strings.Contains(errs.String(), "etcd cannot be reached") })
	if err := cluster.Restart(0); err != nil {
		t.Fatal(err)
	}
	before := tables()
	await.Until(t, "tables after it", func() bool { return tables() > before })
	if err := unix.Kill(os.Getpid(), unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := <-done; code != exitDone {
		t.Errorf("exit %d: %s", code, errs.String())
	}
}
