package share_test

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/internal/window"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/quota"
)

// TestNewsThatComesLateIsNoJumpOfTheClock: whoever brings news has read the clock, and waits for the gate's lock while
// callers go by with newer readings. The clock, which the planner looks after, takes none of that for a jump.
func TestNewsThatComesLateIsNoJumpOfTheClock(t *testing.T) {
	c := clock.Started(instant(0), nil) // nobody can tell whether the machine slept
	p := &share.Planner{Clock: c}
	p.Reset(instant(0), "a", protocol.View{Revision: 1, Policy: plannerPolicy(quota.OutageHold), Instances: []protocol.Instance{{ID: "a"}}})
	p.Prove(instant(1 << 40))
	g := window.NewGate(p, func(*queue.Waiter, queue.Grant, queue.Verdict) {}, nil)
	g.Changed(instant(900))
	c.Adopt(clock.Estimate{Mono: instant(900).Mono, Offset: planEpoch, Error: time.Millisecond})
	was := c.Offset()
	for t := int64(1000); t < 10_000; t += 500 {
		news, caller := instant(t), instant(t+60)
		g.Enter(caller, nil, 1, 0, queue.Default)
		g.Changed(news)
		g.Enter(instant(t+100), nil, 1, 0, queue.Default)
		g.Changed(instant(t + 100))
	}
	bound, _ := c.Measured()
	if moved := c.Offset() - was; c.Jumps() != 0 || moved != 0 || bound != time.Millisecond {
		t.Errorf("%d jumps; corrected time moved by %v, and errs by up to %v; both clocks ran evenly, and were measured to 1ms", c.Jumps(), time.Duration(moved), bound)
	}
}
