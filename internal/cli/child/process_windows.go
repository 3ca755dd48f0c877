package child

import (
	"errors"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Used returns the processor time that this process has used, and the most
// memory that it ever had, as Go counts it.
func Used() (cpu time.Duration, maxRSS int64) {
	process, err := syscall.GetCurrentProcess()
	if err != nil {
		return 0, 0
	}
	var created, exited, kernel, user syscall.Filetime
	if err := syscall.GetProcessTimes(process, &created, &exited, &kernel, &user); err == nil {
		cpu = fileTime(kernel) + fileTime(user)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	maxRSS = int64(m.Sys)
	return cpu, maxRSS
}

// fileTime is a length of time in units of 100 ns.
func fileTime(t syscall.Filetime) time.Duration {
	return time.Duration(int64(t.HighDateTime)<<32|int64(t.LowDateTime)) * 100
}

var errNoPause = errors.New("a process cannot be paused on Windows")

// Pause is not possible on Windows.
func (*Process) Pause() error { return errNoPause }

// Resume is not possible on Windows.
func (*Process) Resume() error { return errNoPause }

// Tie has a command end with this process; it comes before the command is started.
// Here the child has to notice the closed pipe.
func Tie(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}
