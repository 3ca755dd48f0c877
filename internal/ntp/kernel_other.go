//go:build !linux

package ntp

import "time"

// Kernel returns the kernel's bound on the error of the operating system's
// clock. Only Linux has one that this package can ask for.
func Kernel() (bound time.Duration, known bool) { return 0, false }
