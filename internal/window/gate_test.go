package window

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/quota"
)

// fixed answers with the same share for every window of each length.
type fixed struct {
	mu     sync.Mutex
	shares map[time.Duration]int64
	offset int64
	burst  int64 // 0: all of the share
	terms  Terms
	bound  func(w quota.Window) int64 // overrides shares
}

func newFixed(shares map[time.Duration]int64) *fixed {
	return &fixed{shares: shares, terms: Terms{Until: Forever, WallUntil: Forever, Known: true}}
}

func (f *fixed) Offset() int64 { f.mu.Lock(); defer f.mu.Unlock(); return f.offset }
func (f *fixed) Lengths(int64) []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	var l []time.Duration
	for d := range f.shares {
		l = append(l, d)
	}
	return l
}

func (f *fixed) Bound(w quota.Window, _ int64) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bound != nil {
		return f.bound(w)
	}
	return f.shares[w.Length]
}

func (f *fixed) Burst(w quota.Window, now int64) int64 {
	if f.burst > 0 {
		return min(f.burst, f.Bound(w, now))
	}
	return f.Bound(w, now)
}

func (f *fixed) Terms(clock.Instant) Terms { f.mu.Lock(); defer f.mu.Unlock(); return f.terms }

func (f *fixed) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func at(d time.Duration) clock.Instant { return clock.Instant{Mono: int64(d), Wall: int64(d)} }

// told records what waiters were told, in order.
type told struct{ log []string }

func (t *told) decided(w *Waiter, g Grant, v Verdict) {
	if v == Granted {
		t.log = append(t.log, fmt.Sprintf("%v@%v", w.Payload, time.Duration(g.Start)))
		return
	}
	t.log = append(t.log, fmt.Sprintf("%v!%d", w.Payload, v))
}

func (t *told) take() []string { l := t.log; t.log = nil; return l }

const second = time.Second

func TestTakeStopsAtTheShareAndStartsAgainWithTheWindow(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 3})
	g := NewGate(f, 0, nil)
	g.Changed(at(100 * time.Millisecond))
	for _, step := range []struct {
		at   time.Duration
		n    int64
		want bool
	}{
		{200 * time.Millisecond, 2, true},
		{300 * time.Millisecond, 2, false}, // all or nothing
		{400 * time.Millisecond, 1, true},
		{999 * time.Millisecond, 1, false},
		{1000 * time.Millisecond, 3, true},
		{1500 * time.Millisecond, 1, false},
		{7 * second, 1, true},
		{6 * second, 2, true}, // an older reading is charged to the window that runs
		{5 * second, 1, false},
		{8 * second, 4, false},
		{8 * second, 3, true},
	} {
		_, got := g.Take(at(step.at), step.n)
		if got != step.want {
			t.Fatalf("at %v, %d permits: granted %v, want %v", step.at, step.n, got, step.want)
		}
	}
	if u := g.Usage(at(8 * second)); u.Issued != 12 || u.Used != 3 || u.Share != 3 {
		t.Errorf("usage is %+v, want 12 issued, 3 of 3 used", u)
	}
}

func TestShareShrinksAtOnceAndNeverGrowsWithinAWindow(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 10})
	g := NewGate(f, 0, nil)
	g.Changed(at(0))
	g.Take(at(1), 4)
	f.set(func() { f.shares[second] = 5 })
	g.Changed(at(2))
	if _, ok := g.Take(at(3), 2); ok {
		t.Error("6 permits issued under a share of 5")
	}
	if _, ok := g.Take(at(3), 1); !ok {
		t.Error("the fifth permit of 5 was refused")
	}
	f.set(func() { f.shares[second] = 20 })
	g.Changed(at(4))
	if _, ok := g.Take(at(5), 1); ok {
		t.Error("the share grew within the window")
	}
	if _, ok := g.Take(at(second), 20); !ok {
		t.Error("the larger share was not there in the next window")
	}
}

func TestSeveralLimitsAdmitAllOrNothing(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 5, 3 * second: 8})
	g := NewGate(f, 0, nil)
	g.Changed(at(0))
	var got []int64
	for i := range 6 {
		got = append(got, g.TakeUpTo(at(time.Duration(i)*second), 100))
	}
	if diff := cmp.Diff([]int64{5, 3, 0, 5, 3, 0}, got); diff != "" {
		t.Errorf("permits by second (-want +got):\n%s", diff)
	}
}

func TestALimitThatIsRemovedAndComesBackKeepsItsAccount(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 100, 60 * second: 10})
	g := NewGate(f, 0, nil)
	g.Changed(at(0))
	g.TakeUpTo(at(1), 7)
	f.set(func() { delete(f.shares, 60*second) })
	g.Changed(at(2))
	if n := g.TakeUpTo(at(3), 50); n != 50 {
		t.Errorf("without the limit %d permits, want 50", n)
	}
	f.set(func() { f.shares[60*second] = 60 })
	g.Changed(at(4))
	if n := g.TakeUpTo(at(second), 50); n != 0 {
		t.Errorf("the limit that came back admitted %d more than its first bound of 10", n)
	}
}

func TestWaitersAreServedInOrderBeforeNewcomers(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 3})
	var told told
	g := NewGate(f, 0, told.decided)
	g.Changed(at(0))
	g.Take(at(1), 3)
	for i, n := range []int64{1, 3, 1, 1} {
		if _, v, _ := g.Wait(at(2), &Waiter{Payload: i}, n, Forever); v != Queued {
			t.Fatalf("waiter %d: verdict %d, want queued", i, v)
		}
	}
	g.Tick(at(second))
	if diff := cmp.Diff([]string{"0@1s"}, told.take()); diff != "" {
		t.Errorf("first window (-want +got):\n%s", diff)
	}
	if _, ok := g.Take(at(second+1), 1); ok {
		t.Error("a newcomer overtook the waiter for 3 permits")
	}
	if wake := g.Wake(); wake != int64(2*second) {
		t.Errorf("wake at %v, want 2s", time.Duration(wake))
	}
	// A newcomer sees the window first, and does the boundary's work.
	if _, ok := g.Take(at(2*second), 1); ok {
		t.Error("a newcomer was served before the queue")
	}
	if diff := cmp.Diff([]string{"1@2s"}, told.take()); diff != "" {
		t.Errorf("second window (-want +got):\n%s", diff)
	}
	if _, ok := g.Take(at(3*second), 1); !ok {
		t.Error("what the queue left was not there for newcomers")
	}
	if diff := cmp.Diff([]string{"2@3s", "3@3s"}, told.take()); diff != "" {
		t.Errorf("third window (-want +got):\n%s", diff)
	}
	if wake := g.Wake(); wake != Forever {
		t.Errorf("nobody waits, yet wake is at %v", time.Duration(wake))
	}
}

func TestWhoCannotBeServedInTimeIsRefusedAtOnce(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 2})
	f.terms.Ceiling = 2
	var told told
	g := NewGate(f, 3, told.decided)
	g.Changed(at(0))
	g.Take(at(1), 2)
	wait := func(n int64, deadline time.Duration) Verdict {
		_, v, _ := g.Wait(at(10), &Waiter{Payload: "w"}, n, int64(deadline))
		return v
	}
	for _, step := range []struct {
		n        int64
		deadline time.Duration
		want     Verdict
	}{
		{1, second - 1, Limited}, // the next window comes too late
		{3, Forever0, TooLarge},
		{1, second, Queued},
		{2, 2*second - 1, Limited}, // one of two is taken by the first waiter
		{1, second + second/2, Queued},
		{1, 2*second - 1, Limited}, // the window is promised
		{1, 3 * second, Queued},
		{1, Forever0, Full},
	} {
		if v := wait(step.n, step.deadline); v != step.want {
			t.Fatalf("%d permits until %v: verdict %d, want %d", step.n, step.deadline, v, step.want)
		}
	}
}

const Forever0 = time.Duration(Forever)

func TestAChangedSharePricesTheWaitersAgain(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 4})
	var told told
	g := NewGate(f, 0, told.decided)
	g.Changed(at(0))
	g.Take(at(1), 4)
	for i := range 4 {
		g.Wait(at(2), &Waiter{Payload: i}, 1, int64(second+second/2))
	}
	g.Wait(at(2), &Waiter{Payload: "patient"}, 1, int64(10*second))
	f.set(func() { f.shares[second] = 2 })
	g.Changed(at(3))
	if diff := cmp.Diff([]string{"2!2", "3!2"}, told.take()); diff != "" {
		t.Errorf("who could no longer be served (-want +got):\n%s", diff)
	}
	g.Tick(at(second))
	g.Tick(at(2 * second))
	if diff := cmp.Diff([]string{"0@1s", "1@1s", "patient@2s"}, told.take()); diff != "" {
		t.Errorf("who was served (-want +got):\n%s", diff)
	}
}

func TestACancelledWaiterGivesItsPlaceBack(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 3})
	var told told
	g := NewGate(f, 0, told.decided)
	g.Changed(at(0))
	g.Take(at(1), 1) // two are left
	big, small := &Waiter{Payload: "big"}, &Waiter{Payload: "small"}
	g.Wait(at(2), big, 3, Forever)
	g.Wait(at(2), small, 1, Forever)
	if !g.Cancel(at(3), big) {
		t.Fatal("a queued waiter could not be cancelled")
	}
	if g.Cancel(at(3), big) || g.Cancel(at(3), small) {
		t.Error("cancelled twice, or after it was served")
	}
	if diff := cmp.Diff([]string{"small@0s"}, told.take()); diff != "" {
		t.Errorf("what the cancelled waiter held back (-want +got):\n%s", diff)
	}
	if _, ok := g.Take(at(4), 1); !ok {
		t.Error("the last permit was lost")
	}
}

func TestReturnedPermitsAreIssuedAgainInTheirWindowOnly(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 2})
	var told told
	g := NewGate(f, 0, told.decided)
	g.Changed(at(0))
	grant, _ := g.Take(at(1), 2)
	g.Wait(at(2), &Waiter{Payload: "w"}, 1, Forever)
	if !g.Return(at(3), grant, 1) {
		t.Error("a permit of the running window was not taken back")
	}
	if diff := cmp.Diff([]string{"w@0s"}, told.take()); diff != "" {
		t.Errorf("the waiter did not get it (-want +got):\n%s", diff)
	}
	if g.Return(at(second), grant, 1) {
		t.Error("a permit of the last window was taken back")
	}
	if n := g.TakeUpTo(at(second), 9); n != 2 {
		t.Errorf("%d permits in the next window, want 2", n)
	}
}

func TestNothingIsIssuedWithinTheGuard(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 5})
	f.terms.Guard = int64(100 * time.Millisecond)
	var told told
	g := NewGate(f, 0, told.decided)
	g.Changed(at(0))
	for _, step := range []struct {
		at   time.Duration
		want bool
	}{{0, false}, {99 * time.Millisecond, false}, {100 * time.Millisecond, true}, {899 * time.Millisecond, true},
		{900 * time.Millisecond, false}, {second, false}, {1100 * time.Millisecond, true}} {
		if _, got := g.Take(at(step.at), 1); got != step.want {
			t.Errorf("at %v: granted %v, want %v", step.at, got, step.want)
		}
	}
	if _, v, _ := g.Wait(at(1950*time.Millisecond), &Waiter{Payload: "early"}, 1, int64(2099*time.Millisecond)); v != Limited {
		t.Errorf("who cannot wait until the guard ends: verdict %d, want Limited", v)
	}
	if _, v, _ := g.Wait(at(1950*time.Millisecond), &Waiter{Payload: "w"}, 1, int64(2100*time.Millisecond)); v != Queued {
		t.Errorf("verdict %d, want Queued", v)
	}
	g.Tick(clock.Instant{Mono: g.Wake()})
	g.Tick(clock.Instant{Mono: g.Wake()})
	if diff := cmp.Diff([]string{"w@2s"}, told.take()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestStrictStopsAtTheEndOfTheProofByEitherClock(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 100})
	f.terms.Strict, f.terms.Until, f.terms.WallUntil = true, int64(300*time.Millisecond), int64(300*time.Millisecond)
	f.terms.Lead = Forever
	g := NewGate(f, 0, nil)
	g.Changed(at(0))
	take := func(mono, wall time.Duration) bool {
		_, ok := g.Take(clock.Instant{Mono: int64(mono), Wall: int64(wall)}, 1)
		return ok
	}
	const ms = time.Millisecond
	if !take(299*ms, 299*ms) {
		t.Error("refused although the proof was young enough")
	}
	if take(10*ms, 300*ms) {
		t.Error("the monotonic clock stood still, as in a suspended machine, and the old proof was used")
	}
	if take(310*ms, 200*ms) {
		t.Error("the wall clock was set back, and the old proof was used")
	}
	f.set(func() { f.terms.Until, f.terms.WallUntil = int64(600*ms), int64(600*ms) })
	g.Proved(at(320 * ms))
	if !take(330*ms, 330*ms) {
		t.Error("a new proof did not end the stop")
	}
	f.set(func() { f.terms.Until, f.terms.WallUntil = int64(900*ms), int64(900*ms) })
	g.Proved(at(400 * ms))
	if !take(700*ms, 700*ms) {
		t.Error("a newer proof did not reach the running segment")
	}
	if take(950*ms, 950*ms) {
		t.Error("issued after the last proof")
	}
}

func TestStrictStopsWhileCorrectedTimeCannotBeReliedOn(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 100})
	f.terms.Strict, f.terms.Lead = true, int64(25*time.Millisecond)
	f.terms.Until, f.terms.WallUntil = Forever, Forever
	g := NewGate(f, 0, nil)
	g.Changed(at(0))
	const ms = time.Millisecond
	for _, step := range []struct {
		mono, wall time.Duration
		want       bool
	}{{1 * ms, 1 * ms, true}, {2 * ms, 27 * ms, true}, {3 * ms, 29 * ms, false}, {4 * ms, 3600 * second, false}} {
		i := clock.Instant{Mono: int64(step.mono), Wall: int64(step.wall)}
		if got := g.Segment().WallValid(i) && g.Segment().Take(i.Mono, 1); got != step.want {
			t.Errorf("without the lock, %v by one clock and %v by the other: granted %v, want %v", step.mono, step.wall, got, step.want)
		}
		if _, got := g.Take(i, 1); got != step.want {
			t.Errorf("%v by one clock and %v by the other: granted %v, want %v", step.mono, step.wall, got, step.want)
		}
	}
	f.set(func() { f.terms.Lead = int64(3601 * second) }) // corrected time was looked after
	i := clock.Instant{Mono: int64(5 * ms), Wall: int64(3600 * second)}
	g.Proved(i)
	if _, ok := g.Take(i, 1); !ok {
		t.Error("nothing is issued although time can be relied on again")
	}
}

func TestShutUntil(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 1})
	f.terms.ShutUntil = int64(1500 * time.Millisecond)
	var told told
	g := NewGate(f, 0, told.decided)
	g.Changed(at(0))
	if _, v, _ := g.Wait(at(1), &Waiter{Payload: "short"}, 1, int64(1400*time.Millisecond)); v != Limited {
		t.Errorf("verdict %d, want Limited", v)
	}
	g.Wait(at(1), &Waiter{Payload: "w"}, 1, int64(1500*time.Millisecond))
	for g.Wake() != Forever {
		g.Tick(clock.Instant{Mono: g.Wake()})
	}
	if diff := cmp.Diff([]string{"w@1s"}, told.take()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestUnknownFutureRefusesAtTheDeadlineOnly(t *testing.T) {
	f := newFixed(nil)
	f.terms.Known = false
	var told told
	g := NewGate(f, 0, told.decided)
	g.Wait(at(1), &Waiter{Payload: "a"}, 1, int64(5*second))
	g.Wait(at(1), &Waiter{Payload: "b"}, 1, int64(3*second))
	if wake := g.Wake(); wake != int64(3*second) {
		t.Fatalf("wake at %v, want 3s", time.Duration(wake))
	}
	g.Tick(at(3 * second))
	if diff := cmp.Diff([]string{"b!2"}, told.take()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	f.set(func() { f.shares, f.terms.Known = map[time.Duration]int64{second: 1}, true })
	g.Changed(at(4 * second))
	if diff := cmp.Diff([]string{"a@4s"}, told.take()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCloseRefusesEverybody(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 1})
	var told told
	g := NewGate(f, 0, told.decided)
	g.Changed(at(0))
	grant, _ := g.Take(at(1), 1)
	g.Wait(at(1), &Waiter{Payload: "a", Owner: 1}, 1, Forever)
	g.Wait(at(1), &Waiter{Payload: "b", Owner: 2}, 1, Forever)
	g.Evict(at(2), 1)
	g.Close()
	if diff := cmp.Diff([]string{"a!5", "b!5"}, told.take()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	g.Changed(at(3))
	if _, ok := g.Take(at(5*second), 1); ok {
		t.Error("a closed gate issued a permit")
	}
	if _, v, _ := g.Wait(at(5*second), &Waiter{}, 1, Forever); v != Closed {
		t.Errorf("verdict %d, want Closed", v)
	}
	if g.Return(at(4), grant, 1) {
		t.Error("a closed gate took a permit back")
	}
}

// TestStress lets 64 goroutines take, wait, cancel and return with instants that
// run backwards, while the share changes: no window may hold more than the
// largest share it ever had, and none more than its smallest bound allows from
// then on.
func TestStress(t *testing.T) {
	const length = 100 * time.Millisecond
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	f := newFixed(map[time.Duration]int64{length: 0, 3 * length: 0})
	f.bound = func(w quota.Window) int64 { return shareOf(w) }
	issued := [2]sync.Map{} // by window start: *atomic.Int64, for both lengths
	count := func(g Grant, n int64) {
		for i, l := range []time.Duration{length, 3 * length} {
			c, _ := issued[i].LoadOrStore(quota.WindowAt(l, g.Start).Index, new(atomic.Int64))
			c.(*atomic.Int64).Add(n)
		}
	}
	g := NewGate(f, 1000, func(w *Waiter, gr Grant, v Verdict) {
		if v == Granted {
			count(gr, w.N())
		}
	})
	g.Changed(at(0))
	var now atomic.Int64
	var wg sync.WaitGroup
	for worker := range 64 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(worker)))
			for range 3000 {
				i := clock.Instant{Mono: now.Add(rnd.Int64N(int64(200*time.Microsecond))) - rnd.Int64N(int64(20*time.Millisecond))}
				n := 1 + rnd.Int64N(3)
				switch rnd.IntN(12) {
				case 0:
					w := &Waiter{}
					gr, v, _ := g.Wait(i, w, n, i.Mono+rnd.Int64N(int64(3*length)))
					if v == Granted {
						count(gr, n)
					} else if v == Queued && rnd.IntN(3) == 0 {
						g.Cancel(i, w)
					}
				case 1:
					g.Changed(i)
				case 2:
					if gr, ok := g.Take(i, n); ok {
						if !g.Return(i, gr, n) {
							count(gr, n)
						}
					}
				default:
					s := g.Segment()
					if s.Take(i.Mono, n) {
						count(s.Grant, n)
					} else if gr, ok := g.Take(i, n); ok {
						count(gr, n)
					}
				}
			}
		})
	}
	wg.Wait()
	windows := 0
	for i, l := range []time.Duration{length, 3 * length} {
		issued[i].Range(func(k, v any) bool {
			windows++
			w := quota.Window{Length: l, Index: k.(int64)}
			if n := v.(*atomic.Int64).Load(); n > shareOf(w) {
				t.Errorf("window %v: %d permits, share %d", w, n, shareOf(w))
			}
			return true
		})
	}
	if windows < 100 {
		t.Errorf("only %d windows were seen", windows)
	}
}

func shareOf(w quota.Window) int64 {
	if w.Length == 100*time.Millisecond {
		return w.Index % 97
	}
	return 100 + w.Index%50
}

func TestTakeAllocatesNothing(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 1 << 40})
	g := NewGate(f, 0, nil)
	g.Changed(at(0))
	if n := testing.AllocsPerRun(100, func() { g.Segment().Take(1, 1) }); n != 0 {
		t.Errorf("a granted permit allocates %v times", n)
	}
}

// A queue of a million is a million of these; 65 bytes would take 80.
func TestAWaiterTakes64Bytes(t *testing.T) {
	if n := unsafe.Sizeof(Waiter{}); n > 64 {
		t.Errorf("a waiter takes %d bytes", n)
	}
}
