//go:build !linux

package listen

import (
	"errors"
	"log/slog"
	"net"
)

var errLinux = errors.New("quotad needs Linux: only there does a Unix socket tell the process at its other end; elsewhere give --socket= and --listen")

// Unix needs Linux.
func Unix(string, string, *slog.Logger, Bound) (net.Listener, error) { return nil, errLinux }

// Beside needs Linux.
func Beside(net.Listener) ([]string, error) { return nil, errLinux }

// Peer needs Linux.
func Peer(net.Conn) (string, error) { return "", errLinux }
