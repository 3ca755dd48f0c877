package consumer

import (
	"math"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// Learn compares limits that the provider states with the policy: Permits for each window
// of the given length or, if the length is unknown, of at least that length.
// httplimit.Transport calls it if its field Learn is set. It changes no limit and does not
// block. LimitUse.Learned, a log line, a metric and quota-admin doctor tell of a stated
// limit below the policy's.
//
// A policy's window takes the stated permits if it is no longer than the stated window,
// otherwise in proportion more. The smallest stated limit counts. A larger one replaces it
// two windows after it was last stated, at least 2 minutes. It is forgotten after five
// times as long without any. Limits below one permit are ignored.
func (l *Limiter) Learn(limits ...quota.Limit) {
	k := l.core
	k.mu.Lock()
	defer k.mu.Unlock()
	policy, _ := k.mu.planner.Policy()
	if policy == nil {
		return
	}
	now := k.clock.Mono()
	for _, own := range slices.Concat(policy.LimitsAt(k.clock.WallAt(now)), protocol.Long(policy)) {
		n := quota.MaxPermits
		for _, of := range limits {
			n = min(n, takes(of, own.Window))
		}
		last, known := k.mu.learned[own.Window]
		holds := statedHolds(own.Window)
		known = known && now-last.mono < 5*holds
		if !known && n < own.Permits || known && (n <= last.permits || now-last.mono >= holds) {
			k.mu.learned[own.Window] = stated{n, now}
		}
	}
}

// statedHolds is longer than the window: near the end of a window of unknown length less
// follows from what is stated than before.
func statedHolds(window time.Duration) int64 { return int64(2 * max(window, quota.MaxWindow)) }

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
	if !known || s.permits >= l.Permits || now-s.mono >= 5*statedHolds(l.Window) {
		return 0
	}
	return s.permits
}
