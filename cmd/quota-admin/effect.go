package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/format"

	"github.com/quotient-limiter/quotient/cmd/quota-admin/internal/change"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/quota"
)

// writeChange says what was changed: the limits in force in one line, and a line
// for each other field that differs. A revision of 0 was not written.
func writeChange(w io.Writer, old, next coordinator.Stored, now time.Time) {
	provider := format.Show(next.Provider)
	written := fmt.Sprintf(" (revision %d, was %d)", next.Revision, old.Revision)
	if next.Revision == 0 {
		written = ""
	}
	n := change.Current(next.Policy, now)
	if old.Revision == 0 {
		if next.Revision != 0 {
			written = fmt.Sprintf(" (revision %d, new)", next.Revision)
		}
		fmt.Fprintf(w, "%s: %s%s\n", provider, quota.FormatLimits(n.Limits), written)
		return
	}
	o := change.Current(old.Policy, now)
	limits := quota.FormatLimits(n.Limits)
	if before := quota.FormatLimits(o.Limits); before != limits {
		limits = before + " -> " + limits
	}
	fmt.Fprintf(w, "%s: %s%s\n", provider, limits, written)
	for _, d := range change.Diff(&o, &n) {
		if d.Field != "limits" {
			fmt.Fprintf(w, "%s: %s %s -> %s\n", provider, format.Clean(strings.ReplaceAll(d.Field, "_", " ")), format.Show(d.Old), format.Show(d.New))
		}
	}
}

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
	before := byWindow(old.LimitsAt(now.UnixNano()))
	after := byWindow(next.LimitsAt(now.UnixNano()))
	if len(before) == 0 && len(after) == 0 {
		return nil
	}
	if len(before) == 0 {
		return []string{fmt.Sprintf("instances begin to issue permits with the first window that starts %v after the change", settle)}
	}
	if len(after) == 0 {
		return []string{"nothing is issued until the policy begins"}
	}
	lines := modeEffects(old, next, settle)
	var larger, smaller, added, removed bool
	for window, permits := range after {
		was, ok := before[window]
		added = added || !ok
		larger = larger || ok && permits > was
		smaller = smaller || ok && permits < was
	}
	for window := range before {
		_, ok := after[window]
		removed = removed || !ok
	}
	if larger {
		lines = append(lines, fmt.Sprintf("the larger limit is used from the first window that starts %v after the change", settle))
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
	if removed {
		lines = append(lines, fmt.Sprintf("the removed limit binds for %v more", settle))
	}
	return lines
}

func modeEffects(old, next quota.Policy, settle time.Duration) []string {
	old, next = old.WithDefaults(), next.WithDefaults()
	if old.Mode == next.Mode {
		return nil
	}
	switch next.Mode {
	case quota.ModePause:
		return []string{"instances that see the change issue nothing from now on"}
	case quota.ModeShadow:
		return []string{"every refusal passes from now on: the limit is NOT held until enforce"}
	}
	if old.Mode == quota.ModePause {
		return []string{fmt.Sprintf("instances issue permits from the first window that starts %v after the change", settle)}
	}
	return []string{"refusals count from now on"}
}

// ahead says what is announced.
func ahead(old, next quota.Policy, now time.Time) (lines []string) {
	lead := change.Lead(old, next)
	n := change.Current(next, now)
	if n.From.After(now) {
		n.Next = slices.Insert(n.Next, 0, quota.LimitChange{From: n.From, Limits: n.Limits})
	}
	for _, c := range n.Next {
		known := slices.ContainsFunc(old.Next, func(o quota.LimitChange) bool { return o.From.Equal(c.From) && slices.Equal(o.Limits, c.Limits) })
		line := fmt.Sprintf("announced: %s from the first window that starts at %s or later, the same on every instance", quota.FormatLimits(c.Limits), format.Exact(c.From))
		switch {
		case known:
			line = fmt.Sprintf("still announced: %s from %s; cancel removes it", quota.FormatLimits(c.Limits), format.Exact(c.From))
		case c.From.Before(now.Add(lead - announceMargin)):
			line += fmt.Sprintf("; that is less than %v ahead, so some permits may be lost", lead-announceMargin)
		}
		lines = append(lines, line)
	}
	for _, c := range change.Current(old, now).Next {
		gone := !slices.ContainsFunc(n.Next, func(o quota.LimitChange) bool { return o.From.Equal(c.From) })
		if gone {
			lines = append(lines, fmt.Sprintf("no longer announced: %s from %s", quota.FormatLimits(c.Limits), format.Exact(c.From)))
		}
	}
	return lines
}

// announceMargin is what change.Lead allows for the write that is over by now.
const announceMargin = 200 * time.Millisecond

func byWindow(limits []quota.Limit) map[time.Duration]int64 {
	m := make(map[time.Duration]int64, len(limits))
	for _, l := range limits {
		m[l.Window] = l.Permits
	}
	return m
}
