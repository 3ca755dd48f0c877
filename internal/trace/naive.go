package trace

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// The judge works out totals and shares by itself, by the text of docs/proof/protocol.md, as
// plainly as it can: it shares no code with protocol.PermitsFor and package share. A mistake of theirs is then no part of what they are judged by.

// limitOf returns the limit of a window's length by a policy. inForce is false before the
// policy begins. A limit that begins within the window counts for all of it if the length
// had none before; of several the smallest does.
func limitOf(p *quota.Policy, w quota.Window) (permits int64, limited, inForce bool) {
	start, end := time.Unix(0, w.Start()), time.Unix(0, w.End())
	if start.Before(p.From) {
		return 0, false, false
	}
	all := append([]quota.LimitChange{{From: p.From, Limits: shared(p)}}, p.Next...)
	current := 0
	for i := range all {
		if !all[i].From.After(start) {
			current = i
		}
	}
	if permits, limited = ofLength(all[current].Limits, w.Length); limited {
		return permits, true, true
	}
	for _, c := range all {
		if c.From.After(start) && c.From.Before(end) {
			if n, ok := ofLength(c.Limits, w.Length); ok && (!limited || n < permits) {
				permits, limited = n, true
			}
		}
	}
	return permits, limited, true
}

// shared returns a policy's limits of which instances have shares. Beside limits of more
// than a minute alone, time is divided by seconds.
func shared(p *quota.Policy) (limits []quota.Limit) {
	for _, l := range p.Limits {
		if l.Window <= time.Minute {
			limits = append(limits, l)
		}
	}
	if limits == nil && p.Limits != nil {
		return []quota.Limit{{Permits: quota.MaxPermits, Window: time.Second}}
	}
	return limits
}

func ofLength(limits []quota.Limit, length time.Duration) (permits int64, limited bool) {
	for _, l := range limits {
		if l.Window == length {
			return l.Permits, true
		}
	}
	return 0, false
}

// beginsWithin reports whether a policy that is not in force as a window starts limits it
// from within.
func beginsWithin(p *quota.Policy, w quota.Window) bool {
	if !p.From.Before(time.Unix(0, w.End())) {
		return false
	}
	limits := shared(p)
	for _, c := range p.Next {
		if !c.From.After(p.From) {
			limits = c.Limits
		}
	}
	_, limited := ofLength(limits, w.Length)
	return limited
}

// givesNothing reports whether instances obey a policy by issuing nothing.
func givesNothing(p *quota.Policy) bool {
	return p.Mode == quota.ModePause || len(p.Requires) > 0 || anotherDivision(p)
}

// anotherDivision reports whether an earlier version divided the total otherwise.
func anotherDivision(p *quota.Policy) bool {
	return slices.ContainsFunc(p.Ignored, func(name string) bool { return strings.HasPrefix(name, "share ") })
}

// sharesOf returns the shares of a window by one view, of all instances that take part.
// limited is false where the view sets no limit of the length, so that there are none.
func sharesOf(v *protocol.View, w quota.Window) (shares map[string]int64, limited bool) {
	p := v.Policy
	if p == nil {
		return nil, false
	}
	limit, limited, inForce := limitOf(p, w)
	if !inForce {
		limited = beginsWithin(p, w)
	}
	if !limited {
		return nil, false
	}
	var part []*protocol.Instance
	for i := range v.Instances {
		if in := &v.Instances[i]; takesPart(in, w) {
			part = append(part, in)
		}
	}
	shares = map[string]int64{}
	if !inForce || givesNothing(p) || len(part) == 0 {
		return shares, true
	}
	splitEqually(p, max(0, limit), part, w, shares)
	return shares, true
}

// takesPart reports whether an instance has begun, and has not ended, as a window starts.
func takesPart(in *protocol.Instance, w quota.Window) bool {
	start := time.Unix(0, w.Start())
	return !start.Before(in.From) && (in.Until.IsZero() || start.Before(in.Until))
}

// splitEqually adds floor(total/n) to everybody's share, and one permit to each of the
// total mod n instances that rank first.
func splitEqually(p *quota.Policy, total int64, part []*protocol.Instance, w quota.Window, shares map[string]int64) {
	window, n := windowOfRanks(p, w), int64(len(part))
	slices.SortFunc(part, func(a, b *protocol.Instance) int {
		return cmp.Or(cmp.Compare(rankOf(b, window), rankOf(a, window)), cmp.Compare(a.ID, b.ID))
	})
	for i, in := range part {
		shares[in.ID] += total / n
		if int64(i) < total%n {
			shares[in.ID]++
		}
	}
}

// windowOfRanks is a window's part of a rank: under other shapes than fixed windows that
// of 64 windows.
func windowOfRanks(p *quota.Policy, w quota.Window) uint64 {
	if p.Shape != "" && p.Shape != quota.ShapeFixed {
		w = quota.WindowAt(64*w.Length, w.Start())
	}
	return scramble(scramble(uint64(w.Length)) + uint64(w.Index))
}

// rankOf is an instance's rank in a window.
func rankOf(in *protocol.Instance, window uint64) uint64 { return scramble(hash(in.ID) ^ window) }

// hash is 64-bit FNV-1a.
func hash(id string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(id) {
		h = (h ^ uint64(id[i])) * 1099511628211
	}
	return h
}

// scramble is a step of splitmix64.
func scramble(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
