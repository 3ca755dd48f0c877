package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/change"
	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

// effects says from when on the instances obey a change, and what is announced.
// An old policy without limits stands for none.
func effects(old, next quota.Policy, now time.Time) []string {
	return append(atOnce(old, next, now), ahead(old, next, now)...)
}

// atOnce says what becomes of the limits in force. A limit is known by its window
// length.
func atOnce(old, next quota.Policy, now time.Time) []string {
	// A change of the settle time acts as the longer of both.
	settle := max(old.Settle, next.Settle)
	before, after := old.LimitsAt(now.UnixNano()), next.LimitsAt(now.UnixNano())
	switch {
	case len(before) == 0 && len(after) == 0:
		return nil
	case len(before) == 0:
		return []string{fmt.Sprintf("instances begin to issue permits with the first window that starts %v after the change", settle)}
	case len(after) == 0:
		return []string{"nothing is issued until the policy begins"}
	}
	was, added, larger, smaller := map[time.Duration]int64{}, false, false, false
	for _, l := range before {
		was[l.Window] = l.Permits
	}
	for _, l := range after {
		n, known := was[l.Window]
		delete(was, l.Window)
		added, larger, smaller = added || !known, larger || known && l.Permits > n, smaller || known && l.Permits < n
	}
	lines := modeEffects(old, next, settle, now)
	if larger {
		line := "the larger limit is used at once by instances that see the change"
		if !slices.ContainsFunc(after, func(l quota.Limit) bool { return gives(old, next, l, now) }) {
			line = fmt.Sprintf("the larger limit is used from the first window that starts %v after the change", settle)
		}
		lines = append(lines, line)
	}
	if smaller {
		line := fmt.Sprintf("the smaller limit binds at once on instances that see the change, and the fleet in every window that starts %v after it", settle)
		if next.Outage == quota.OutageHold {
			line += "; instances cut off from etcd keep their share (outage rule hold)"
		}
		lines = append(lines, line)
	}
	if added {
		lines = append(lines, "the added limit binds from the first of its windows that starts after the change")
	}
	if len(was) > 0 { // removed
		lines = append(lines, fmt.Sprintf("the removed limit binds for %v more", settle))
	}
	return lines
}

// gives reports whether what a limit of the next policy gives more counts at once.
func gives(old, next quota.Policy, l quota.Limit, now time.Time) bool {
	return share.Gives(&old, &next, quota.WindowAt(l.Window, now.UnixNano()))
}

func modeEffects(old, next quota.Policy, settle time.Duration, now time.Time) []string {
	was, is := old.WithDefaults().Mode, next.WithDefaults().Mode
	switch {
	case was == is:
		return nil
	case is == quota.ModePause:
		return []string{"instances that see the change issue nothing from now on"}
	case is == quota.ModeShadow:
		return []string{"every refusal passes from now on: the limit is NOT held until enforce"}
	case was == quota.ModePause && givesAll(old, next, now):
		return []string{"instances that see the change issue permits from now on"}
	case was == quota.ModePause:
		return []string{fmt.Sprintf("instances issue permits from the first window that starts %v after the change", settle)}
	}
	return []string{"refusals count from now on"}
}

// ahead says what is announced.
func ahead(old, next quota.Policy, now time.Time) (lines []string) {
	lead := change.Lead(old, next) - protocol.AnnounceAhead // the write is over by now
	n := change.Current(next, now)
	if n.From.After(now) {
		n.Next = slices.Insert(n.Next, 0, quota.LimitChange{From: n.From, Limits: n.Limits})
	}
	words := func(c quota.LimitChange) string { return quota.FormatLimits(c.Limits) + " from " }
	for _, c := range n.Next {
		line := "announced: " + words(c) + "the first window that starts at " + format.Exact(c.From) + " or later, the same on every instance"
		switch {
		case slices.ContainsFunc(old.Next, func(o quota.LimitChange) bool { return o.From.Equal(c.From) && slices.Equal(o.Limits, c.Limits) }):
			line = "still announced: " + words(c) + format.Exact(c.From) + "; cancel removes it"
		case c.From.Before(now.Add(lead)):
			line += fmt.Sprintf("; that is less than %v ahead, so some permits may be lost", lead)
		}
		lines = append(lines, line)
	}
	for _, c := range change.Current(old, now).Next {
		if !slices.ContainsFunc(n.Next, func(o quota.LimitChange) bool { return o.From.Equal(c.From) }) {
			lines = append(lines, "no longer announced: "+words(c)+format.Exact(c.From))
		}
	}
	return lines
}

// givesAll reports whether all limits' totals may only grow, and count at once.
func givesAll(old, next quota.Policy, now time.Time) bool {
	limits := next.LimitsAt(now.UnixNano())
	return len(limits) > 0 && len(limits) == len(old.LimitsAt(now.UnixNano())) &&
		!slices.ContainsFunc(limits, func(l quota.Limit) bool { return !gives(old, next, l, now) })
}

// inForce returns from when on a change that is made now counts in the whole
// fleet: now if it gives; or else the first instant by which every limit has begun
// a window, at or after at, or the settle time from now where that is zero; and a
// window's reach later where what grows is held back for that.
func inForce(old, policy quota.Policy, at, now time.Time) time.Time {
	if at.IsZero() {
		if givesAll(old, policy, now) {
			return now.UTC()
		}
		at = now.Add(max(old.Settle, policy.Settle))
		if policy.From.After(at) {
			at = policy.From
		}
	}
	from := at
	for _, l := range policy.LimitsAt(at.UnixNano()) {
		begins := quota.WindowAt(l.Window, at.UnixNano()-1).End()
		if protocol.Shaped(&policy) || protocol.Shaped(&old) {
			begins += int64(protocol.ReachOf(l.Window, max(old.Guard, policy.Guard), max(old.ClockError, policy.ClockError)))
		}
		if begins > from.UnixNano() {
			from = time.Unix(0, begins)
		}
	}
	return from.UTC()
}
