package change

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/quota"
)

// TestRewritingLosesNothing draws policies, instants and changes. Whatever is
// written, windows that started before and may still run by any clock must find
// the limits that they had, unless other limits were set at once; and later
// windows what was asked for.
func TestRewritingLosesNothing(t *testing.T) {
	t.Parallel()
	texts := []string{"5/s", "7/s", "9/100ms", "20/s,100/10s", "3/s,50/1m"}
	rapid.Check(t, func(rt *rapid.T) {
		some := func(label string) []quota.Limit { return limits(t, rapid.SampledFrom(texts).Draw(rt, label)) }
		var l line
		times := rapid.SliceOfNDistinct(rapid.IntRange(-100, 100), 0, 6, rapid.ID).Draw(rt, "times")
		slices.Sort(times)
		if rapid.Bool().Draw(rt, "always") || len(times) == 0 {
			l = line{{Limits: some("first")}}
		}
		for _, at := range times {
			l = append(l, quota.LimitChange{From: sec(at), Limits: some("announced")})
		}
		old := l.into(quota.Policy{})
		now := noon.Add(time.Duration(rapid.IntRange(-3000, 3000).Draw(rt, "now")) * time.Millisecond)
		set, timing := some("set"), Timing{}
		if rapid.Bool().Draw(rt, "ahead") {
			timing.At = ceil(now.Add(Lead(old, old)), time.Second).Add(time.Duration(rapid.IntRange(0, 60).Draw(rt, "at")) * time.Second)
		}
		next, err := SetLimits(old, old, set, timing, now)
		if err != nil {
			rt.Fatal(err)
		}
		limitsAt := func(p quota.Policy, at time.Time) []quota.Limit { return p.LimitsAt(at.UnixNano()) }
		kept := !timing.At.IsZero() || same(limitsAt(old, now), set)
		keep := running(old, next)
		for at := now.Add(-keep); at.Before(sec(200)); at = at.Add(250 * time.Millisecond) {
			want := limitsAt(old, at)
			switch {
			case !at.After(now) && !kept:
				continue // set at once: the running windows change too
			case timing.At.IsZero() && at.After(now):
				want = naive(l, at, now, set)
			case !timing.At.IsZero() && !at.Before(timing.At):
				want = naive(l, at, timing.At, set)
			}
			if got := limitsAt(next, at); !slices.Equal(got, want) {
				rt.Fatalf("%s, set %s at %v, now %v: at %v got %v, want %v\nwritten: %s", spell(old), quota.FormatLimits(set),
					timing.At.Sub(noon), now.Sub(noon), at.Sub(noon), got, want, spell(next))
			}
		}
		if got := spell(Carry(old, next, now)); got != spell(next) {
			rt.Fatalf("carrying over what was carried over: %s, then %s", spell(next), got)
		}
	})
}

// naive is what is in force at an instant after set came at when: the newest of
// it and of what is announced after it.
func naive(l line, at, when time.Time, set []quota.Limit) []quota.Limit {
	for _, e := range slices.Backward(l) {
		if e.From.After(when) && !e.From.After(at) {
			return e.Limits
		}
	}
	return set
}
