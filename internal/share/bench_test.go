package share_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

// BenchmarkStorm is what one instance pays when a whole fleet joins: one change
// per joiner over ten seconds, and after each the bounds of all current windows.
func BenchmarkStorm(b *testing.B) {
	for _, limits := range []string{"1s", "2s,10s,1m"} {
		for _, announced := range []bool{false, true} {
			b.Run(fmt.Sprintf("joins=2000/limits=%s/announced=%v", limits, announced), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					storm(b, 2000, limits, announced)
				}
			})
		}
	}
}

func storm(tb testing.TB, joins int, limits string, announced bool) *share.History {
	v := view(1, 300_000, "self")
	if limits != "1s" {
		v.Policy.Limits = []quota.Limit{{Permits: 500, Window: 2 * time.Second},
			{Permits: 2000, Window: 10 * time.Second}, {Permits: 10_000, Window: time.Minute}}
	}
	h := &share.History{}
	h.Reset(0, "self", v)
	offset := 1_700_000_000_000 * ms
	now := 100_000 * ms
	var last int64
	for i := range joins {
		now += 5 * ms
		in := protocol.Instance{ID: fmt.Sprintf("worker-%d.694d9a.1", i)}
		if announced {
			in.From = time.Unix(0, now+offset+5000*ms)
		}
		h.Apply(now, protocol.Change{Revision: int64(i) + 2, Put: []protocol.Instance{in}})
		for _, l := range v.Policy.Limits {
			last = h.Bound(quota.WindowAt(l.Window, now+offset), now, offset, share.NotFrozen).Permits
		}
		h.Prune(now - int64(quota.MaxSettle+quota.MaxWindow))
	}
	if last == 0 && !announced {
		tb.Log("share 0 at the end of the storm")
	}
	return h
}

// BenchmarkBound compares a window's first question, which counts everybody,
// with a later one, which finds the count ready.
func BenchmarkBound(b *testing.B) {
	for _, n := range []int{1, 96, 1000} {
		var h share.History
		h.Reset(0, fleet(n)[0], view(1, 300_000, fleet(n)...))
		b.Run(fmt.Sprintf("instances=%d/window=same", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				h.Bound(second(1000), 1_000_000*ms, 0, math.MaxInt64)
			}
		})
		b.Run(fmt.Sprintf("instances=%d/window=new", n), func(b *testing.B) {
			b.ReportAllocs()
			for k := int64(1000); b.Loop(); k++ {
				h.Bound(second(k), 1_000_000*ms, 0, math.MaxInt64)
			}
		})
	}
}

// BenchmarkEqual is the split of everybody at once, as tools do it.
func BenchmarkEqual(b *testing.B) {
	for _, n := range []int{96, 1000} {
		ids := fleet(n)
		b.Run(fmt.Sprintf("instances=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for k := int64(0); b.Loop(); k++ {
				share.Equal(300_001, ids, second(k))
			}
		})
	}
}

// BenchmarkKeyBound is the first use of a key in a window, which looks at everybody.
func BenchmarkKeyBound(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("instances=%d", n), func(b *testing.B) {
			v := view(1, 300_000, fleet(n)...)
			v.Policy.Keys.Limits = []quota.Limit{{Permits: 80, Window: time.Second}}
			p := &share.Planner{Clock: clock.Started(instant(0), nil)}
			p.Reset(instant(0), fleet(n)[0], v)
			p.Prove(instant(10_000))
			p.Plan(instant(10_000))
			b.ReportAllocs()
			for k := uint64(0); b.Loop(); k++ {
				p.Bound(share.Key{Name: "key", Hash: k}, second(1000), 10_000*ms)
			}
		})
	}
}
