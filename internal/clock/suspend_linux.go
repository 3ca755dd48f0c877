package clock

import (
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
// booted: CLOCK_BOOTTIME goes on then, CLOCK_MONOTONIC does not. It is exact to
// the microseconds between the two readings.
func suspended() (total time.Duration, known bool) {
	mono, ok := read(clockMonotonic)
	boot, okBoot := read(clockBoottime)
	return boot - mono, ok && okBoot
}

func read(id uintptr) (time.Duration, bool) {
	var ts syscall.Timespec
	// The standard library has no other way to this clock, and package consumer
	// depends on nothing else.
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0) //nolint:gosec // as above
	return time.Duration(ts.Nano()), errno == 0
}
