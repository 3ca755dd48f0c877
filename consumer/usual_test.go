package consumer_test

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

// Calls whose costs are spread widely use the limit, and owe at most a window: as many tokens as answers
// have, lognormal and 500 on average, at 50 a second, while callers always wait. The seeds are always the same: by
// chance one play of some thousands of the last row owes a little more than a window: 1.01 was seen once, and 0.86 at most
// in 2,500 plays of other seeds.
func TestUsualCostsUseTheLimit(t *testing.T) {
	const most = 4096
	for i, at := range []struct {
		limit, windows int64 // 40 calls a window are few: the first 20 of them take most
		sigma          float64
	}{{200_000, 20, 0.3}, {200_000, 20, 1}, {20_000, 200, 0.3}, {20_000, 200, 1}} {
		limit, windows, sigma := at.limit, at.windows, at.sigma
		seed := uint64(i)
		synctest.Test(t, func(t *testing.T) {
			policy := quota.Policy{Limits: []quota.Limit{{Permits: limit, Window: time.Minute}}}
			limiter := open(t, consumer.Fixed(policy), consumer.Options{})
			chat := limiter.Label("chat")
			time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
			var mu sync.Mutex
			random := rand.New(rand.NewPCG(seed, 1))
			cost := func() int64 {
				mu.Lock()
				defer mu.Unlock()
				return int64(min(most, math.Ceil(math.Exp(math.Log(500)-sigma*sigma/2+sigma*random.NormFloat64()))))
			}
			end := time.Now().Add(time.Duration(windows) * time.Minute)
			var used, debt int64
			var callers sync.WaitGroup
			for range limit * 3 / 2 / 500 {
				callers.Go(func() {
					for time.Now().Before(end) {
						p, err := chat.TakeUsual(t.Context(), most, time.Until(end))
						if err != nil {
							return
						}
						n := cost()
						time.Sleep(time.Duration(n) * time.Second / 50)
						if err := p.Settle(n); err != nil {
							t.Error(err)
						}
						owed := limiter.Status().Debt
						mu.Lock()
						used, debt = used+n, max(debt, owed)
						mu.Unlock()
					}
				})
			}
			callers.Wait()
			use := float64(used) / float64(limit*windows)
			t.Logf("seed %d, limit %d, sigma %.1f: use %.3f, a debt of up to %.2f windows", seed, limit, sigma, use, float64(debt)/float64(limit))
			if use < 0.97 || debt > limit {
				t.Errorf("use %.3f, a debt of %d", use, debt)
			}
		})
	}
}

// What is usual, beside a naive count.
func TestUsual(t *testing.T) {
	policy := quota.Policy{Limits: []quota.Limit{{Permits: 1_000_000, Window: time.Second}}}
	bubble(t, policy, func(t *testing.T, _ context.Context, _ *consumer.FixedSource, l *consumer.Limiter) {
		var all []int64
		for i := range 300 {
			want := int64(5000)
			if n := len(all); n >= 20 {
				last := slices.Sorted(slices.Values(all[max(0, n-100):]))
				want = max(1, last[int(math.Ceil(0.9*float64(len(last))))-1])
			}
			if got := l.Usual(5000); got != want {
				t.Fatalf("after %d calls: %d, want %d", i, got, want)
			}
			p, err := l.TakeUsual(t.Context(), 5000, consumer.Forever)
			if err != nil || p.N() != want {
				t.Fatal(p.N(), err)
			}
			cost := rand.Int64N(3) * rand.Int64N(2000)
			if err := p.Settle(cost); err != nil {
				t.Fatal(err)
			}
			all = append(all, cost)
			if p.Settle(9) == nil {
				t.Fatal("settled twice")
			}
		}
		if got := l.Usual(1); got != 1 {
			t.Errorf("%d is above the most", got)
		}
		if got := l.Label("chat").Usual(77); got != 77 {
			t.Errorf("another label's calls count: %d", got)
		}
		p, err := l.Label("a\n").TakeUsual(t.Context(), 1, 0)
		if err == nil || p.N() != 0 {
			t.Error(p, err)
		}
	})
}
