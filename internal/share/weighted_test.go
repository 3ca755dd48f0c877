package share_test

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/share"
	"github.com/quotient-limiter/quotient/quota"
)

func weighty(t *rapid.T) (all []quota.Instance, sum int64) {
	for i, w := range rapid.SliceOfN(rapid.Int64Range(1, 50), 1, 20).Draw(t, "weights") {
		all = append(all, quota.Instance{ID: fmt.Sprintf("worker-%d", i), Weight: w})
		sum += w
	}
	return all, sum
}

func TestWeightedSharesSumToTheTotal(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all, lots := weighty(t)
		total := rapid.OneOf(rapid.Int64Range(0, 1000), rapid.Int64Range(0, quota.MaxPermits)).Draw(t, "total")
		w := second(rapid.Int64().Draw(t, "window") / 1e9)
		sum := int64(0)
		for id, n := range share.Weighted(total, all, &quota.Policy{}, w) {
			sum += n
			for _, i := range all {
				if i.ID == id && (n < total/lots*i.Weight || n > (total/lots+1)*i.Weight) {
					t.Fatalf("%s of weight %d of %d has %d of %d", id, i.Weight, lots, n, total)
				}
			}
		}
		if sum != total {
			t.Fatalf("shares sum to %d of %d", sum, total)
		}
	})
}

func TestWeightOneIsEqual(t *testing.T) {
	t.Parallel()
	ids := fleet(96)
	var all []quota.Instance
	for _, id := range ids {
		all = append(all, quota.Instance{ID: id})
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
	p := &quota.Policy{Weights: map[string]int64{"override": 20}}
	var all []quota.Instance
	lots := int64(0)
	for i, w := range []int64{1, 1, 1, 2, 3, 5, 8, 13, 21, 34} {
		all = append(all, quota.Instance{ID: fmt.Sprintf("w%d", i), Weight: w})
		lots += w
	}
	all = append(all, quota.Instance{ID: "o", Name: "override", Weight: 1})
	lots += 20
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
		want := float64(windows*total*weight) / float64(lots)
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
