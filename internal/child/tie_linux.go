package child

import (
	"os/exec"
	"syscall"
)

// tie makes the kernel kill the child when the thread that started it ends. Go
// ends a thread only with a goroutine that is locked to it, so in effect that is
// when this process ends.
func tie(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
