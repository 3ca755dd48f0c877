package window

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/window/plans"
	"github.com/quotient-limiter/quotient/quota"
)

// lendingAt is keysAt of an instance that lends and borrows as the incarnation.
func lendingAt(self string, wall time.Duration, lengths ...time.Duration) *plans.Windows {
	k := keysAt(wall, lengths...)
	k.Lending = plans.Lending{Self: self, Lends: true, Borrows: true}
	return k
}

// lends lends up to n permits, which the guest lacks to its equal part, and returns what the guest is
// told.
func lends(k *Account, guest string, n, now int64) (told int64) {
	told, _ = k.Lend(guest, protocol.Need{Permits: 1000 * n, Poor: 1000 * n}, plans.Fleet{Total: 400, Instances: 4, Owners: 4}, Callers{}, 0, 0, now)
	return told
}

// What is lent of a key counts at the host in the windows of every length. A guest is told
// the sum of these windows. Another incarnation begins anew.
func TestAHostChargesWhatItLendsOfAKey(t *testing.T) {
	t.Parallel()
	var k Account
	k.Adopt(lendingAt("me", 0, second, 60*second), bounds(20), nil)
	for _, step := range []struct {
		self         string
		wall         time.Duration
		guest        string
		n            int64
		told, remain int64
	}{
		{"me", 0, "a", 9, 9, 11}, {"me", 0, "a", 2, 11, 9}, {"me", 0, "b", 1, 1, 8},
		{"me", second, "a", 3, 3, 5}, // the minute goes on
		{"me again", second, "a", 1, 1, 4},
		{"me again", second, "b", 9, 4, 0},
		{"me again", second, "b", 1, 0, 0},
	} {
		k.Adopt(lendingAt(step.self, step.wall, second, 60*second), bounds(20), nil)
		if told := lends(&k, step.guest, step.n, int64(step.wall)); told != step.told || k.Left() != step.remain {
			t.Errorf("%+v: told %d, %d left", step, told, k.Left())
		}
		for _, u := range k.Uses(1) {
			if u.Used != 0 {
				t.Errorf("%+v: %d are issued, of permits that were lent", step, u.Used)
			}
		}
	}
}

// A host keeps what its own callers will use, by what they have used in this window and in the one
// before, until they fall silent.
func TestAHostKeepsWhatItsCallersUse(t *testing.T) {
	t.Parallel()
	var k Account
	for _, step := range []struct {
		what        string
		at          time.Duration
		then        int64 // permits that callers use afterwards
		least, most int64 // told to the guest, in this window
	}{
		{"callers have used 40 in half a second, and want as many more", 500 * ms, 9, 8, 20},
		{"they have used 49 in the second before", second, 0, 38, 51},
		{"they have been silent for 600 ms", second + 600*ms, 0, 99, 100},
		{"they have used none for two seconds", 4 * second, 0, 100, 100},
	} {
		k.Adopt(lendingAt("me", step.at, second), bounds(100), nil)
		if step.at < second {
			k.Charge(40)
		}
		if told := lends(&k, "a", 100, int64(step.at)); told < step.least || told > step.most {
			t.Errorf("%s: %d are lent, want %d to %d", step.what, told, step.least, step.most)
		}
		k.Charge(step.then)
	}
}

// A loan of a key counts in exactly its windows, and of several numbers the largest.
func TestALoanOfAKeyCountsInItsWindows(t *testing.T) {
	t.Parallel()
	total := bounds(30)
	var k Account
	now := lendingAt("me", 0, second, 60*second)
	k.Adopt(now, bounds(2), nil)
	later := lendingAt("me", second, second, 60*second)
	for _, step := range []struct {
		host    string
		windows []quota.Window
		told    int64
		want    int64
	}{
		{"a", now.Running, 5, 5}, {"a", now.Running, 5, 0}, {"a", now.Running, 3, 0}, {"a", now.Running, 7, 2},
		{"b", now.Running, 4, 4}, {"b", now.Running[:1], 9, 0}, {"b", later.Running, 9, 0}, {"b", now.Running, 4, 0},
	} {
		if got := k.Borrow(step.host, step.windows, step.told, total); got != step.want {
			t.Errorf("%+v: counted %d", step, got)
		}
	}
	if k.Left() != 13 {
		t.Errorf("%d left, want 2 and 11", k.Left())
	}
	k.Charge(3)
	k.Adopt(later, bounds(2), nil)
	if k.Left() != 2 {
		t.Errorf("%d left in the next second, want 2: loans end with their windows", k.Left())
	}
	if k.Borrow("a", now.Running, 9, total) != 0 || k.Borrow("a", later.Running, 4, total) != 4 || k.Left() != 6 {
		t.Errorf("%d left, want 2 and 4", k.Left())
	}
	if k.Adopt(now, bounds(2), nil); k.Left() != 0 { // corrected time was set back
		t.Errorf("%d left in a window that is over", k.Left())
	}
}

// With what it is told, a guest has no more of a key than the total. What it has lent on
// does not count.
func TestAGuestHasNoMoreOfAKeyThanTheTotal(t *testing.T) {
	t.Parallel()
	var k Account
	keys := lendingAt("me", 0, second)
	k.Adopt(keys, bounds(2), nil)
	if got := k.Borrow("a", keys.Running, 99, bounds(10)); got != 8 || k.Left() != 10 {
		t.Errorf("counted %d, %d left; want 8 and 10", got, k.Left())
	}
	if told := lends(&k, "b", 4, 0); told != 4 {
		t.Errorf("lends %d on, want 4", told)
	}
	if got := k.Borrow("c", keys.Running, 99, bounds(10)); got != 4 || k.Left() != 10 {
		t.Errorf("counted %d, %d left; want 4 and 10", got, k.Left())
	}
}

// A loan counts once, even if it is told again after corrected time was set back into its
// shortest window: the numbers of that window are forgotten, and its longer ones go on.
func TestAKeysLoanIsToldAgainAfterTimeWasSetBack(t *testing.T) {
	t.Parallel()
	var k Account
	keys := lendingAt("me", 0, second, 60*second)
	k.Adopt(keys, bounds(2), nil)
	if got := k.Borrow("a", keys.Running, 5, bounds(30)); got != 5 {
		t.Fatalf("counted %d of the loan", got)
	}
	back := lendingAt("me", second/2, second, 60*second)
	back.Shut, back.Over = true, int64(second+1)
	k.Adopt(back, bounds(2), nil)
	if got := k.Borrow("a", keys.Running, 5, bounds(30)); got != 0 {
		t.Errorf("counted %d of the same loan again", got)
	}
}

// Whatever is lent, told late, again or not at all: what all use of a key sums to no more
// than their shares, in each window.
func TestLendingAddsNoPermitsOfAKey(t *testing.T) {
	t.Parallel()
	type message struct {
		host    int
		windows []quota.Window
		told    int64
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 4).Draw(t, "instances")
		shares := rapid.SliceOfN(rapid.Int64Range(0, 10), n, n).Draw(t, "shares")
		total := int64(0)
		for _, s := range shares {
			total += s
		}
		all, sent := make([]Account, n), make([][]message, n)
		used := map[quota.Window]int64{}
		wall := time.Duration(0)
		names := []string{"a", "b", "c", "d"}
		at := func(i int) *plans.Windows {
			keys := lendingAt(names[i], wall, second, 3*second)
			all[i].Adopt(keys, bounds(shares[i]), nil)
			return keys
		}
		instance := rapid.IntRange(0, n-1)
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				i := instance.Draw(t, "who")
				keys := at(i)
				k := min(all[i].Left(), rapid.Int64Range(1, 5).Draw(t, "n"))
				all[i].Charge(k)
				for _, w := range keys.Running {
					if used[w] += k; used[w] > total {
						t.Fatalf("%d permits of %v are used, the shares sum to %d", used[w], w, total)
					}
				}
			},
			"lend": func(t *rapid.T) {
				host, guest := instance.Draw(t, "host"), instance.Draw(t, "guest")
				keys := at(host)
				if told := lends(&all[host], names[guest], rapid.Int64Range(1, 9).Draw(t, "n"), int64(wall)); told > 0 {
					sent[guest] = append(sent[guest], message{host, keys.Running, told})
				}
			},
			"hear": func(t *rapid.T) {
				guest := instance.Draw(t, "guest")
				if len(sent[guest]) == 0 {
					return
				}
				m := sent[guest][rapid.IntRange(0, len(sent[guest])-1).Draw(t, "message")]
				at(guest)
				all[guest].Borrow(names[m.host], m.windows, m.told, bounds(total))
			},
			"pass": func(*rapid.T) { wall += second / 2 },
		})
	})
}

// The use of a limit tells the own share apart from what was borrowed, and so it does for a provider.
func TestAKeysShareHasNothingBorrowed(t *testing.T) {
	t.Parallel()
	var k Account
	windows := lendingAt("me", 0, second)
	k.Adopt(windows, bounds(10), nil)
	k.Borrow("host", windows.Running, 5, func(quota.Window) int64 { return 20 })
	k.Charge(12)
	if u := k.Uses(1)[0]; u.Share != 10 || u.Used != 12 || u.Left != 3 {
		t.Errorf("%+v, want a share of 10, 12 used and 3 left", u)
	}
}
