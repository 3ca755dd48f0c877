package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/ntp"
)

// measureFor bounds how long the first measurement of this machine's clock takes.
const measureFor = 5 * time.Second

// ownClock watches the clock by which permits are placed, the system's: whether
// somebody sets it during the run and, if the instances measure theirs by NTP, how
// far it is from true time.
type ownClock struct {
	began    time.Time
	moved    time.Duration // at most, against the monotonic clock
	measured *clock.Clock  // nil without servers
	off      time.Duration // from true time, at most
	known    bool
	allowed  time.Duration // the tolerance
	asking   sync.WaitGroup
	cancel   context.CancelFunc
}

// openClock measures for a moment, and says how far the instances' clocks may be
// from this one. They may be clockError from true time.
func openClock(ctx context.Context, servers []string, clockError time.Duration) (*ownClock, error) {
	o := &ownClock{began: time.Now(), allowed: clockError}
	ctx, o.cancel = context.WithCancel(ctx)
	if len(servers) == 0 {
		return o, nil
	}
	o.measured = clock.New()
	watch, err := ntp.New(o.measured, servers, 0, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	o.asking.Go(func() { watch.Run(ctx) })
	first, done := context.WithTimeout(ctx, measureFor)
	defer done()
	watch.First(first)
	o.look()
	o.allowed = 2*clockError + o.off // half of it for what it drifts on the way
	return o, nil
}

// look reads the clocks. It is called a few times a second.
func (o *ownClock) look() {
	now := time.Now()
	o.moved = max(o.moved, (now.Round(0).Sub(o.began.Round(0)) - now.Sub(o.began)).Abs())
	if o.measured == nil {
		return
	}
	o.measured.Observe(o.measured.Now())
	if _, known := o.measured.Measured(); !known {
		return
	}
	bound, _ := o.measured.ErrorAt(o.measured.Mono())
	o.off, o.known = max(o.off, o.measured.Ahead().Abs()+bound), true
}

// unjudged says why permits cannot be placed by this clock; empty: they can.
func (o *ownClock) unjudged(clockError time.Duration) string {
	switch {
	case o.moved > clockError:
		return fmt.Sprintf("this machine's clock was set, by %v, so that permits cannot be placed", o.moved)
	case o.measured != nil && !o.known:
		return "the NTP servers did not tell how far this machine's clock is off, so that permits cannot be placed"
	case o.measured != nil && clockError+o.off > o.allowed:
		return fmt.Sprintf("this machine's clock went astray, by %v, so that permits cannot be placed", o.off)
	}
	return ""
}

// close ends the measuring.
func (o *ownClock) close() {
	o.cancel()
	o.asking.Wait()
}
