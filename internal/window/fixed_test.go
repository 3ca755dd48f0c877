package window

import (
	"fmt"
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/quota"
)

// fixed answers with the same share for every window of each length.
type fixed struct {
	mu     sync.Mutex
	shares map[time.Duration]int64
	offset int64
	burst  int64 // 0: all of the share
	terms  Terms
	bound  func(w quota.Window) int64 // overrides shares
}

func newFixed(shares map[time.Duration]int64) *fixed {
	return &fixed{shares: shares, terms: Terms{Until: Forever, WallUntil: Forever, Known: true}}
}

func (f *fixed) Offset() int64 { f.mu.Lock(); defer f.mu.Unlock(); return f.offset }
func (f *fixed) Lengths(int64) []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	var l []time.Duration
	for d := range f.shares {
		l = append(l, d)
	}
	return l
}

func (f *fixed) Bound(w quota.Window, _ int64) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bound != nil {
		return f.bound(w)
	}
	return f.shares[w.Length]
}

func (f *fixed) Burst(w quota.Window, now int64) int64 {
	if f.burst > 0 {
		return min(f.burst, f.Bound(w, now))
	}
	return f.Bound(w, now)
}

func (f *fixed) Terms(clock.Instant) Terms { f.mu.Lock(); defer f.mu.Unlock(); return f.terms }

func (f *fixed) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func at(d time.Duration) clock.Instant { return clock.Instant{Mono: int64(d), Wall: int64(d)} }

// told records what waiters were told, in order.
type told struct{ log []string }

func (t *told) decided(w *Waiter, g Grant, v Verdict) {
	if v == Granted {
		t.log = append(t.log, fmt.Sprintf("%v@%v", w.Payload, time.Duration(g.Start)))
		return
	}
	t.log = append(t.log, fmt.Sprintf("%v!%d", w.Payload, v))
}

func (t *told) take() []string { l := t.log; t.log = nil; return l }

const second = time.Second
