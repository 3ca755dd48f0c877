//go:build unix

package main

import (
	"os"
	"syscall"
)

// restart asks the process to end and to leave its share to the next one.
const restart = syscall.SIGUSR1

var watched = []os.Signal{os.Interrupt, syscall.SIGTERM, restart}
