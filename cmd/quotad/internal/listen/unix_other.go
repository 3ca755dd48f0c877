//go:build !linux

package listen

import (
	"errors"
	"net"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/fair"
)

var errLinux = errors.New("quotad needs Linux to know the processes at its socket")

// Unix needs Linux.
func Unix(string, string, Bound) (net.Listener, error) { return nil, errLinux }

// Peer needs Linux.
func Peer(net.Conn) (fair.Client, error) { return fair.Client{}, errLinux }
