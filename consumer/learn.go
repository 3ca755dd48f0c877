package consumer

import (
	"math"
	"time"

	"github.com/quotient-limiter/quotient/internal/window"
	"github.com/quotient-limiter/quotient/quota"
)

// Learn passes on the provider's statements: Limit.Permits for each window of the given
// length or, if the length is unknown, of at least that length; or the permits Left until
// End. httplimit.Transport calls it if its field Learn is set. It does not block.
//
// A stated limit bounds the permits of a policy's window: the stated permits if that
// window is no longer than the stated one, otherwise in proportion more.
// LimitUse.Learned, metrics and quota-admin doctor show a bound below the policy's limit.
// Under an adaptive policy the total falls to the bound, but not below the floor.
//
// The smallest stated limit counts. A larger one replaces it 2 minutes after it was last
// stated. After 10 minutes without any it is forgotten. Limits below one permit are
// ignored.
//
// Left counts for a window above quota.MaxWindow if that ends within 5 s of End, by all
// answers of 10 s. If etcd has more left, the difference counts as used; only an operator
// corrects the reverse. The provider may still refuse permits in the hands of other
// instances.
func (l *Limiter) Learn(limits ...LimitUse) {
	k := l.core
	var left []window.LimitUsage
	for _, u := range limits {
		if !u.End.IsZero() {
			left = append(left, window.LimitUsage{Left: u.Left, End: u.End.UnixNano()})
		}
	}
	if len(left) > 0 {
		k.gate.Counted(k.clock.Now(), left)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	policy, _ := k.mu.planner.Policy()
	if policy == nil {
		return
	}
	now := k.clock.Mono()
	for _, own := range policy.LimitsAt(k.clock.WallAt(now)) {
		n := quota.MaxPermits
		for _, of := range limits {
			n = min(n, takes(of.Limit, own.Window))
		}
		last, known := k.mu.learned[own.Window]
		known = known && now-last.mono < int64(statedLasts)
		if !known && n < own.Permits || known && (n <= last.permits || now-last.mono >= int64(statedHolds)) {
			k.mu.learned[own.Window] = stated{n, now}
		}
	}
}

const (
	// statedHolds is longer than any window of a policy: near the end of a window of
	// unknown length less follows from what is stated than before.
	statedHolds = 2 * quota.MaxWindow
	statedLasts = 10 * time.Minute
)

// stated is the least that a provider has stated to take in a window, and when.
type stated struct{ permits, mono int64 }

// takes returns how many permits follow from a limit for windows of another length:
// MaxPermits if nothing does.
func takes(l quota.Limit, window time.Duration) int64 {
	if l.Permits < 1 || l.Window <= 0 {
		return quota.MaxPermits
	}
	n := math.Ceil(float64(l.Permits) * max(1, float64(window)/float64(l.Window)))
	return int64(min(n, float64(quota.MaxPermits)))
}

// learned returns what the provider states, as text like limits; empty if that is no less
// than the policy's.
func (s *Status) learned() string {
	var less []quota.Limit
	for _, u := range s.Limits {
		if u.Learned > 0 {
			less = append(less, quota.Limit{Permits: u.Learned, Window: u.Limit.Window})
		}
	}
	return quota.FormatLimits(less)
}

// learnedLocked returns what the provider has stated to take, if that is less than a
// limit of the policy; else 0.
func (k *core) learnedLocked(l quota.Limit, now int64) int64 {
	s, known := k.mu.learned[l.Window]
	if !known || s.permits >= l.Permits || now-s.mono >= int64(statedLasts) {
		return 0
	}
	return s.permits
}
