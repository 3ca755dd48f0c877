package etcdtest

import (
	"errors"
	"os"
)

var errNoPause = errors.New("etcdtest: a process cannot be paused on Windows")

// Pause is not possible on Windows.
func (*Cluster) Pause(int) error { return errNoPause }

// Resume is not possible on Windows.
func (*Cluster) Resume(int) error { return errNoPause }

func wake(*os.Process) {}
