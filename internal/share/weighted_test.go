package share_test

import (
	"fmt"
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

func weighty(t *rapid.T) (all []protocol.Instance, sum int64) {
	for i, w := range rapid.SliceOfN(rapid.Int64Range(1, 50), 1, 20).Draw(t, "weights") {
		all = append(all, protocol.Instance{ID: fmt.Sprintf("worker-%d", i), Weight: w})
		sum += w
	}
	return all, sum
}

func TestWeightedSharesSumToTheTotal(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all, sum := weighty(t)
		total := rapid.OneOf(rapid.Int64Range(0, 1000), rapid.Int64Range(0, quota.MaxPermits)).Draw(t, "total")
		w := second(rapid.Int64().Draw(t, "window") / 1e9)
		given := int64(0)
		for id, n := range share.Weighted(total, all, &quota.Policy{}, w) {
			given += n
			for _, i := range all {
				off := float64(n) - float64(total)*float64(i.Weight)/float64(sum)
				if i.ID == id && (n < total/sum*i.Weight || n > (total/sum+1)*i.Weight || math.Abs(off) > 1.001+float64(len(all))*float64(i.Weight)/float64(sum)) {
					t.Fatalf("%s of weight %d of %d has %d of %d", id, i.Weight, sum, n, total)
				}
			}
		}
		if given != total {
			t.Fatalf("shares sum to %d of %d", given, total)
		}
	})
}

// TestSeatsBefore counts seats one by one, in fractions.
func TestSeatsBefore(t *testing.T) {
	t.Parallel()
	at := func(k int64, v uint64, weight int64) *big.Rat {
		r := new(big.Rat).SetFrac(new(big.Int).SetUint64(v), new(big.Int).Lsh(big.NewInt(1), 64))
		return r.Quo(r.Add(r, new(big.Rat).SetInt64(k)), new(big.Rat).SetInt64(weight))
	}
	rapid.Check(t, func(t *rapid.T) {
		weight, k := rapid.Int64Range(1, 12), rapid.Int64Range(0, 20).Draw(t, "seat")
		v := rapid.OneOf(rapid.SampledFrom([]uint64{0, 1, 1 << 62, 1 << 63, 3 << 62, math.MaxUint64}), rapid.Uint64())
		a, b, va, vb := weight.Draw(t, "weight"), weight.Draw(t, "other"), v.Draw(t, "v"), v.Draw(t, "other's v")
		for _, ids := range [][2]string{{"a", "b"}, {"b", "a"}} {
			want := int64(0)
			for seat := at(k, vb, b); ; want++ {
				if c := at(want, va, a).Cmp(seat); c > 0 || c == 0 && ids[0] > ids[1] {
					break
				}
			}
			if got := share.SeatsBefore(ids[0], va, a, ids[1], vb, b, k); got != want {
				t.Fatalf("%d seats of %s come before seat %d of %s, want %d", got, ids[0], k, ids[1], want)
			}
		}
	})
}

// TestWeightedGoldenValues: whole shares by weight are part of the protocol too.
func TestWeightedGoldenValues(t *testing.T) {
	t.Parallel()
	all := []protocol.Instance{{ID: "a", Weight: 1}, {ID: "worker-7.694d9a8c1f.1", Weight: 3}, {ID: "größe", Weight: 1000}, {ID: "d", Weight: 37}}
	for _, c := range []struct {
		total int64
		w     quota.Window
		want  string
	}{
		{1, second(0), "0 0 1 0"},
		{40, second(1_700_000_000), "0 0 39 1"},
		{1041, second(1_700_000_001), "1 3 1000 37"},
		{1_000_000, quota.Window{Length: time.Minute, Index: 28_333_333}, "961 2882 960614 35543"},
		{quota.MaxPermits - 7, quota.Window{Length: 100 * time.Millisecond, Index: -1}, "960614794 2881844381 960614793460 35542747358"},
	} {
		got := ""
		for _, i := range all {
			got += fmt.Sprint(" ", share.Weighted(c.total, all, &quota.Policy{}, c.w)[i.ID])
		}
		if got != " "+c.want {
			t.Errorf("%d in %v: %s, want %s", c.total, c.w, got, c.want)
		}
	}
}

// TestNobodyLosesByARaiseOrALeave: if the total grows or another leaves, no share by
// weight falls.
func TestNobodyLosesByARaiseOrALeave(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all, _ := weighty(t)
		total, w := rapid.Int64Range(0, 500).Draw(t, "total"), second(rapid.Int64Range(0, 1e9).Draw(t, "window"))
		before := share.Weighted(total, all, &quota.Policy{}, w)
		left := all[rapid.IntRange(0, len(all)-1).Draw(t, "left"):]
		for id, n := range share.Weighted(total+rapid.Int64Range(0, 30).Draw(t, "more"), left, &quota.Policy{}, w) {
			if n < before[id] {
				t.Fatalf("%s has %d, and had %d", id, n, before[id])
			}
		}
	})
}

func TestWeightOneIsEqual(t *testing.T) {
	t.Parallel()
	ids := fleet(96)
	var all []protocol.Instance
	for _, id := range ids {
		all = append(all, protocol.Instance{ID: id})
	}
	for index := range int64(50) {
		equal, weighted := share.Equal(10, ids, second(index)), share.Weighted(10, all, &quota.Policy{}, second(index))
		for id, n := range equal {
			if weighted[id] != n {
				t.Fatalf("window %d: %s has %d by equal parts, %d by weight", index, id, n, weighted[id])
			}
		}
	}
}

// TestWeightedInTheLongRun: where the total is smaller than the number of
// instances, everybody's permits are in proportion to its weight, within five
// standard deviations.
func TestWeightedInTheLongRun(t *testing.T) {
	t.Parallel()
	const windows, total = 4000, 10
	p := &quota.Policy{Division: quota.Division{Weights: map[string]int64{"override": 20}}}
	var all []protocol.Instance
	sum := int64(0)
	for i, w := range []int64{1, 1, 1, 2, 3, 5, 8, 13, 21, 34} {
		all = append(all, protocol.Instance{ID: fmt.Sprintf("w%d", i), Weight: w})
		sum += w
	}
	all = append(all, protocol.Instance{ID: "o", Name: "override", Weight: 1})
	sum += 20
	got := map[string]int64{}
	for index := range int64(windows) {
		for id, n := range share.Weighted(total, all, p, second(index)) {
			got[id] += n
		}
	}
	for _, i := range all {
		weight := i.Weight
		if i.Name != "" {
			weight = 20
		}
		want := float64(windows*total*weight) / float64(sum)
		if d := math.Abs(float64(got[i.ID]) - want); d > 5*math.Sqrt(want) {
			t.Errorf("%s of weight %d got %d, want about %.0f", i.ID, weight, got[i.ID], want)
		}
	}
}

func TestWeightChangesWithThePolicy(t *testing.T) {
	t.Parallel()
	v := view(1, 100, "a", "b")
	v.Instances[1].Name = "big"
	v.Policy.Share = quota.ShareWeighted
	var h share.History
	h.Reset(0, 0, "a", v)
	check(t, &h, 10, 10_000, share.NotFrozen, 50, share.ReasonShare)
	p := v.Policy.Clone()
	p.Weights = map[string]int64{"big": 4}
	h.Apply(10_500*ms, protocol.Change{Revision: 2, Policy: &p})
	check(t, &h, 10, 10_600, share.NotFrozen, 20, share.ReasonShare) // shrinks at once
	h.Apply(10_700*ms, protocol.Change{Revision: 3, Policy: v.Policy})
	check(t, &h, 12, 12_000, share.NotFrozen, 20, share.ReasonShare) // and grows after S
	check(t, &h, 14, 14_000, share.NotFrozen, 50, share.ReasonShare)
}
