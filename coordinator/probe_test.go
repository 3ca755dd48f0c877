package coordinator

import (
	"fmt"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/view"
	"github.com/quotient-limiter/quotient/quota"
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
		s := &Session{keys: layout, ctx: t.Context(), o: o}
		p := newMembership(s, "p", &recorder{})
		s.mu.machine = newMachine("")
		s.mu.memberships["p"] = p
		p.policy = &quota.Policy{Timing: quota.Timing{Freshness: c.freshness}}
		var all []view.Key
		for i := range c.instances {
			all = append(all, view.Key{Kind: view.Instance, ID: fmt.Sprint(i), Value: []byte(`{"schema":1,"name":"a"}`), Revision: 7})
		}
		p.tracker.List(7, all)
		if pause := s.probePause(); pause != c.pause {
			t.Errorf("%d instances, freshness %v, own %v: each %v, want %v", c.instances, c.freshness, c.own, pause, c.pause)
		}
	}
}
