package etcdtest

import "os/exec"

func ownGroup(*exec.Cmd) {}
