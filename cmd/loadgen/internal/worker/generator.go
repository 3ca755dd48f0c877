package worker

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/quotient-limiter/quotient/cmd/loadgen/internal/config"
	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/load"
	"github.com/quotient-limiter/quotient/quota"
)

const (
	// tick is how often a generator looks which calls are due. A call is made
	// at most so much late, or as late as the machine is busy.
	tick = 2 * time.Millisecond
	// chunk bounds how many calls are made between two readings of the clock
	// that says in which window they were offered.
	chunk = 256
	// sampled is how many calls there are for each one that is timed.
	sampled = 64
	// Slowest is the longest call that the histogram holds; slower ones count
	// as this.
	Slowest = time.Minute
)

// permit is what a limiter tells of one: the window that it is for, in nanoseconds
// since the epoch.
type permit struct{ start, until int64 }

// limiter is what a generator asks for permits, one at a time.
type limiter interface {
	// take returns at once.
	take() (permit, error)
	// wait calls f with a permit, or when there was none in time. It does not block.
	wait(maxWait time.Duration, f func(permit, error))
}

type fleetLimiter struct {
	*consumer.Limiter
	keys []consumer.Key // that its calls are for
}

func (l fleetLimiter) take() (permit, error) {
	p, err := l.Take(context.Background(), 1, 0)
	if err != nil {
		return permit{}, err
	}
	return told(p), nil
}

func (l fleetLimiter) wait(maxWait time.Duration, f func(permit, error)) {
	l.TakeFunc(1, maxWait, func(p consumer.Permit, err error) { f(told(p), err) })
}

func told(p consumer.Permit) permit { return permit{p.Start().UnixNano(), p.Until().UnixNano()} }

// shared is what all generators of a fleet go by.
type shared struct {
	c       *config.Config
	placing load.Placing
	limits  atomic.Pointer[[]quota.Limit] // in force; replaced by the fleet on a change
	start   atomic.Int64                  // the instant from which delays count
	stop    atomic.Int64                  // the instant at which calls end
	// use is what permits are used for; it must not block.
	use func(n int64, as load.Request)

	issued  atomic.Int64 // permits
	worst   atomic.Int64 // how far one was outside its window, at most
	waiting atomic.Int64 // calls that were put into queues and have not come back
}

// generator makes the calls of some instances, on one goroutine, and counts
// what came of them.
type generator struct {
	*shared
	tally, came, misplaced *load.Tally
	keys                   *keyed // nil: calls have none

	mu      sync.Mutex
	members []*member // the list; the members themselves belong to the generator's goroutine

	// waited is how long the calls waited that did, and got their permits, in
	// nanoseconds. Callbacks of several limiters write to it.
	waited struct {
		sync.Mutex
		*hdrhistogram.Histogram
	}

	// The rest belongs to the generator's goroutine.
	took   *hdrhistogram.Histogram // nanoseconds of immediate grants
	parts  []float64               // of the fleet's calls, by slot
	turn   int64                   // of the ranks, whose parts they are
	moved  int64                   // when it began
	atOnce int64                   // permits that nobody waited for, since the start
	calls  uint64
}

// member is one instance as its generator sees it.
type member struct {
	limiter limiter
	slot    int
	calls   *load.Process
	gone    atomic.Bool // it has left: no calls any more

	begun  bool
	turn   int64   // of the ranks by which it makes calls
	part   float64 // of the fleet's calls
	window int64   // whose calls are being made
	made   int64   // of them
}

// newGenerator returns one that counts in the tallies of a sheet.
func newGenerator(s *shared, counts []*load.Tally) *generator {
	g := &generator{
		shared: s, tally: counts[load.Labelled], came: counts[load.Came], misplaced: counts[load.Misplaced],
		keys: newKeyed(s.c.Seed, s.c.KeySpread, counts[load.Misplaced+1:]),
		took: hdrhistogram.New(1, int64(Slowest), 3),
	}
	g.waited.Histogram = hdrhistogram.New(1, int64(Slowest), 3)
	return g
}

// add gives the generator another instance, also while it runs, which makes
// calls until gone.
func (g *generator) add(m *member) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.members = append(g.members, m)
}

func (g *generator) run() {
	for {
		now := g.c.Now()
		if now >= g.stop.Load() {
			return
		}
		g.mu.Lock()
		g.members = slices.DeleteFunc(g.members, func(m *member) bool { return m.gone.Load() })
		members := slices.Clone(g.members)
		g.mu.Unlock()
		g.spread(now)
		for _, m := range members {
			g.advance(m, now)
		}
		time.Sleep(tick - time.Duration(time.Now().UnixNano()%int64(tick)))
	}
}

// spread adopts the parts of an instant.
func (g *generator) spread(now int64) {
	turn, since := g.c.Spread.Turn(g.start.Load(), now)
	if g.parts == nil || turn != g.turn {
		g.parts, g.turn, g.moved = g.c.Spread.Parts(g.c.Instances, turn), turn, since
	}
}

// advance makes the calls of one instance that are due at an instant: until the ranks have
// changed those of its part before, and then those of the next one.
func (g *generator) advance(m *member, now int64) {
	switch {
	case !m.begun:
		m.turn, m.part = g.turn, g.parts[m.slot]
	case m.turn != g.turn:
		g.until(m, g.moved)
		m.turn, m.part = g.turn, g.parts[m.slot]
		if w := quota.WindowAt(g.c.Window(), g.moved); w.Index == m.window {
			g.begin(m)
			m.made = m.calls.Due(float64(g.moved-w.Start()) / float64(w.Length))
		}
	}
	g.until(m, now)
}

// begin starts the calls of the member's window, by its part.
func (g *generator) begin(m *member) {
	mean, floor := g.c.Calls(m.part, load.Shortest(*g.limits.Load()).Permits)
	m.calls.Begin(m.window, mean, floor)
}

// until makes those until an instant.
func (g *generator) until(m *member, now int64) {
	w := quota.WindowAt(g.c.Window(), now)
	if !m.begun || w.Index > m.window {
		if m.begun && w.Index == m.window+1 {
			g.offer(m, m.calls.Due(1)-m.made) // late by less than a tick
		}
		m.begun, m.window, m.made = true, w.Index, 0
		g.begin(m)
	}
	// A clock that was set back gives no calls until it has caught up.
	if w.Index == m.window {
		due := m.calls.Due(float64(now-w.Start()) / float64(w.Length))
		g.offer(m, due-m.made)
		m.made = due
	}
}

func (g *generator) offer(m *member, n int64) {
	for n > 0 {
		now := g.c.Now()
		if now >= g.stop.Load() {
			return
		}
		some := min(n, chunk)
		n -= some
		g.tally.Offer(now, some)
		g.call(m, some, g.mayWait(now), now)
	}
}

// mayWait reports whether a call that is refused now may wait: the next window starts
// in time and before the end of the load, or this one has more permits to come.
func (g *generator) mayWait(now int64) bool {
	if g.c.Paced() {
		return g.c.MaxWait > 0
	}
	next := quota.WindowAt(g.c.Window(), now).End()
	return next-now <= int64(g.c.MaxWait) && next < g.stop.Load()
}

// call makes n calls. Permits are counted by the window that they tell, each before
// it is taken, because the process may be killed at any instant: no permit that was
// used is missing in the sum.
func (g *generator) call(m *member, n int64, wait bool, now int64) {
	var permits, start, until int64 // of the latest permits, all of one window
	taken := int64(0)
	granted := func(p permit, err error) { g.granted(p, err, now) }
	for range n {
		g.tally.Try(now)
		p, err := g.take(m.limiter, now)
		if err == nil {
			g.tally.Taken(now, p.start)
			if p.start != start || p.until != until {
				g.spend(permits, until, load.Request{Start: start, Asked: now})
				permits, start, until = 0, p.start, p.until
			}
			permits++
			taken++
			continue
		}
		g.tally.Refused(now)
		if wait {
			g.waiting.Add(1)
			m.limiter.wait(g.c.MaxWait, granted)
		}
	}
	if now >= g.start.Load() {
		g.atOnce += taken
	}
	g.spend(permits, until, load.Request{Start: start, Asked: now})
}

// take makes one call that does not wait, and times one in so many.
func (g *generator) take(l limiter, now int64) (permit, error) {
	call := l.take
	if g.keys != nil {
		call = func() (permit, error) { return g.keys.take(l, now) }
	}
	g.calls++
	if g.calls%sampled != 0 {
		return call()
	}
	start := time.Now()
	p, err := call()
	if d := time.Since(start); err == nil {
		// Cannot fail: the value is within the histogram's range.
		_ = g.took.RecordValue(int64(min(d, Slowest)))
	}
	return p, err
}

// granted is called for each call that waited since the instant since. Its permit
// is handed over with this call, so counting it first is early enough.
func (g *generator) granted(p permit, err error, since int64) {
	if err == nil {
		g.tally.Issue(p.start, 1)
		now := g.spend(1, p.until, load.Request{Start: p.start, Asked: since})
		if since >= g.start.Load() {
			g.waited.Lock()
			// Cannot fail: the value is within the histogram's range.
			_ = g.waited.RecordValue(min(max(now-since, 0), int64(Slowest)))
			g.waited.Unlock()
		}
	}
	g.waiting.Add(-1)
}

// spend places permits that were just issued, and are counted, and uses them. It
// returns the instant at which they came.
func (g *generator) spend(permits, until int64, as load.Request) (now int64) {
	if permits == 0 {
		return 0
	}
	now = g.c.Now()
	g.came.Issue(now, permits)
	switch place, beyond := g.placing.Place(as.Start, until, as.Asked, now); place {
	case load.HeldUp:
		g.came.Offer(now, permits)
	case load.Outside:
		g.misplaced.Issue(now, permits)
		for worst := g.worst.Load(); int64(beyond) > worst && !g.worst.CompareAndSwap(worst, int64(beyond)); {
			worst = g.worst.Load()
		}
	}
	g.issued.Add(permits)
	g.use(permits, as)
	return now
}
