// Package ntptest has NTP servers for tests, on loopback addresses.
package ntptest

import (
	"encoding/binary"
	"net"
	"testing"
	"time"
)

// Serve answers questions until the test ends, by a clock that is ahead by lead. It
// sends the result of reply for a good answer, and nothing where that is nil.
func Serve(t testing.TB, lead time.Duration, reply func(answer []byte) []byte) (address string) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		question := make([]byte, 512)
		for {
			_, from, err := conn.ReadFrom(question)
			if err != nil {
				return
			}
			if answer := reply(good(question, time.Now().Add(lead))); answer != nil {
				_, _ = conn.WriteTo(answer, from)
			}
		}
	}()
	t.Cleanup(func() { _ = conn.Close(); <-done })
	return conn.LocalAddr().String()
}

// good is an answer of a server of stratum 2 (RFC 5905, section 7.3), 10 ms
// from its root and with 3 ms of dispersion.
func good(question []byte, now time.Time) []byte {
	p := make([]byte, 48)
	p[0], p[1], p[2], p[3] = 4<<3|4, 2, 6, 0xe8 // version 4, server; stratum; poll; 2^-24 s
	binary.BigEndian.PutUint32(p[4:], 10<<16/1000)
	binary.BigEndian.PutUint32(p[8:], 3<<16/1000)
	binary.BigEndian.PutUint32(p[12:], 0x7f000001)
	const to1970 = 2208988800
	stamp := func(t time.Time) uint64 {
		return uint64(t.Unix()+to1970)<<32 | uint64(t.Nanosecond())<<32/1e9
	}
	binary.BigEndian.PutUint64(p[16:], stamp(now.Add(-time.Minute)))
	copy(p[24:32], question[40:48])
	binary.BigEndian.PutUint64(p[32:], stamp(now))
	binary.BigEndian.PutUint64(p[40:], stamp(now))
	return p
}
