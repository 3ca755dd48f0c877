//go:build !linux

package listen

import (
	"errors"
	"net"
)

var errLinux = errors.New("quotad needs Linux to know the processes at its socket")

// Unix needs Linux.
func Unix(string, string, Bound) (net.Listener, error) { return nil, errLinux }

// Peer needs Linux.
func Peer(net.Conn) (user, process string, err error) { return "", "", errLinux }
