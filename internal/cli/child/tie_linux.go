package child

import (
	"os/exec"
	"syscall"
)

// Tie has a command end with this process; it comes before the command is started.
// The kernel kills the child when the thread that started it ends. Go ends a thread
// only with a goroutine that is locked to it, so in effect that is when this process
// ends.
func Tie(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
