//go:build load

package hours_test

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/quota"
)

// TestTheLimitIsUsedWhereverCallsCome lets 1.3 times the limit be called for by one instance,
// another one each second, or by all. In fake time a processor and a network take no time,
// so what is not used here is the rules'.
func TestTheLimitIsUsedWhereverCallsCome(t *testing.T) {
	const n, total, calls = 24, 12_000, 15_600
	for _, load := range []struct {
		name  string
		rate  func(second, i int) int64
		least int64 // of 1,000 permits
	}{
		{"one hot instance", func(_, i int) int64 { return hot(i == 3, calls) }, 980},
		{"another one each second", func(s, i int) int64 { return hot(i == s*7%n, calls) }, 980},
		{"four, others each second", func(s, i int) int64 { return hot((i+s)%6 == 0, calls/4) }, 970},
		{"everybody", func(_, i int) int64 { return calls / n }, 999},
		{"the i-th the i-th part", func(_, i int) int64 { return calls * 10 / 37 / int64(i+1) }, 970},
	} {
		t.Run(load.name, func(t *testing.T) {
			inCrew(t, n, total, quota.Policy{}, func(c *crew) {
				used := int64(0)
				const seconds, begins = 10, 3
				for s := range seconds + begins {
					c.offer(func(i int) int64 { return load.rate(s, i) })
					if got := sum(c.served(time.Second)); s >= begins {
						used += got
					}
				}
				if used < seconds*total*load.least/1000 {
					t.Errorf("%.3f of the limit was used, want %.3f", float64(used)/seconds/total, float64(load.least)/1000)
				}
				t.Logf("%.3f of the limit was used", float64(used)/seconds/total)
			})
		})
	}
}

func hot(is bool, rate int64) int64 {
	if is {
		return rate
	}
	return 0
}

// TestOneThatWakesGetsItsShare: while another one uses all that there is, in the same second.
func TestOneThatWakesGetsItsShare(t *testing.T) {
	const n, total = 24, 12_000
	inCrew(t, n, total, quota.Policy{}, func(c *crew) {
		pass(5 * time.Second) // all have shares of their own
		due, got := int64(0), int64(0)
		for s := range 12 {
			wakes := 1 + s*5%(n-1)
			c.offer(func(i int) int64 { return hot(i == 0, total*13/10) + hot(i == wakes && s%3 == 2, total/n) })
			all := c.served(time.Second) // not in step with the windows
			if s%3 == 2 {
				due, got = due+total/n*95/100, got+all[wakes]
			}
		}
		if got < due {
			t.Errorf("those that woke got %d of the %d that were due", got, due)
		}
	})
}

// TestNobodyLendsWithoutNeed: a fleet whose instances have enough writes nothing about it.
func TestNobodyLendsWithoutNeed(t *testing.T) {
	const n, total = 24, 12_000
	inCrew(t, n, total, quota.Policy{}, func(c *crew) {
		asks := func() (all int64) {
			r, err := c.hands[0].client.Get(c.ctx, prefix+"asks/", clientv3.WithPrefix())
			if err != nil {
				t.Fatal(err)
			}
			for _, kv := range r.Kvs {
				all += kv.Version
			}
			return all
		}
		c.offer(func(int) int64 { return total / n / 2 })
		pass(3 * time.Second)
		before := asks()
		pass(5 * time.Second)
		if after := asks(); after != before {
			t.Errorf("%d asks though everybody has enough", after-before)
		}
	})
}
