//go:build !linux

package listen

import (
	"errors"
	"net"
)

// Unix needs Linux, which tells who is at the other end of a socket.
func Unix(string, string) (net.Listener, error) {
	return nil, errors.New("quotad needs Linux to know the processes at its socket")
}
