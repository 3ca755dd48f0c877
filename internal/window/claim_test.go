package window

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/quota"
)

// A waiter that may give its permits back is not in the way of those behind it from that instant on: they are not refused,
// neither when they come, nor in the window in which it is served. Once its caller is sure they are judged.
func TestWhoMayGiveBackDelaysNobody(t *testing.T) {
	f := newFixed(map[time.Duration]int64{10 * second: 1})
	f.total, f.instances = 1, 2
	for _, c := range []struct {
		gives  time.Duration // from when on; 0: never
		unsure bool          // once it is queued: it may give back while it waits
		want   []string
	}{{0, false, nil}, {26 * second, false, nil}, {19 * second, true, nil}, {18 * second, true, []string{"b"}}, {-1, true, []string{"b"}}} {
		var told told
		g, _ := lender(f)
		g.decided = told.decided
		g.Changed(at(0))
		upTo(g, at(1), 1)
		first := &queue.Waiter{Payload: "a"}
		if first.MayGiveBack(int64(c.gives)); c.gives == 0 {
			first.MayGiveBack(clock.Forever)
		}
		g.Enter(at(second), first, 1, int64(25*second), queue.Default)
		var waits []string
		enter := func(now time.Duration, name string, until time.Duration) {
			if _, v := g.Enter(at(now), &queue.Waiter{Payload: name}, 1, int64(until), queue.Default); v == queue.Queued {
				waits = append(waits, name)
			}
		}
		enter(second, "b", 18*second)
		if diff := cmp.Diff(c.want, waits); diff != "" || first.Unsure != c.unsure {
			t.Errorf("gives back at %v: who waits (-want +got):\n%s", c.gives, diff)
		}
		g.Changed(at(10 * second)) // "a" is served, and the others are judged
		if diff := cmp.Diff([]string{"a@10s"}, told.take()); diff != "" {
			t.Errorf("gives back at %v: told (-want +got):\n%s", c.gives, diff)
		}
		if c.unsure {
			g.mu.judge = len(c.want) > 0 // without the one that waits nobody need be judged
		}
		late, waits := g.Late(at(10*second), 1, int64(19*second), queue.Default), nil
		if enter(10*second, "d", 16*second); late == c.unsure || len(waits) > 0 != c.unsure {
			t.Errorf("gives back at %v: %v may wait until 16s, and until 19s is late: %v", c.gives, waits, late)
		}
		if c.unsure {
			g.Sure()
		}
		var refused []string
		for _, name := range append(c.want, waits...) {
			refused = append(refused, fmt.Sprintf("%s!%d", name, queue.Limited))
		}
		g.Evict(at(10*second+1), 1) // nobody, and there is no news
		if diff := cmp.Diff(refused, told.take()); diff != "" || !g.Late(at(10*second+1), 1, int64(19*second), queue.Default) {
			t.Errorf("gives back at %v: told once it is sure (-want +got):\n%s", c.gives, diff)
		}
	}
}

// Without a policy nobody waits for anything, also while a caller that was served may give its permits back.
func TestNobodyWaitsWithoutAPolicyThoughOneIsUnsure(t *testing.T) {
	f, g, told := begun(map[time.Duration]int64{time.Minute: 1})
	take(g, at(0), 1)
	for _, name := range []string{"unsure", "waits"} {
		w := &queue.Waiter{Payload: name}
		if name == "unsure" {
			w.MayGiveBack(0)
		}
		if _, v := g.Enter(at(50*second), w, 1, int64(3*time.Minute), queue.Default); v != queue.Queued {
			t.Fatalf("%s: %d", name, v)
		}
	}
	g.Tick(at(time.Minute))
	if got := told.take(); len(got) != 1 || g.mu.unsure != 1 {
		t.Fatalf("%v, and %d are unsure", got, g.mu.unsure)
	}
	f.set(func() { f.plan.Hopeless = true })
	g.Changed(at(61 * second))
	if diff := cmp.Diff([]string{fmt.Sprintf("waits!%d", queue.Limited)}, told.take()); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

// lined is a limit for whose permits callers wait: a provider's, or a key's.
type lined interface {
	tick(now time.Duration)
	// enter adds a caller for n permits. It waits if it does not get them.
	enter(now time.Duration, n int64) queue.Verdict
	// enterAs is enter for a caller of class c.
	enterAs(now time.Duration, n int64, c queue.Class) queue.Verdict
	// upTo issues up to n permits to a newcomer.
	upTo(now time.Duration, n int64) int64
	told() []string
	ask(now time.Duration) *Asking
}

// lines returns a line of each kind, which 10 instances share. shares are what one has of the windows of each length.
func lines(total int64, shares map[time.Duration]int64) map[string]lined {
	f := newFixed(shares)
	f.total, f.instances = total, 10
	p := &gateLine{}
	p.gate, _ = lender(f)
	p.gate.decided = p.log.decided
	return map[string]lined{"provider": p, "key": &keyLine{shares: shares, total: total, owners: 10}}
}

type gateLine struct {
	gate *Gate
	log  told
}

func (l *gateLine) tick(now time.Duration)                { l.gate.Changed(at(now)) }
func (l *gateLine) upTo(now time.Duration, n int64) int64 { return upTo(l.gate, at(now), n) }
func (l *gateLine) told() []string                        { return l.log.take() }

func (l *gateLine) enter(now time.Duration, n int64) queue.Verdict {
	return l.enterAs(now, n, queue.Default)
}

func (l *gateLine) enterAs(now time.Duration, n int64, c queue.Class) queue.Verdict {
	_, v := l.gate.Enter(at(now), &queue.Waiter{Payload: n}, n, clock.Forever, c)
	return v
}

func (l *gateLine) ask(now time.Duration) *Asking {
	ask, _ := l.gate.Look(at(now))
	return ask
}

type keyLine struct {
	shares map[time.Duration]int64
	total  int64
	owners int // of the ten instances
	guard  time.Duration
	use    Account
	queue  queue.Queue
	log    told
}

func (l *keyLine) fleet() plans.Fleet {
	return plans.Fleet{Total: l.total, Instances: 10, Owners: l.owners}
}

// line returns the line, after the account has moved on to the windows that run.
func (l *keyLine) line(now time.Duration) Line {
	if k := lendingAt("me", now, slices.Sorted(maps.Keys(l.shares))...); l.use.windows == nil || !slices.Equal(k.Running, l.use.windows.Running) {
		k.Lending.Instances, k.Guard = 10, int64(l.guard)
		l.use.Adopt(k, func(w quota.Window) int64 { return l.shares[w.Length] }, nil)
	}
	return l.use.Line(&l.queue, l.fleet(), int64(now))
}

func (l *keyLine) ask(now time.Duration) *Asking {
	l.line(now)
	ask, _ := l.use.Ask(l.fleet(), CallersOf(&l.queue), int64(now))
	return ask
}

func (l *keyLine) told() []string { return l.log.take() }

func (l *keyLine) tick(now time.Duration) {
	line := l.line(now)
	line.Begin()
	for w := range l.queue.All {
		if !line.Fits(w.N(), 0, w.Class(), w.Large()) {
			line.Pass(w)
			continue
		}
		l.use.Charge(w.N())
		line.Served(w, w.N(), w.Large())
		line.taken -= w.N()
		l.queue.Remove(w)
		l.use.LineLeft(&l.queue, int64(now))
		l.log.decided(w, queue.Grant{Start: l.use.shortest().Window.Start()}, queue.Granted)
	}
}

func (l *keyLine) enter(now time.Duration, n int64) queue.Verdict {
	return l.enterAs(now, n, queue.Default)
}

func (l *keyLine) enterAs(now time.Duration, n int64, c queue.Class) queue.Verdict {
	if line := l.line(now); line.Newcomer(c) >= n {
		l.use.Charge(n)
		return queue.Granted
	}
	large := n > l.use.MostSmall(func(quota.Window) int64 { return l.total })
	w := &queue.Waiter{Payload: n}
	l.queue.Push(w, n, clock.Forever, c, large)
	line := l.line(now)
	line.Entered(w)
	return queue.Queued
}

func (l *keyLine) upTo(now time.Duration, n int64) int64 {
	line := l.line(now)
	n = min(n, line.Newcomer(queue.Default))
	l.use.Charge(n)
	return n
}

// A call counts as large once it is refused (Segment.Leaves) if it was large while it waited, also where this instance has no
// share. Otherwise the refusal would look as if small calls had come.
func TestARefusedCallIsLargeIfItWas(t *testing.T) {
	t.Parallel()
	for _, share := range []int64{0, 1, 10} {
		f := newFixed(map[time.Duration]int64{second: share})
		f.total, f.instances = 100, 10
		g, _ := lender(f)
		g.Changed(at(0))
		upTo(g, at(0), share)
		for _, n := range []int64{1, 2, 10, 11} {
			w := &queue.Waiter{}
			if _, v := g.Enter(at(ms), w, n, int64(second), queue.Default); v != queue.Queued {
				t.Fatalf("share %d: a call for %d: verdict %d", share, n, v)
			}
			if refused := g.Segment().Leaves(n); refused != w.Large() || refused != (n > max(1, share)) {
				t.Errorf("share %d: a call for %d is large while it waits: %v, and once it is refused: %v", share, n, w.Large(), refused)
			}
		}
	}
}

// A call is large for a key if it wants more than the share, and than an equal part: where the key has owners, others have
// what is lent to them.
func TestWhichCallsForAKeyAreLarge(t *testing.T) {
	t.Parallel()
	totals := map[time.Duration]int64{second: 100, 10 * second: 500}
	for _, c := range []struct {
		second, ten int64 // its shares
		most        int64
	}{{25, 125, 25}, {0, 0, 25}, {100, 500, 100}, {25, 10, 25}} {
		var a Account
		a.Adopt(lendingAt("me", 0, second, 10*second), func(w quota.Window) int64 {
			return map[time.Duration]int64{second: c.second, 10 * second: c.ten}[w.Length]
		}, nil)
		a.windows.Lending.Instances = 4
		if most := a.MostSmall(func(w quota.Window) int64 { return totals[w.Length] }); most != c.most {
			t.Errorf("%+v: calls up to %d are small", c, most)
		}
	}
}

// The other instances leave while a large call waits for a key. Then nothing is lent, and nothing claimed: the look at
// the key does not come due again, and the call is served once the share is enough.
func TestAKeysLineThatNobodyLendsTo(t *testing.T) {
	t.Parallel()
	l := &keyLine{shares: map[time.Duration]int64{second: 5}, total: 10, owners: 10}
	if v := l.enter(ms, 8); v != queue.Queued {
		t.Fatal(v)
	}
	if line := l.line(ms); line.Again() == clock.Forever || l.use.Again() == clock.Forever {
		t.Fatal("no look is due")
	}
	l.use.windows.Lending.Borrows = false
	line := l.line(200 * ms)
	if line.Again() != clock.Forever || l.use.Again() != clock.Forever {
		t.Errorf("a look is due at %d, %d", line.Again(), l.use.Again())
	}
	behind := &queue.Waiter{} // a caller that gives up
	l.queue.Push(behind, 1, clock.Forever, queue.Default, false)
	l.queue.Remove(behind)
	if l.use.LineLeft(&l.queue, int64(210*ms)); l.use.Again() != clock.Forever {
		t.Errorf("after a caller has left, a look is due at %d", l.use.Again())
	}
	l.shares[second] = 10
	alone := lendingAt("me", second, second)
	alone.Lending.Borrows = false
	l.use.Adopt(alone, func(quota.Window) int64 { return 10 }, nil)
	line = l.use.Line(&l.queue, l.fleet(), int64(second))
	line.Begin()
	if w := l.queue.Head(); line.Fits(w.N(), 0, w.Class(), w.Large()) {
		line.Served(w, w.N(), w.Large())
	} else {
		t.Error("it is not served")
	}
}

// Nothing is lent to this instance any more while a large call waits first, and its share is enough for the call now: the
// call leaves nothing to small ones, and is served.
func TestAProvidersLineThatNobodyLendsTo(t *testing.T) {
	t.Parallel()
	f := newFixed(map[time.Duration]int64{second: 50})
	f.total, f.instances = 100, 2
	var told told
	g, _ := lender(f)
	g.decided = told.decided
	g.Changed(at(19 * second))
	upTo(g, at(19*second+ms), 50)
	for i, n := range append([]int64{60}, slices.Repeat([]int64{1}, 60)...) {
		if _, v := g.Enter(at(19*second+time.Duration(i+2)*ms), &queue.Waiter{Payload: n}, n, clock.Forever, queue.Default); v != queue.Queued {
			t.Fatalf("a call for %d: verdict %d", n, v)
		}
	}
	f.shares[second], f.plan.Lending.Borrows = 100, false
	g.Changed(at(20 * second))
	want := append([]string{"60@20s"}, slices.Repeat([]string{"1@20s"}, 40)...)
	if diff := cmp.Diff(want, told.take()); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

// After the claim of a large call the line is served again in each tenth of a window, as long as it has permits: also if
// they lie in the segment, for newcomers, and none is held. So the call is served once small ones want few.
func TestALargeCallIsServedOnceSmallOnesStop(t *testing.T) {
	t.Parallel()
	f := newFixed(map[time.Duration]int64{second: 50})
	f.total, f.instances = 100, 2
	var told told
	g, _ := lender(f)
	g.decided = told.decided
	g.Changed(at(18 * second))
	for now := 19 * second; now < 20*second; now += 25 * ms { // 40 small calls, the last just before 20s
		upTo(g, at(now), 1)
	}
	g.Changed(at(20 * second))
	if _, v := g.Enter(at(20*second), &queue.Waiter{Payload: "large"}, 60, clock.Forever, queue.Default); v != queue.Queued {
		t.Fatalf("verdict %d", v)
	}
	g.Borrow(at(20*second+50*ms), "host", protocol.Note{Windows: g.mu.ledger.windows.Running, Permits: map[string]int64{"": 15}})
	ticks := 0
	for next := g.Segment().until; next < int64(21*second); next = g.Segment().until { // as the alarm does
		g.Tick(at(time.Duration(next)))
		if ticks++; g.mu.queue.Len() == 0 {
			break
		}
	}
	if diff := cmp.Diff([]string{"large@20s"}, told.take()); diff != "" || ticks > 10 {
		t.Errorf("told after %d ticks (-want +got):\n%s", ticks, diff)
	}
}

// A newcomer comes between a plan with another limit and the line's next serving: what is kept for those that are
// passed is not known by the new limits, so it gets nothing.
func TestANewcomerUnderAnotherLimit(t *testing.T) {
	t.Parallel()
	l := &keyLine{shares: map[time.Duration]int64{second: 5}, total: 10, owners: 10}
	if l.upTo(ms, 3) != 3 || l.enter(ms, 4) != queue.Queued {
		t.Fatal("nobody waits")
	}
	l.tick(200 * ms) // others may pass
	l.shares[time.Minute] = 5
	if n := l.upTo(201*ms, 1); n != 0 {
		t.Errorf("a newcomer gets %d", n)
	}
}

// Permits can be borrowed again while a caller waits, and a newcomer of the key comes before the line is served: it gets
// nothing.
func TestANewcomerAfterLendingHasEndedAndBegun(t *testing.T) {
	t.Parallel()
	l := &keyLine{shares: map[time.Duration]int64{second: 5}, total: 10, owners: 10}
	if l.upTo(ms, 3) != 3 || l.enter(2*ms, 4) != queue.Queued {
		t.Fatal("nobody waits")
	}
	l.tick(200 * ms) // others may pass
	l.use.windows.Lending.Borrows = false
	l.line(210 * ms)
	l.use.windows.Lending.Borrows = true
	if n := l.upTo(220*ms, 1); n != 0 {
		t.Errorf("a newcomer gets %d", n)
	}
	l.tick(230 * ms)
	l.tick(340 * ms)
	if n := l.upTo(350*ms, 5); n != 2 {
		t.Errorf("%d pass once the claim has ended again, want 2", n)
	}
}

// At the edge of a window the claim of the first waiter begins anew: a newcomer that comes before the line is served gets
// nothing of the new window.
func TestANewcomerAtTheEdgeBeforeTheLineIsServed(t *testing.T) {
	t.Parallel()
	l := &keyLine{shares: map[time.Duration]int64{second: 10}, total: 100, owners: 10}
	if l.upTo(ms, 8) != 8 || l.enter(2*ms, 8) != queue.Queued {
		t.Fatal("nobody waits")
	}
	l.tick(200 * ms)
	if n := l.upTo(210*ms, 1); n != 1 {
		t.Fatalf("%d pass after the claim", n)
	}
	if n := l.upTo(second, 5); n != 0 {
		t.Errorf("a newcomer gets %d at the edge", n)
	}
	l.tick(second)
	if diff := cmp.Diff([]string{"8@1s"}, l.told()); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

// trade returns a line's trade.
func trade(l lined) *Trade {
	if l, ok := l.(*gateLine); ok {
		return &l.gate.mu.borrower.Trade
	}
	return &l.(*keyLine).use.trade.Trade
}
