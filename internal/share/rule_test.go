package share_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

// The tests below are one per way in which the settle rule has been broken
// before, as far as a history can break it. All use offset 0, windows of 1 s
// and the default settle time of 3 s.

func check(t *testing.T, h *share.History, index, now, frozen, permits int64, reason share.Reason) {
	t.Helper()
	if b := h.Bound(second(index), now*ms, 0, frozen); b.Permits != permits || b.Reason != reason {
		t.Errorf("window %d at %d ms: %d (%v), want %d (%v)", index, now, b.Permits, b.Reason, permits, reason)
	}
}

func held(permits int64, ids ...string) *share.History {
	var h share.History
	h.Reset(0, "a", view(1, permits, ids...))
	return &h
}

// The lookback starts S before the window's start, not S before now: a larger
// share does not come in the middle of a window.
func TestShareGrowsOnlyAtAWindowsStart(t *testing.T) {
	h := held(10, "a", "b")
	h.Apply(10_500*ms, protocol.Change{Revision: 2, Deleted: []string{"b"}})
	check(t, h, 13, 13_000, share.NotFrozen, 5, share.ReasonShare)
	check(t, h, 13, 13_999, share.NotFrozen, 5, share.ReasonShare) // 3.499 s after
	check(t, h, 14, 14_000, share.NotFrozen, 10, share.ReasonShare)
}

func TestShareShrinksAtOnce(t *testing.T) {
	h := held(10, "a")
	check(t, h, 10, 10_400, share.NotFrozen, 10, share.ReasonShare)
	h.Apply(10_500*ms, protocol.Change{Revision: 2, Put: []protocol.Instance{{ID: "b"}}})
	check(t, h, 10, 10_500, share.NotFrozen, 5, share.ReasonShare)
}

// Every revision is a view, also one that is gone at the same instant.
func TestViewHeldForNoTimeCounts(t *testing.T) {
	h := held(10, "a")
	h.Apply(10_000*ms, protocol.Change{Revision: 2, Deleted: []string{"a"}})
	h.Apply(10_000*ms, protocol.Change{Revision: 3, Put: []protocol.Instance{{ID: "a"}}})
	check(t, h, 13, 13_000, share.NotFrozen, 0, share.ReasonJoining) // held at exactly start - S
	check(t, h, 14, 14_000, share.NotFrozen, 10, share.ReasonShare)
}

func TestGapCountsAsShareZero(t *testing.T) {
	h := held(10, "a")
	h.Announce(1)
	h.Reset(10_500*ms, "a", view(9, 10, "a"))
	check(t, h, 10, 10_600, share.NotFrozen, 0, share.ReasonJoining)
	check(t, h, 13, 13_600, share.NotFrozen, 0, share.ReasonJoining)
	check(t, h, 14, 14_000, share.NotFrozen, 10, share.ReasonShare) // and the announced end is forgotten
}

func TestJoinerWaits(t *testing.T) {
	h := held(10, "b")
	check(t, h, 5, 5000, share.NotFrozen, 0, share.ReasonJoining)
	h.Apply(10_500*ms, protocol.Change{Revision: 2, Put: []protocol.Instance{{ID: "a"}}})
	check(t, h, 13, 13_400, share.NotFrozen, 0, share.ReasonJoining)
	check(t, h, 14, 14_000, share.NotFrozen, 5, share.ReasonShare)
}

func TestLateRevisionIsIgnored(t *testing.T) {
	h := held(10, "a")
	h.Apply(ms, protocol.Change{Revision: 5, Put: []protocol.Instance{{ID: "b"}}})
	for _, r := range []int64{4, 5} {
		if h.Apply(2*ms, protocol.Change{Revision: r, Deleted: []string{"b"}}) {
			t.Errorf("revision %d applied after 5", r)
		}
	}
	check(t, h, 10, 10_000, share.NotFrozen, 5, share.ReasonShare)
}

func TestHoldDoesNotGrowWhileStale(t *testing.T) {
	h := held(10, "a", "b")
	h.Apply(10_500*ms, protocol.Change{Revision: 2, Deleted: []string{"b"}})
	for k := int64(14); k < 40; k++ {
		check(t, h, k, k*1000, 10_000*ms, 5, share.ReasonShare)
	}
	check(t, h, 40, 40_000, share.NotFrozen, 10, share.ReasonShare)
}

func TestChangeOfSettleActsAsTheLargerForTheLonger(t *testing.T) {
	long := view(1, 10, "a", "b")
	long.Policy.Settle = 10 * time.Second
	var h share.History
	h.Reset(0, "a", long)
	short := *long.Policy
	short.Settle, short.Freshness = time.Second, 500*time.Millisecond
	h.Apply(20_000*ms, protocol.Change{Revision: 2, Deleted: []string{"b"}})
	h.Apply(20_000*ms, protocol.Change{Revision: 3, Policy: &short})
	check(t, &h, 22, 22_000, share.NotFrozen, 5, share.ReasonShare)
	check(t, &h, 30, 30_000, share.NotFrozen, 5, share.ReasonShare) // 20 s is start - 10 s
	check(t, &h, 31, 31_000, share.NotFrozen, 10, share.ReasonShare)
	if r := h.Rules(25_000 * ms); r.Settle != 10*time.Second || r.Freshness != 500*time.Millisecond {
		t.Errorf("rules while the longer one acts: %+v", r)
	}
	if r := h.Rules(31_000 * ms); r.Settle != time.Second {
		t.Errorf("rules after it: %+v", r)
	}
}

func TestAnnouncedEndBindsBeforeItIsSeen(t *testing.T) {
	h := held(10, "a")
	h.Announce(12_000 * ms)
	check(t, h, 11, 11_500, share.NotFrozen, 10, share.ReasonShare)
	check(t, h, 12, 12_000, share.NotFrozen, 0, share.ReasonLeft)
}

// What is announced ahead flips at one boundary and loses nothing.
func TestFromAndUntilFlipOnABoundary(t *testing.T) {
	h := held(10, "a", "b")
	h.Apply(10_000*ms, protocol.Change{Revision: 2, Put: []protocol.Instance{{ID: "c", From: time.Unix(15, 0)}}})
	h.Apply(10_100*ms, protocol.Change{Revision: 3, Put: []protocol.Instance{{ID: "b", Until: time.Unix(15, 0)}}})
	h.Apply(10_200*ms, protocol.Change{Revision: 4, Put: []protocol.Instance{{ID: "c", From: time.Unix(15, 0), Until: time.Unix(17, 0)}}})
	for k, want := range map[int64]int64{11: 5, 14: 5, 15: 5, 16: 5, 17: 10} {
		check(t, h, k, k*1000, share.NotFrozen, want, share.ReasonShare)
	}
	if b := h.Bound(second(17), 17_000*ms, 0, share.NotFrozen); b.Instances != 1 || h.Instances() != 3 {
		t.Errorf("%d take part of %d", b.Instances, h.Instances())
	}
}

// Permits are held for one that crashed, and for none that announced its end: the others have all of its part from
// then on.
func TestPermitsAreHeldForNoneThatAnnouncedItsEnd(t *testing.T) {
	h := held(12, "a", "b", "c")
	holds := func(index int64, permits, until int64, want ...string) {
		t.Helper()
		check(t, h, index, index*1000, share.NotFrozen, permits, share.ReasonShare)
		if ids, end := h.Held(second(index), index*1000*ms, 0); !slices.Equal(ids, want) || end != until*ms {
			t.Errorf("window %d: permits are held for %v until %d, want %v until %d", index, ids, end/ms, want, until)
		}
	}
	h.Apply(10_100*ms, protocol.Change{Revision: 2, Put: []protocol.Instance{{ID: "b", Until: time.Unix(11, 0)}}})
	h.Apply(11_010*ms, protocol.Change{Revision: 3, Deleted: []string{"b"}})
	holds(12, 6, 0)
	h.Apply(12_100*ms, protocol.Change{Revision: 4, Deleted: []string{"c"}})
	holds(13, 6, 16_000, "c")
	holds(15, 6, 16_000, "c")
	holds(16, 12, 0)
}

func TestLimitAddedAndRemoved(t *testing.T) {
	h := held(10, "a")
	minute := quota.Policy{Limits: []quota.Limit{{Permits: 7, Window: time.Second}, {Permits: 20, Window: 2 * time.Second}}}
	h.Apply(10_000*ms, protocol.Change{Revision: 2, Policy: &minute})
	two := func(k int64) int64 {
		return h.Bound(quota.Window{Length: 2 * time.Second, Index: k}, k*2000*ms, 0, share.NotFrozen).Permits
	}
	if two(5) != 20 {
		t.Errorf("the added limit admits %d", two(5))
	}
	h.Apply(20_000*ms, protocol.Change{Revision: 3, Policy: view(1, 10).Policy})
	if two(10) != 20 || two(11) != 20 || two(12) != share.Unbounded {
		t.Errorf("the removed limit admits %d, %d, %d", two(10), two(11), two(12))
	}
	if l := h.Lengths(22_000*ms, 0); len(l) != 2 {
		t.Errorf("binding lengths: %v", l)
	}
	if l := h.Lengths(24_000*ms, 0); len(l) != 1 {
		t.Errorf("binding lengths: %v", l)
	}
}

// TestPolicyFromWithinALongerWindow: from 25 s on, within the 10 s window from
// 20 s. The windows of a second begin there; were they alone to bind, 25
// permits would be issued in that window.
func TestPolicyFromWithinALongerWindow(t *testing.T) {
	v := view(1, 5, "a")
	v.Policy.Limits = append(v.Policy.Limits, quota.Limit{Permits: 20, Window: 10 * time.Second})
	v.Policy.From = time.Unix(25, 0)
	var h share.History
	h.Reset(0, "a", v)
	ten := func(k, now int64) share.Bound {
		return h.Bound(quota.Window{Length: 10 * time.Second, Index: k}, now*ms, 0, share.NotFrozen)
	}
	if l := h.Lengths(26_000*ms, 0); len(l) != 2 {
		t.Errorf("binding lengths: %v", l)
	}
	if b := ten(2, 26_000); b.Permits != 0 || b.Reason != share.ReasonNoPolicy {
		t.Errorf("the window in which the policy begins: %+v", b)
	}
	if b := ten(3, 30_000); b.Permits != 20 {
		t.Errorf("the window after that: %+v", b)
	}
}

func TestReasonsForNothing(t *testing.T) {
	for reason, change := range map[share.Reason]protocol.Change{
		share.ReasonNoPolicy:    {PolicyDeleted: true},
		share.ReasonPaused:      {Policy: &quota.Policy{Limits: view(1, 9).Policy.Limits, Mode: quota.ModePause}},
		share.ReasonUnsupported: {Policy: &quota.Policy{Limits: view(1, 9).Policy.Limits, Requires: []string{"x"}}},
		share.ReasonLeft:        {Put: []protocol.Instance{{ID: "a", Until: time.Unix(5, 0)}}},
		share.ReasonJoining:     {Put: []protocol.Instance{{ID: "a", From: time.Unix(50, 0)}}},
	} {
		h := held(10, "a")
		change.Revision = 2
		h.Apply(5000*ms, change)
		check(t, h, 9, 9000, share.NotFrozen, 0, reason)
	}
	var h share.History
	check(t, &h, 9, 9000, share.NotFrozen, 0, share.ReasonJoining)
}

// TestShareNeverGrowsWithinAWindow: whatever happens, as long as the instance
// is fresh and its clock is not corrected.
func TestShareNeverGrowsWithinAWindow(t *testing.T) {
	for seed := uint64(1); seed <= 100; seed++ {
		s := &script{Rand: rand.New(rand.NewPCG(seed, 9)), ids: []string{"a", "b", "c", "d"}}
		var h share.History
		h.Reset(0, "a", s.view())
		last := map[quota.Window]int64{}
		for range 300 {
			s.now += s.Int64N(150) * ms
			h.Apply(s.now, s.change())
			for _, l := range lengths {
				w := quota.WindowAt(l, s.now)
				b := h.Bound(w, s.now, 0, share.NotFrozen).Permits
				if before, ok := last[w]; ok && b > before {
					t.Fatalf("seed %d at %d ms: window %v grows from %d to %d", seed, s.now/ms, w, before, b)
				}
				last[w] = b
			}
		}
	}
}

// The largest guard of the lookback counts: a permit of before may still be on its way when the
// newest policy has none.
func TestAGuardActsOnAfterItsPolicy(t *testing.T) {
	guarded := view(1, 10, "a")
	guarded.Policy.Settle, guarded.Policy.Guard = 10*time.Second, 100*time.Millisecond
	var h share.History
	h.Reset(0, "a", guarded)
	plain := *guarded.Policy
	plain.Guard = 0
	h.Apply(20_000*ms, protocol.Change{Revision: 2, Policy: &plain})
	if r := h.Rules(30_000 * ms); r.Guard != 100*time.Millisecond {
		t.Errorf("rules while the guard acts: %+v", r)
	}
	if r := h.Rules(30_001 * ms); r.Guard != 0 {
		t.Errorf("rules after it: %+v", r)
	}
}

// The first of a fleet has no view to wait out, but in windows that others may have begun.
func TestTheFirstWaitsForAWindowOfItsOwn(t *testing.T) {
	first := func(at int64, edit func(v *protocol.View)) *share.History {
		var h share.History
		v := view(1, 10, "a")
		if v.First = true; edit != nil {
			edit(&v)
		}
		h.Reset(at*ms, "a", v)
		return &h
	}
	h := first(10_898, nil) // 2e = 100 ms, and (2e + w)/1000 = 1.1 ms
	check(t, h, 10, 10_950, share.NotFrozen, 0, share.ReasonJoining)
	check(t, h, 11, 11_000, share.NotFrozen, 10, share.ReasonShare)
	h.Apply(11_500*ms, protocol.Change{Revision: 2, Put: []protocol.Instance{{ID: "b"}}})
	check(t, h, 12, 12_000, share.NotFrozen, 5, share.ReasonShare)
	h.Apply(12_500*ms, protocol.Change{Revision: 3, Deleted: []string{"b"}})
	check(t, h, 13, 13_000, share.NotFrozen, 5, share.ReasonShare) // all views since it registered count
	check(t, h, 13, 13_000, 9_000*ms, 5, share.ReasonShare)        // under hold too, without a proof
	check(t, h, 16, 16_000, share.NotFrozen, 10, share.ReasonShare)

	h = first(10_899, nil)
	check(t, h, 11, 11_000, share.NotFrozen, 0, share.ReasonJoining)
	check(t, h, 12, 12_000, share.NotFrozen, 10, share.ReasonShare)

	h = first(10_000, func(v *protocol.View) { v.First = false })
	check(t, h, 12, 12_000, share.NotFrozen, 0, share.ReasonJoining)

	h = first(10_000, func(v *protocol.View) { v.Policy.Shape = quota.ShapeSliding })
	check(t, h, 12, 12_000, share.NotFrozen, 0, share.ReasonJoining)
}
