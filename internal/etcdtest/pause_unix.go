//go:build unix

package etcdtest

import (
	"fmt"
	"os"
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

// wake lets a process that may be paused go on: it could not obey otherwise.
func wake(p *os.Process) { _ = p.Signal(syscall.SIGCONT) }
