// Package child starts this very program again as a child process that does not
// outlive it.
//
// A child is told what to be by a variable in its environment, and looks for it
// first of all. It holds the read end of a pipe as its standard input: when the
// parent is gone, however it ended, that pipe is closed, and the child ends
// itself. Linux also kills the child when its parent dies, so that one that is
// stopped (SIGSTOP) or stuck does not stay behind either.
//
// A child is in a process group of its own: Ctrl-C in a terminal reaches the
// parent alone, which ends its children in good order.
package child

import (
	"fmt"
	"os"
	"os/exec"
)

// Command returns this program, to be started with the variable set in its
// environment. Its standard error is ours. The caller takes its StdinPipe, which
// must stay open for as long as the child shall live.
func Command(variable, value string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("child: this program cannot be found to be started again: %w", err)
	}
	cmd := exec.Command(self) //nolint:gosec // this very program
	cmd.Env = append(os.Environ(), variable+"="+value)
	cmd.Stderr = os.Stderr
	tie(cmd)
	return cmd, nil
}

// Tie has another program end with this one, where the system can see to it: one
// that does not watch its standard input. To be called before it is started.
func Tie(cmd *exec.Cmd) { tie(cmd) }
