package coordinator

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// checkStateDir returns why a directory cannot be Options.StateDir.
func checkStateDir(dir string) error {
	switch at, err := os.Stat(dir); {
	case err != nil:
		return err
	case !at.IsDir():
		return errors.New("it is not a directory")
	}
	if err := unix.Access(dir, unix.R_OK|unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("this process may not write there: %w", err)
	}
	return nil
}

// lockState locks a file until it is closed, at the latest when the process ends.
func lockState(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errStateLocked
	}
	return err
}

// placeOf names this boot, its monotonic clock, and the file: a copy of the file is
// not protected by its lock.
func placeOf(f *os.File) (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	times, err := os.Readlink("/proc/self/ns/time")
	if err != nil {
		times = "" // an older kernel, with one monotonic clock for all
	}
	var at unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &at); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s %s %d:%d", bytes.TrimSpace(boot), times, at.Dev, at.Ino), nil
}

// hostClock reads the monotonic clock that all processes of a boot share.
func hostClock() (int64, error) {
	var now unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return now.Nano(), err
}
