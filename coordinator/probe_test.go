package coordinator

import (
	"fmt"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
)

// TestTheTimeBetweenProbes: it follows from the freshness, and in large fleets from
// their size, unless it was given.
func TestTheTimeBetweenProbes(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		instances             int
		freshness, own, pause time.Duration
	}{
		{10, 2500 * ms, 0, 300 * ms},
		{10, 600 * ms, 0, 100 * ms},
		{500, 2500 * ms, 0, 300 * ms},
		{1000, 2500 * ms, 0, 600 * ms},
		{2000, 2500 * ms, 0, 2500 * ms / 3},
		{2000, 5000 * ms, 0, 1200 * ms},
		{2000, 600 * ms, 0, 200 * ms},
		{2000, 6000 * ms, 200 * ms, 200 * ms},
		{10, 6000 * ms, time.Second, time.Second},
		{10, 2500 * ms, time.Second, 2500 * ms / 6},
	} {
		o := settings{Options: Options{Probe: c.own, Logger: quiet, Name: "a"}, Clock: clock.New()}
		if err := o.fill(); err != nil {
			t.Fatal(err)
		}
		s := among(t, o, c.instances, fmt.Sprintf(`{"schema":1,"limits":[{"permits":10,"window":"1s"}],"freshness":%q,"settle":"1m"}`, c.freshness))
		if pause := s.probePause(); pause != c.pause {
			t.Errorf("%d instances, freshness %v, own %v: each %v, want %v", c.instances, c.freshness, c.own, pause, c.pause)
		}
	}
}
