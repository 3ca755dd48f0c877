//go:build unix

package etcdtest

import (
	"fmt"
	"os/exec"
	"syscall"
)

// Pause stops a member's process where it stands (SIGSTOP): its connections
// stay open, and nothing is answered. Resume lets it go on. Only for clusters
// with Options.Processes.
func (c *Cluster) Pause(i int) error { return c.signal(i, syscall.SIGSTOP) }

// Resume lets a paused member go on.
func (c *Cluster) Resume(i int) error { return c.signal(i, syscall.SIGCONT) }

func (c *Cluster) signal(i int, s syscall.Signal) error {
	p := c.members[i].process
	if p == nil {
		return fmt.Errorf("etcdtest: member %d is no running process", i)
	}
	return p.cmd.Process.Signal(s)
}

// ownGroup keeps a terminal's Ctrl-C from ending the members before the program
// that needs them to end in good order.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
