package ntp

import (
	"time"

	"golang.org/x/sys/unix"
)

// Kernel returns the kernel's bound on the error of the operating system's
// clock. known is false where no daemon disciplines it, or none has of late.
func Kernel() (bound time.Duration, known bool) {
	var t unix.Timex // modes 0: nothing is changed, no right is needed
	state, err := unix.Adjtimex(&t)
	return kernelBound(&t, state, err)
}

func kernelBound(t *unix.Timex, state int, err error) (bound time.Duration, known bool) {
	if err != nil || state == unix.TIME_ERROR || t.Status&unix.STA_UNSYNC != 0 || t.Maxerror < 0 {
		return 0, false
	}
	// Maxerror is the distance to the true time at the root; what the kernel is
	// still about to slew comes on top.
	off := time.Duration(t.Offset) * time.Microsecond
	if t.Status&unix.STA_NANO != 0 {
		off = time.Duration(t.Offset)
	}
	return time.Duration(t.Maxerror)*time.Microsecond + max(off, -off), true
}
