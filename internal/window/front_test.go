package window

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/internal/window/shape"
	"github.com/quotient-limiter/quotient/quota"
)

// fronted is an account of one bound with its front, by the windows of a segment of left permits.
func fronted(bound, left int64, wall time.Duration, lengths ...time.Duration) (f *Front, a *Account, s *Segment) {
	s = &Segment{until: clock.Forever, Keys: &plans.Keys{Windows: *keysAt(wall, lengths...)}}
	s.left.Store(left)
	f, a = &Front{}, &Account{}
	a.Adopt(&s.Keys.Windows, bounds(bound), nil)
	return f, a, s
}

// A front gives what it was opened with, and the provider is charged for as many. What it does not have
// is the account's to decide.
func TestAFrontGivesWhatLiesInIt(t *testing.T) {
	t.Parallel()
	f, a, s := fronted(10, 100, 0, time.Second)
	takes := func(n int64, want Fronted) (p Part) {
		t.Helper()
		p, got := f.Take(s, 0, n, queue.Default, true)
		if got != want {
			t.Errorf("%d permits: %d, want %d", n, got, want)
		}
		return p
	}
	shut := func(taken, refused int64) {
		t.Helper()
		if gotTaken, gotRefused := f.Shut(a); gotTaken != taken || gotRefused != refused {
			t.Errorf("taken %d, refused %d, want %d and %d", gotTaken, gotRefused, taken, refused)
		}
	}
	takes(1, Ask)
	f.Open(a, 4)
	takes(5, Ask)
	takes(3, Taken)
	if p := takes(1, Taken); p.Epoch() != a.Epoch() {
		t.Errorf("epoch %d, not %d", p.Epoch(), a.Epoch())
	}
	takes(1, Ask) // the account has more
	if shut(4, 0); s.Left() != 96 {
		t.Errorf("the provider has %d left, want 96", s.Left())
	}
	shut(0, 0)
	f.Refuse(a, false) // it has more
	takes(1, Ask)
	f.Open(a, 100) // 6 are left
	takes(6, Taken)
	takes(1, Ask)
	shut(6, 0)
	f.Open(a, 1)
	takes(1, Ask)
	f.Refuse(a, false)
	takes(1, Refused)
	takes(MostOut-1, Refused)
	takes(1, Ask) // it counts no more
	if _, v := f.Take(s, 0, 1, queue.Default, false); v != Ask {
		t.Errorf("a call that may wait: %d", v)
	}
	shut(0, MostOut)
}

// A front that is opened again, or has calls refused, while it is open stays as it is: what calls have had of it is booked.
func TestAFrontThatIsOpenStaysAsItIs(t *testing.T) {
	t.Parallel()
	f, a, s := fronted(10, 100, 0, time.Second)
	f.Open(a, 4)
	if _, v := f.Take(s, 0, 3, queue.Default, true); v != Taken {
		t.Fatalf("3 of 4: %d", v)
	}
	f.Open(a, 4)
	if taken, _ := f.Shut(a); taken != 3 || a.Left() != 7 {
		t.Errorf("%d are booked, and %d left", taken, a.Left())
	}
}

// A debt that cannot be paid now, as while the proof is over, has no call refused that comes later in these windows: then
// the debt may be paid, and the rest is the call's. Where the windows leave nothing for the debt either, calls are refused.
func TestAFrontRefusesForNoDebt(t *testing.T) {
	t.Parallel()
	for used, want := range map[int64]Fronted{7: Ask, 10: Refused} {
		f, a, s := fronted(10, 100, 0, time.Second)
		a.Charge(used)
		a.Owe(2)
		f.Refuse(a, false)
		if _, v := f.Take(s, 0, 1, queue.Default, true); v != want {
			t.Errorf("%d of 10 used and 2 owed: %d, want %d", used, v, want)
		}
	}
}

// Those that a front refuses have others asked for permits as those that the account refuses do.
func TestOthersAreAskedForWhatAFrontRefuses(t *testing.T) {
	t.Parallel()
	for _, borrows := range []bool{true, false} {
		f, a, s := fronted(0, 100, 0, time.Second)
		s.Keys.Lending.Borrows = borrows
		f.Refuse(a, false)
		for n := range int64(4) {
			f.Take(s, 0, n, queue.Default, true)
		}
		if f.Shut(a); a.Wanted() != borrows || borrows && a.trade.refused != 6 {
			t.Errorf("borrows %v: permits were wanted: %v, %+v", borrows, a.Wanted(), a.trade)
		}
	}
}

// A front is of one plan's windows. The next plan's segment is not served from it.
func TestAFrontIsOfItsWindows(t *testing.T) {
	t.Parallel()
	f, a, s := fronted(10, 100, 0, time.Second)
	f.Open(a, 4)
	_, _, next := fronted(10, 100, 0, time.Second)
	if _, v := f.Take(next, 0, 1, queue.Default, true); v != Ask {
		t.Errorf("by other windows: %d", v)
	}
	f.Shut(a)
	a.Charge(10)
	f.Refuse(a, false)
	if _, v := f.Take(next, 0, 1, queue.Default, true); v != Ask {
		t.Errorf("refused by other windows: %d", v)
	}
	if _, v := f.Take(s, 0, 1, queue.Default, true); v != Refused {
		t.Errorf("by its own windows: %d", v)
	}
}

// A front leaves the provider's permits to those for whom they are kept, and has the key's taken back if
// the segment has ended.
func TestAFrontAndTheProvider(t *testing.T) {
	t.Parallel()
	f, a, s := fronted(10, 3, 0, time.Second)
	s.floor = 2
	f.Open(a, 10)
	for i, c := range []struct {
		class queue.Class
		want  Fronted
	}{{queue.Default, Taken}, {queue.Default, Ask}, {queue.Critical, Taken}, {queue.Sheddable, Ask}, {queue.Critical, Taken}, {queue.Critical, Ask}} {
		if _, v := f.Take(s, 0, 1, c.class, true); v != c.want {
			t.Errorf("call %d, of class %d: %d, want %d", i, c.class, v, c.want)
		}
	}
	s.left.Store(9)
	s.until = 5
	p, v := f.Take(s, 5, 2, queue.Default, true)
	taken, _ := f.Shut(a)
	if v != Torn || taken != 5 || s.Left() != 9 {
		t.Fatalf("at the segment's end: %d, %d taken, %d left; want %d, 5 and 9", v, taken, s.Left(), Torn)
	}
	if a.Uncharge(2, p.Epoch(), &s.Keys.Windows); a.Left() != 7 {
		t.Errorf("%d left, want 7: 3 were issued", a.Left())
	}
}

// What was not issued counts in no window that still runs, also if a shorter one has ended.
func TestPermitsThatWereNotIssuedCountNowhere(t *testing.T) {
	t.Parallel()
	f, a, s := fronted(10, 0, 0, time.Second, 3*time.Second)
	f.Open(a, 10)
	s.left.Store(9)
	s.until = 0
	p, _ := f.Take(s, 0, 4, queue.Default, true)
	f.Shut(a)
	a.Adopt(keysAt(time.Second, time.Second, 3*time.Second), bounds(10), nil)
	a.Charge(1)
	a.Uncharge(4, p.Epoch(), &s.Keys.Windows)
	for _, u := range a.Booked() {
		if u.Used != 1 {
			t.Errorf("window %v: %d used, want 1", u.Window, u.Used)
		}
	}
}

// A front is not opened while calls have to ask: for a debt, a guard, long limits, or more windows than it
// has room for.
func TestWhenAFrontStaysShut(t *testing.T) {
	t.Parallel()
	many := make([]time.Duration, 9)
	for i := range many {
		many[i] = time.Duration(i+1) * time.Second
	}
	for name, open := range map[string]func() (*Front, *Account, *Segment){
		"debt": func() (*Front, *Account, *Segment) {
			f, a, s := fronted(10, 9, 0, time.Second)
			a.Owe(20)
			return f, a, s
		},
		"guard": func() (*Front, *Account, *Segment) {
			f, a, s := fronted(10, 9, 0, time.Second)
			s.Keys.Shut = true
			return f, a, s
		},
		"long limit": func() (*Front, *Account, *Segment) {
			f, a, s := fronted(10, 9, 0, time.Second)
			s.Keys.Budgets = []protocol.Budget{{Limit: quota.Limit{Permits: 9, Window: time.Hour}, End: int64(time.Hour), Whole: true}}
			a.Adopt(&s.Keys.Windows, bounds(10), func() []protocol.Budget { return s.Keys.Budgets })
			return f, a, s
		},
		"nine windows": func() (*Front, *Account, *Segment) { return fronted(10, 9, 0, many...) },
	} {
		f, a, s := open()
		f.Open(a, 5)
		if _, v := f.Take(s, 0, 1, queue.Default, true); v != Ask {
			t.Errorf("%s: %d", name, v)
		}
		if name != "long limit" {
			continue
		}
		a.Charge(9)
		f.Refuse(a, false) // etcd may give more
		if _, v := f.Take(s, 0, 1, queue.Default, true); v != Ask {
			t.Errorf("%s, spent: %d", name, v)
		}
	}
}

// The permits with which callers will soon lack some do not lie in front, until others were asked.
func TestAFrontLeavesTheLastPermits(t *testing.T) {
	t.Parallel()
	f, a, s := fronted(10, 99, 0, time.Second)
	a.begun().low = 4
	f.Open(a, 99)
	if _, v := f.Take(s, 0, 7, queue.Default, true); v != Ask {
		t.Errorf("7 of 10, where one is asked for at fewer than 4: %d", v)
	}
	if _, v := f.Take(s, 0, 6, queue.Default, true); v != Taken {
		t.Errorf("6 of 10: %d", v)
	}
	f.Shut(a)
	if f.Open(a, 99); a.Low() {
		t.Error("4 are left, which is enough")
	}
	if _, v := f.Take(s, 0, 1, queue.Default, true); v != Ask {
		t.Errorf("the one after which others are to be asked: %d", v)
	}
	a.Charge(1)
	if f.Open(a, 99); !a.Low() {
		t.Error("3 are left, which is too little")
	}
	if _, v := f.Take(s, 0, 3, queue.Default, true); v != Taken {
		t.Errorf("the last ones: %d", v)
	}
}

// The window of a permit is the part that those windows have in common that bind its key.
func TestSpanOfAFront(t *testing.T) {
	t.Parallel()
	f, a, s := fronted(10, 9, 4*time.Second, time.Second, 2*time.Second, 3*time.Second)
	a.Adopt(&s.Keys.Windows, func(w quota.Window) int64 {
		if w.Length == time.Second {
			return shape.Unbounded
		}
		return 10
	}, nil)
	f.Open(a, 5)
	p, _ := f.Take(s, 0, 1, queue.Default, true)
	start, end := p.Span(&s.Keys.Windows)
	if wantStart, wantEnd := a.Common(); start != wantStart || end != wantEnd || start != int64(4*time.Second) || end != int64(6*time.Second) {
		t.Errorf("from %v to %v, want 4s to 6s, as %v to %v", time.Duration(start), time.Duration(end), time.Duration(wantStart), time.Duration(wantEnd))
	}
}

// What is given back can be taken again, and the account counts it as if it had taken it back itself.
func TestAFrontTakesPermitsBack(t *testing.T) {
	t.Parallel()
	f, a, s := fronted(10, 100, 0, time.Second)
	if f.Return(s, 1, a.Epoch()) {
		t.Error("a front that is shut takes one back")
	}
	a.Charge(4)
	f.Open(a, 2)
	f.Take(s, 0, 2, queue.Default, true)
	other := &Segment{Keys: &plans.Keys{Windows: s.Keys.Windows}}
	if f.Return(s, 1, a.Epoch()-1) || f.Return(other, 1, a.Epoch()) || f.Return(&Segment{}, 1, a.Epoch()) || f.Return(s, MostOut+1, a.Epoch()) {
		t.Error("a front takes back what is of another epoch or of other windows, or is too much")
	}
	if !f.Return(s, 5, a.Epoch()) { // some were taken of the account
		t.Error("a front does not take 5 back")
	}
	if _, v := f.Take(s, 0, 4, queue.Default, true); v != Taken {
		t.Errorf("4 of those that came back: %d", v)
	}
	if taken, _ := f.Shut(a); taken != 1 || a.Left() != 5 {
		t.Errorf("%d were taken, and %d are left, want 1 and 5", taken, a.Left())
	}
	f.Open(a, 1)
	f.Return(s, 3, a.Epoch())
	if taken, _ := f.Shut(a); taken != -3 || a.Left() != 8 {
		t.Errorf("%d were taken, and %d are left, want -3 and 8", taken, a.Left())
	}
	f.Refuse(a, false)
	a.Charge(8)
	if f.Refuse(a, false); f.Return(s, 1, a.Epoch()) {
		t.Error("a front that refuses takes one back")
	}
}

// TestFrontsUnderStress: calls take permits of a key, and give some back, while plans follow each other, and others look
// at the account, and at what the segment has left. Where calls crowd, permits of the segment back the front. What callers got and kept is what the account has booked, and what they got what the segments have, in
// each window, and no window holds more than its bound.
func TestFrontsUnderStress(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	const bound, windows, callers = 100, 4000, 4
	var (
		mu      sync.Mutex // of the account
		front   Front
		account Account
		gate    Gate
		got     [windows]atomic.Int64 // by second
		back    [windows]atomic.Int64 // of got: what came back to the key
		inFront atomic.Int64          // calls of which the front has taken permits back
		left    int64                 // of all segments, as they were sealed
		torn    atomic.Int64
		backed  atomic.Int64 // calls that took of a front which was backed
		over    atomic.Bool
	)
	lengths := []time.Duration{time.Second, windows * time.Second}
	limit := func(w quota.Window) int64 {
		if w.Length == time.Second {
			return bound
		}
		return windows * bound
	}
	plan := func(second int) *Segment {
		s := &Segment{until: clock.Forever, Keys: &plans.Keys{Windows: *keysAt(time.Duration(second)*time.Second, lengths...)}}
		s.left.Store(leastLeft + 2*bound)
		return s
	}
	hold := func() {
		mu.Lock()
		front.Shut(&account)
	}
	call := func(n int64) (second int64, epoch uint32, ok bool) {
		s := gate.Segment()
		second = s.Keys.Running[0].Index
		switch p, v := front.Take(s, 0, n, queue.Default, true); {
		case v == Crowded || v == Taken && n == 3: // as if others were at the front
			gate.Back(s, &front)
			mu.Lock()
			front.More(&account)
			mu.Unlock()
			fallthrough
		case v == Taken:
			got[second].Add(n)
			if p.backs() >= n {
				backed.Add(1)
			}
			return second, p.Epoch(), true
		case v == Torn:
			torn.Add(1)
			hold()
			account.Uncharge(n, p.Epoch(), &s.Keys.Windows)
			mu.Unlock()
		case v == Ask:
			hold()
			defer mu.Unlock()
			if account.Windows() != &s.Keys.Windows {
				account.Adopt(&s.Keys.Windows, limit, nil)
			}
			if account.Left() < n {
				if gate.Segment() == s {
					front.Refuse(&account, false)
				}
				return 0, 0, false
			}
			if s.Take(0, n, queue.Default) {
				account.Charge(n)
				got[second].Add(n)
				front.Open(&account, 20)
				return second, account.Epoch(), true
			}
		}
		return 0, 0, false
	}
	giveBack := func(n, second int64, epoch uint32) {
		if front.Return(gate.Segment(), n, epoch) {
			inFront.Add(1)
			back[second].Add(n)
			return
		}
		hold()
		defer mu.Unlock()
		if account.Refund(n, epoch, false) {
			back[second].Add(n)
		}
	}
	look := func() { // as Gate.currentLocked
		gate.mu.Lock()
		s := gate.Segment()
		s.left.Add(s.unback())
		gate.mu.Unlock()
	}
	gate.segment.Store(plan(0))
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(i)))
			for !over.Load() {
				n := 1 + rnd.Int64N(3)
				switch second, epoch, ok := call(n); {
				case !ok && rnd.IntN(20) == 0:
					runtime.Gosched() // the window is spent: the next is to begin
				case ok && rnd.IntN(3) == 0:
					giveBack(n, second, epoch)
				}
				if rnd.IntN(50) == 0 {
					look()
				}
			}
		})
	}
	end := func() {
		gate.mu.Lock()
		s := gate.Segment()
		left += s.seal() + s.unback()
		gate.mu.Unlock()
	}
	for second := 1; second < windows; second++ {
		for got[second-1].Load() < bound/2 { // half of the window is issued
			runtime.Gosched()
		}
		end()
		gate.segment.Store(plan(second))
	}
	over.Store(true)
	end()
	wg.Wait()
	sum, kept := int64(0), int64(0)
	for second := range got {
		n := got[second].Load()
		sum += n
		n -= back[second].Load()
		if kept += n; n > bound {
			t.Errorf("second %d: %d permits, the bound is %d", second, n, bound)
		}
	}
	if issued := int64(windows*(leastLeft+2*bound)) - left; issued != sum {
		t.Errorf("callers got %d permits, the provider issued %d", sum, issued)
	}
	hold()
	defer mu.Unlock()
	last := gate.Segment().Keys
	account.Adopt(&last.Windows, limit, nil)
	for _, u := range account.Booked() {
		want := kept
		if u.Window.Length == time.Second {
			want = got[windows-1].Load() - back[windows-1].Load()
		}
		if u.Used != want {
			t.Errorf("window %v: %d booked, callers kept %d", u.Window, u.Used, want)
		}
	}
	t.Logf("%d permits, %d calls found a segment sealed, %d gave permits back to the front, %d took of one that was backed", sum, torn.Load(), inFront.Load(), backed.Load())
}

// Critical and sheddable calls for a key that is lent ask the account, which notes of what class they are, and large ones
// are to leave small ones what they will want.
func TestAFrontLeavesOtherClassesToTheTrade(t *testing.T) {
	t.Parallel()
	f, a, s := fronted(20, 100, 0, time.Second)
	for _, want := range []Fronted{Taken, Ask} {
		f.Open(a, 7)
		for _, c := range []queue.Class{queue.Critical, queue.Sheddable} {
			if _, v := f.Take(s, 0, 1, c, true); v != want {
				t.Errorf("a call of class %d: %d, want %d", c, v, want)
			}
		}
		// A call for several that may wait may be large: the account knows.
		for n, may := range map[int64]Fronted{1: Taken, 2: want} {
			if _, v := f.Take(s, 0, n, queue.Default, false); v != may {
				t.Errorf("a call for %d that may wait: %d, want %d", n, v, may)
			}
		}
		if _, v := f.Take(s, 0, 2, queue.Default, true); v != Taken {
			t.Errorf("a default call: %d", v)
		}
		f.Shut(a)
		a.begun()
	}
}
