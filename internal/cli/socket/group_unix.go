//go:build unix

package socket

import (
	"os"
	"syscall"
)

// groupOf returns the group of a file; false if that is not known.
func groupOf(path string) (id int, known bool) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, false
	}
	stat, known := info.Sys().(*syscall.Stat_t)
	if !known {
		return 0, false
	}
	return int(stat.Gid), true
}
