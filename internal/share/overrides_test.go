package share_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

// TestAnOverriddenKeyEqualsTheNaiveModel: a key's bound is that of a provider whose policy
// changes whenever the key's limits do. Overrides come and go, one by one and with the policy,
// cannot be read, and are of other keys of the same bucket.
func TestAnOverriddenKeyEqualsTheNaiveModel(t *testing.T) {
	asked := map[bool]int{}
	for seed := uint64(1); seed <= seeds(); seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			s := &script{Rand: rand.New(rand.NewPCG(seed, 8)), offset: 1_700_000_000_000 * ms}
			for i := range 1 + s.IntN(6) {
				s.ids = append(s.ids, fmt.Sprintf("worker-%d", i))
			}
			name := fmt.Sprint("key-", seed)
			bucket, neighbour := protocol.OverrideBucket(name), ""
			for i := 0; neighbour == "" || protocol.OverrideBucket(neighbour) != bucket; i++ {
				neighbour = fmt.Sprint("neighbour-", i)
			}
			var own *protocol.Override // of the key
			broken, owners := false, s.IntN(3)
			var base *quota.Policy // without overrides, with the keys' limits for its own
			flat := func() *quota.Policy {
				p := equal(base, owners)
				if p != nil && own != nil {
					p.Limits = own.Limits
					if own.Owners != nil {
						p.Keys.Owners = *own.Owners
					}
				}
				if p != nil && broken {
					p.Requires = []string{"a document that can be read"}
				}
				return p
			}
			override := func() *protocol.Override {
				o := &protocol.Override{Limits: s.limits()}
				if n := s.Int64N(5); n < 4 {
					o.Owners = &n
				}
				if own != nil && s.IntN(2) == 0 { // one of both changes
					if s.IntN(2) == 0 {
						o.Limits = own.Limits
					} else {
						o.Owners = own.Owners
					}
				}
				return o
			}
			documents := func() map[int]*protocol.Overrides {
				all := map[int]*protocol.Overrides{(bucket + 1) % protocol.OverrideBuckets: {Keys: map[string]*protocol.Override{name: override()}}} // not where it belongs
				next := override()
				switch own, broken = nil, false; s.IntN(6) {
				case 0:
					all[bucket] = nil
				case 1:
					all[bucket], broken = &protocol.Overrides{Broken: true}, true
				case 2:
					all[bucket] = &protocol.Overrides{Keys: map[string]*protocol.Override{neighbour: override()}}
				default:
					own = next
					all[bucket] = &protocol.Overrides{Keys: map[string]*protocol.Override{name: own, neighbour: override()}}
				}
				return all
			}
			f := fnv.New64a()
			f.Write([]byte(name))
			at := func() clock.Instant { return clock.Instant{Mono: s.now, Wall: s.now + s.offset} }
			p := &share.Planner{Clock: clock.Started(at(), nil)}
			v := s.view()
			base, v.Policy, v.Overrides = v.Policy, keyed(equal(v.Policy, owners)), documents()
			plain := v
			plain.Policy = flat()
			p.Reset(at(), s.ids[0], v)
			m := newModel(s.now, s.ids[0], plain)
			m.seed = f.Sum64()
			for range 120 {
				s.now += s.Int64N(600) * ms
				c := s.change()
				fresh := c.Revision > m.held[len(m.held)-1].view.Revision
				if fresh && c.Policy != nil || c.PolicyDeleted && fresh {
					base = c.Policy
				}
				if c.Policy != nil {
					c.Policy = keyed(equal(c.Policy, owners))
				}
				if fresh && s.IntN(10) == 0 {
					c.Overrides = documents()
				}
				plain := c
				plain.Overrides, plain.Policy = nil, nil
				if changed := c.Policy != nil || c.PolicyDeleted || c.Overrides != nil; changed && base != nil {
					plain.Policy = flat()
				}
				if got, want := p.Apply(at(), c), m.apply(s.now, plain); got != want {
					t.Fatalf("Apply = %v, want %v", got, want)
				}
				p.Prove(at())
				p.Plan(at())
				compareKey(t, s, p, m, name, func() { asked[own != nil]++ })
			}
		})
	}
	if t.Logf("%d bounds above 0 with an override, %d without", asked[true], asked[false]); asked[true] < int(seeds()) || asked[false] < int(seeds())/2 {
		t.Error("the key hardly ever had a share")
	}
}

// TestStepsOfAnOverride: a lowered override binds at once and a raised one after the settle
// time of the lower views, unless the revision gives; others have theirs as before.
func TestStepsOfAnOverride(t *testing.T) {
	const key = "installation-4711"
	limits := func(n int64) []quota.Limit { return []quota.Limit{{Permits: n, Window: time.Second}} }
	document := func(n int64) map[int]*protocol.Overrides {
		return map[int]*protocol.Overrides{protocol.OverrideBucket(key): {Keys: map[string]*protocol.Override{key: {Limits: limits(n)}}}}
	}
	none := map[int]*protocol.Overrides{protocol.OverrideBucket(key): nil}
	broken := map[int]*protocol.Overrides{protocol.OverrideBucket(key): {Broken: true}}
	for _, c := range []struct {
		name         string
		begin, then  map[int]*protocol.Overrides
		before       int64
		now, settled int64 // in the window that runs, and in one that starts the settle time later
	}{
		{"set above the limit", nil, document(30), 10, 30, 30},
		{"set below it", nil, document(4), 10, 4, 4},
		{"raised", document(4), document(30), 4, 30, 30},
		{"lowered", document(30), document(4), 30, 4, 4},
		{"lowered to none", document(30), document(0), 30, 0, 0},
		{"deleted, and smaller", document(4), none, 4, 10, 10},
		{"deleted, and larger", document(30), none, 30, 10, 10},
		{"cannot be read, and is mended", broken, document(30), 0, 0, 30},
		{"cannot be read, and is deleted", broken, none, 0, 0, 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := protocol.View{Revision: 1, Instances: []protocol.Instance{{ID: "a"}}, Overrides: c.begin, Policy: &quota.Policy{
				Limits: []quota.Limit{{Permits: 1000, Window: time.Second}}, Keys: quota.Keys{Limits: limits(10)}}}
			p := &share.Planner{Clock: clock.Started(instant(0), nil)}
			p.Reset(instant(0), "a", v)
			bound := func(mono int64, name string) int64 {
				p.Prove(instant(mono))
				p.Plan(instant(mono))
				return p.Bound(share.KeyOf(name), quota.WindowAt(time.Second, instant(mono).Wall), instant(mono).Mono).Permits
			}
			if got := bound(20_500, key); got != c.before {
				t.Errorf("%d permits before the change, want %d", got, c.before)
			}
			if !p.Apply(instant(20_600), protocol.Change{Revision: 2, Overrides: c.then}) {
				t.Fatal("the change is not taken")
			}
			if got := bound(20_700, key); got != c.now {
				t.Errorf("%d permits after the change, want %d", got, c.now)
			}
			if got := bound(25_500, key); got != c.settled {
				t.Errorf("%d permits after the settle time, want %d", got, c.settled)
			}
			if got := bound(25_600, "another"); got != 10 {
				t.Errorf("another key has %d permits, want 10", got)
			}
			v.Overrides = c.then
			if _, shares, _ := share.OfKey(&v, key, quota.WindowAt(time.Second, planEpoch)); shares["a"] != c.settled {
				t.Errorf("OfKey says %d, want %d", shares["a"], c.settled)
			}
		})
	}
}

// TestARaisedOverrideWaits: a raise that comes with another division, here a newcomer's
// part in the window, counts after the settle time only.
func TestARaisedOverrideWaits(t *testing.T) {
	const key = "installation-4711"
	at := func(n int64) map[int]*protocol.Overrides {
		return map[int]*protocol.Overrides{protocol.OverrideBucket(key): {Keys: map[string]*protocol.Override{key: {Limits: []quota.Limit{{Permits: n, Window: time.Second}}}}}}
	}
	v := protocol.View{Revision: 1, Instances: []protocol.Instance{{ID: "a"}}, Overrides: at(4), Policy: &quota.Policy{
		Limits: []quota.Limit{{Permits: 1000, Window: time.Second}}, Keys: quota.Keys{Limits: []quota.Limit{{Permits: 10, Window: time.Second}}}}}
	p := &share.Planner{Clock: clock.Started(instant(0), nil)}
	p.Reset(instant(0), "a", v)
	p.Apply(instant(20_100), protocol.Change{Revision: 2, Overrides: at(100), Put: []protocol.Instance{{ID: "b"}}})
	for _, c := range []struct{ mono, want int64 }{{20_200, 4}, {22_500, 4}, {25_500, 50}} {
		p.Prove(instant(c.mono))
		p.Plan(instant(c.mono))
		if got := p.Bound(share.KeyOf(key), quota.WindowAt(time.Second, instant(c.mono).Wall), instant(c.mono).Mono).Permits; got != c.want {
			t.Errorf("%d permits at %d ms, want %d", got, c.mono, c.want)
		}
	}
}

// TestWindowsOfOverridesAreCounted: keys are counted in the windows of overrides too, and
// keys without one have no limit there.
func TestWindowsOfOverridesAreCounted(t *testing.T) {
	const key = "installation-4711"
	v := protocol.View{Revision: 1, Instances: []protocol.Instance{{ID: "a"}}, Policy: &quota.Policy{
		Limits: []quota.Limit{{Permits: 1000, Window: time.Second}}, Keys: quota.Keys{Limits: []quota.Limit{{Permits: 10, Window: time.Second}}}},
		Overrides: map[int]*protocol.Overrides{protocol.OverrideBucket(key): {Keys: map[string]*protocol.Override{key: {Limits: []quota.Limit{{Permits: 7, Window: time.Minute}}}}}}}
	p := &share.Planner{Clock: clock.Started(instant(0), nil)}
	p.Reset(instant(0), "a", v)
	p.Prove(instant(80_000))
	plan := p.Plan(instant(80_000))
	got := ""
	for _, w := range plan.Keys.Running {
		got += fmt.Sprintf("%v %d %d; ", w.Length, p.Bound(share.KeyOf(key), w, instant(80_000).Mono).Permits, p.Bound(share.KeyOf("other"), w, instant(80_000).Mono).Permits)
	}
	if want := fmt.Sprintf("1s %d 10; 1m0s 7 %[1]d; ", share.Unbounded); got != want {
		t.Errorf("bounds %q, want %q", got, want)
	}
}
