// Package ntp measures true time with the Network Time Protocol and tells a
// clock.Clock: several servers, the best of several samples of each, and of the
// servers those that a majority agrees with.
//
// What decides is pure and takes the instant: majority.go finds the time that
// most agree on, server.go keeps one server's samples and when to ask it again,
// group.go makes an estimate of them all. query.go and watch.go are the shell
// that has sockets and a goroutine.
//
// Instants are those of the Clock: monotonic, in nanoseconds. An offset is true
// wall time minus the monotonic instant.
package ntp
