package window

import (
	"testing"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/internal/window/shape"
	"github.com/quotient-limiter/quotient/quota"
)

// keysAt are the windows of keys that run at a wall time.
func keysAt(wall time.Duration, lengths ...time.Duration) *plans.Windows {
	k := &plans.Windows{Over: int64(wall)}
	for _, l := range lengths {
		k.Running = append(k.Running, quota.WindowAt(l, int64(wall)))
	}
	return k
}

func bounds(n int64) func(quota.Window) int64 { return func(quota.Window) int64 { return n } }

// A reservation is kept through windows. It becomes permits of the window in which it is
// confirmed, if its bound allows that.
func TestAReservationIsNoPermit(t *testing.T) {
	t.Parallel()
	var k Account
	k.Adopt(keysAt(0, time.Second), bounds(5), nil)
	k.Reserve(2)
	k.Reserve(2)
	if k.Left() != 1 {
		t.Errorf("%d left, want 1", k.Left())
	}
	k.Adopt(keysAt(time.Second, time.Second), bounds(3), nil)
	if !k.Confirm(nil, 2) || k.Left() != 0 {
		t.Errorf("%d left, want none: the other reservation counts", k.Left())
	}
	if k.Confirm(nil, 2) || k.Left() != 1 {
		t.Errorf("%d left, want 1: 2 of 3 are issued", k.Left())
	}
}

// What is reserved of a long limit is gone when its window ends, unless this instance has all of the limit: by then the call
// may get the provider's permits in vain.
func TestAReservationLapsesWithItsLongWindow(t *testing.T) {
	t.Parallel()
	for _, whole := range []bool{false, true} {
		k, _ := longKey(10, 100)
		enter := func(wall int64) {
			keys := keysAt(time.Duration(wall), time.Second)
			keys.Offset, keys.Over = 5, wall
			b := protocol.Budget{Limit: quota.Limit{Permits: 100, Window: time.Hour}, Start: wall / hour * hour, End: wall/hour*hour + hour, Whole: whole}
			keys.Budgets = []protocol.Budget{b}
			k.Adopt(keys, bounds(10), func() []protocol.Budget { return keys.Budgets })
		}
		if enter(0); !whole {
			k.Wants(2, 1)
			fund(k, k.TakeUse("x", 8, 1)[0], 2, 98, 2)
		}
		k.Reserve(1)
		want := hour - 5
		if whole {
			want = clock.Forever
		}
		if from := k.Lapses(func(quota.Window) int64 { return shape.Unbounded }); from != want {
			t.Errorf("whole %v: lapses at %v, want %v", whole, time.Duration(from), time.Duration(want))
		}
		if enter(hour); k.Confirm(nil, 1) != whole {
			t.Errorf("whole %v: a permit of the hour before is confirmed: %v", whole, !whole)
		}
	}
}

// What is reserved beyond what the next window may hold, as of a loan, is there until its own window ends: so long nobody
// behind its callers needs to hope for the provider's permits that these might give back.
func TestAReservationBeyondTheShareLapsesWithItsWindow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ reserved, total, want int64 }{
		{10, 100, clock.Forever},
		{11, 100, int64(second) - 5}, // more than the own share
		{6, 50, int64(second) - 5},   // more than an equal part
		{1, 0, int64(second) - 5},    // the total is not known
	} {
		var k Account
		enter := func(wall time.Duration) {
			keys := keysAt(wall, second, 3*second)
			keys.Offset, keys.Over, keys.Lending.Instances = 5, int64(wall), 10
			k.Adopt(keys, func(w quota.Window) int64 { return map[time.Duration]int64{second: 10, 3 * second: 100}[w.Length] }, nil)
		}
		enter(0)
		k.spans[0].borrowed = 30
		enter(second / 2)
		k.Reserve(c.reserved)
		from := k.Lapses(func(w quota.Window) int64 {
			if w.Length == second {
				return c.total
			}
			return shape.Unbounded
		})
		if from != c.want {
			t.Errorf("%+v: lapses at %v", c, time.Duration(from))
		}
		enter(second - 1)
		if k.Reserve(c.reserved); !k.Confirm(nil, c.reserved) {
			t.Errorf("%+v: not confirmed in the window in which it was reserved", c)
		}
		if enter(second); k.Confirm(nil, c.reserved) != (c.reserved <= 10) {
			t.Errorf("%+v: confirmed %v in the next window", c, c.reserved > 10)
		}
	}
}

// Nothing of a key may be forgotten while a permit of it counts, or is owed or reserved.
func TestWhenAKeyIsOver(t *testing.T) {
	t.Parallel()
	var k Account
	over := func(wall time.Duration, want bool) {
		t.Helper()
		if got := k.over(keysAt(wall, time.Second, 3*time.Second)); got != want {
			t.Errorf("at %v: over %v, want %v", wall, got, want)
		}
	}
	k.Adopt(keysAt(0, time.Second, 3*time.Second), bounds(5), nil)
	over(0, true) // it has issued nothing
	k.Charge(1)
	over(0, false)
	over(2999*time.Millisecond, false)
	over(3*time.Second, true)
	k.Reserve(1)
	over(3*time.Second, false)
	k.Unreserve(nil, 1)
	k.Owe(9)
	over(3*time.Second, false)
	k.Adopt(keysAt(3*time.Second, time.Second, 3*time.Second), bounds(20), nil)
	k.Pay()
	over(5*time.Second, false)
	over(6*time.Second, true)
}

// A key that was forgotten has nothing left, in no later window either: the zero Account has all of that.
func TestAForgottenKeyHasNothingLeft(t *testing.T) {
	t.Parallel()
	var k Account
	left := func(wall time.Duration, forgotten bool, want int64) {
		t.Helper()
		windows := lendingAt("me", wall, second)
		if got := k.Forget(windows); got != forgotten {
			t.Errorf("at %v: forgotten %v", wall, got)
		}
		if k.Adopt(windows, bounds(5), nil); k.Left() != want || k.Own() != 5 {
			t.Errorf("at %v: %d left of %d, want %d of 5", wall, k.Left(), k.Own(), want)
		}
	}
	k.Adopt(lendingAt("me", 0, second), bounds(5), nil)
	k.Charge(2)
	left(0, false, 3)
	left(second, true, 0)
	left(2*second, true, 0)
	if told := lends(&k, "guest", 3, int64(2*second)); told != 0 {
		t.Errorf("%d are lent", told)
	}
	if k.Owe(1); k.Pay() != 0 {
		t.Error("a debt is paid")
	}
	if k.Reserve(1); k.Confirm(nil, 1) {
		t.Error("a permit is confirmed")
	}
}

// A limit that is gone counts on to the end of its window, in case that it comes back.
func TestALimitOfKeysThatComesBack(t *testing.T) {
	t.Parallel()
	var k Account
	k.Adopt(keysAt(0, time.Second, 3*time.Second), bounds(5), nil)
	k.Charge(3)
	k.Adopt(keysAt(time.Second, time.Second), bounds(5), nil)
	k.Charge(1)
	k.Adopt(keysAt(2*time.Second, time.Second, 3*time.Second), bounds(5), nil)
	if k.Left() != 1 {
		t.Errorf("%d left, want 1 of 5 in 3 s", k.Left())
	}
	epoch := k.Epoch()
	if k.Charge(1); k.Left() != 0 || !k.Refund(1, epoch, false) || k.Left() != 1 || k.Refund(1, epoch-1, false) {
		t.Errorf("%d left after a refund", k.Left())
	}
	k.Adopt(keysAt(2*time.Second, time.Second, 3*time.Second), bounds(shape.Unbounded), nil)
	if k.Left() != 0 {
		t.Error("no limit is known to bind, and permits are left")
	}
}

// What callers used in another limit's window says nothing of the shortest one's.
func TestTheWindowBeforeIsOfTheSameLength(t *testing.T) {
	t.Parallel()
	var k Account
	k.Adopt(keysAt(0, second, 60*second), bounds(100), nil)
	k.Charge(40)
	k.Adopt(keysAt(second, second, 60*second), bounds(100), nil)
	if k.before != 40 {
		t.Errorf("%d used in the second before, want 40", k.before)
	}
	if k.Adopt(keysAt(2*second, 60*second), bounds(100), nil); k.before != 0 {
		t.Errorf("%d used in the minute before, want 0", k.before)
	}
}

// The own share is right also where corrected time was set back, and something was borrowed.
func TestTheShareOfAnEarlyWindow(t *testing.T) {
	t.Parallel()
	var k Account
	later := keysAt(second, second)
	later.Lending.Self = "me"
	k.Adopt(later, bounds(10), nil)
	k.Borrow("host", later.Running, 5, func(quota.Window) int64 { return 20 })
	if k.Adopt(keysAt(0, second), bounds(10), nil); k.Own() != 10 || k.Left() != 0 {
		t.Errorf("a share of %d and %d left in a window that was over, want 10 and 0", k.Own(), k.Left())
	}
}
