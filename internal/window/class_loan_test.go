package window

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/queue"
)

// A host with callers of its own lends them to a critical call, but for what the policy keeps;
// and its guest says which calls lack permits.
func TestCriticalCallsBorrowFirst(t *testing.T) {
	f := newFixed(map[time.Duration]int64{second: 100})
	f.total, f.plan.Critical = 500, 20
	host, lent := lender(f)
	host.Changed(at(0))
	refused := int64(0)
	host.Refused = func() int64 { return refused }
	for now := 10 * ms; now < 3*second; now += 10 * ms { // its own calls are four times its share
		if upTo(host, at(now), 4) < 4 {
			refused += 4
		}
	}
	host.Tick(at(3*second + ms))
	host.asked(at(3*second+ms), "a", need(60, false))
	if l := lent(); len(l) != 0 {
		t.Errorf("a busy host lends %+v to default calls", l)
	}
	n := need(100, false)
	n.Critical = n.Permits
	host.asked(at(3*second+ms), "a", n)
	if l := lent(); len(l) != 1 || l[0].loan.Permits[""] != 80 {
		t.Errorf("to critical calls a host lends %+v, want 80 of its 100 permits", l)
	}
	if got := upTo(host, at(3*second+2*ms), 50); got != 0 {
		t.Errorf("%d are left for default calls", got)
	}
	if _, _, got := host.TakeUpTo(at(3*second+2*ms), 50, queue.Critical); got != 20 {
		t.Errorf("%d are left for critical calls, want 20", got)
	}

	guest, _ := lender(f)
	called := int64(0)
	guest.Called = func(c queue.Class) int64 {
		if c == queue.Critical {
			return called
		}
		return 0
	}
	guest.Changed(at(0))
	guest.Look(at(ms))
	guest.Enter(at(2*ms), nil, 100, 0, queue.Critical)
	called = 100
	guest.Enter(at(3*ms), &queue.Waiter{}, 30, int64(second), queue.Critical)
	guest.Enter(at(3*ms), &queue.Waiter{}, 10, int64(second), queue.Sheddable)
	if ask, _ := guest.Look(at(20 * ms)); ask == nil || ask.Critical < 30 || ask.Critical > ask.Permits {
		t.Errorf("30 critical permits are waited for, and the ask is %+v", ask)
	}
}

// So it is for a key: an ask is for the critical calls that will come, not only for those that wait, and
// a host keeps what its own critical calls will want.
func TestCriticalCallsForAKeyBorrowFirst(t *testing.T) {
	t.Parallel()
	all := plans.Fleet{Total: 400, Instances: 4, Owners: 4}
	// called is an account whose critical calls come at 40 a second, for a second and a half. It has 100
	// permits a second.
	called := func() (*Account, time.Duration) {
		k, now := new(Account), time.Duration(0)
		k.Adopt(lendingAt("me", 0, second), bounds(100), nil)
		k.Refused(1, queue.Critical, false)
		for ; now < 3*second/2; now += 25 * ms {
			k.Adopt(lendingAt("me", now, second), bounds(100), nil)
			k.Ask(all, Callers{}, int64(now))
			k.Charge(1)
			k.Called(1, queue.Critical, false)
		}
		return k, now
	}
	guest, now := called()
	guest.Charge(guest.Left()) // for others
	one := Callers{Waiting: 1, Critical: 1}
	if ask, _ := guest.Ask(all, one, int64(now)); ask == nil || ask.Critical < 15 || ask.Critical > ask.Permits {
		t.Errorf("critical calls will want 20, and the ask is %+v", ask)
	}

	host, now := called()
	need := need(100, false)
	need.Critical = need.Permits
	told, _ := host.Lend("a", need, all, Callers{Waiting: 100}, 0, 0, int64(now))
	if told < 50 || told > 65 {
		t.Errorf("of 80 permits, of which critical calls will want 20 and others all, %d are lent to critical calls", told)
	}
}
