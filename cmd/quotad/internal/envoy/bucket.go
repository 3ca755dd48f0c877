package envoy

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

const (
	// fillInterval is the same in every assignment: Envoy does not see a change of its
	// whole seconds. It must be whole seconds, for Envoy drops the rest.
	fillInterval = time.Minute
	// spread is added to a window: the requests of one window of Envoy's arrive within so
	// much more of the provider's time. It covers differences of their ways, and of the
	// clocks' rates.
	spread = 50 * time.Millisecond
	// ttl is how long an assignment lasts; Envoy knows whole seconds only. It is renewed
	// every renewal, and counts until slack after its end, for messages that are late.
	ttl     = 2 * time.Second
	renewal = time.Second
	slack   = time.Second
	// burst is the part of an assignment that may be used at once, as its reciprocal.
	burst = 32
	// worth is the least relative decrease of an assignment for want of demand, as its
	// reciprocal.
	worth = 8
)

// bucket is a token bucket as Envoy enforces it: full at first, of tokens at most, with
// fill tokens more in each fillInterval, evenly. The zero bucket admits nothing.
type bucket struct{ tokens, fill int64 }

// admits returns how many requests the bucket admits in any span of time, at most.
func (b bucket) admits(span time.Duration) int64 {
	ms := int64((span + time.Millisecond - 1) / time.Millisecond)
	const whole = int64(fillInterval / time.Millisecond)
	return b.tokens + (b.fill*ms+whole-1)/whole
}

// cost returns the permits that a window needs for the bucket: what it admits, and once
// more its tokens, because a bucket that takes its place starts full.
func (b bucket) cost(window time.Duration) int64 { return b.tokens + b.admits(window+spread) }

// fit returns the largest bucket that costs at most n permits in a window; the zero bucket
// if n is too small for any.
func fit(n int64, window time.Duration) bucket {
	n = min(n, math.MaxUint32)
	tokens := max(1, n/burst)
	fill := (n - 2*tokens) * int64(fillInterval/time.Millisecond) / int64((window+spread)/time.Millisecond)
	if fill <= 0 {
		return bucket{}
	}
	return bucket{tokens, min(fill, math.MaxUint32)}
}

// lease is a bucket that an Envoy may use until an instant.
type lease struct {
	bucket
	until time.Time
}

// member is one Envoy's use of a provider.
type member struct {
	want   int64   // permits that the requests of a window need; MaxInt64: not known yet
	leases []lease // that it may use, the newest last
	gone   bool    // its stream has ended: it gets no other lease
}

// newest returns the bucket that was assigned last.
func (m *member) newest() bucket {
	if len(m.leases) == 0 {
		return bucket{}
	}
	return m.leases[len(m.leases)-1].bucket
}

// charge returns the permits that a window needs for a member that is assigned also more
// buckets: enough for any instants at which it goes from one to the next.
func (m *member) charge(window time.Duration, more ...bucket) (n int64) {
	var tokens, fill int64
	for _, l := range m.leases {
		more = append(more, l.bucket)
	}
	for _, b := range more {
		n = max(n, b.cost(window))
		tokens += b.tokens
		fill = max(fill, b.fill)
	}
	return max(n, bucket{tokens, fill}.admits(window+spread))
}

// charges returns the permits that a window needs for what the members have.
func charges(members []*member, window time.Duration) (n int64) {
	for _, m := range members {
		n += m.charge(window)
	}
	return n
}

// expire forgets the leases that have ended at an instant. It reports whether the newest
// one has, and had admitted anything: it was not renewed.
func (m *member) expire(now time.Time) bool {
	before := m.newest()
	m.leases = slices.DeleteFunc(m.leases, func(l lease) bool { return !now.Before(l.until) })
	return before != bucket{} && len(m.leases) == 0
}

// assign notes that a bucket is sent now. Envoy goes on with the bucket that it has if that
// is equal and has not ended.
func (m *member) assign(b bucket, now time.Time) {
	until := now.Add(ttl + slack)
	if n := len(m.leases); n > 0 && m.newest() == b && now.Before(m.leases[n-1].until.Add(-slack)) {
		m.leases[n-1].until = until
		return
	}
	m.leases = append(m.leases, lease{b, until})
}

// wants returns the permits that a member wants of a share. An idle one wants some too, so
// that its next requests need not wait for a report.
func (m *member) wants(share int64, members int) int64 {
	if m.gone {
		return 0
	}
	return min(share, max(m.want, share/int64(4*members)))
}

// needs returns the permits that the members need in a window, of a share.
func needs(members []*member, share int64, window time.Duration) (n int64) {
	for _, m := range members {
		n += max(m.charge(window), m.wants(share, len(members)))
	}
	return min(n+1, max(share, 0)) // one more: see plan
}

// unmet returns the permits that the members want beyond a share, as far as that is known.
func unmet(members []*member, share int64) (n int64) {
	for _, m := range members {
		if !m.gone && m.want < math.MaxInt64 {
			n += m.want
		}
	}
	return max(0, min(n, quota.MaxPermits)-share)
}

// plan returns the members' buckets for a window of which elapsed is over, with the
// permits that are set aside for it. The charges then sum to at most the permits, if they
// did before.
//
// If they did not, the share has fallen, and members get less immediately. Their parts of
// the permits pay for what their former buckets may have admitted until now, and within
// spread, in which Envoy learns of it.
func plan(members []*member, permits, share int64, window, elapsed time.Duration) []bucket {
	wants, free, gone := make([]int64, len(members)), permits, int64(0)
	for i, m := range members {
		charge := m.charge(window)
		free -= charge
		wants[i] = m.wants(share, len(members))
		if m.gone {
			gone += charge
		}
	}
	short := free < 0
	if short {
		permits -= gone
	} else { // shares that do not divide the limit differ by one from window to window
		free, permits = free-1, permits-1
	}
	parts, buckets := divide(permits, wants), make([]bucket, len(members))
	for i, m := range members {
		b, part := m.newest(), parts[i]
		cost := b.cost(window)
		switch {
		case m.gone:
		case short && cost > part:
			b = fit(part-b.admits(elapsed+spread), window)
		case short || len(m.leases) > 1: // at most one change at a time
		case part < cost-cost/worth:
			b = fit(part, window) // the former one is charged until it ends
		case part > cost+cost/burst:
			charged := m.charge(window)
			more := fit(min(part, charged+max(0, free)), window)
			if more.cost(window) > cost {
				b = more
				free -= m.charge(window, more) - charged
			}
		}
		buckets[i] = b
	}
	return buckets
}

// divide returns the parts of n, max-min fair: nobody gets more than it wants, and those
// that want more get the same.
func divide(n int64, wants []int64) []int64 {
	order, parts := make([]int, len(wants)), make([]int64, len(wants))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(wants[a], wants[b]) })
	n = max(0, n)
	for k, i := range order {
		parts[i] = min(wants[i], n/int64(len(order)-k))
		n -= parts[i]
	}
	return parts
}
