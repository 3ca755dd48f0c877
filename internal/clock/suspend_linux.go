package clock

import (
	"math"
	"syscall"
	"time"
	"unsafe"
)

// Clocks of clock_gettime(2).
const (
	clockMonotonic = 1
	clockBoottime  = 7
)

// suspended returns how long the machine has been suspended since it was
// booted: CLOCK_BOOTTIME goes on then, CLOCK_MONOTONIC does not. The process may be
// interrupted between two readings, for milliseconds on a busy machine. So it reads
// until there is an answer exact to 10 microseconds, eight times at most, and returns
// the most exact one.
func suspended() (total time.Duration, known bool) {
	const exact = 20 * time.Microsecond // between the readings of CLOCK_MONOTONIC before and after
	for least, i := time.Duration(math.MaxInt64), 0; i < 8 && least > exact; i++ {
		before, ok := read(clockMonotonic)
		boot, okBoot := read(clockBoottime)
		after, _ := read(clockMonotonic)
		if !ok || !okBoot {
			return 0, false
		}
		if took := after - before; took < least {
			least, total = took, boot-before-took/2
		}
	}
	return total, true
}

func read(id uintptr) (time.Duration, bool) {
	var ts syscall.Timespec
	// The standard library has no other way to this clock, and package consumer
	// depends on nothing else.
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0) //nolint:gosec // as above
	return time.Duration(ts.Nano()), errno == 0
}
