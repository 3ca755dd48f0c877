//go:build !linux

package clock

import "time"

// suspended is known on Linux only.
func suspended() (total time.Duration, known bool) { return 0, false }
