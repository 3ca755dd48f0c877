//go:build e2e && linux

package faults

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// host is a network namespace with an address.
type host struct {
	t       *testing.T // fails, and by default ends what runs here
	owner   *testing.T // if set, what runs here lives until its end
	name    string     // of the namespace
	address [4]byte
	network *fabric
}

// newHost makes a namespace that is gone after the test.
func newHost(t *testing.T, f *fabric, name string, last byte) *host {
	t.Helper()
	h := &host{t: t, name: fmt.Sprintf("q%d-%s", os.Getpid(), name), address: [4]byte{10, 77, 0, last}, network: f}
	command(t, "ip", "netns", "add", h.name)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", h.name).Run() })
	if err := f.attach(h.name, h.address); err != nil {
		t.Fatal(err)
	}
	command(t, "ip", "-n", h.name, "addr", "add", h.ip()+"/24", "dev", "wire")
	command(t, "ip", "-n", h.name, "link", "set", "wire", "up")
	command(t, "ip", "-n", h.name, "link", "set", "lo", "up")
	command(t, "ip", "netns", "exec", h.name, "nft", "add table ip cut; add chain ip cut in { type filter hook input priority 0; }; add chain ip cut out { type filter hook output priority 0; }")
	return h
}

func (h *host) ip() string {
	return fmt.Sprintf("%d.%d.%d.%d", h.address[0], h.address[1], h.address[2], h.address[3])
}

// cut drops all packets from and to other hosts, by nftables.
func (h *host) cut(others ...*host) {
	for _, o := range others {
		command(h.t, "ip", "netns", "exec", h.name, "nft",
			fmt.Sprintf("add rule ip cut in ip saddr %s drop; add rule ip cut out ip daddr %s drop", o.ip(), o.ip()))
	}
}

// heal ends all cuts.
func (h *host) heal() { command(h.t, "ip", "netns", "exec", h.name, "nft", "flush table ip cut") }

// unplug takes the host's link down; plug takes it up again.
func (h *host) unplug() { command(h.t, "ip", "-n", h.name, "link", "set", "wire", "down") }
func (h *host) plug()   { command(h.t, "ip", "-n", h.name, "link", "set", "wire", "up") }

// command runs a program that must succeed.
func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// process is a program that runs on a host.
type process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines chan string // of its standard output; closed at its end
	ended chan struct{}
}

// run starts this binary in a role on the host, and has it killed at the end of
// the test if it is still there.
func (h *host) run(role string, config any, log io.Writer) *process {
	h.t.Helper()
	text, err := json.Marshal(config)
	if err != nil {
		h.t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		h.t.Fatal(err)
	}
	return h.start(log, []string{roleVariable + "=" + role, configVariable + "=" + string(text)}, self)
}

// start starts any program on the host.
func (h *host) start(log io.Writer, env []string, program string, args ...string) *process {
	h.t.Helper()
	p := &process{cmd: exec.Command("ip", append([]string{"netns", "exec", h.name, program}, args...)...), lines: make(chan string, 64), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		p.stdin, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		h.t.Fatal(err)
	}
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
		close(p.lines)
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	t := h.t
	if h.owner != nil {
		t = h.owner
	}
	t.Cleanup(p.kill)
	return p
}

// kill ends the process with SIGKILL, and waits for its end.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	for range p.lines {
	}
	<-p.ended
}

// pause and resume are SIGSTOP and SIGCONT.
func (p *process) pause()  { _ = p.cmd.Process.Signal(unix.SIGSTOP) }
func (p *process) resume() { _ = p.cmd.Process.Signal(unix.SIGCONT) }

// await returns when the process has written the line.
func (p *process) await(line string, patience time.Duration) error {
	over := time.After(patience)
	for {
		select {
		case s, ok := <-p.lines:
			if !ok {
				return fmt.Errorf("process ended before it wrote %q", line)
			}
			if s == line {
				return nil
			}
		case <-over:
			return fmt.Errorf("no %q after %v", line, patience)
		}
	}
}

// wait lets time pass.
func wait(d time.Duration) { <-time.After(d) }
