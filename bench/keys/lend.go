package main

import (
	"context"
	"fmt"
	"time"

	"github.com/quotient-limiter/quotient/quota"
)

// owned gives each key of a policy one owner.
func owned(p quota.Policy) quota.Policy {
	p.Keys.Owners = 1
	return p
}

// lent has keys called for at 1.3 times their limit, by callers that do not wait, and prints
// how much of the limit was used, with and without an owner.
func (f *fleet) lent(ctx context.Context) (over bool, err error) {
	for _, load := range []struct {
		name string
		who  func(call int, at time.Time) int // the instance of a call
	}{
		{"all instances alike", func(call int, _ time.Time) int { return call % *instances }},
		{"one instance", func(int, time.Time) int { return 3 % *instances }},
		{"another instance every 5 s", func(_ int, at time.Time) int { return int(at.Unix()/5) % *instances }},
		{"another instance every second", func(_ int, at time.Time) int { return int(at.Unix()) % *instances }},
	} {
		for _, provider := range []string{"equal", "owner"} {
			beyond, err := f.oneKey(ctx, provider, load.name, load.who)
			if over = over || beyond; err != nil {
				return over, err
			}
		}
	}
	return over, nil
}

// oneKey plays a load on one key.
func (f *fleet) oneKey(ctx context.Context, provider, load string, who func(int, time.Time) int) (over bool, err error) {
	limit := policies[provider].Keys.Limits[0].Permits
	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
	began, by := time.Now(), map[int64]int64{}
	writes, err := f.writes(ctx, func() {
		for call := 0; time.Since(began) < *length; call++ {
			p := f.limiters[provider][who(call, time.Now())].Key(load).TryTake(1)
			by[p.Start().Unix()] += p.N()
			time.Sleep(time.Until(began.Add(time.Duration(call) * time.Second * 10 / time.Duration(13*limit))))
		}
	})
	used := int64(0)
	for second, n := range by {
		if over = over || n > limit; second >= began.Unix() {
			used += n
		}
	}
	fmt.Printf("a key that %s calls for at 1.3 times its limit, %s: %.1f%% used, %.1f writes a second\n",
		load, provider, 100*float64(used)/(length.Seconds()*float64(limit)), writes)
	return over, err
}
