//go:build unix && !linux

package child

import (
	"os/exec"
	"syscall"
)

// Tie has a command end with this process; it comes before the command is started.
// Here the child has to notice the closed pipe.
func Tie(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
