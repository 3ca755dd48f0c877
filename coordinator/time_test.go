package coordinator

import (
	"encoding/binary"
	"net"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
)

// timeServer answers NTP questions on a loopback address until the test ends.
func timeServer(t *testing.T) string {
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
			const to1970 = 2208988800
			now := time.Now()
			stamp := uint64(now.Unix()+to1970)<<32 | uint64(now.Nanosecond())<<32/1e9
			answer := make([]byte, 48)
			answer[0], answer[1], answer[3] = 4<<3|4, 2, 0xe8
			copy(answer[24:32], question[40:48])
			for _, at := range []int{16, 32, 40} {
				binary.BigEndian.PutUint64(answer[at:], stamp)
			}
			_, _ = conn.WriteTo(answer, from)
		}
	}()
	t.Cleanup(func() { _ = conn.Close(); <-done })
	return conn.LocalAddr().String()
}

// A session measures its clock before anybody uses it: a host that is an hour
// off has the right time from the beginning.
func TestJoinMeasuresTheClock(t *testing.T) {
	f := setup(t)
	c := clock.NewSkewed(func(int64) time.Duration { return -time.Hour })
	s, err := Join(t.Context(), f.client, Options{Prefix: f.prefix, Logger: quiet, Clock: c, NTP: []string{timeServer(t), timeServer(t), timeServer(t)}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	before := time.Now().UnixNano()
	wall := c.Wall()
	after := time.Now().UnixNano()
	bound, known := c.Error()
	off := time.Duration(max(before-wall, wall-after)) // at least
	if !known || off > bound || c.Health().Source != clock.SourceNTP || c.Steps() != 0 {
		t.Errorf("off by %v, the bound is %v, %v; health %+v, %d steps", off, bound, known, c.Health(), c.Steps())
	}
}
