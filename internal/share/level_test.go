package share_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

func demands(t *rapid.T) []int64 {
	return rapid.SliceOfN(rapid.OneOf(rapid.Int64Range(0, 30), rapid.Int64Range(0, 2*quota.MaxPermits)), 1, 40).Draw(t, "demands")
}

// TestFillIsMaxMinFair deals the pool out as the definition says: a permit at a
// time to one of those who have least and still want one.
func TestFillIsMaxMinFair(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		asks := rapid.SliceOfN(rapid.Int64Range(0, 30), 1, 12).Draw(t, "demands")
		total, floor := rapid.Int64Range(0, 200).Draw(t, "total"), rapid.Int64Range(0, 100).Draw(t, "floor")
		l := share.FillSeconds(total, floor, asks)
		pool := total - (total*floor+99)/100
		got := make([]int64, len(asks))
		for left := pool; ; {
			var poorest []int
			for i := range asks {
				if got[i] >= asks[i]-l.Base {
					continue
				}
				if len(poorest) > 0 && got[i] < got[poorest[0]] {
					poorest = nil
				}
				if len(poorest) == 0 || got[i] == got[poorest[0]] {
					poorest = append(poorest, i)
				}
			}
			if len(poorest) == 0 || int64(len(poorest)) > left {
				break // what cannot be dealt out fairly is divided equally
			}
			for _, i := range poorest {
				got[i]++
				left--
			}
		}
		for i, want := range got {
			claim := min(max(0, asks[i]-l.Base), l.Most)
			if claim != want {
				t.Fatalf("demand %d claims %d by %+v, fair is %d", asks[i], claim, l, want)
			}
		}
	})
}

func TestFillSums(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		asks := demands(t)
		total, floor := rapid.Int64Range(0, quota.MaxPermits).Draw(t, "total"), rapid.Int64Range(0, 100).Draw(t, "floor")
		l := share.FillSeconds(total, floor, asks)
		sum := int64(0)
		for _, d := range asks {
			sum += min(max(0, d-l.Base), l.Most)
		}
		if pool := total - (total*floor+99)/100; sum != l.Claimed || sum > pool {
			t.Fatalf("claims sum to %d, Claimed is %d, the pool %d", sum, l.Claimed, pool)
		}
		shuffled := slices.Clone(asks)
		rand.Shuffle(len(asks), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if again := share.FillSeconds(total, floor, shuffled); again.Most != l.Most || again.Claimed != l.Claimed {
			t.Fatalf("in another order %+v, not %+v", again, l)
		}
	})
}

func TestFillIsMonotone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		asks := demands(t)
		total, floor := rapid.Int64Range(0, 1e6).Draw(t, "total"), rapid.Int64Range(0, 100).Draw(t, "floor")
		less := share.FillSeconds(total, floor, asks)
		more := share.FillSeconds(total+rapid.Int64Range(0, 1e6).Draw(t, "more"), floor, asks)
		for _, d := range asks {
			// The equal part only: what a newcomer has. With it nobody has less.
			a, b := less.Base+min(max(0, d-less.Base), less.Most), more.Base+min(max(0, d-more.Base), more.Most)
			if min(a, d) > min(b, d) {
				t.Fatalf("a larger total serves less of demand %d: %d by %+v, %d by %+v", d, a, less, b, more)
			}
		}
	})
}

// newDemanding is a view of instances that ask for so many permits a second.
func newDemanding(total, floor int64, perSecond []int64) *protocol.View {
	v := &protocol.View{Revision: 10, Policy: &quota.Policy{
		Division: quota.Division{Share: quota.ShareDemand, Floor: floor}, Limits: []quota.Limit{{Permits: total, Window: time.Second}}}}
	demands := map[string]int64{}
	for i, d := range perSecond {
		id := fmt.Sprintf("worker-%d", i)
		v.Instances = append(v.Instances, protocol.Instance{ID: id})
		demands[id] = 1000 * d
	}
	v.Level = &protocol.Level{Until: time.Unix(1000, 0), Entries: []protocol.LevelEntry{share.NewEntry(demands, 9, time.Unix(0, 0))}}
	return v
}

// bounds asks the history of every instance for its bound.
func bounds(v *protocol.View, w quota.Window) (sum int64, each map[string]int64) {
	each = map[string]int64{}
	for _, i := range v.Instances {
		var h share.History
		h.Reset(0, 0, i.ID, *v)
		each[i.ID] = h.Bound(w, w.Start(), 0, share.NotFrozen).Permits
		sum += each[i.ID]
	}
	return sum, each
}

// TestDemandSharesSumToTheTotal exactly: also when instances have come and gone
// since the level, the total was lowered or raised, and whatever the level lists.
func TestDemandSharesSumToTheTotal(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		asks := rapid.SliceOfN(rapid.Int64Range(0, 5000), 1, 30).Draw(t, "demands")
		total := rapid.Int64Range(0, 50_000).Draw(t, "total")
		d := newDemanding(total, rapid.Int64Range(1, 100).Draw(t, "floor"), asks)
		w := second(500)
		if sum, _ := bounds(d, w); sum != total {
			t.Fatalf("shares sum to %d of %d", sum, total)
		}
		now := rapid.Int64Range(0, 100_000).Draw(t, "new total")
		d.Policy.Limits[0].Permits = now
		for range rapid.IntRange(0, 5).Draw(t, "leave") {
			if n := len(d.Instances); n > 1 {
				d.Instances = slices.Delete(d.Instances, 0, 1)
			}
		}
		for i := range rapid.IntRange(0, 5).Draw(t, "join") {
			d.Instances = append(d.Instances, protocol.Instance{ID: fmt.Sprintf("new-%d", i)})
		}
		if rapid.Bool().Draw(t, "forged") {
			d.Level.Entries[0].Demands = rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "list")
		}
		sum, each := bounds(d, w)
		if sum != now {
			t.Fatalf("shares sum to %d of %d", sum, now)
		}
		_, shares, _ := share.Of(d, w)
		for id, want := range shares {
			if each[id] != want {
				t.Fatalf("%s: its history says %d, the view %d", id, each[id], want)
			}
		}
		if total, _ := bounds(d, second(1000)); total != now {
			t.Fatalf("an expired level: equal shares sum to %d of %d", total, now)
		}
	})
}

// FuzzSharesSumToTheTotal: in every view that keys can make, by any bytes under any
// of them, the shares of all sum to the total, exactly.
func FuzzSharesSumToTheTotal(f *testing.F) {
	f.Add([]byte(`{"schema":1,"entries":[{"from":"1970-01-01T00:00:00Z","revision":1,"demands":"AAAAAP//"}],"until":"2100-01-01T00:00:00Z"}`), []byte(`{"weight":3}`), int64(1000), int64(10), uint8(3))
	f.Add([]byte(`{"schema":1,"entries":[{"from":"1970-01-01T00:00:00Z","revision":1,"limits":[{"window":"1s","base":0,"most":1000000000000,"claimed":1}]}],"until":"2100-01-01T00:00:00Z"}`), []byte(`x`), int64(1000), int64(10), uint8(8))
	f.Fuzz(func(t *testing.T, level, instance []byte, total, floor int64, n uint8) {
		total = max(0, total) % quota.MaxPermits
		v := protocol.View{Policy: &quota.Policy{Division: quota.Division{Share: quota.ShareDemand, Floor: 1 + max(0, floor)%100}, Limits: []quota.Limit{{Permits: total, Window: time.Second}}}}
		if l, err := protocol.ReadLevel(level); err == nil {
			v.Level = l
			if len(l.Entries[0].Demands) >= 6 { // lists the first one
				copy(l.Entries[0].Demands, share.NewEntry(map[string]int64{"i0": 1}, 1, time.Time{}).Demands)
			}
		}
		parts := int64(0)
		w := second(500)
		for i := range int64(n%20) + 1 {
			x := protocol.Instance{ID: fmt.Sprintf("i%d", i)}
			if y, err := protocol.ReadInstance(x.ID, instance); err == nil && i%2 == 0 {
				x = y
			}
			if v.Instances = append(v.Instances, x); protocol.TakesPart(&x, w.Start()) {
				parts++
			}
		}
		if sum, each := bounds(&v, w); parts > 0 && sum != total || parts == 0 && sum != 0 {
			t.Fatalf("shares sum to %d of %d: %v", sum, total, each)
		}
	})
}

func TestNobodyStarves(t *testing.T) {
	t.Parallel()
	d := newDemanding(9600, 10, append(slices.Repeat([]int64{1_000_000}, 95), 0))
	_, each := bounds(d, second(500))
	if each["worker-95"] < 10 {
		t.Errorf("who wakes among 95 greedy ones has %d of 9600, want its part of the floor, 10", each["worker-95"])
	}
	d = newDemanding(9600, 10, append(slices.Repeat([]int64{90}, 95), 1_000_000))
	_, each = bounds(d, second(500))
	if each["worker-0"] < 90 {
		t.Errorf("a greedy one takes from the modest: they have %d, and ask for 90", each["worker-0"])
	}
	if each["worker-95"] < 900 {
		t.Errorf("the greedy one has %d, and nobody else wants the rest", each["worker-95"])
	}
}

func BenchmarkFill(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	asks := make([]int64, 10_000)
	for i := range asks {
		asks[i] = r.Int64N(100_000)
	}
	for b.Loop() {
		share.FillSeconds(100_000_000, 10, asks)
	}
}
