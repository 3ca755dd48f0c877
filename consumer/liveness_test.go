package consumer_test

import (
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

var (
	livenessSeed  = flag.Uint64("liveness.seed", 0, "play this history of TestLiveness only, and print it")
	livenessSkip  = flag.String("liveness.skip", "", "properties that TestLiveness does not demand, with commas")
	livenessCount = flag.Uint64("liveness.count", 160, "how many histories TestLiveness plays; -short plays an eighth")
	livenessFrom  = flag.Uint64("liveness.from", 1, "the seed of the first of them; the next have the seeds after it")
)

// livenessSeeds returns the first of the seeds that are played, and the one after the last.
func livenessSeeds() (first, end uint64) {
	count := *livenessCount
	if testing.Short() {
		count /= 8
	}
	return *livenessFrom, *livenessFrom + count
}

// TestLiveness plays random histories of one instance under random policies, and
// compares the limiter with the model after every step. What must hold:
//
//   - decided: Delay(n) = d is no longer than the wait, but for one slice under pacing even and
//     one slot (a 500th of the window) under shapes sliding and bucket. If nothing disturbs it, a
//     request for n with a maxWait below d is refused at once, and no other is refused at once. Where
//     h.exact says so, d is the wait, and no other is refused at all.
//   - idle: at no instant does the head of the queue fit into what there is.
//   - bound: nobody has an answer after maxWait or the deadline of the context.
//   - order: nobody overtakes a caller of its own or a higher class, and no place in the
//     queue is lost.
//   - ready: Ready returns no later than one window after the first permit could
//     be had, and not before anything can come.
//   - truth: nothing is called spent that is not, and RetryAt is now + Delay.
//   - shadow: under mode shadow everybody is granted at once.
//   - greedy: of callers that keep asking, all of the share is issued, but for what
//     is too little for the first in line.
//   - debt: while a debt is not paid nothing is issued, and it is paid as soon as there
//     are permits for it.
//   - safe: never more than the share, in any window or span.
func TestLiveness(t *testing.T) {
	if *livenessSeed != 0 {
		history(t, *livenessSeed, true)
		return
	}
	for _, seed := range []uint64{41, 178, 182, 209, 280, 331, 340, 567, 613, 655, 793, 798, 1369, 1399, 1413, 1698, 2147, 2345, 2618, 3248, 3349, 5602, 13436, 13957} { // have failed, or show a mutant
		history(t, seed, false)
	}
	for seed, end := livenessSeeds(); seed < end && !t.Failed(); seed++ {
		history(t, seed, false)
	}
}

// history plays the history of one seed.
func history(t *testing.T, seed uint64, verbose bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := newPlay(t, seed)
		defer func() {
			if t.Failed() || verbose {
				from := max(0, len(h.trace)-60)
				if verbose {
					from = 0
				}
				t.Logf("-liveness.seed %d: %s\n%s", seed, h.about, strings.Join(h.trace[from:], "\n"))
			}
		}()
		h.run()
	})
}

// play is one history while it runs.
type play struct {
	*testing.T
	*model
	rng    *rand.Rand
	about  string
	trace  []string
	source interface{ Set(quota.Policy) error }
	l      [2]*consumer.Limiter // of one source: they share a counter
	closed bool                 // the second
	mixed  bool                 // calls have classes
	ctx    context.Context      // of all that asks
	end    context.CancelFunc

	owedSince int64   // or 0
	queue     []*call // that have no answer, in order
	permits   []permit
	issuedNow int64 // Status.Issued as last seen
	news      bool  // since the last look
	ready     *readiness
}

// permit is one that can be given back.
type permit struct {
	consumer.Permit
	at int64
}

// call is a request.
type call struct {
	id        int
	n         int64
	class     int // 0 is the highest
	of        int // which limiter
	asked     int64
	bound     int64 // when it must have an answer
	foretold  time.Duration
	disturbed bool // since it was asked, more than time has passed
	eased     bool // since it was asked, somebody gave up, or gave something back
	exact     bool // what was foretold is the wait, not only no more: see play.exact
	headSince int64
	cancel    func()
	stopped   bool

	told atomic.Pointer[outcome] // by whoever waits
	done bool
	outcome
}

// outcome is what a request was told, and when.
type outcome struct {
	at     int64
	permit consumer.Permit
	err    error
}

// readiness is a call of Ready.
type readiness struct {
	asked int64
	at    atomic.Int64 // when it returned, or 0
}

func newPlay(t *testing.T, seed uint64) *play {
	h := &play{T: t, rng: rand.New(rand.NewPCG(seed, 11))}
	h.mixed = seed%3 == 1
	h.model = &model{instances: 1}
	if h.rng.IntN(3) == 0 {
		h.instances = 1 + h.rng.Int64N(4)
	}
	time.Sleep(time.Duration(h.rng.Int64N(int64(3 * time.Second))))
	h.began = now() - int64(time.Hour)
	policy := h.randomPolicy(nil)
	h.set(h.began, policy)
	h.about = fmt.Sprintf("%d instances, %s", h.instances, describe(policy))
	var source consumer.Source
	if h.instances == 1 {
		fixed := consumer.Fixed(policy)
		h.source, source = fixed, fixed
	} else {
		f := fleet(t, policy, int(h.instances))
		h.source, source = f, f.Instances()[0]
	}
	h.ctx, h.end = context.WithCancel(t.Context())
	t.Cleanup(h.end)
	h.opened = now()
	h.l[0], h.l[1] = open(t, source, consumer.Options{}), open(t, source, consumer.Options{})
	return h
}

func describe(p quota.Policy) string {
	p = p.WithDefaults()
	s := fmt.Sprintf("%v %s pacing %s mode %s outage %s settle %v guard %v warm-up %v burst %d critical %d", p.Limits, p.Shape, p.Pacing, p.Mode, p.Outage, p.Settle, p.Guard, p.WarmUp, p.Burst, p.Critical)
	if !p.From.IsZero() {
		s += " from " + clockOf(p.From.UnixNano())
	}
	for _, c := range p.Next {
		s += fmt.Sprintf(" then %v from %s", c.Limits, clockOf(c.From.UnixNano()))
	}
	return s
}

// clockOf writes an instant as the time since the bubble began.
func clockOf(at int64) string {
	return time.Unix(0, at).Sub(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).String()
}

var lengthsToDraw = []time.Duration{100, 200, 250, 500, 1000, 1000, 1000, 2000, 3000, 10_000}

// randomLimits draws limits of which every instance has a whole part.
func (h *play) randomLimits() (all []quota.Limit) {
	seen := map[time.Duration]bool{}
	for range 1 + h.rng.IntN(4)*h.rng.IntN(2)/2 + h.rng.IntN(2) {
		w := lengthsToDraw[h.rng.IntN(len(lengthsToDraw))] * time.Millisecond
		if seen[w] {
			continue
		}
		seen[w] = true
		share := 1 + h.rng.Int64N([]int64{3, 12, 12, 40, 700}[h.rng.IntN(5)])
		all = append(all, quota.Limit{Permits: share * h.instances, Window: w})
	}
	return all
}

// randomPolicy draws a policy; one that replaces another keeps its shape and
// times, as the model demands.
func (h *play) randomPolicy(before *quota.Policy) quota.Policy {
	r := h.rng
	one := func(in int) bool { return r.IntN(in) == 0 }
	for {
		var p quota.Policy
		if before != nil {
			p = before.Clone()
			p.From, p.Next, p.Requires = time.Time{}, nil, nil
		} else {
			p.Shape = []quota.Shape{quota.ShapeFixed, quota.ShapeFixed, quota.ShapeSliding, quota.ShapeBucket}[r.IntN(4)]
			p.Lend = "off" // what is foretold is of own shares
			p.Settle = time.Duration(300+r.IntN(2700)) * time.Millisecond
			p.ClockError = 10 * time.Millisecond
			if one(3) {
				p.Outage = quota.OutageStop
			}
			if one(4) {
				p.Guard = time.Duration(1+r.IntN(20)) * time.Millisecond
			}
			if one(6) {
				p.WarmUp = time.Duration(200+r.IntN(5000)) * time.Millisecond
			}
		}
		if before == nil || one(2) {
			p.Limits = h.randomLimits()
		}
		p.Pacing, p.Burst = quota.PacingOff, 0
		if p.Shape == quota.ShapeFixed && one(2) {
			p.Pacing = quota.PacingEven
		}
		if p.Shape == quota.ShapeBucket && one(2) {
			p.Burst = h.instances * (1 + r.Int64N(20))
		}
		if p.Critical = 0; h.mixed && p.Shape == quota.ShapeFixed && p.Pacing == quota.PacingOff && one(2) {
			p.Critical = 1 + r.Int64N(90)
		}
		p.Mode = quota.ModeEnforce
		if one(8) {
			p.Mode = []quota.Mode{quota.ModeShadow, quota.ModePause}[r.IntN(2)]
		}
		from := time.Now().Add(time.Duration(r.Int64N(int64(5 * time.Second))))
		if one(4) {
			p.From = from
		}
		if one(5) {
			p.Next = []quota.LimitChange{{From: from.Add(time.Duration(1 + r.Int64N(int64(4*time.Second)))), Limits: h.randomLimits()}}
		}
		if p.Validate() == nil && lasting(p).Validate() == nil && h.divides(p.WithDefaults()) {
			return p
		}
	}
}

func now() int64 { return time.Now().UnixNano() }

func (h *play) note(format string, args ...any) {
	h.trace = append(h.trace, clockOf(now())+" "+fmt.Sprintf(format, args...))
}

func (h *play) wrong(property, format string, args ...any) {
	h.Helper()
	if slices.Contains(strings.Split(*livenessSkip, ","), property) {
		return
	}
	h.note("WRONG %s: "+format, append([]any{property}, args...)...)
	for _, u := range limits(h.l[0]) {
		h.note("%v: share %d, used %d, left %d", u.Limit, u.Share, u.Used, u.Left)
	}
	h.Fatalf("%s: %s", property, fmt.Sprintf(format, args...))
}

// run plays the history, then the greedy end, and sees that all is cleared.
func (h *play) run() {
	h.startReady(true)
	for range 20 + h.rng.IntN(60) {
		h.step()
		h.sleep(h.randomTime())
	}
	h.greedy()
	h.end()
	synctest.Wait()
	if st := h.l[0].Status(); st.Waiting != 0 {
		h.wrong("order", "%d wait after all were cancelled", st.Waiting)
	}
}

func (h *play) randomTime() time.Duration {
	longest := int64(0)
	for _, l := range h.newest().Limits {
		longest = max(longest, int64(l.Window))
	}
	return time.Duration(h.rng.Int64N([]int64{1, int64(5 * time.Millisecond), int64(50 * time.Millisecond), longest / 4, longest/2 + int64(time.Millisecond), 2 * longest}[h.rng.IntN(6)]))
}

// sleep lets the time pass, and looks at every edge on the way.
func (h *play) sleep(d time.Duration) {
	for end := now() + int64(d); now() < end; {
		next := min(end, h.nextEdge(now()), now()+int64(h.newest().Limits[0].Window)/3)
		for _, c := range h.queue {
			if c.bound > now() {
				next = min(next, c.bound)
			}
		}
		time.Sleep(time.Duration(next - now()))
		h.look()
	}
}

// step does one thing at random.
func (h *play) step() {
	r := h.rng
	switch k := r.IntN(100); {
	case k < 40:
		h.ask(h.randomN(), h.randomWait(), r.IntN(3) == 0)
	case k < 60:
		h.try(h.randomN())
	case k < 68:
		h.takeUpTo(h.randomN())
	case k < 78:
		if len(h.queue) > 0 {
			c := h.queue[[]int{0, r.IntN(len(h.queue)), len(h.queue) - 1}[r.IntN(3)]]
			c.stopped = true
			h.ease()
			h.note("cancel %d", c.id)
			c.cancel()
		}
	case k < 82:
		h.giveBack()
	case k < 86:
		h.settle()
	case k < 90:
		h.pause()
	case k < 93:
		h.replace(h.randomPolicy(h.newest()))
	case k < 98:
		h.startReady(false)
	case !h.closed && r.IntN(3) == 0:
		h.closed = true
		h.ease()
		h.note("close the second limiter")
		for _, c := range h.queue {
			if c.of == 1 {
				c.bound, c.stopped = now(), true
			}
		}
		if err := h.l[1].Close(); err != nil {
			h.Error(err)
		}
	}
	h.look()
}

// largest is the most that the instance can have at once, as far as the newest
// policy goes.
func (h *play) largest() int64 {
	least := unlimited
	for _, l := range h.newest().Limits {
		n := l.Permits / h.instances
		if h.newest().Shape == quota.ShapeBucket {
			n = burstOf(h.newest(), l, h.instances)
		}
		least = min(least, n)
	}
	return least
}

func (h *play) randomN() int64 {
	if h.rng.IntN(2) == 0 {
		return 1
	}
	return 1 + h.rng.Int64N(h.largest()+h.rng.Int64N(2))
}

func (h *play) randomWait() time.Duration {
	if h.rng.IntN(2) == 0 {
		return forever
	}
	return h.randomTime()
}

// disturb notes that what was foretold need not come true.
func (h *play) disturb() {
	h.news = true
	for _, c := range h.queue {
		c.disturbed = true
	}
}

// ease notes that what was foretold may come sooner.
func (h *play) ease() {
	for _, c := range h.queue {
		c.eased = true
	}
}

// ask requests n permits on a goroutine, or with a function.
func (h *play) ask(n int64, maxWait time.Duration, byFunc bool) {
	of := h.rng.IntN(2)
	if h.closed {
		of = 0
	}
	class := h.randomClass()
	l, c := h.l[of].Class(classes[class]), &call{id: len(h.trace), n: n, class: class, of: of, asked: now(), bound: math.MaxInt64}
	c.foretold = delay(l, n)
	c.exact = h.exact(n)
	ctx, cancel := context.WithCancel(h.ctx)
	switch {
	case maxWait == forever:
	case h.rng.IntN(3) == 0 && !byFunc && maxWait > 0: // by the context's deadline
		c.bound = now() + int64(maxWait)
		var other context.CancelFunc
		ctx, other = context.WithTimeout(ctx, maxWait)
		context.AfterFunc(h.ctx, other)
		maxWait = forever
	default:
		c.bound = now() + int64(maxWait)
	}
	c.cancel = cancel
	h.note("ask %d: %d %s permits, bound %v, foretold %v", c.id, n, classes[class], time.Duration(min(c.bound-now(), int64(forever)&math.MaxInt64)), c.foretold)
	tell := func(p consumer.Permit, err error) {
		if !c.told.CompareAndSwap(nil, &outcome{now(), p, err}) {
			panic("answered twice")
		}
	}
	h.push(class)
	h.queue = slices.Insert(h.queue, h.behind(class), c)
	if byFunc {
		w := l.TakeFunc(n, maxWait, tell)
		c.cancel = func() {
			cancel()
			if w.Stop() {
				tell(consumer.Permit{}, context.Canceled)
			}
		}
		synctest.Wait()
		return
	}
	go func() {
		p, err := l.Take(ctx, n, maxWait)
		tell(p, err)
	}()
	synctest.Wait()
}

// try requests n permits that must be there now.
func (h *play) try(n int64) {
	class := h.randomClass()
	l := h.l[0].Class(classes[class])
	d := delay(l, n)
	err := takeNow(l, n)
	h.note("try %d for %s: %v, Delay was %v", n, classes[class], err, d)
	shadow := h.newest().Mode == quota.ModeShadow
	switch {
	case err == nil && !shadow && d != 0:
		h.wrong("truth", "%d permits at once, and Delay was %v", n, d)
	case err == nil:
		h.permitIssued(n, class)
		return
	case shadow:
		h.wrong("shadow", "%v", err)
	case d == 0:
		h.wrong("truth", "%v, and Delay was 0", err)
	}
	h.refused(n, class, d, err)
}

func (h *play) giveBack() {
	if len(h.permits) == 0 {
		return
	}
	i := h.rng.IntN(len(h.permits))
	p := h.permits[i]
	h.permits = append(h.permits[:i], h.permits[i+1:]...)
	h.ease()
	ok := release(h.l[0], p.Permit)
	h.note("release %d permits of %s: %v", count(p.Permit), clockOf(p.at), ok)
	if ok {
		h.issuedNow -= count(p.Permit)
		h.undo(p.at, count(p.Permit), now())
	} else if time.Now().Before(until(p.Permit)) && h.newest().Shape == quota.ShapeFixed && len(h.views) == 1 && len(h.lengths()) == 1 {
		h.wrong("idle", "a permit is not taken back before its window's end")
	}
	if release(h.l[0], p.Permit) {
		h.wrong("safe", "a permit is taken back twice")
	}
}

// settle tells what a call has cost.
func (h *play) settle() {
	if len(h.permits) == 0 {
		return
	}
	i := h.rng.IntN(len(h.permits))
	p, n := h.permits[i], count(h.permits[i].Permit)
	h.permits = append(h.permits[:i], h.permits[i+1:]...)
	cost := h.rng.Int64N(3*n + 1)
	for _, l := range h.newest().Limits { // more is a mistake
		cost = min(cost, max(n, 10*l.Permits))
	}
	for _, u := range limits(h.l[0]) { // and so by the limits before, while they are in force
		cost = min(cost, max(n, 10*u.Limit.Permits))
	}
	if h.newest().Shape != quota.ShapeFixed {
		cost = min(cost, n) // the model does not see when debts are paid
	}
	if cost > n {
		h.debt += cost - n
		h.disturb()
	}
	h.ease()
	if err := p.Settle(cost); err != nil {
		h.wrong("debt", "%v", err)
	}
	synctest.Wait()
	st := h.l[0].Status()
	back := h.issuedNow + h.debt - st.Debt - st.Issued // what pays the debt is issued, too
	for _, c := range h.queue {                        // who is served at once by what comes back
		if o := c.told.Load(); o != nil && o.err == nil {
			back += c.n
		}
	}
	h.note("settle %d permits of %s with %d: %d come back, the debt is %d", n, clockOf(p.at), cost, back, h.debt)
	if back != 0 && back != n-cost {
		h.wrong("debt", "%d come back of %d, which cost %d", back, n, cost)
	}
	h.issuedNow -= back
	h.undoPart(p.at, n, back, now())
	h.payments()
	if err := p.Settle(cost); err == nil {
		h.wrong("debt", "settled twice")
	}
}

// payments notes what was paid of the debt since the last look.
func (h *play) payments() {
	h.Helper()
	paid := h.debt - h.l[0].Status().Debt
	if paid < 0 {
		h.wrong("debt", "it has grown by %d", -paid)
	}
	if paid > 0 {
		h.note("%d of the debt are paid, %d are left", paid, h.debt-paid)
		h.issue(now(), paid)
		h.issuedNow += paid
		h.safe(paid, 0)
		h.debt -= paid
		if len(h.queue) > 0 {
			h.queue[0].headSince = 0 // what came until now is spent
		}
	}
	if h.debt == 0 {
		h.owedSince = 0
		return
	}
	if h.owedSince == 0 || paid > 0 {
		h.owedSince = now()
	}
	if least, known := h.unowed(now(), h.owedSince, 0); known && least >= max(1, min(h.debt, h.largest()/8)) && h.newest().Mode == quota.ModeEnforce {
		h.wrong("debt", "%d are owed since %s, and there are %d", h.debt, clockOf(h.owedSince), least)
	}
}

// divides reports whether all instances have the same part of every limit.
func (h *play) divides(p quota.Policy) bool {
	return !slices.ContainsFunc(append(changed(&p), p.Limits), func(limits []quota.Limit) bool {
		return slices.ContainsFunc(limits, func(l quota.Limit) bool { return l.Permits%h.instances != 0 })
	})
}

func (h *play) replace(p quota.Policy) {
	h.disturb()
	h.note("set %s", describe(p))
	if err := h.source.Set(p); err != nil {
		h.Fatal(err)
	}
	h.set(now(), p.WithDefaults())
}
