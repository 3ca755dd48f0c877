package envoy

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	rlqsv3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/quota"
)

// limiters are those of the host.
type limiters interface {
	// Limiter returns a provider's limiter, and opens it if need be.
	Limiter(ctx context.Context, provider string) (*consumer.Limiter, error)
	// Clock is the clock of their windows.
	Clock() *clock.Clock
}

const (
	maxClients = 1000 // of a provider
	// minReport is the least time between two reports that counts: a rate in less is noise.
	minReport = 250 * time.Millisecond
	// headroom is how many permits a client gets for a request that it has reported: for
	// what a token bucket wastes, and for more requests.
	headroom = 1.5
)

// client is a member of a pool, and the way to it.
type client struct {
	member
	pool     *pool
	id       *rlqsv3.BucketId
	outbox   *outbox
	sent     time.Time // of the newest assignment
	reported time.Time // of the newest report
	rate     float64   // requests per second; negative: not known yet
}

// pool divides a host's share of a provider among Envoys. At the start of each window it
// takes the permits for all assignments in it, before it renews any.
type pool struct {
	provider string
	limiters limiters
	log      *slog.Logger
	wake     chan struct{} // there is something to do before the next tick

	mu      sync.Mutex
	clients []*client
	leaving bool
	window  quota.Window // the newest
	permits int64        // that were taken in it
	short   bool         // assignments in force may admit more in it
	asked   int64        // start of the newest window whose permits were asked for
	problem string       // that was logged

	// For metrics: windows that were short, and assignments that ended without a renewal.
	shorts  prometheus.Counter
	expired float64
}

// enter adds a client; false if there are too many.
func (p *pool) enter(c *client) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.clients) >= maxClients {
		return false
	}
	p.clients = append(p.clients, c)
	p.rouse()
	return true
}

// leave makes the client get no other assignment. Its last one counts until it ends.
func (p *pool) leave(c *client) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.gone = true
	p.rouse()
}

// end makes all assignments end, for good.
func (p *pool) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leaving = true
	p.rouse()
}

func (p *pool) rouse() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// report notes a client's requests since its last report, those of its first one not: it
// only says that there is a bucket.
func (p *pool) report(c *client, requests float64, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := c.reported; !last.IsZero() {
		rate := requests / max(now.Sub(last), minReport).Seconds()
		c.rate = max(rate, (rate+c.rate)/2) // more immediately, less by and by
	}
	c.reported = now
}

// run assigns until ctx ends. It begins when the assignments of a process before this one
// have ended.
func (p *pool) run(ctx context.Context) {
	tick := time.After(ttl + slack)
	var wake chan struct{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
		case <-wake:
		}
		wake, tick = p.wake, nil
		if next, busy := p.tick(ctx); busy {
			tick = time.After(next)
		}
	}
}

// tick sets aside the window's permits, if that has not been done, and assigns. It returns
// when to do so again, and whether there is anybody.
func (p *pool) tick(ctx context.Context) (next time.Duration, busy bool) {
	if p.idle() {
		return 0, false // so that the host may close the limiter
	}
	limiter, err := p.limiters.Limiter(ctx, p.provider)
	p.mu.Lock()
	defer p.mu.Unlock()
	at, now := p.limiters.Clock().Wall(), time.Now()
	length, share, free := p.window.Length, int64(0), int64(0)
	if err == nil {
		length, share, free, err = shareOf(limiter)
	}
	p.note(err)
	length = cmp.Or(length, time.Second)
	if w := quota.WindowAt(length, at); w != p.window {
		p.window, p.permits, p.short = w, 0, false
	}
	if p.leaving || err != nil {
		p.permits, share = 0, 0
	}
	elapsed, left := time.Duration(at-p.window.Start()), time.Duration(p.window.End()-at)
	members := p.expire(now.Add(-elapsed))
	if missing := needs(members, share, length) - p.permits; missing > 0 && err == nil {
		if guard := limiter.Delay(1); p.permits == 0 && guard > 0 && guard < left-time.Millisecond { // not the next window
			return guard, true
		}
		if p.asked >= p.window.Start() { // what is refused is demand, which counts once in a window
			missing = min(missing, free)
		} else {
			missing += unmet(members, share)
		}
		permit := limiter.TryTake(missing)
		start := permit.Start().UnixNano()
		p.asked = max(p.window.Start(), start)
		if permit.N() > 0 {
			if start != p.window.Start() {
				permit.Release()
				return time.Millisecond, true // the next window has just begun
			}
			p.permits += permit.N()
		}
	}
	if !p.short && !p.leaving && charges(members, length) > p.permits {
		p.short = true
		p.shorts.Inc()
	}
	for i, b := range plan(members, p.permits, share, length, elapsed) {
		c := p.clients[i]
		if !c.gone && (b != c.newest() || now.Sub(c.sent) >= renewal/2) {
			c.assign(b, now)
			c.sent = now
			c.outbox.put(c, b)
		}
	}
	return max(time.Millisecond, min(left, renewal)), len(members) > 0
}

func (p *pool) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.clients) == 0
}

// expire forgets the leases that ended before an instant, and clients without any that are
// gone. It returns the members.
func (p *pool) expire(before time.Time) (members []*member) {
	for _, c := range p.clients {
		if c.expire(before) {
			p.expired++
		}
		c.want = math.MaxInt64
		if c.rate >= 0 {
			c.want = int64(min(c.rate*p.window.Length.Seconds()*headroom, float64(quota.MaxPermits))) + 2
		}
	}
	p.clients = slices.DeleteFunc(p.clients, func(c *client) bool { return c.gone && len(c.leases) == 0 })
	for _, c := range p.clients {
		members = append(members, &c.member)
	}
	return members
}

// note logs why nothing is assigned, once.
func (p *pool) note(err error) {
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	if problem != p.problem && problem != "" {
		p.log.Warn("Envoys are assigned nothing", "provider", p.provider, "error", problem)
	}
	p.problem = problem
}

// shareOf returns the window and the share of a provider's only limit, and the permits that
// are left of it. Other policies cannot be held by a token bucket.
func shareOf(limiter *consumer.Limiter) (window time.Duration, share, left int64, err error) {
	st := limiter.Status()
	use := st.Shortest()
	window = use.Limit.Window
	switch aligned := window > 0 && use.Start.UnixNano()%int64(window) == 0; {
	case len(st.Limits) == 0 || st.State == quota.StatePaused || st.State == quota.StateDraining:
		return window, 0, 0, fmt.Errorf("no share: %s", cmp.Or(st.Problem, string(st.State)))
	case len(st.Limits) > 1 || window > quota.MaxWindow || !aligned:
		return window, 0, 0, fmt.Errorf("the policy has %d limits, or another shape than fixed: Envoys can be assigned one limit of at most %v with shape fixed; use descriptors, which are answered call by call", len(st.Limits), quota.MaxWindow)
	}
	return window, use.Share, use.Left, nil
}

// counts returns the assignments that admit requests, and those that ended without a renewal.
func (p *pool) counts() (live, expired float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, expired := time.Now(), p.expired
	for _, c := range p.clients {
		switch n := len(c.leases); {
		case c.newest() == bucket{}:
		case now.Before(c.leases[n-1].until):
			live++
		case c.gone: // for good: p.expired counts it from the next window's start
			expired++
		}
	}
	return live, expired
}
