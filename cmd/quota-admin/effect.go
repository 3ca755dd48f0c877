package main

import (
	"fmt"
	"io"
	"time"

	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/quota"
)

// writeChange says what a set changed: the limits in one line, and a line for
// each other field that differs.
func writeChange(w io.Writer, old, now coordinator.Stored) {
	provider := show(now.Provider)
	if old.Revision == 0 {
		fmt.Fprintf(w, "%s: %s (revision %d, new)\n", provider, quota.FormatLimits(now.Policy.Limits), now.Revision)
		return
	}
	fmt.Fprintf(w, "%s: %s -> %s (revision %d, was %d)\n", provider,
		quota.FormatLimits(old.Policy.Limits), quota.FormatLimits(now.Policy.Limits), now.Revision, old.Revision)
	o, n := old.Policy.WithDefaults(), now.Policy.WithDefaults()
	fields := []struct {
		name     string
		old, now any
	}{
		{"settle", o.Settle, n.Settle},
		{"freshness", o.Freshness, n.Freshness},
		{"clock error", o.ClockError, n.ClockError},
		{"outage", o.Outage, n.Outage},
		{"guard", o.Guard, n.Guard},
	}
	for _, f := range fields {
		if f.old != f.now {
			fmt.Fprintf(w, "%s: %s %v -> %v\n", provider, f.name, f.old, f.now)
		}
	}
}

// effects says from when on the instances obey a change. A limit is known by its
// window length. An old policy without limits stands for none.
func effects(old, now quota.Policy) []string {
	// A change of the settle time acts as the longer of both.
	settle := max(old.Settle, now.Settle)
	if len(old.Limits) == 0 {
		return []string{fmt.Sprintf("instances begin to issue permits with the first window that starts %v after the change", settle)}
	}
	before := byWindow(old.Limits)
	after := byWindow(now.Limits)
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
	var lines []string
	if larger {
		lines = append(lines, fmt.Sprintf("the larger limit is used from the first window that starts %v after the change", settle))
	}
	if smaller {
		line := fmt.Sprintf("the smaller limit binds at once on instances that see the change, and the fleet in every window that starts %v after it", settle)
		if now.Outage == quota.OutageHold {
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

func byWindow(limits []quota.Limit) map[time.Duration]int64 {
	m := make(map[time.Duration]int64, len(limits))
	for _, l := range limits {
		m[l.Window] = l.Permits
	}
	return m
}
