package share_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

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
		l := share.Fill(total, floor, asks)
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
		l := share.Fill(total, floor, asks)
		sum := int64(0)
		for _, d := range asks {
			sum += min(max(0, d-l.Base), l.Most)
		}
		if pool := total - (total*floor+99)/100; sum != l.Claimed || sum > pool {
			t.Fatalf("claims sum to %d, Claimed is %d, the pool %d", sum, l.Claimed, pool)
		}
		shuffled := slices.Clone(asks)
		rand.Shuffle(len(asks), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if again := share.Fill(total, floor, shuffled); again.Most != l.Most || again.Claimed != l.Claimed {
			t.Fatalf("in another order %+v, not %+v", again, l)
		}
	})
}

func TestFillIsMonotone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		asks := demands(t)
		total, floor := rapid.Int64Range(0, 1e6).Draw(t, "total"), rapid.Int64Range(0, 100).Draw(t, "floor")
		less := share.Fill(total, floor, asks)
		more := share.Fill(total+rapid.Int64Range(0, 1e6).Draw(t, "more"), floor, asks)
		for _, d := range asks {
			// The equal part only: what a newcomer has. With it nobody has less.
			a, b := less.Base+min(max(0, d-less.Base), less.Most), more.Base+min(max(0, d-more.Base), more.Most)
			if min(a, d) > min(b, d) {
				t.Fatalf("a larger total serves less of demand %d: %d by %+v, %d by %+v", d, a, less, b, more)
			}
		}
	})
}

// demanding is a view that shares by demand, with what everybody had reported.
type demanding struct {
	view    quota.View
	demands map[string]int64 // permits per 1,000 s
}

func newDemanding(total, floor int64, demands []int64) *demanding {
	d := &demanding{demands: map[string]int64{}}
	d.view = quota.View{Revision: 10, Policy: &quota.Policy{
		Share: quota.ShareDemand, Floor: floor, Limits: []quota.Limit{{Permits: total, Window: time.Second}}}}
	asks := make([]int64, len(demands))
	for i, perSecond := range demands {
		id := fmt.Sprintf("worker-%d", i)
		d.view.Instances = append(d.view.Instances, quota.Instance{ID: id})
		d.demands[id] = 1000 * perSecond
		asks[i] = quota.DemandFor(d.demands[id], time.Second)
	}
	l := share.Fill(total, floor, asks)
	l.Window = time.Second
	d.view.Level = &quota.Level{Until: time.Unix(1000, 0), Entries: []quota.LevelEntry{{
		From: time.Unix(0, 0), Revision: 9, Limits: []quota.LevelLimit{l}}}}
	return d
}

// bounds asks the history of every instance for its bound.
func (d *demanding) bounds(w quota.Window) (sum int64, each map[string]int64) {
	each = map[string]int64{}
	for _, i := range d.view.Instances {
		v := d.view
		if v.Level != nil {
			l := v.Level.Clone()
			for e := range l.Entries {
				l.Entries[e].Demand = d.demands[i.ID]
			}
			v.Level = &l
		}
		var h share.History
		h.Reset(0, i.ID, v)
		each[i.ID] = h.Bound(w, w.Start(), 0, share.NotFrozen).Permits
		sum += each[i.ID]
	}
	return sum, each
}

// TestDemandSharesSumToTheTotal: also when instances have come and gone since the
// level, and the total was lowered or raised.
func TestDemandSharesSumToTheTotal(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		asks := rapid.SliceOfN(rapid.Int64Range(0, 5000), 1, 30).Draw(t, "demands")
		total := rapid.Int64Range(0, 50_000).Draw(t, "total")
		d := newDemanding(total, rapid.Int64Range(1, 100).Draw(t, "floor"), asks)
		w := second(500)
		if sum, _ := d.bounds(w); sum != total {
			t.Fatalf("shares sum to %d of %d", sum, total)
		}
		now := rapid.Int64Range(0, 100_000).Draw(t, "new total")
		d.view.Policy.Limits[0].Permits = now
		for range rapid.IntRange(0, 5).Draw(t, "leave") {
			if n := len(d.view.Instances); n > 1 {
				d.view.Instances = slices.Delete(d.view.Instances, 0, 1)
			}
		}
		for i := range rapid.IntRange(0, 5).Draw(t, "join") {
			d.view.Instances = append(d.view.Instances, quota.Instance{ID: fmt.Sprintf("new-%d", i)})
		}
		sum, each := d.bounds(w)
		if sum > now {
			t.Fatalf("shares sum to %d of %d", sum, now)
		}
		_, shares, _ := share.Of(&d.view, w, d.demands)
		for id, want := range shares {
			if each[id] != want {
				t.Fatalf("%s: its history says %d, the view %d", id, each[id], want)
			}
		}
		if total, _ := d.bounds(second(1000)); total != now {
			t.Fatalf("an expired level: equal shares sum to %d of %d", total, now)
		}
	})
}

func TestNobodyStarves(t *testing.T) {
	t.Parallel()
	d := newDemanding(9600, 10, append(slices.Repeat([]int64{1_000_000}, 95), 0))
	_, each := d.bounds(second(500))
	if each["worker-95"] < 10 {
		t.Errorf("who wakes among 95 greedy ones has %d of 9600, want its part of the floor, 10", each["worker-95"])
	}
	d = newDemanding(9600, 10, append(slices.Repeat([]int64{90}, 95), 1_000_000))
	_, each = d.bounds(second(500))
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
		share.Fill(100_000_000, 10, asks)
	}
}
