package hours_test

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
	"github.com/quotient-limiter/quotient/coordinator/admin"
	"github.com/quotient-limiter/quotient/quota"
)

// crew is a fleet under a load that each instance makes by itself.
type crew struct {
	t       *testing.T
	total   int64
	network *network
	admin   *admin.Client
	ctx     context.Context
	hands   []*hand                                      // oldest first
	calls   func(h *hand, permits int64) (refused int64) // makes the calls that were permitted; nil: nothing does

	mu     sync.Mutex
	issued map[int64]int64 // by second
	asked  map[int64]int64 // what callers asked for, by second
}

// hand is one instance.
type hand struct {
	client  *clientv3.Client
	session *coordinator.Session
	limiter *consumer.Limiter
	stop    context.CancelFunc
	line    *line
	number  int
	rate    int64 // calls a second; guarded by crew.mu
	stopped bool  // makes no calls; guarded by crew.mu
	served  int64 // permits; guarded by crew.mu
}

// step is how often an instance makes the calls that are due.
const step = 20 * time.Millisecond

// inCrew runs f with n instances of a provider with a limit of total a second.
func inCrew(t *testing.T, n int, total int64, p quota.Policy, f func(c *crew)) {
	t.Helper()
	inBubble(t, func(t *testing.T, net *network) {
		c := &crew{t: t, total: total, network: net, issued: map[int64]int64{}, asked: map[int64]int64{}}
		operator, err := admin.New(net.connect(t), admin.Options{Prefix: prefix, Author: "test"})
		if err != nil {
			t.Fatal(err)
		}
		c.admin = operator
		p.Limits = []quota.Limit{{Permits: total, Window: time.Second}}
		if _, err := operator.Put(t.Context(), provider, p); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		c.ctx = ctx
		for i := range n {
			c.join(i)
			// etcd cannot catch up with 512 watches in no time (it resets a ticker to
			// the time that it took).
			pass(9 * time.Millisecond)
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
	h := &hand{line: newLine(c.network), number: i}
	h.client = c.network.connectBy(c.t, h.line.dial)
	var err error
	if h.session, err = coordinator.Join(c.ctx, h.client, coordinator.Options{Prefix: prefix, Name: fmt.Sprintf("hand-%d", i), Logger: quiet}); err != nil {
		c.t.Fatal(err)
	}
	pass(time.Millisecond) // as some time does: nothing is proved at a clock's first instant
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
	owed := int64(0) // calls, times step over a second
	for next := phase + step; ; next = step {
		select {
		case <-ctx.Done():
			return
		case <-time.After(next):
		}
		c.mu.Lock()
		if !h.stopped {
			owed += h.rate
		}
		c.mu.Unlock()
		const steps = int64(time.Second / step)
		n := owed / steps
		owed -= n * steps
		got := h.limiter.TryTake(n).N()
		if c.calls != nil {
			for range c.calls(h, got) {
				h.limiter.Throttled(0, "429")
			}
		}
		c.mu.Lock()
		c.issued[time.Now().Unix()] += got
		c.asked[time.Now().Unix()] += n
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
