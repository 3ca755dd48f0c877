package hours_test

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// TestDemandMoves: it moves from one half of the fleet to the other at once. In
// 2 S + 5 s nearly all of it is served again.
func TestDemandMoves(t *testing.T) {
	const n, total = 24, 12_000
	inCrew(t, n, total, quota.Policy{Division: quota.Division{Share: quota.ShareDemand}}, func(c *crew) {
		c.offer(func(i int) int64 { return int64(1-i/(n/2)) * total / (n / 2) })
		c.until(total * 94 / 100)
		// The silent half keeps its part of the floor: half of ten percent.
		if got := sum(c.served(20 * time.Second)); got < 20*total*945/1000 {
			t.Errorf("%d of %d permits were used while demand stood still", got, 20*total)
		}
		c.offer(func(i int) int64 { return int64(i/(n/2)) * total / (n / 2) })
		took, dip := c.until(total * 94 / 100)
		t.Logf("0.94 of the total (all but the silent half's floor) is used %v after demand has moved; the least that a second had was %.2f", took, float64(dip)/total)
		if took > 11*time.Second {
			t.Errorf("it took %v until the demand was served, want at most 11s", took)
		}
	})
}

// TestTheGreedyTakeOnlyWhatOthersLeave: also one that claims more every time.
func TestTheGreedyTakeOnlyWhatOthersLeave(t *testing.T) {
	const n, total = 24, 12_000
	inCrew(t, n, total, quota.Policy{Division: quota.Division{Share: quota.ShareDemand}}, func(c *crew) {
		greed := int64(total)
		ask := func(i int) int64 {
			if i == n-1 {
				return greed
			}
			return total / 2 / n
		}
		for range 5 {
			c.offer(ask)
			pass(8 * time.Second)
			greed *= 2
		}
		all := c.served(20 * time.Second)
		for i, got := range all[:n-1] {
			if got < 20*total/2/n*99/100 {
				t.Errorf("instance %d got %d of the %d that it asked for", i, got, 20*total/2/n)
			}
		}
		if got := all[n-1]; got < 20*total*45/100 {
			t.Errorf("the greedy one got %d, and the others leave %d", got, 20*total/2)
		}
	})
}

// TestWhoWakesIsServedAtOnce: from its equal part first, then by its demand.
func TestWhoWakesIsServedAtOnce(t *testing.T) {
	const n, total = 24, 12_000
	inCrew(t, n, total, quota.Policy{Division: quota.Division{Share: quota.ShareDemand}}, func(c *crew) {
		pass(time.Minute) // nobody asks for anything
		c.offer(func(i int) int64 { return int64(i/(n-1)) * total / 2 })
		if got := c.served(time.Second)[n-1]; got < total/n*9/10 {
			t.Errorf("who wakes got %d in its first second, its part is %d", got, total/n)
		}
		took, _ := c.until(total / 2 * 95 / 100)
		t.Logf("all of its demand is served %v after", took)
		if took > 11*time.Second {
			t.Errorf("it took %v until its demand was served", took)
		}
	})
}

func TestWeightIsShare(t *testing.T) {
	const n, total = 24, 3300
	inCrew(t, n, total, quota.Policy{Division: quota.Division{Share: quota.ShareWeighted}}, func(c *crew) {
		c.offer(func(int) int64 { return total })
		pass(2 * time.Second)
		all := c.served(10 * time.Second)
		if got, want := sum(all), int64(10*total); got != want {
			t.Errorf("%d of %d permits were used", got, want)
		}
		for i, got := range all {
			want := int64(10 * total / (n + 9))
			if i == 0 {
				want *= 10
			}
			if got != want {
				t.Errorf("instance %d got %d, want %d", i, got, want)
			}
		}
	})
}
