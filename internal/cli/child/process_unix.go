//go:build unix

package child

import (
	"runtime"
	"syscall"
	"time"
)

// Used returns the processor time that this process has used, and the most
// memory that it ever had.
func Used() (cpu time.Duration, maxRSS int64) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, 0
	}
	cpu = time.Duration(u.Utime.Nano() + u.Stime.Nano())
	maxRSS = int64(u.Maxrss)
	if runtime.GOOS != "darwin" && runtime.GOOS != "ios" {
		maxRSS *= 1024 // kilobytes everywhere else
	}
	return cpu, maxRSS
}

// Pause stops the process where it stands (SIGSTOP): its connections stay open, and
// nothing is answered. Resume lets it go on.
func (p *Process) Pause() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume lets a paused process go on.
func (p *Process) Resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }
