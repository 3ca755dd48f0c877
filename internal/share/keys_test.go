package share_test

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

// keyed moves the limits of a policy to its keys.
func keyed(p *quota.Policy) *quota.Policy {
	if p == nil || protocol.Shaped(p) {
		return p
	}
	k := *p
	k.Keys = quota.Keys{Limits: p.Limits, Most: 10, Owners: p.Keys.Owners}
	k.Limits, k.Next = []quota.Limit{{Permits: 1, Window: 100 * time.Millisecond}}, nil
	return &k
}

// TestKeyBoundEqualsTheNaiveModel: a key's bound is that of a provider with the key's
// limits, through all changes, with an order of instances of its own. Its limits are divided
// equally, or among its owners.
func TestKeyBoundEqualsTheNaiveModel(t *testing.T) {
	asked, owned := 0, 0
	for seed := uint64(1); seed <= seeds(); seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			s := &script{Rand: rand.New(rand.NewPCG(seed, 6)), offset: 1_700_000_000_000 * ms}
			for i := range 1 + s.IntN(12) {
				s.ids = append(s.ids, fmt.Sprintf("worker-%d", i))
			}
			name := fmt.Sprint("key-", seed)
			f := fnv.New64a()
			f.Write([]byte(name))
			at := func() clock.Instant { return clock.Instant{Mono: s.now, Wall: s.now + s.offset} }
			p := &share.Planner{Clock: clock.Started(at(), nil)}
			var m *model
			begin := func() {
				v := s.view()
				flat := v
				flat.Policy = equal(v.Policy, s.IntN(4))
				v.Policy = keyed(flat.Policy)
				p.Reset(at(), s.ids[0], v)
				m = newModel(s.now, s.ids[0], flat)
				m.seed = f.Sum64()
			}
			begin()
			for range 120 {
				s.now += s.Int64N(600) * ms
				if s.IntN(60) == 0 {
					begin()
				}
				c := s.change()
				c.Policy = equal(c.Policy, s.IntN(4))
				flat := c
				c.Policy = keyed(c.Policy)
				if got, want := p.Apply(at(), c), m.apply(s.now, flat); got != want {
					t.Fatalf("Apply = %v, want %v", got, want)
				}
				p.Prove(at())
				p.Plan(at())
				compareKey(t, s, p, m, name, func() {
					asked++
					if v := m.held[len(m.held)-1].view; v.Policy != nil && v.Policy.Keys.Owners > 0 {
						owned++
					}
				})
			}
		})
	}
	if t.Logf("%d bounds above 0, %d of owners", asked, owned); asked < 3*int(seeds()) || owned < int(seeds())/2 {
		t.Error("the keys hardly ever had a share")
	}
}

// compareKey compares a key's bounds with those of the model, in windows that run or come
// next. It calls has for each bound above 0.
func compareKey(t *testing.T, s *script, p *share.Planner, m *model, name string, has func()) {
	t.Helper()
	for _, length := range lengths {
		w := quota.WindowAt(length, s.now+s.offset)
		w.Index += s.Int64N(2)
		want := m.bound(w, s.now, s.offset, share.NotFrozen)
		if got := p.Bound(share.KeyOf(name), w, s.now).Permits; got != want {
			t.Fatalf("at %d ms: the bound of %v #%d is %d, the model says %d", s.now/ms, w.Length, w.Index, got, want)
		}
		if want > 0 && want < share.Unbounded {
			has()
		}
	}
}

// equal has a policy divide equally, or among owners, and change at once.
func equal(p *quota.Policy, owners int) *quota.Policy {
	if p == nil {
		return nil
	}
	e := *p
	e.Next = nil
	e.Keys = quota.Keys{Limits: p.Limits, Owners: int64(owners)} // clocks may drift apart as long as with keys
	return &e
}

// TestSharesOfKeysSumToTheLimit: of every key, in every window, by what each instance
// computes for itself. The remainders of different keys go to different instances, and
// over many windows to each.
func TestSharesOfKeysSumToTheLimit(t *testing.T) {
	v := protocol.View{Revision: 1, Policy: &quota.Policy{
		Limits: []quota.Limit{{Permits: 1000, Window: time.Second}},
		Keys:   quota.Keys{Limits: []quota.Limit{{Permits: 23, Window: time.Second}}, Most: 10},
	}}
	var all []*share.Planner
	for i := range 10 {
		v.Instances = append(v.Instances, protocol.Instance{ID: fmt.Sprint("i", i)})
	}
	for i := range 10 {
		p := &share.Planner{Clock: clock.Started(instant(0), nil)}
		p.Reset(instant(0), fmt.Sprint("i", i), v)
		p.Prove(instant(10_000))
		p.Plan(instant(10_000))
		all = append(all, p)
	}
	extra, first := map[string]int{}, map[string]bool{}
	for k := range 100 {
		key := fmt.Sprint("key-", k)
		for n := range int64(20) {
			w := quota.WindowAt(time.Second, planEpoch+int64(20*time.Second))
			w.Index += n
			_, shares, _ := share.OfKey(&v, key, w)
			sum, who := int64(0), ""
			for i, p := range all {
				id := fmt.Sprint("i", i)
				permits := p.Bound(share.KeyOf(key), w, 10_000*ms).Permits
				if sum += permits; permits != shares[id] || permits < 2 || permits > 3 {
					t.Fatalf("%s, %s, window %d: %d, OfKey says %d", key, id, n, permits, shares[id])
				}
				if permits == 3 {
					extra[id]++
					who += id
				}
			}
			if sum != 23 {
				t.Fatalf("%s, window %d: shares sum to %d", key, n, sum)
			}
			if n == 0 {
				first[who] = true
			}
		}
	}
	if least := slices.Min(slices.Collect(maps.Values(extra))); len(extra) < 10 || least < 480 || len(first) < 60 {
		t.Errorf("the remainders are not spread: %v; %d different threes", extra, len(first))
	}
}

// TestKeyRanksGoldenValue: other builds rank in the same order.
func TestKeyRanksGoldenValue(t *testing.T) {
	v := protocol.View{Policy: &quota.Policy{
		Limits: []quota.Limit{{Permits: 1000, Window: time.Second}},
		Keys:   quota.Keys{Limits: []quota.Limit{{Permits: 4, Window: time.Second}}},
	}}
	for i := range 8 {
		v.Instances = append(v.Instances, protocol.Instance{ID: fmt.Sprint("i", i)})
	}
	got := ""
	for k := range 3 {
		_, shares, _ := share.OfKey(&v, fmt.Sprint("installation-", k), second(500))
		for i := range 8 {
			got += fmt.Sprint(shares[fmt.Sprint("i", i)])
		}
		got += " "
	}
	if want := "00110101 11010010 01100110 "; got != want {
		t.Errorf("shares %q, want %q", got, want)
	}
}

// owned is a view of n instances under limits by key that owners have.
func owned(n int, owners, permits int64) protocol.View {
	v := protocol.View{Revision: 1, Policy: &quota.Policy{
		Limits: []quota.Limit{{Permits: 1000, Window: time.Second}},
		Keys:   quota.Keys{Limits: []quota.Limit{{Permits: permits, Window: time.Second}}, Most: 10, Owners: owners},
	}}
	for i := range n {
		v.Instances = append(v.Instances, protocol.Instance{ID: fmt.Sprint("i", i)})
	}
	return v
}

// TestOwnersHaveAll: the owners of a key have all of its limit, in every window, and each
// instance names one of them. Keys are spread over the instances. Without one instance only
// its keys have other owners.
func TestOwnersHaveAll(t *testing.T) {
	for owners := int64(1); owners <= 4; owners++ {
		v, w := owned(10, owners, 7), quota.WindowAt(time.Second, planEpoch+int64(20*time.Second))
		fewer := v
		fewer.Instances = v.Instances[1:]
		var all []*share.Planner
		for i := range v.Instances {
			p := &share.Planner{Clock: clock.Started(instant(0), nil)}
			p.Reset(instant(0), v.Instances[i].ID, v)
			p.Prove(instant(10_000))
			p.Plan(instant(10_000))
			all = append(all, p)
		}
		keys := map[string]int{}
		for k := range 1000 {
			key := fmt.Sprint("key-", k)
			_, shares, _ := share.OfKey(&v, key, w)
			sum, has := int64(0), int64(0)
			for i, p := range all {
				id := v.Instances[i].ID
				permits := p.Bound(share.KeyOf(key), w, 10_000*ms).Permits
				owner, elsewhere := p.KeyOwner(share.KeyOf(key), 10_000*ms)
				if sum += permits; permits != shares[id] || shares[owner] == 0 || elsewhere != (permits == 0) || !elsewhere && owner != id {
					t.Fatalf("%s: %s has %d permits, OfKey says %d; the owner is %s, elsewhere: %v", key, id, permits, shares[id], owner, elsewhere)
				}
				var hosts []string
				for _, peer := range p.KeyPeers(share.KeyOf(key), 10_000*ms, nil) {
					hosts = append(hosts, peer.ID)
				}
				for _, host := range hosts {
					if slices.Sort(hosts); shares[host] == 0 || host == id || len(slices.Compact(hosts)) != len(hosts) {
						t.Fatalf("%s: %s asks %v, the shares are %v", key, id, hosts, shares)
					}
				}
				if want := int(owners); len(hosts) != want && (elsewhere || len(hosts) != want-1) {
					t.Fatalf("%s: %s asks %v, elsewhere: %v; there are %d owners", key, id, hosts, elsewhere, owners)
				}
				if permits > 0 {
					has++
					keys[id]++
				}
			}
			next := w
			next.Index++
			_, later, _ := share.OfKey(&v, key, next)
			if sum != 7 || has != owners || !maps.Equal(later, shares) {
				t.Fatalf("%s: shares sum to %d, %d instances have some: %v, then %v", key, sum, has, shares, later)
			}
			_, without, _ := share.OfKey(&fewer, key, w)
			for id, permits := range without {
				if permits < shares[id] || shares["i0"] == 0 && permits != shares[id] {
					t.Fatalf("%s: %s has %d permits, and had %d before i0 went", key, id, permits, shares[id])
				}
			}
		}
		least, most := slices.Min(slices.Collect(maps.Values(keys))), slices.Max(slices.Collect(maps.Values(keys)))
		if mean := int(100 * owners); len(keys) < 10 || least < mean*7/10 || most > mean*13/10 {
			t.Errorf("%d owners: instances own from %d to %d of 1,000 keys", owners, least, most)
		}
	}
}

// TestOwnersGoldenValue: other builds choose the same owners.
func TestOwnersGoldenValue(t *testing.T) {
	v, got := owned(8, 2, 5), ""
	for k := range 3 {
		_, shares, _ := share.OfKey(&v, fmt.Sprint("installation-", k), second(500))
		for i := range 8 {
			got += fmt.Sprint(shares[fmt.Sprint("i", i)])
		}
		got += " "
	}
	if want := "00320000 03000200 30200000 "; got != want {
		t.Errorf("shares %q, want %q", got, want)
	}
}

// TestAKeysWindowDoesNotComeBack: when corrected time is set back, keys get nothing until
// it is where it was: what a window had issued may be forgotten.
func TestAKeysWindowDoesNotComeBack(t *testing.T) {
	v := protocol.View{Revision: 1, Policy: &quota.Policy{
		Limits: []quota.Limit{{Permits: 1000, Window: time.Second}},
		Keys:   quota.Keys{Limits: []quota.Limit{{Permits: 23, Window: time.Second}}, Most: 10},
	}, Instances: []protocol.Instance{{ID: "a"}}}
	p := &share.Planner{Clock: clock.Started(instant(0), nil)}
	p.Reset(instant(0), "a", v)
	shut := func(mono int64) bool {
		p.Prove(instant(mono))
		return p.Plan(instant(mono)).Keys.Shut
	}
	if shut(10_100) || shut(11_100) {
		t.Error("shut while time goes on")
	}
	p.Clock.Adopt(clock.Estimate{Mono: 11_150 * ms, Offset: p.Clock.Offset() - 400*ms, Error: time.Millisecond})
	if !shut(11_200) || !shut(11_350) {
		t.Error("a window that was over runs again")
	}
	if shut(11_450) {
		t.Error("shut in the window that was reached before")
	}
}
