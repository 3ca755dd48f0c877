package main

import (
	"os"
	"syscall"
)

// restart is a signal that Windows never sends.
const restart = syscall.Signal(-1)

var watched = []os.Signal{os.Interrupt, syscall.SIGTERM}
