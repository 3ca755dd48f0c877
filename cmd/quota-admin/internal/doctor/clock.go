package doctor

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/ntp"
	"github.com/quotient-limiter/quotient/quota"
)

// Clock measures this host's clock, by the kernel and by NTP servers.
func (c *Chart) Clock(ctx context.Context, servers []string) {
	judgeClock(c, measureClock(ctx, servers))
}

type clockFacts struct {
	kernel      time.Duration // bound on the error, by the kernel
	kernelKnown bool
	servers     []ntp.ServerStatus
	health      clock.Health
	offset      time.Duration // by how much the clock is ahead; if measured
	bound       time.Duration // of offset's error
	measured    bool
}

// clockPatience is how long NTP servers may take: two questions of a burst, one
// of which may be lost.
const clockPatience = 5 * time.Second

// measureClock asks the kernel, and the servers a few times.
func measureClock(ctx context.Context, servers []string) *clockFacts {
	f := &clockFacts{}
	f.kernel, f.kernelKnown = ntp.Kernel()
	if len(servers) == 0 {
		return f
	}
	c := clock.New()
	w, err := ntp.New(c, servers, 0, slog.New(slog.DiscardHandler))
	if err != nil {
		f.health.Problem = err.Error()
		return f
	}
	ctx, cancel := context.WithTimeout(ctx, clockPatience)
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() { w.Run(ctx) })
	w.First(ctx)
	if c.Health().Answering < len(servers) {
		<-ctx.Done() // let the slow ones answer
	}
	f.servers, f.health = w.Servers(), c.Health()
	if bound, known := c.Measured(); known {
		// The first estimate set the clock: what the operating system's is ahead
		// of it now, it was ahead of true time.
		now := c.Now()
		f.offset, f.bound, f.measured = time.Duration(now.Wall-now.Mono-c.Offset()), bound, true
	}
	cancel()
	running.Wait()
	return f
}

// judgeClock says what of the facts is wrong, by the default bound on a clock's
// error: policies may be stricter.
func judgeClock(c *Chart, f *clockFacts) {
	const host = "this host"
	switch {
	case !f.kernelKnown && !f.measured:
		c.add(note, "clock", host, "run chrony, or name servers by --ntp", "no daemon disciplines its clock, as far as the kernel knows: its error is unknown")
	case f.kernelKnown && f.kernel > quota.DefaultClockError:
		c.add(note, "clock", host, "give its daemon nearer servers, or shorter polls", "the kernel bounds its clock's error by %v only, more than %v", rounded(f.kernel), quota.DefaultClockError)
	case f.kernelKnown:
		c.add(ok, "clock", host, "", "the kernel bounds its clock's error by %v", rounded(f.kernel))
	}
	for _, s := range f.servers {
		switch {
		case !s.Answers:
			c.add(problem, "clock", s.Address, "name another server; NTP is UDP port 123, which firewalls may drop", "gives no time: %s", cmp.Or(s.Problem, "no answer yet"))
		case f.measured && !s.Agrees:
			c.add(problem, "clock", s.Address, "name another server", "lies, by the others: it is off by %v", rounded(s.Offset))
		default:
			c.add(ok, "clock", s.Address, "", "bounds the error by %v", rounded(s.Distance))
		}
	}
	switch {
	case f.health.Problem != "":
		c.add(problem, "clock", host, "name three servers or more that agree", "cannot be measured: %s", f.health.Problem)
	case !f.measured:
	case max(f.offset, -f.offset)+f.bound > quota.DefaultClockError:
		c.add(problem, "clock", host, "run chrony on it (chronyc makestep sets it at once); sessions with NTP servers of their own need no such mend",
			"its clock is off by %v, give or take %v", rounded(f.offset), rounded(f.bound))
	default:
		c.add(ok, "clock", host, "", "its clock is off by %v, give or take %v", rounded(f.offset), rounded(f.bound))
	}
}
