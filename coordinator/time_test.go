package coordinator

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/testkit/ntptest"
)

// A session measures its clock before anybody uses it: a host that is an hour
// off has the right time from the beginning.
func TestJoinMeasuresTheClock(t *testing.T) {
	f := setup(t)
	c := clock.NewSkewed(func(int64) time.Duration { return -time.Hour })
	var servers []string
	for range 3 {
		servers = append(servers, ntptest.Serve(t, 0, func(answer []byte) []byte {
			clear(answer[4:12]) // it is at its root
			return answer
		}))
	}
	s, err := Join(clock.With(t.Context(), c), f.client, Options{Prefix: f.prefix, Logger: quiet, NTP: servers})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	before := time.Now().UnixNano()
	wall := c.Wall()
	after := time.Now().UnixNano()
	bound, known := c.ErrorAt(c.Mono())
	off := time.Duration(max(before-wall, wall-after)) // at least
	if !known || off > bound || c.Health().Source != clock.SourceNTP {
		t.Errorf("off by %v, the bound is %v, %v; health %+v", off, bound, known, c.Health())
	}
}
