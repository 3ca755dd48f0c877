//go:build !linux

package listen

import (
	"errors"
	"log/slog"
	"net"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/fair"
)

var errLinux = errors.New("quotad needs Linux: only there does a Unix socket tell the process at its other end; elsewhere give --socket= and --listen")

// Unix needs Linux.
func Unix(string, string, *slog.Logger, Bound) (net.Listener, error) { return nil, errLinux }

// Peer needs Linux.
func Peer(net.Conn) (fair.Client, error) { return fair.Client{}, errLinux }
