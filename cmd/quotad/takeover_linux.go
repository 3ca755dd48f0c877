package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Locks in --state-dir. The kernel releases them when their process ends.
const (
	currentLock = "current.lock" // of the process that serves
	nextLock    = "next.lock"    // of the one that waits for its end
)

// succeed waits until the process that serves with a state directory has ended, and takes
// its place until this process ends.
func succeed(dir string) error {
	next, err := lock(filepath.Join(dir, nextLock), 0)
	if err != nil {
		return err
	}
	defer unix.Close(next)
	if _, err = lock(filepath.Join(dir, currentLock), 0); err != nil { // never closed
		return err
	}
	// The process before ends: the kernel releases its other locks at any moment.
	states, err := fs.Glob(os.DirFS(dir), "*.state")
	for _, name := range states {
		file, err := lock(filepath.Join(dir, name), 0)
		if err != nil {
			return err
		}
		_ = unix.Close(file)
	}
	return err
}

// hasSuccessor reports whether another process waits.
func hasSuccessor(dir string) bool {
	next, err := lock(filepath.Join(dir, nextLock), unix.LOCK_NB)
	if err == nil {
		_ = unix.Close(next)
	}
	return errors.Is(err, unix.EWOULDBLOCK)
}

// lock locks a file and returns its descriptor.
func lock(path string, how int) (int, error) {
	file, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return -1, err
	}
	for {
		if err = unix.Flock(file, unix.LOCK_EX|how); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		_ = unix.Close(file)
	}
	return file, err
}
