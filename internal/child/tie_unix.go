//go:build unix && !linux

package child

import (
	"os/exec"
	"syscall"
)

// tie leaves it to the child to notice the closed pipe.
func tie(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
