package share_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

const ms = int64(time.Millisecond)

// lengths are the window lengths of the random policies, shortest first.
var lengths = []time.Duration{100 * time.Millisecond, 250 * time.Millisecond, time.Second, 2 * time.Second}

// script is a random history: what happens to a provider, seen by one instance.
type script struct {
	*rand.Rand
	now, offset int64
	revision    int64
	ids         []string
}

func (s *script) limits() []quota.Limit {
	var limits []quota.Limit
	for _, l := range lengths {
		if s.IntN(2) == 0 {
			limits = append(limits, quota.Limit{Permits: []int64{0, 1, 3, 10, 1000, quota.MaxPermits}[s.IntN(6)], Window: l})
		}
	}
	if limits == nil {
		limits = []quota.Limit{{Permits: 7, Window: time.Second}}
	}
	return limits
}

// instant is a wall-clock time around now, or none.
func (s *script) instant() time.Time {
	if s.IntN(2) == 0 {
		return time.Time{}
	}
	return time.Unix(0, s.now+s.offset+(s.Int64N(8000)-2000)*ms)
}

func (s *script) policy() *quota.Policy {
	p := &quota.Policy{Limits: s.limits(), Timing: quota.Timing{ClockError: time.Millisecond}}
	if s.IntN(4) > 0 {
		p.Settle = time.Duration(1+s.IntN(30)) * 100 * time.Millisecond
	}
	if s.IntN(4) == 0 {
		p.From = s.instant()
	}
	if s.IntN(3) == 0 {
		at := s.now + s.offset + s.Int64N(5000)*ms
		p.Next = []quota.LimitChange{{From: time.Unix(0, at), Limits: s.limits()}}
	}
	switch s.IntN(14) {
	case 0:
		p.Mode = quota.ModePause
	case 1:
		p.Requires = []string{"no such feature"}
	case 2:
		p.Ignored = []string{"share weighted"}
	case 3:
		p.Freshness = 3 * time.Second // too long for any settle time here
	}
	return p
}

func (s *script) instance() protocol.Instance {
	return protocol.Instance{ID: s.ids[s.IntN(len(s.ids))], From: s.instant(), Until: s.instant()}
}

func (s *script) view() protocol.View {
	s.revision += 1 + s.Int64N(3)
	v := protocol.View{Revision: s.revision}
	if s.IntN(4) > 0 {
		v.Policy, v.PolicyRevision = s.policy(), s.revision
	}
	for _, id := range s.ids {
		if s.IntN(3) > 0 {
			v.Instances = append(v.Instances, protocol.Instance{ID: id})
		}
	}
	return v
}

func (s *script) change() protocol.Change {
	c := protocol.Change{Revision: s.revision + s.Int64N(4)} // sometimes old
	s.revision = max(s.revision, c.Revision)
	switch s.IntN(6) {
	case 0:
		c.Policy = s.policy()
	case 1:
		c.PolicyDeleted = s.IntN(3) == 0
	case 2, 3:
		c.Deleted = []string{s.ids[s.IntN(len(s.ids))]}
	default:
		c.Put = []protocol.Instance{s.instance()}
	}
	return c
}

// TestBoundEqualsTheNaiveModel drives a History and the model through the same
// random changes and asks both the same questions after each.
func TestBoundEqualsTheNaiveModel(t *testing.T) {
	for seed := uint64(1); seed <= 2*seeds(); seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { compare(t, seed) })
	}
}

func compare(t *testing.T, seed uint64) {
	s := &script{Rand: rand.New(rand.NewPCG(seed, 1)), offset: 1_700_000_000_000 * ms}
	if seed%5 == 0 {
		s.offset = -3000 * ms // windows before 1970
	}
	for i := range 1 + s.IntN(12) {
		s.ids = append(s.ids, fmt.Sprintf("worker-%d", i))
	}
	self := s.ids[0]
	var h share.History
	v := s.view()
	h.Reset(s.now, self, v)
	m := newModel(s.now, self, v)
	frozen, proof := share.NotFrozen, int64(0)
	for range 120 {
		s.now += s.Int64N(600) * ms
		switch s.IntN(14) {
		case 0:
			if s.IntN(4) == 0 {
				v := s.view()
				h.Reset(s.now, self, v)
				m = newModel(s.now, self, v)
			}
		case 1:
			if frozen == share.NotFrozen {
				frozen = proof - s.Int64N(3000)*ms
			} else {
				frozen, proof = share.NotFrozen, s.now
			}
		case 2:
			h.Prune(min(s.now, proof) - int64(quota.MaxSettle+quota.MaxWindow))
		case 3:
			if s.IntN(8) == 0 {
				until := s.now + s.offset + s.Int64N(3000)*ms
				h.Announce(until)
				m.until = min(m.until, until)
			}
		default:
			c := s.change()
			if got, want := h.Apply(s.now, c), m.apply(s.now, c); got != want {
				t.Fatalf("Apply(revision %d) = %v, want %v", c.Revision, got, want)
			}
		}
		if frozen == share.NotFrozen {
			proof = s.now
		}
		ask(t, s, &h, m, frozen)
	}
}

// ask compares the bounds of the windows around now, each asked twice.
func ask(t *testing.T, s *script, h *share.History, m *model, frozen int64) {
	t.Helper()
	for _, length := range append(slices.Clone(lengths), 3*time.Second) {
		w := quota.WindowAt(length, s.now+s.offset)
		w.Index += s.Int64N(3) - s.Int64N(2)
		if s.IntN(10) == 0 {
			w.Index += s.Int64N(40)
		}
		want := m.bound(w, s.now, s.offset, frozen)
		for range 2 {
			if got := h.Bound(w, s.now, s.offset, frozen); got.Permits != want {
				t.Fatalf("at %d ms: Bound(%v #%d, frozen %d) = %+v, the model says %d", s.now/ms, w.Length, w.Index, frozen, got, want)
			}
		}
		newest, other := &m.held[len(m.held)-1].view, s.ids[s.IntN(len(s.ids))]
		if got, want := h.SharesOf(other, []quota.Window{w}), naiveShare(newest, other, w); got[0] != want {
			t.Fatalf("at %d ms: SharesOf(%s, %v #%d) = %v, the model says %d", s.now/ms, other, w.Length, w.Index, got, want)
		}
	}
	got, want := h.Lengths(s.now, s.offset), m.lengths(s.now, s.offset, lengths)
	if !slices.Equal(got, want) {
		t.Fatalf("at %d ms: Lengths = %v, the model says %v", s.now/ms, got, want)
	}
}

// TestPruneChangesNoBound: a history that is pruned after every change answers
// as one that is never pruned, over hours.
func TestPruneChangesNoBound(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		s := &script{Rand: rand.New(rand.NewPCG(seed, 2)), ids: []string{"a", "b", "c"}}
		var kept, pruned share.History
		v := s.view()
		kept.Reset(0, "a", v)
		pruned.Reset(0, "a", v)
		for range 2000 {
			s.now += s.Int64N(5000) * ms
			c := s.change()
			kept.Apply(s.now, c)
			pruned.Apply(s.now, c)
			pruned.Prune(s.now - int64(quota.MaxSettle+quota.MaxWindow))
			for _, l := range []time.Duration{100 * time.Millisecond, 2 * time.Second, time.Minute} {
				w := quota.WindowAt(l, s.now)
				a, b := kept.Bound(w, s.now, 0, share.NotFrozen), pruned.Bound(w, s.now, 0, share.NotFrozen)
				if a != b {
					t.Fatalf("seed %d at %d ms, window %v: kept %+v, pruned %+v", seed, s.now/ms, l, a, b)
				}
			}
		}
	}
}

// TestPrunedTooFarGivesNothing: a lookback that reaches behind what was pruned
// gives 0, not the share of the views that are left.
func TestPrunedTooFarGivesNothing(t *testing.T) {
	var h share.History
	h.Reset(0, "a", view(1, 10, "a", "b"))
	h.Apply(1000*ms, protocol.Change{Revision: 2, Deleted: []string{"b"}})
	w := quota.Window{Length: time.Second, Index: 10}
	if b := h.Bound(w, 10_000*ms, 0, 500*ms); b.Permits != 5 {
		t.Fatalf("before: %+v", b)
	}
	h.Prune(9000 * ms)
	if b := h.Bound(w, 10_000*ms, 0, 500*ms); b.Permits != 0 || b.Reason != share.ReasonJoining {
		t.Fatalf("lookback behind the pruned part: %+v", b)
	}
	if b := h.Bound(w, 10_000*ms, 0, share.NotFrozen); b.Permits != 10 {
		t.Fatalf("lookback within what is kept: %+v", b)
	}
}

// view is a view with one limit of permits per second.
func view(revision, permits int64, ids ...string) protocol.View {
	v := protocol.View{Revision: revision, PolicyRevision: revision,
		Policy: &quota.Policy{Limits: []quota.Limit{{Permits: permits, Window: time.Second}}}}
	for _, id := range ids {
		v.Instances = append(v.Instances, protocol.Instance{ID: id})
	}
	return v
}

// TestExtremeTimes: no instant of int64 makes the arithmetic wrap into a share.
func TestExtremeTimes(t *testing.T) {
	ends := []int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, math.MaxInt64 - 1, math.MaxInt64}
	for _, reset := range ends {
		for _, now := range ends {
			for _, offset := range ends {
				for _, index := range ends {
					var h share.History
					h.Reset(reset, "a", view(1, 10, "a"))
					w := quota.Window{Length: time.Second, Index: index}
					b := h.Bound(w, now, offset, share.NotFrozen)
					if b.Permits > 0 && now < reset {
						t.Errorf("reset %d now %d offset %d index %d: %+v before the history", reset, now, offset, index, b)
					}
					h.Rules(now)
				}
			}
		}
	}
}

// TestARevisionThatGivesTakesFromNobody: where the rule leaves a view out, everybody
// has at least as much by the next one.
func TestARevisionThatGivesTakesFromNobody(t *testing.T) {
	more := 0
	for seed := uint64(1); seed <= 1000; seed++ {
		s := &script{Rand: rand.New(rand.NewPCG(seed, 3)), ids: []string{"a", "b", "c", "d", "e"}}
		m := newModel(0, "a", s.view())
		for range 60 {
			s.now += s.Int64N(600) * ms
			c := s.change()
			if p := m.held[len(m.held)-1].view.Policy; p != nil && s.IntN(2) == 0 {
				raised := *p // or lowered, or resumed
				raised.Limits = slices.Clone(p.Limits)
				raised.Limits[0].Permits = raised.Limits[0].Permits*(1+s.Int64N(3))/2 + s.Int64N(4)
				if s.IntN(4) == 0 {
					raised.Mode = []quota.Mode{quota.ModePause, quota.ModeEnforce}[s.IntN(2)]
				}
				c.Policy = &raised
			}
			m.apply(s.now, c)
			for i := range m.held[:len(m.held)-1] {
				u, v := &m.held[i].view, &m.held[i+1].view
				w := quota.WindowAt(lengths[s.IntN(len(lengths))], s.now)
				if w.Index += s.Int64N(3); !naiveGives(u, v, w) {
					continue
				}
				for _, id := range s.ids {
					if i := instanceOf(v, id); i != nil && !i.Until.IsZero() && i.Until.UnixNano() <= w.Start() {
						continue // it has announced that it issues nothing
					}
					before, after := naiveShare(u, id, w), naiveShare(v, id, w)
					if after < before {
						t.Fatalf("seed %d: %s has %d, then %d of %v #%d:\n%+v\n%+v", seed, id, before, after, w.Length, w.Index, u, v)
					}
					if after > before {
						more++
					}
				}
			}
			m.held = m.held[max(0, len(m.held)-3):]
		}
	}
	if more < 1000 {
		t.Errorf("only %d shares have grown", more)
	}
}
