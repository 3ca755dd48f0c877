//go:build unix

package socket

import (
	"os"
	"syscall"
)

// groupOf returns the group of a file, and whether that may enter it, as a folder; known is false if that is not known.
func groupOf(path string) (id int, enters, known bool) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, false, false
	}
	stat, known := info.Sys().(*syscall.Stat_t)
	if !known {
		return 0, false, false
	}
	return int(stat.Gid), info.Mode()&0o010 != 0, true
}
