//go:build unix

package main

import "golang.org/x/sys/unix"

// giveWay lowers this process's priority below etcd's: the fleet of a real etcd
// has machines of its own, and does not keep it from running.
func giveWay() error {
	// On Linux the call returns 20 less the value.
	now, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		return err
	}
	return unix.Setpriority(unix.PRIO_PROCESS, 0, min(19, 20-now+fleetNice))
}
