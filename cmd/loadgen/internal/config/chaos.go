package config

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/quotient-limiter/quotient/internal/load"
	"github.com/quotient-limiter/quotient/quota"
)

const (
	chaosBegins = 5 * time.Second  // from the run's beginning to the first event
	chaosEnds   = 15 * time.Second // from the last event, at least, to the run's end: the fleet goes on
)

// chaos adds the events of --chaos to those that flags ask for. There is one every 15 to 30 s, and the
// seed chooses it: the limit becomes half to one and a half of what it was at the beginning, a process
// crashes, or etcd's leader or all of etcd is killed or stands still. etcd is back after 2 to 10 s.
func (r *raw) chaos() error {
	c := &r.config
	if c.Duration <= chaosBegins+chaosEnds {
		return Usagef("--chaos: a --duration of %v has no time for an event: use more than %v", c.Duration, chaosBegins+chaosEnds)
	}
	rng := rand.New(rand.NewPCG(c.Seed, 0))
	upTo := func(d time.Duration) time.Duration {
		return time.Duration(rng.Int64N(int64(d))).Round(time.Millisecond)
	}
	fault := func(at time.Duration, name, undo string) {
		r.faults = append(r.faults, moment{at, name}.String(), moment{at + 2*time.Second + upTo(8*time.Second), undo}.String())
	}
	first := load.Shortest(c.Limits)
	for at := chaosBegins; at < c.Duration-chaosEnds; at += 15*time.Second + upTo(15*time.Second) {
		switch rng.IntN(6) {
		case 0:
			limit := quota.Limit{Permits: max(1, first.Permits/2+rng.Int64N(first.Permits)), Window: first.Window}
			r.changes = append(r.changes, fmt.Sprint(at, "=", quota.FormatLimits([]quota.Limit{limit})))
		case 1:
			r.crashes = append(r.crashes, at.String())
		case 2:
			fault(at, "kill-leader", "restart-all")
		case 3:
			fault(at, "pause-leader", "resume-all")
		case 4:
			fault(at, "kill-all", "restart-all")
		default:
			fault(at, "pause-all", "resume-all")
		}
	}
	return nil
}
