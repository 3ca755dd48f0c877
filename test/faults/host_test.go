//go:build e2e && linux

package faults

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/cli/child"
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

// process is this program in a role on a host.
type process struct {
	*child.Process
	ready  chan struct{}
	record *record // of a provider that was closed
}

// run starts this program in a role on the host, and has it killed at the end of the
// test if it is still there.
func (h *host) run(role string, config any, log io.Writer) *process {
	h.t.Helper()
	self, err := os.Executable()
	if err != nil {
		h.t.Fatal(err)
	}
	p := &process{ready: make(chan struct{})}
	p.Process, err = child.Launch(h.command(log, self), role, config, func(t told) {
		if p.record = t.Record; t.Ready {
			close(p.ready)
		}
	}, func(err error) { fmt.Fprintln(log, err) })
	if err != nil {
		h.t.Fatal(err)
	}
	h.ends(p.Process)
	return p
}

// start starts any program on the host.
func (h *host) start(log io.Writer, program string, args ...string) {
	h.t.Helper()
	p, err := child.Run(h.command(log, program, args...), func(err error) { fmt.Fprintln(log, err) })
	if err != nil {
		h.t.Fatal(err)
	}
	h.ends(p)
}

func (h *host) command(log io.Writer, program string, args ...string) *exec.Cmd {
	cmd := exec.Command("ip", append([]string{"netns", "exec", h.name, program}, args...)...)
	cmd.Stderr = log
	return cmd
}

func (h *host) ends(p *child.Process) {
	t := h.t
	if h.owner != nil {
		t = h.owner
	}
	t.Cleanup(p.Kill)
}

// await returns when the process is ready.
func (p *process) await(patience time.Duration) error {
	select {
	case <-p.ready:
		return nil
	case <-p.Gone:
		return errors.New("process ended before it was ready")
	case <-time.After(patience):
		return fmt.Errorf("not ready after %v", patience)
	}
}

// wait lets time pass.
func wait(d time.Duration) { <-time.After(d) }
