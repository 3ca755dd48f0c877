//go:build !linux

package api

import "errors"

// ListenUnix needs Linux, which tells who is at the other end of a socket.
func (*Server) ListenUnix(string, string) error {
	return errors.New("--socket: quotad needs Linux to know the processes at its socket")
}
