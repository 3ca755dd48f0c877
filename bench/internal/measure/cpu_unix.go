//go:build unix

package measure

import (
	"time"

	"golang.org/x/sys/unix"
)

// CPU returns the processor time that this process has used, user and system.
func CPU() time.Duration {
	var ru unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &ru); err != nil {
		return 0
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}
