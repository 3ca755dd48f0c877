package window

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/internal/window/shape"
	"github.com/quotient-limiter/quotient/quota"
)

// issued is a permit and when.
type issued struct{ at, n int64 }

// drive takes, waits, cancels and gives back at random, by calls of all classes, and logs what was issued, by instant. Now
// and then it calls change. Nothing is counted as issued beyond a bound.
func drive(t *rapid.T, g *Gate, log *[]issued, now *int64, span int64, change func()) {
	var queued []*queue.Waiter
	for range rapid.IntRange(1, 120).Draw(t, "steps") {
		*now += rapid.OneOf(rapid.Int64Range(0, span/2000), rapid.Int64Range(0, int64(5*ms)), rapid.Int64Range(0, span/3), rapid.Int64Range(0, 3*span)).Draw(t, "later")
		for wake := g.Wake(); wake <= *now; wake = g.Wake() {
			late := *now
			*now = max(wake, 0)
			g.Tick(clock.Instant{Mono: *now, Wall: *now})
			*now = late
			if g.Wake() == wake {
				break
			}
		}
		in := clock.Instant{Mono: *now, Wall: *now}
		n := rapid.Int64Range(1, 6).Draw(t, "n")
		c := rapid.SampledFrom([]queue.Class{queue.Critical, queue.Default, queue.Sheddable}).Draw(t, "class")
		switch rapid.IntRange(0, 5).Draw(t, "what") {
		case 0:
			_, _, got := g.TakeUpTo(in, 5*n, c)
			*log = append(*log, issued{*now, got})
		case 1:
			// As the hot path does: from the segment, without the gate's lock.
			if s := g.Segment(); s.Take(*now, n, c) {
				*log = append(*log, issued{*now, n})
			}
		case 2:
			w := &queue.Waiter{}
			switch _, v := g.Enter(in, w, n, *now+rapid.Int64Range(1, 2*span).Draw(t, "patience"), c); v {
			case queue.Granted:
				*log = append(*log, issued{*now, n})
			case queue.Queued:
				queued = append(queued, w)
			}
		case 3:
			if len(queued) > 0 {
				g.Cancel(in, queued[0])
				queued = queued[1:]
			}
		case 4:
			if grant, ok := take(g, in, n); ok {
				*log = append(*log, issued{*now, n})
				if rapid.Bool().Draw(t, "back") && refund(g, in, grant, n) {
					*log = (*log)[:len(*log)-1]
				}
			}
		case 5:
			change()
		}
	}
	if over := g.Usage(clock.Instant{Mono: *now, Wall: *now}).OverIssued; over > 0 {
		t.Fatalf("%d permits count as issued beyond the share: %v", over, *log)
	}
}

func anyShaped(t *rapid.T, kind shape.Shape) (g *Gate, f *fixed, log *[]issued, now *int64, length time.Duration) {
	length = time.Duration(rapid.Int64Range(100, 3000).Draw(t, "length")) * ms
	log, now = new([]issued), new(int64)
	g, f = shapedGate(map[time.Duration]int64{length: rapid.Int64Range(1, 20).Draw(t, "share")}, rapid.Int64Range(1, 20).Draw(t, "burst"), kind,
		func(w *queue.Waiter, _ queue.Grant, v queue.Verdict) {
			if v == queue.Granted {
				*log = append(*log, issued{*now, w.N()})
			}
		})
	return g, f, log, now, length
}

// TestSlidingAgainstEverySpan: no span of a window's length, and no longer one of
// a slow clock, holds more than the share, by a naive sum over all spans.
func TestSlidingAgainstEverySpan(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g, f, log, now, length := anyShaped(t, sliding)
		drive(t, g, log, now, int64(length), func() {})
		share, span := f.shares[length], int64(length+length/500)
		for i, first := range *log {
			sum := int64(0)
			for _, p := range (*log)[i:] {
				if p.at-first.at <= span {
					sum += p.n
				}
			}
			if sum > share {
				t.Fatalf("%d permits within %v from %v on, share %d: %v", sum, time.Duration(span), time.Duration(first.at), share, *log)
			}
		}
	})
}

// TestSlidingAgainstArrivals: with a transit no span of a window's length holds more
// arrivals than the share, however long each call takes up to the transit, and also
// while the transit shrinks and grows: then by the smallest that there was. Calls
// leave no later than Grant.End less what they take.
func TestSlidingAgainstArrivals(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g, f, log, now, length := anyShaped(t, sliding)
		draw := rapid.Int64Range(int64(length)/250, int64(length)/2-1)
		least := draw.Draw(t, "transit")
		f.set(func() { f.plan.Shape.Transit = least })
		g.Changed(clock.Instant{})
		drive(t, g, log, now, int64(length), func() {
			transit := draw.Draw(t, "other transit")
			least = min(least, transit)
			f.set(func() { f.plan.Shape.Transit = transit })
			g.Changed(clock.Instant{Mono: *now, Wall: *now})
		})
		arrivals := slices.Clone(*log)
		for i := range arrivals {
			arrivals[i].at += rapid.SampledFrom([]int64{0, least, rapid.Int64Range(0, least).Draw(t, "takes")}).Draw(t, "call")
		}
		slices.SortFunc(arrivals, func(a, b issued) int { return cmp.Compare(a.at, b.at) })
		for i, first := range arrivals {
			sum := int64(0)
			for _, p := range arrivals[i:] {
				if p.at-first.at <= int64(length+length/500) {
					sum += p.n
				}
			}
			if sum > f.shares[length] {
				t.Fatalf("%d arrive within %v from %v on, share %d: %v", sum, length, time.Duration(first.at), f.shares[length], arrivals)
			}
		}
	})
}

// TestBucketAgainstArrivals: with the burst that goes with a guard, every span of
// time d holds at most the policy's burst and what accrues in d, in arrivals.
func TestBucketAgainstArrivals(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		length := time.Duration(rapid.Int64Range(100, 3000).Draw(t, "length")) * ms
		limit := quota.Limit{Permits: rapid.Int64Range(1, 20).Draw(t, "share"), Window: length}
		policy := rapid.Custom(func(t *rapid.T) quota.Policy {
			return quota.Policy{
				Limits: []quota.Limit{limit}, Release: quota.Release{Shape: quota.ShapeBucket, Burst: rapid.Int64Range(1, limit.Permits).Draw(t, "burst")},
				Timing: quota.Timing{Guard: time.Duration(rapid.Int64Range(int64(length)/250, int64(length)/2-1).Draw(t, "guard"))},
			}
		}).Filter(func(p quota.Policy) bool { return p.Validate() == nil }).Draw(t, "policy")
		log, now := new([]issued), new(int64)
		kind := accrues
		kind.Transit = int64(policy.Guard)
		g, _ := shapedGate(map[time.Duration]int64{length: limit.Permits}, protocol.BurstOf(&policy, limit), kind, func(w *queue.Waiter, _ queue.Grant, v queue.Verdict) {
			if v == queue.Granted {
				*log = append(*log, issued{*now, w.N()})
			}
		})
		drive(t, g, log, now, int64(length), func() {})
		for i := range *log {
			(*log)[i].at += rapid.SampledFrom([]int64{0, int64(policy.Guard)}).Draw(t, "takes")
		}
		slices.SortFunc(*log, func(a, b issued) int { return cmp.Compare(a.at, b.at) })
		for i, first := range *log {
			sum := int64(0)
			for _, p := range (*log)[i:] {
				sum += p.n
				if most := float64(policy.Burst) + float64(limit.Permits)*float64(p.at-first.at)/float64(length); float64(sum) > most+1e-6 {
					t.Fatalf("%d arrive within %v from %v on, more than %.3f: %v, guard %v: %v",
						sum, time.Duration(p.at-first.at), time.Duration(first.at), most, limit, policy.Guard, *log)
				}
			}
		}
	})
}

// A permit under a transit ends with it, a slot before it at the earliest.
func TestGrantsEndWithTheTransit(t *testing.T) {
	for name, kind := range map[string]shape.Shape{"sliding": sliding, "bucket": accrues} {
		kind.Transit = int64(20 * ms)
		g, _ := shapedGate(map[time.Duration]int64{second: 100}, 50, kind, nil)
		for _, now := range []time.Duration{300 * ms, 1301*ms + 1, 2303*ms - 1} {
			grant, ok := take(g, at(now), 1)
			if left := time.Duration(grant.End) - now; !ok || left > 20*ms || left < 18*ms {
				t.Errorf("%s: a permit at %v is valid for %v, want 18 to 20 ms", name, now, left)
			}
		}
	}
}

// TestSlidingWastesNothing: what no span of the last window's length holds, with
// two slots on top, can be had.
func TestSlidingWastesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g, f, log, now, length := anyShaped(t, sliding)
		drive(t, g, log, now, int64(length), func() {})
		held := int64(0)
		for _, p := range *log {
			if *now-p.at <= int64(length+3*protocol.SlotOf(length)) {
				held += p.n
			}
		}
		u := g.Usage(clock.Instant{Mono: *now})
		if u.Waiting > 0 {
			return
		}
		if got := upTo(g, clock.Instant{Mono: *now}, 1000); got < f.shares[length]-held {
			t.Fatalf("%d permits can be had, share %d and %d in the last window: %v", got, f.shares[length], held, *log)
		}
	})
}

// TestBucketAgainstEverySpan: every span of time d holds at most the burst and
// what accrues in d, also if the share changes on the way; then by the largest of
// the shares and bursts that there were.
func TestBucketAgainstEverySpan(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g, f, log, now, length := anyShaped(t, accrues)
		share, burst := f.shares[length], min(f.burst, f.shares[length])
		drive(t, g, log, now, int64(length), func() {
			f.set(func() { f.shares[length] = rapid.Int64Range(0, share).Draw(t, "other share") })
			g.Changed(clock.Instant{Mono: *now, Wall: *now})
		})
		for i, first := range *log {
			sum := int64(0)
			for _, p := range (*log)[i:] {
				sum += p.n
				if most := float64(burst) + float64(share)*float64(p.at-first.at)/float64(length); float64(sum) > most+1e-6 {
					t.Fatalf("%d permits within %v from %v on, more than %.3f (share %d, burst %d): %v",
						sum, time.Duration(p.at-first.at), time.Duration(first.at), most, share, burst, *log)
				}
			}
		}
	})
}

// TestBucketWastesNothing: a caller that takes what there is has, after any time,
// all that accrued in it, less the share of clocks' drift and a permit.
func TestBucketWastesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		length := time.Duration(rapid.Int64Range(100, 3000).Draw(t, "length")) * ms
		share := rapid.Int64Range(1, 5000).Draw(t, "share")
		burst := rapid.Int64Range(1, share).Draw(t, "burst")
		g, _ := shapedGate(map[time.Duration]int64{length: share}, burst, accrues, nil)
		span := float64(length) * 1.002
		got := upTo(g, at(0), 1<<40)
		now := int64(0)
		for now < int64(5*length) {
			s := g.Segment()
			now = max(now+1, s.until)
			got += upTo(g, clock.Instant{Mono: now, Wall: now}, 1<<40)
		}
		if want := float64(burst) + 0.98*float64(share)*float64(now)/span - 1; float64(got) < want {
			t.Fatalf("%d issued in %v, want %.0f (share %d, burst %d)", got, time.Duration(now), want, share, burst)
		}
	})
}

// TestShapedForecastIsNeverLate: nobody is refused who would have been served in
// time.
func TestShapedForecastIsNeverLate(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g, _, log, now, length := anyShaped(t, rapid.SampledFrom([]shape.Shape{sliding, accrues}).Draw(t, "shape"))
		drive(t, g, log, now, int64(length), func() {})
		if g.Usage(clock.Instant{Mono: *now}).Waiting > 0 {
			return
		}
		n := rapid.Int64Range(1, 3).Draw(t, "n")
		when, known := g.Estimate(clock.Instant{Mono: *now, Wall: *now}, n, queue.Default)
		w, served := &queue.Waiter{}, int64(-1)
		g.decided = func(*queue.Waiter, queue.Grant, queue.Verdict) { served = *now }
		if _, v := g.Enter(clock.Instant{Mono: *now, Wall: *now}, w, n, clock.Forever, queue.Default); v == queue.Granted {
			served = *now
		} else if v != queue.Queued {
			return
		}
		for i := 0; served < 0; i++ {
			wake := g.Wake()
			if wake == clock.Forever || i > 10_000 {
				return // more than the share ever holds
			}
			*now = max(*now, wake)
			g.Tick(clock.Instant{Mono: *now, Wall: *now})
		}
		if known && served < when {
			t.Fatalf("served at %v, %v before it was foreseen", time.Duration(served), time.Duration(when-served))
		}
	})
}
