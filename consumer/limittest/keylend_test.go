package limittest_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

// lendingKeys has keys of so many permits per second, which instances lend.
func lendingKeys(permits, owners int64) quota.Policy {
	p := owning(owners)
	p.Lend, p.Keys.Limits[0].Permits = "on", permits
	return p
}

// counted are permits by key and second, as callers count them.
type counted struct {
	sync.Mutex
	by map[string]map[int64]int64
}

func (c *counted) add(key string, p consumer.Permit) {
	if p.N() == 0 {
		return
	}
	c.Lock()
	defer c.Unlock()
	if c.by == nil {
		c.by = map[string]map[int64]int64{}
	}
	if c.by[key] == nil {
		c.by[key] = map[int64]int64{}
	}
	c.by[key][p.Start().Unix()] += p.N()
}

// check fails if a key had more than most in a second, and returns how many it had in the
// seconds of [from, to).
func (c *counted) check(t *testing.T, most, from, to int64) map[string]int64 {
	t.Helper()
	c.Lock()
	defer c.Unlock()
	sums := map[string]int64{}
	for key, by := range c.by {
		for second, n := range by {
			if n > most {
				t.Errorf("%s has issued %d permits in second %d, the limit is %d", key, n, second, most)
			}
			if from <= second && second < to {
				sums[key] += n
			}
		}
	}
	return sums
}

// A caller that waits on an instance that does not own the key is served by the owner's
// permits. One that does not wait is refused, and those after it are served.
func TestACallerElsewhereBorrowsFromTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newOwners(t, lendingKeys(1000, 1), 3)
		var c counted
		for k := range 20 {
			key := fmt.Sprint("key-", k)
			owner := f.owner(key)
			for id, l := range f.by {
				if id == owner {
					continue
				}
				began := time.Now()
				p, err := l.Key(key).Take(t.Context(), 2, 500*time.Millisecond)
				if c.add(key, p); err != nil || time.Since(began) > 5*time.Millisecond {
					t.Fatalf("%s on %s, after %v: %v", key, id, time.Since(began), err)
				}
				for p := l.Key(key).TryTake(1); p.N() > 0; p = l.Key(key).TryTake(1) {
					c.add(key, p)
				}
				time.Sleep(50 * time.Millisecond)
				p = l.Key(key).TryTake(1)
				if c.add(key, p); p.N() != 1 {
					t.Fatalf("%s on %s: nothing was lent after a refusal", key, id)
				}
				for _, l := range f.by {
					c.add(key, l.Key(key).TryTake(100))
				}
				f.nextSecond()
			}
		}
		c.check(t, 1000, 0, 0)
	})
}

// hot has one instance call for a key every 5 ms for some seconds: 200 times a second.
func hot(l *consumer.Limiter, key string, seconds int, c *counted) {
	for range seconds * 200 {
		c.add(key, l.Key(key).TryTake(1))
		time.Sleep(5 * time.Millisecond)
	}
}

// A key that one instance calls for gets its limit, wherever its permits are.
func TestAKeyThatOneInstanceUsesGetsItsLimit(t *testing.T) {
	for _, owners := range []int64{0, 1, 3} {
		t.Run(fmt.Sprint(owners), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newOwners(t, lendingKeys(100, owners), 10)
				var c counted
				from := time.Now().Unix()
				hot(f.by["instance-3"], "key", 10, &c)
				time.Sleep(time.Second)
				used := c.check(t, 100, from, from+10)["key"]
				if t.Logf("%d of 1000", used); used < 950 {
					t.Errorf("%d permits of 1000 were used", used)
				}
			})
		})
	}
}

// What all instances have issued of each key is never more than its limit, with callers
// that wait and callers that do not, while instances come and go.
func TestKeysThatAreLentStayWithinTheirLimits(t *testing.T) {
	for _, owners := range []int64{0, 1, 2} {
		t.Run(fmt.Sprint(owners), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newOwners(t, lendingKeys(20, owners), 4)
				var c counted
				var all sync.WaitGroup
				end := time.Now().Add(20 * time.Second)
				callers := func(seed uint64, l *consumer.Limiter) {
					for n := range uint64(3) {
						r := rand.New(rand.NewPCG(seed, n))
						all.Go(func() {
							for time.Now().Before(end) {
								key := fmt.Sprint("key-", r.IntN(3))
								if r.IntN(3) == 0 {
									p, _ := l.Key(key).Take(t.Context(), 1+r.Int64N(4), time.Duration(r.IntN(800))*time.Millisecond)
									c.add(key, p)
								} else {
									c.add(key, l.Key(key).TryTake(1+r.Int64N(4)))
								}
								time.Sleep(time.Duration(r.IntN(60)) * time.Millisecond)
							}
						})
					}
				}
				from := time.Now().Unix()
				for n, i := range f.fleet.Instances() {
					callers(uint64(n), f.by[f.id(i)])
				}
				time.Sleep(5 * time.Second)
				f.fleet.Instances()[0].Leave()
				i := f.fleet.Join()
				f.open(i)
				callers(9, f.by[f.id(i)])
				time.Sleep(5 * time.Second)
				f.fleet.Instances()[1].Kill()
				all.Wait()
				for key, n := range c.check(t, 20, from, from+20) {
					if t.Logf("%s: %d of 400", key, n); n < 200 {
						t.Errorf("%s: %d of 400 permits were used", key, n)
					}
				}
			})
		})
	}
}

// A key that all instances want more of than there is loses nothing by loans.
func TestAKeyThatAllUseLosesNothingByLoans(t *testing.T) {
	for _, owners := range []int64{0, 3} {
		t.Run(fmt.Sprint(owners), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newOwners(t, lendingKeys(50, owners), 10)
				var c counted
				from := time.Now().Unix()
				for range 10 * 100 {
					for _, i := range f.fleet.Instances() {
						c.add("key", f.by[f.id(i)].Key("key").TryTake(5))
					}
					time.Sleep(10 * time.Millisecond)
				}
				used := c.check(t, 50, from, from+10)["key"]
				if t.Logf("%d of 500", used); used < 490 {
					t.Errorf("%d of 500 permits were used", used)
				}
			})
		})
	}
}
