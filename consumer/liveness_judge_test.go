package consumer_test

import (
	"cmp"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

// refused compares the reasons with the model.
func (h *play) refused(n int64, class int, d time.Duration, err error) {
	h.ease() // pacing keeps as many permits together as were wanted
	e, ok := limitError(err)
	if !ok {
		if errors.Is(err, consumer.ErrTooLarge) && n <= 1 && h.largest() >= 1 && h.newest().WarmUp == 0 {
			h.wrong("truth", "one permit is too many")
		}
		return
	}
	retry := time.Unix(0, now()).Add(d)
	switch {
	case !e.RetryAt.IsZero() && !e.RetryAt.After(time.Now()):
		h.wrong("truth", "to be retried at %s", clockOf(e.RetryAt.UnixNano()))
	case d != math.MaxInt64 && h.behind(class) == 0 && (e.RetryAt.IsZero() || e.RetryAt.After(retry) && !e.RetryAt.Equal(e.DebtUntil)):
		// It may be earlier: one error serves all that are refused so many permits in
		// one segment, and others may have taken some since. It is later where a debt is
		// paid by the own share, and Delay counts on what others may lend.
		h.wrong("truth", "to be retried at %s, Delay was %v", clockOf(e.RetryAt.UnixNano()), d)
	}
	switch e.Reason {
	case consumer.ReasonSpent, consumer.ReasonDebt, consumer.ReasonQueue, consumer.ReasonKept, consumer.ReasonPacing:
	default:
		return
	}
	if now() < h.pausedTo || h.newest().Mode == quota.ModePause || limitsAt(h.newest(), now()) == nil {
		h.wrong("truth", "called spent, and it is paused or not in force: %+v", e)
	}
	if least, known := h.atLeast(now(), now(), class); known && h.behind(class) == 0 && n <= least {
		h.wrong("truth", "%d permits: called spent, and there are %d: %+v", n, least, e)
	}
}

// permitIssued notes permits that were issued at once. Under shadow mode the
// limiter's own count says how many they are.
func (h *play) permitIssued(n int64, class int) {
	issued := h.l[0].Status().Issued - h.issuedNow
	if h.newest().Mode != quota.ModeShadow && issued != n {
		h.wrong("safe", "%d permits issued, counted as %d", n, issued)
	}
	if issued == 0 {
		return
	}
	if h.behind(class) > 0 && h.newest().Mode != quota.ModeShadow {
		h.wrong("order", "%d permits to a newcomer of class %s while %d waits", n, classes[class], h.queue[0].id)
	}
	h.push(class)
	if h.debt > 0 {
		h.wrong("debt", "%d permits are issued, and %d are owed", issued, h.debt)
	}
	h.issue(now(), issued)
	h.issuedNow += issued
	h.safe(issued, class)
}

func (h *play) safe(n int64, class int) {
	last := h.log[len(h.log)-1]
	h.log = h.log[:len(h.log)-1]
	most := h.atMost(now(), class)
	h.log = append(h.log, last)
	if n > most {
		h.wrong("safe", "%d issued where there were %d", n, most)
	}
}

// look compares the limiter with the model.
func (h *play) look() {
	h.Helper()
	synctest.Wait()
	h.payments()
	h.collect()
	st := h.l[0].Status()
	defer func() { h.news = false }()
	if st.Waiting != len(h.queue) {
		h.wrong("order", "%d wait by Status, %d by count", st.Waiting, len(h.queue))
	}
	if overIssued(st) != 0 || st.Issued != h.issuedNow {
		h.wrong("safe", "issued %d by Status, %d by count; %d over", st.Issued, h.issuedNow, overIssued(st))
	}
	if h.ready != nil && h.ready.at.Load() != 0 {
		h.ready = nil
	}
	if len(h.queue) == 0 {
		return
	}
	head := h.queue[0]
	if h.newest().Mode == quota.ModeShadow {
		h.wrong("shadow", "%d waits", head.id)
	}
	if head.headSince == 0 {
		head.headSince = now()
	}
	if least, known := h.atLeast(now(), head.headSince, head.class); known && head.n <= least {
		h.wrong("idle", "%d waits for %d permits, and there are %d", head.id, head.n, least)
	}
	if _, calm := h.calm(now()); calm && head.n > h.largestAt(limitsAt(h.newest(), now())) {
		h.wrong("idle", "%d waits for %d permits, which never come, and stops all behind it", head.id, head.n)
	}
	if at, known := headAt(st); known && at.UnixNano() > head.bound && h.news {
		h.wrong("decided", "%d waits until %s, and its permits come at %s", head.id, clockOf(head.bound), clockOf(at.UnixNano()))
	}
	for _, c := range h.queue {
		switch {
		case c.bound <= now():
			h.wrong("bound", "%d has no answer at its end, %s", c.id, clockOf(c.bound))
		case c.disturbed || c.foretold == math.MaxInt64:
		case c.exact && c.asked+int64(c.foretold)+int64(h.tolerance()) < now():
			h.wrong("decided", "%d waits, foretold was %v after %s", c.id, c.foretold, clockOf(c.asked))
		case c.bound < c.asked+int64(c.foretold):
			h.wrong("decided", "%d waits, and %v was foretold: it comes too late", c.id, c.foretold)
		}
	}
}

// exact reports whether Delay tells a request for n permits its wait, and not only a wait that is not too
// long. Delay looks at each limit alone, and counts the permits that are issued before. So it may be too
// short:
//   - behind others or a debt, where there are several limits, since the shortest goes on while the
//     permits before are issued by the longest;
//   - behind requests of many, since they may not fit into what is left of a window;
//   - under several limits of which one releases permits along its window, since it may have none yet
//     at the instant at which the other one has some;
//   - where the share grows with the time, by how much it has grown in a window after the next. In a
//     warm-up a request for one does not need that if nobody is before it. Under shapes sliding and bucket
//     that is not looked into for any window;
//   - where the policy announces other limits.
func (h *play) exact(n int64) bool {
	p := h.newest()
	alone, single := len(h.queue) == 0 && h.debt == 0, len(h.lengths()) == 1
	switch {
	case p.Next != nil, len(h.views) > 1, !alone && !single, slices.ContainsFunc(h.queue, func(c *call) bool { return c.n > 1 }):
		return false
	case p.WarmUp > 0:
		return alone && n == 1 && p.Shape == quota.ShapeFixed && (single || p.Pacing == quota.PacingOff && p.Critical == 0)
	}
	return single || p.Shape == quota.ShapeFixed && p.Pacing == quota.PacingOff && p.Critical == 0
}

// tolerance is by how much Delay may err.
func (h *play) tolerance() time.Duration {
	p := h.newest()
	switch {
	case p.Shape != quota.ShapeFixed:
		longest := time.Duration(0)
		for _, l := range h.lengths() {
			longest = l
		}
		return longest / 500
	case p.Pacing == quota.PacingEven:
		return slice
	}
	return 0
}

// collect takes the answers that have come.
func (h *play) collect() {
	h.Helper()
	var left []*call
	overtaken := (*call)(nil)
	for _, c := range h.queue {
		if o := c.told.Load(); o != nil {
			c.done, c.outcome = true, *o
		}
	}
	if slices.ContainsFunc(h.queue, func(c *call) bool { return c.done && c.err != nil }) {
		h.ease() // what it would have had is there for others
	}
	for _, c := range h.queue {
		if !c.done {
			left = append(left, c)
			if overtaken == nil {
				overtaken = c
			}
			continue
		}
		h.note("answer to %d at %s: %v", c.id, clockOf(c.at), c.err)
		h.judge(c, overtaken)
	}
	h.queue = left
}

// judge looks at one answer.
func (h *play) judge(c, overtaken *call) {
	h.Helper()
	shadow := h.newest().Mode == quota.ModeShadow
	waited := time.Duration(c.at - c.asked)
	if c.at > c.bound {
		h.wrong("bound", "%d has its answer %v late: %v", c.id, time.Duration(c.at-c.bound), c.err)
	}
	if c.err == nil {
		if c.at == c.bound && waited > 0 && !shadow {
			// At the deadline itself both answers are right.
			h.note("granted at its deadline")
		}
		if overtaken != nil && !shadow {
			h.wrong("order", "%d is granted before %d", c.id, overtaken.id)
		}
		if c.exact && !c.disturbed && !shadow && c.foretold != math.MaxInt64 && waited > c.foretold+h.tolerance() {
			h.wrong("decided", "%d waited %v, foretold was %v", c.id, waited, c.foretold)
		}
		if !c.disturbed && !c.eased && !shadow && c.foretold != math.MaxInt64 && waited+h.tolerance() < c.foretold {
			h.wrong("decided", "%d waited %v only, foretold was %v", c.id, waited, c.foretold)
		}
		if s, u := start(c.permit).UnixNano(), until(c.permit).UnixNano(); !shadow && (c.at >= u || h.newest().Shape == quota.ShapeFixed && c.at < s) {
			h.wrong("safe", "%d: a permit of %s to %s, issued at %s", c.id, clockOf(s), clockOf(u), clockOf(c.at))
		}
		issued := c.n
		if shadow {
			issued = h.l[0].Status().Issued - h.issuedNow // all that came at once are one
		} else {
			h.permits = append(h.permits, permit{c.permit, c.at})
		}
		if issued > 0 {
			if h.debt > 0 {
				h.wrong("debt", "%d is granted, and %d are owed", c.id, h.debt)
			}
			h.issue(c.at, issued)
			h.issuedNow += issued
			if c.at == now() { // or others may have been granted since
				h.safe(issued, c.class)
			}
		}
		return
	}
	switch {
	case c.stopped || h.ctx.Err() != nil:
	case shadow:
		h.wrong("shadow", "%d: %v", c.id, c.err)
	case errors.Is(c.err, context.DeadlineExceeded) && c.at == c.bound:
	case (c.exact || c.at == c.asked) && !c.disturbed && c.foretold != math.MaxInt64 && (c.bound > c.asked && c.asked+int64(c.foretold+h.tolerance()) <= c.bound || c.foretold == 0):
		h.wrong("decided", "%d is refused after %v, foretold was %v: %v", c.id, waited, c.foretold, c.err)
	case c.at == c.asked:
		h.refused(c.n, c.class, delay(h.l[0].Class(classes[c.class]), c.n), c.err)
	}
}

// startReady calls Ready. At the start nothing was issued, and so Ready and the
// first permit come together.
func (h *play) startReady(first bool) {
	if h.ready != nil {
		return
	}
	r := &readiness{asked: now()}
	h.ready = r
	go func() {
		if h.l[0].Ready(h.ctx) == nil {
			r.at.Store(now())
		}
	}()
	if !first {
		synctest.Wait()
		return
	}
	var issuedAt atomic.Int64
	c := make(chan struct{})
	go func() {
		defer close(c)
		if h.l[0].Acquire(h.ctx, forever) == nil {
			issuedAt.Store(now())
		}
	}()
	synctest.Wait()
	all := h.lengths()
	shortest, longest := all[0], all[len(all)-1]
	last := now() + int64(h.newest().Settle) + 4*int64(longest) + int64(10*time.Second)
	for issuedAt.Load() == 0 && now() < last && h.newest().Mode != quota.ModePause {
		time.Sleep(time.Duration(h.nextEdge(now()) - now()))
		synctest.Wait()
	}
	got := issuedAt.Load()
	if got != 0 && r.at.Load() == 0 && now() < got+int64(shortest) {
		time.Sleep(time.Duration(got + int64(shortest) - now()))
		synctest.Wait()
	}
	readyAt := r.at.Load()
	h.note("ready at %s, first permit at %s", clockOf(readyAt), clockOf(got))
	switch small := h.newest().WarmUp > 0 && h.largest() < 4; {
	case h.newest().Mode == quota.ModePause:
		if readyAt != 0 || got != 0 {
			h.wrong("ready", "paused, and ready (%v) or a permit (%v)", readyAt != 0, got != 0)
		}
		h.resume()
		<-c
		synctest.Wait()
		if got = issuedAt.Load(); r.at.Load() == 0 {
			time.Sleep(time.Duration(got + int64(shortest) - now()))
			synctest.Wait()
		}
		readyAt = r.at.Load()
	case got == 0 && !small:
		h.wrong("idle", "no permit in %v", time.Duration(now()-r.asked))
	case got == 0:
		h.wrong("idle", "no permit in %v of warming up", time.Duration(now()-r.asked))
	}
	lead := int64(longest)
	if h.newest().Pacing == quota.PacingEven {
		lead *= 4 // a permit must be due under all limits at once
	}
	if readyAt == 0 || h.newest().Mode != quota.ModeShadow && (readyAt > got+int64(shortest) || readyAt < got-lead && h.newest().WarmUp == 0) {
		h.wrong("ready", "at %s, the first permit came at %s", clockOf(readyAt), clockOf(got))
	}
	if n := h.l[0].Status().Issued; n > 0 {
		h.issue(got, n)
		h.issuedNow = n
	}
	h.look()
}

// pause has the limiter pause, or end its pause. Calls are disturbed only if that changes when permits come.
func (h *play) pause() {
	was := h.pausedTo
	if h.rng.IntN(3) == 0 {
		h.pausedTo = 0
		h.note("resume")
		h.l[0].Resume()
	} else {
		to := time.Now().Add(h.randomTime())
		h.pausedTo = max(h.pausedTo, to.UnixNano()) // it can be extended, not shortened
		h.note("pause until %s", clockOf(h.pausedTo))
		pauseUntil(h.l[0], to)
	}
	if h.pausedTo != was && max(h.pausedTo, was) > now() {
		h.disturb()
	}
}

// resume puts a policy in force that is not paused.
func (h *play) resume() {
	h.replace(lasting(*h.newest()))
}

// lasting returns the policy without its times and its mode.
func lasting(p quota.Policy) quota.Policy {
	p = p.Clone()
	p.Mode, p.From, p.Next = quota.ModeEnforce, time.Time{}, nil
	return p
}

// greedy lets callers ask without end, once all has settled, and sees that they
// get everything.
func (h *play) greedy() {
	h.Helper()
	h.note("greedy")
	if p := h.newest(); p.Mode != quota.ModeEnforce {
		h.resume()
	}
	h.pausedTo = 0
	h.disturb()
	h.l[0].Resume()
	for _, c := range h.queue {
		c.stopped = true
		c.cancel()
	}
	h.look()
	for range 100_000 {
		since, calm := h.calm(now())
		if calm {
			break
		}
		h.sleep(max(time.Duration(since-now()), time.Second))
	}
	for h.debt > 0 {
		h.sleep(time.Second)
	}
	if _, calm := h.calm(now()); !calm {
		h.Fatal("the history never comes to rest")
	}
	limits := limitsAt(h.newest(), now())
	shortest, longest := limits[0].Window, limits[len(limits)-1].Window
	share := limits[0].Permits / h.instances
	windows := min(int64(2*longest/shortest), 40, max(4, 3000/share))
	most := max(1, min(h.largestAt(limits), 1+h.rng.Int64N(20)))
	callers := h.startGreedy(2+h.rng.IntN(4), most)
	begin, before := now(), h.issuedNow
	end := begin + windows*int64(shortest)
	for now() < end {
		time.Sleep(time.Duration(min(end, h.nextEdge(now()), now()+int64(shortest)/8) - now()))
		synctest.Wait()
		h.collectGreedy(callers)
	}
	if len(limits) > 1 {
		return
	}
	// All of the share, but for what is too little for the first in line.
	elapsed := float64(end-begin) / float64(shortest)
	least := (math.Floor(elapsed) - 1) * float64(share-most+1)
	switch h.newest().Shape {
	case quota.ShapeSliding:
		span := float64(shortest+h.newest().Guard) / float64(shortest)
		least = math.Floor(elapsed/span/1.01-1) * float64(share-most+1)
	case quota.ShapeBucket:
		least = 0.98*elapsed*float64(share) - float64(most) - float64(share)/100 - 1
	}
	if got := h.issuedNow - before; float64(got) < least {
		h.wrong("greedy", "%d issued in %v, want at least %.0f", got, time.Duration(end-begin), least)
	}
}

// greedyCaller asks again as soon as it is served.
type greedyCaller struct {
	mu    sync.Mutex
	n     int64 // what it waits for
	since int64
	got   []issued
}

// ask notes what the caller asks for now.
func (c *greedyCaller) ask(n int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n, c.since = n, now()
	return n
}

// served notes that it got them.
func (c *greedyCaller) served(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got = append(c.got, issued{now(), n})
}

// look returns what the caller waits for, since when, and what it got since the
// last look.
func (c *greedyCaller) look() (n, since int64, got []issued) {
	c.mu.Lock()
	defer c.mu.Unlock()
	got, c.got = c.got, nil
	return c.n, c.since, got
}

// startGreedy starts callers that ask for 1 to most permits each time.
func (h *play) startGreedy(callers int, most int64) (all []*greedyCaller) {
	for range callers {
		c := &greedyCaller{}
		all = append(all, c)
		rng := rand.New(rand.NewPCG(h.rng.Uint64(), 12))
		go func() {
			for {
				n := c.ask(1 + rng.Int64N(most))
				if take(h.ctx, h.l[0], n, forever) != nil {
					return
				}
				c.served(n)
			}
		}()
	}
	synctest.Wait()
	return all
}

// collectGreedy takes over what greedy callers got, and sees that nothing is
// left for the one of them that wants the most, if all wait for long.
func (h *play) collectGreedy(all []*greedyCaller) {
	h.Helper()
	var got []issued
	largest, since := int64(0), int64(0)
	for _, c := range all {
		n, asked, served := c.look()
		got = append(got, served...)
		largest, since = max(largest, n), max(since, asked)
	}
	slices.SortStableFunc(got, func(a, b issued) int { return cmp.Compare(a.at, b.at) })
	for _, g := range got {
		h.issue(g.at, g.n)
		h.issuedNow += g.n
		if last := len(h.log) - 1; last > 0 && h.log[last-1].at == g.at { // one entry for each instant
			h.log[last-1].n += g.n
			h.log = h.log[:last]
		}
	}
	for i := len(h.log) - 1; i >= 0 && len(got) > 0 && h.log[i].at >= got[0].at; i-- {
		all := h.log
		h.log = all[:i]
		most := h.atMost(all[i].at, 0)
		h.log = all
		if all[i].n > most {
			h.wrong("safe", "%d issued at %s where there were %d", all[i].n, clockOf(all[i].at), most)
		}
	}
	if least, known := h.atLeast(now(), since, 1); known && largest <= least {
		h.wrong("idle", "all wait since %s, for %d permits at the most, and there are %d", clockOf(since), largest, least)
	}
	if st := h.l[0].Status(); st.Issued != h.issuedNow || overIssued(st) > 0 || st.Waiting != len(all) {
		h.wrong("order", "issued %d by Status, %d by count; %d over; %d of %d wait", st.Issued, h.issuedNow, overIssued(st), st.Waiting, len(all))
	}
}

func (h *play) largestAt(limits []quota.Limit) int64 {
	least := unlimited
	for _, l := range limits {
		n := l.Permits / h.instances
		if h.newest().Shape == quota.ShapeBucket {
			n = burstOf(h.newest(), l, h.instances)
		}
		least = min(least, n)
	}
	return least
}
