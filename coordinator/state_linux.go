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
	var at unix.Stat_t
	switch err := unix.Stat(dir, &at); {
	case err != nil:
		return err
	case at.Mode&unix.S_IFMT != unix.S_IFDIR:
		return errors.New("it is not a directory")
	case int(at.Uid) != os.Geteuid():
		return fmt.Errorf("it belongs to user %d, and this process is of user %d", at.Uid, os.Geteuid())
	case at.Mode&0o022 != 0:
		return fmt.Errorf("others may write there: its mode is %#o, make it 0700", at.Mode&0o7777)
	}
	if err := unix.Access(dir, unix.R_OK|unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("this process may not write there: %w", err)
	}
	return nil
}

// openOwn opens a file of a directory that checkStateDir has admitted, or makes it. Links
// are refused: what they lead to would be emptied.
func openOwn(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%s: it is a symbolic link: remove it", path)
	}
	if err != nil {
		return nil, err
	}
	var at unix.Stat_t
	if err = unix.Fstat(int(f.Fd()), &at); err == nil && (at.Mode&unix.S_IFMT != unix.S_IFREG || at.Nlink != 1) {
		err = errors.New("it is not a regular file with one name: remove it")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return f, nil
}

// lockState locks a file until it is closed, at the latest when the process ends.
func lockState(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errStateLocked
	}
	return err
}

// originOf names this boot, its monotonic clock, and the file: a copy of the file is
// not protected by its lock.
func originOf(f *os.File) (string, error) {
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
