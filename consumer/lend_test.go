package consumer

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/lending"
	"github.com/quotient-limiter/quotient/internal/window/queue"
	"github.com/quotient-limiter/quotient/quota"
)

// market is instances of one provider that bring each other's asks and loans, after a while.
type market struct {
	mu    sync.Mutex
	sinks map[string]*stub
	delay time.Duration
	asks  []protocol.Request
	deaf  map[string]bool // these hear nothing

	keyAsks  []keyAsk
	keyLoans []protocol.Note
}

// Tell implements feed.Carrier.
func (m *market) Tell(self, guest string, loan protocol.Note) {
	if loan.Permits[""] == 0 {
		m.mu.Lock()
		m.keyLoans = append(m.keyLoans, loan)
		m.mu.Unlock()
	}
	time.AfterFunc(m.delay, func() {
		if s := m.sink(guest); s != nil {
			s.sink.Borrow(self, loan)
		}
	})
}

// Ask implements feed.Carrier.
func (m *market) Ask(self string, all []protocol.Request) {
	for _, r := range all {
		m.mu.Lock()
		if r.Needs[""].Permits > 0 {
			m.asks = append(m.asks, r)
		} else {
			m.keyAsks = append(m.keyAsks, keyAsk{self, r})
		}
		m.mu.Unlock()
		time.AfterFunc(m.delay, func() {
			for id, s := range m.sinks {
				if id != self && (r.Host == id || r.Host == "") && m.sink(id) != nil {
					s.sink.Asked(self, r.Note)
				}
			}
		})
	}
}

// keyAsk is an ask for permits of keys.
type keyAsk struct {
	guest string
	protocol.Request
}

func (m *market) sink(id string) *stub {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.deaf[id] {
		return nil
	}
	return m.sinks[id]
}

// lendingFleet returns limiters of instances that share a limit and lend to each other.
func lendingFleet(t *testing.T, limits string, ids ...string) (*market, map[string]*Limiter) {
	t.Helper()
	m := &market{sinks: map[string]*stub{}, delay: 3 * time.Millisecond, deaf: map[string]bool{}}
	all := map[string]*Limiter{}
	for _, id := range ids {
		s, l := provedAs(t, limits, id, ids)
		m.sinks[id], all[id] = s, l
		s.sink.Carry(m)
	}
	time.Sleep(3500 * time.Millisecond)
	for _, s := range m.sinks {
		s.prove()
	}
	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second + 10*time.Millisecond)))
	return m, all
}

func TestACallerIsServedByWhatOthersLend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, all := lendingFleet(t, "100/s", "me", "a", "b", "c", "d")
		for i := range 60 { // three shares
			began := time.Now()
			if err := all["me"].Acquire(context.Background(), 100*time.Millisecond); err != nil {
				t.Fatalf("caller %d: %v", i, err)
			}
			if took := time.Since(began); took > 60*time.Millisecond {
				t.Errorf("caller %d waited for %v", i, took)
			}
			time.Sleep(time.Millisecond)
		}
		st := all["me"].Status()
		if st.Issued != 60 || st.Borrowed < 40 || st.Asks == 0 || st.OverIssued != 0 || st.FruitlessWindows != 0 {
			t.Errorf("%+v", st)
		}
		if st.FirstLoans != 1 || st.FirstLoanTime < 6*time.Millisecond || st.FirstLoanTime > 30*time.Millisecond {
			t.Errorf("the first loan came after %v in %d windows; a message takes 3 ms", st.FirstLoanTime, st.FirstLoans)
		}
		lent := int64(0)
		for _, id := range []string{"a", "b", "c", "d"} {
			lent += all[id].Status().Lent
		}
		if lent != st.Borrowed {
			t.Errorf("%d lent, %d borrowed", lent, st.Borrowed)
		}
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second + 10*time.Millisecond)))
		st = all["me"].Status()
		guest, host := all["me"].core.Report(all["me"].core.clock.Now()), all["a"].core.Report(all["a"].core.clock.Now())
		if guest.Borrowed != st.Borrowed || guest.Hosts != 4 || guest.Lent != 0 || guest.Guests != 0 {
			t.Errorf("the guest reports %+v", guest)
		}
		if host.Lent != all["a"].Status().Lent || host.Guests != 1 || host.Borrowed != 0 {
			t.Errorf("a host reports %+v", host)
		}
	})
}

func TestMoreThanAShareIsTakenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, all := lendingFleet(t, "100/s", "me", "a", "b", "c", "d")
		p, err := all["me"].Take(context.Background(), 70, 2*time.Second)
		if err != nil || p.N() != 70 {
			t.Errorf("70 of a share of 20: %d, %v", p.N(), err)
		}
		if _, err := all["me"].Take(context.Background(), 101, 2*time.Second); err == nil {
			t.Error("more than the limit")
		}
	})
}

// A caller that is refused while the look that it had asked for goes quiet has the next one
// arm it again: its refusal does not stand for the rest of the window.
func TestARefusalThatNoLookHasSeenDoesNotStand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, all := lendingFleet(t, "100/s", "me", "a", "b", "c", "d")
		me := all["me"]
		for me.Status().Shortest().Left > 0 {
			me.TryTake(1)
		}
		me.core.refuse(queue.Limited, 1, queue.Default) // the look has come and gone
		for range 100 {
			me.TryTake(1)
			time.Sleep(time.Millisecond)
		}
		if st := me.Status(); st.Asks == 0 || st.Borrowed < 40 {
			t.Errorf("%d asks, %d borrowed", st.Asks, st.Borrowed)
		}
	})
}

// An instance that nobody answers asks a few times, and then only now and then.
func TestAnInstanceThatNobodyAnswersGoesQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, all := lendingFleet(t, "100/s", "me", "a", "b")
		m.deaf["a"], m.deaf["b"] = true, true
		for i := range 8000 {
			if i%500 == 0 {
				m.sinks["me"].prove()
			}
			all["me"].TryTake(1)
			time.Sleep(time.Millisecond)
		}
		st := all["me"].Status()
		if st.Asks < 5 || st.Asks > 40 || st.FruitlessWindows < 4 || st.Borrowed != 0 {
			t.Errorf("%d asks, %d windows in vain, %d borrowed in 8 s", st.Asks, st.FruitlessWindows, st.Borrowed)
		}
		before := st.Asks
		time.Sleep(5 * time.Second)
		if st = all["me"].Status(); st.Asks != before {
			t.Errorf("%d asks more without a call", st.Asks-before)
		}
	})
}

// One without a share borrows a first permit for Ready, though nobody calls.
func TestReadyBorrowsAFirstPermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := lendingFleet(t, "100/s", "a", "b")
		s, l := provedAs(t, "100/s", "me", []string{"a", "b", "me"})
		m.mu.Lock()
		m.sinks["me"] = s
		m.mu.Unlock()
		for _, id := range []string{"a", "b"} {
			m.sinks[id].joins("me")
		}
		s.sink.Carry(m)
		began := time.Now()
		if err := l.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 100*time.Millisecond || !l.TryAcquire() {
			t.Errorf("ready after %v; %+v", took, l.Status())
		}
		if !slices.ContainsFunc(m.asks, func(r protocol.Request) bool { return r.Needs[""].Poor > 0 }) {
			t.Errorf("asked %+v", m.asks)
		}
	})
}

// beside is "a", which has all of 100/s, and "me", which has no share for an hour.
type beside struct {
	market *market
	a, me  *Limiter
}

func newcomerBeside(t *testing.T) beside {
	m, all := lendingFleet(t, "100/s", "a")
	s, me := provedAs(t, "100/s", "me", []string{"a"})
	m.mu.Lock()
	m.sinks["me"] = s
	m.mu.Unlock()
	m.sinks["a"].joins("me")
	s.joins("me")
	s.sink.Carry(m)
	b := beside{m, all["a"], me}
	b.pass(500 * time.Millisecond) // to the middle of a window
	return b
}

// pass lets a time pass in which both hear of etcd.
func (b *beside) pass(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		for _, s := range b.market.sinks {
			s.prove()
		}
	}
}

// wait has callers of a limiter wait until they are told to end.
func (b *beside) wait(l *Limiter) (end func()) {
	var ended atomic.Bool
	var again func(Permit, error)
	again = func(_ Permit, err error) {
		if err == nil && !ended.Load() {
			l.TakeFunc(1, Forever, again)
		}
	}
	for range 20 {
		l.TakeFunc(1, Forever, again)
	}
	return func() { ended.Store(true) }
}

// A permit that was lent was issued by the guest, and by nobody else: in Status, and in the
// reports that charts are drawn from.
func TestALentPermitIsIssuedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, all := lendingFleet(t, "100/s", "host", "guest")
		for range 3 {
			before := map[string]Status{"host": all["host"].Status(), "guest": all["guest"].Status()}
			for i := range 800 { // milliseconds
				if i%50 == 0 {
					all["host"].TryAcquire()
				}
				all["guest"].TryAcquire()
				m.sinks["host"].prove()
				m.sinks["guest"].prove()
				time.Sleep(time.Millisecond)
			}
			for id, was := range before {
				st, r := all[id].Status(), all[id].core.Report(all[id].core.clock.Now())
				use, issued, lent, borrowed := st.Limits[0], st.Issued-was.Issued, st.Lent-was.Lent, st.Borrowed-was.Borrowed
				if use.Used != issued || r.UsedBefore != was.Issued || lent+borrowed < 20 {
					t.Errorf("%s: %d issued, and Used is %d; the report has %d before this window, want %d; %d lent, %d borrowed",
						id, issued, use.Used, r.UsedBefore, was.Issued, lent, borrowed)
				}
				if use.Used+use.Left != use.Share-lent+borrowed {
					t.Errorf("%s: %+v after %d lent, %d borrowed", id, use, lent, borrowed)
				}
			}
			time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second + 10*time.Millisecond)))
		}
	})
}

// A host whose callers wait has back what a newcomer does not use of its part of the window.
func TestWhatANewcomerDoesNotUseComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newcomerBeside(t)
		defer b.wait(b.a)()
		end := b.wait(b.me)
		b.pass(2 * time.Second)
		end()
		b.pass(time.Second) // the last of them had a permit
		for range 2 {
			before := b.a.Status()
			b.pass(time.Second)
			st := b.a.Status()
			if got, lent := st.Issued-before.Issued, st.Lent-before.Lent; got < 95 || lent < 30 {
				t.Errorf("%d of 100 permits are used, %d were lent", got, lent)
			}
		}
	})
}

// A newcomer that has gone is lent nothing more.
func TestANewcomerThatHasGoneIsLentNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newcomerBeside(t)
		defer b.wait(b.a)()
		defer b.wait(b.me)()
		var lent []int64
		for _, gone := range []bool{false, false, true} {
			if gone {
				of := b.market.sinks["a"]
				of.sink.Apply(of.clock.Now(), protocol.Change{Revision: 10, Deleted: []string{"me"}})
			}
			before := b.a.Status().Lent
			b.pass(time.Second)
			lent = append(lent, b.a.Status().Lent-before)
		}
		if lent[1] < 30 || lent[2] != 0 {
			t.Errorf("%d were lent in its windows", lent)
		}
	})
}

// Where all lack permits, the asks that come to all instances are bounded for the fleet: else their number would grow
// with the square of its size. What is asked beyond that is asked of few.
func TestAFleetThatLacksPermitsAsksFewSamples(t *testing.T) {
	const instances, seconds = 200, 5
	var ids []string
	for i := range instances {
		ids = append(ids, fmt.Sprintf("i%03d", i))
	}
	asked := func(t *testing.T, m *market, try func(id string)) {
		for range seconds * 100 {
			for _, id := range ids {
				try(id)
			}
			time.Sleep(10 * time.Millisecond)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		samples, direct := 0, 0
		for _, r := range slices.Concat(m.asks, requestsOf(m.keyAsks)) {
			if r.Host == "" {
				samples++
			} else {
				direct++
			}
		}
		t.Logf("%d samples and %d hosts are asked", samples, direct)
		// All may ask before they hear each other.
		if most := int(lending.RulesOf(instances, instances).Samples)*seconds + instances; samples > most || samples == 0 || direct == 0 {
			t.Errorf("%d samples and %d hosts are asked; at most %d samples are due", samples, direct, most)
		}
	}
	t.Run("provider", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m, all := lendingFleet(t, "2000/s", ids...)
			asked(t, m, func(id string) { _ = all[id].TryAcquire() })
		})
	})
	t.Run("key", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m, all := keyMarket(t, 2000, 0, quota.OutageHold, ids...)
			asked(t, m, func(id string) { _ = all[id].Key("k").TryAcquire() })
		})
	})
}

func requestsOf(all []keyAsk) (requests []protocol.Request) {
	for _, a := range all {
		requests = append(requests, a.Request)
	}
	return requests
}
