package longrun_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/coordinator"
	"github.com/quotient-limiter/quotient/quota"
)

// crew is a fleet under a load that each instance makes by itself.
type crew struct {
	t       *testing.T
	total   int64
	connect func() *clientv3.Client
	admin   *coordinator.Admin
	ctx     context.Context
	hands   []*hand // oldest first

	mu     sync.Mutex
	issued map[int64]int64 // by second
}

// hand is one instance.
type hand struct {
	client  *clientv3.Client
	session *coordinator.Session
	limiter *consumer.Limiter
	stop    context.CancelFunc
	number  int
	rate    int64 // calls a second; guarded by crew.mu
	served  int64 // permits; guarded by crew.mu
}

// step is how often an instance makes the calls that are due.
const step = 20 * time.Millisecond

// inCrew runs f with n instances of a provider with a limit of total a second.
func inCrew(t *testing.T, n int, total int64, p quota.Policy, f func(c *crew)) {
	t.Helper()
	bubble(t, func(t *testing.T, connect func() *clientv3.Client) {
		c := &crew{t: t, total: total, connect: connect, issued: map[int64]int64{}}
		admin, err := coordinator.NewAdmin(connect(), coordinator.AdminOptions{Prefix: prefix, Author: "test"})
		if err != nil {
			t.Fatal(err)
		}
		c.admin = admin
		p.Limits = []quota.Limit{{Permits: total, Window: time.Second}}
		if _, err := admin.Put(t.Context(), provider, p, coordinator.AnyRevision); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		c.ctx = ctx
		for i := range n {
			c.join(i)
		}
		for _, h := range c.hands {
			if err := h.limiter.Ready(ctx); err != nil {
				t.Fatal(err)
			}
		}
		// Not in step with the windows, as calls are not.
		time.Sleep(1037*time.Millisecond - time.Duration(time.Now().Nanosecond()))
		f(c)
		cancel()
		for _, h := range c.hands {
			_ = h.session.Close()
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for second, n := range c.issued {
			if n > total {
				t.Errorf("%d permits of %d in second %d", n, total, second)
			}
		}
	})
}

func (c *crew) join(i int) *hand {
	c.t.Helper()
	h := &hand{client: c.connect(), number: i}
	weight := int64(1)
	if i == 0 {
		weight = 10
	}
	var err error
	if h.session, err = coordinator.Join(c.ctx, h.client, coordinator.Options{Prefix: prefix, Name: fmt.Sprintf("hand-%d", i), Weight: weight, Logger: quiet}); err != nil {
		c.t.Fatal(err)
	}
	if h.limiter, err = consumer.Open(c.ctx, h.session, provider, consumer.Options{Logger: quiet}); err != nil {
		c.t.Fatal(err)
	}
	var ctx context.Context
	ctx, h.stop = context.WithCancel(c.ctx)
	c.hands = append(c.hands, h)
	go c.work(ctx, h, time.Duration(i)*time.Millisecond/7)
	return h
}

// work makes calls that do not wait.
func (c *crew) work(ctx context.Context, h *hand, phase time.Duration) {
	time.Sleep(phase)
	owed := int64(0) // calls, times step over a second
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(step):
		}
		c.mu.Lock()
		owed += h.rate
		c.mu.Unlock()
		const steps = int64(time.Second / step)
		n := owed / steps
		owed -= n * steps
		got := h.limiter.TryTakeUpTo(n)
		c.mu.Lock()
		c.issued[time.Now().Unix()] += got
		h.served += got
		c.mu.Unlock()
	}
}

// offer sets what every instance asks for, by its number.
func (c *crew) offer(rate func(i int) int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.hands {
		h.rate = rate(h.number)
	}
}

// served returns the permits that every instance was issued during d.
func (c *crew) served(d time.Duration) []int64 {
	c.mu.Lock()
	for _, h := range c.hands {
		h.served = 0
	}
	c.mu.Unlock()
	time.Sleep(d)
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]int64, len(c.hands))
	for i, h := range c.hands {
		all[i] = h.served
	}
	return all
}

// until returns how long it takes until a second has at least n permits, and the
// least that a whole second had on the way.
func (c *crew) until(n int64) (took time.Duration, dip int64) {
	began := time.Now()
	dip = c.total
	for time.Since(began) < time.Minute {
		time.Sleep(time.Second)
		synctest.Wait()
		c.mu.Lock()
		got := c.issued[time.Now().Unix()-1]
		c.mu.Unlock()
		if time.Since(began) >= 2*time.Second { // the first one is not whole
			dip = min(dip, got)
			if got >= n {
				return time.Since(began), dip
			}
		}
	}
	return time.Since(began), dip
}

func sum(all []int64) (s int64) {
	for _, n := range all {
		s += n
	}
	return s
}

// TestDemandMoves: it moves from one half of the fleet to the other at once. In
// 2 S + 5 s nearly all of it is served again.
func TestDemandMoves(t *testing.T) {
	const n, total = 24, 12_000
	inCrew(t, n, total, quota.Policy{Share: quota.ShareDemand}, func(c *crew) {
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
	inCrew(t, n, total, quota.Policy{Share: quota.ShareDemand}, func(c *crew) {
		greed := int64(total)
		ask := func(i int) int64 {
			if i == n-1 {
				return greed
			}
			return total / 2 / n
		}
		for range 5 {
			c.offer(ask)
			time.Sleep(8 * time.Second)
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
	inCrew(t, n, total, quota.Policy{Share: quota.ShareDemand}, func(c *crew) {
		time.Sleep(time.Minute) // nobody asks for anything
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
	inCrew(t, n, total, quota.Policy{Share: quota.ShareWeighted}, func(c *crew) {
		c.offer(func(int) int64 { return total })
		time.Sleep(2 * time.Second)
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

// TestTheOldestDiesAgainAndAgain: every 5 s, without a word; another one joins.
func TestTheOldestDiesAgainAndAgain(t *testing.T) {
	const n, total, deaths = 24, 12_000, 8
	inCrew(t, n, total, quota.Policy{Share: quota.ShareDemand}, func(c *crew) {
		ask := func(i int) int64 { return int64(1+i%4) * total * 2 / 5 / n }
		c.offer(ask)
		c.until(total * 95 / 100)
		before := time.Now().Unix()
		for i := range deaths {
			oldest := c.hands[0]
			c.hands = c.hands[1:]
			oldest.stop()
			_ = oldest.client.Close()
			c.t.Cleanup(func() { _ = oldest.session.Close() })
			c.join(n + i)
			c.offer(ask)
			time.Sleep(5 * time.Second)
		}
		c.mu.Lock()
		used := int64(0)
		for second := before; second < time.Now().Unix(); second++ {
			used += c.issued[second]
		}
		c.mu.Unlock()
		part := float64(used) / float64(total*(time.Now().Unix()-before))
		t.Logf("%.3f of the total was used while the oldest died %d times", part, deaths)
		if part < 0.9 {
			t.Errorf("only %.3f of the total was used", part)
		}
	})
}
