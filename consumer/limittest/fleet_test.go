package limittest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/limittest"
	"github.com/quotient-limiter/quotient/quota"
)

func policy(limits string) quota.Policy {
	l, err := quota.ParseLimits(limits)
	if err != nil {
		panic(err)
	}
	return quota.Policy{Limits: l}
}

func open(t *testing.T, i *limittest.Instance) *consumer.Limiter {
	t.Helper()
	l, err := consumer.Open(t.Context(), i, "p", consumer.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// A join and a leave flip at one window; a crash waits for the settle time; a limit
// binds at once.
func TestSharesFollowTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet, err := limittest.New(policy("120/s"), 2)
		if err != nil {
			t.Fatal(err)
		}
		var all []*consumer.Limiter
		for _, i := range fleet.Instances() {
			all = append(all, open(t, i))
		}
		shares := func(what string, want ...int64) {
			t.Helper()
			for i, l := range all {
				if got := l.Status().Shortest().Share; got != want[i] {
					t.Errorf("%s: instance %d has %d, want %v", what, i, got, want)
				}
			}
		}
		shares("at once", 60, 60)
		all = append(all, open(t, fleet.Join()))
		shares("announced", 60, 60, 0)
		time.Sleep(quota.DefaultSettle)
		shares("not yet", 60, 60, 0)
		time.Sleep(1100 * time.Millisecond)
		shares("joined", 40, 40, 40)

		fleet.Instances()[0].Leave()
		time.Sleep(290 * time.Millisecond)
		shares("leaves", 40, 40, 40)
		time.Sleep(1100 * time.Millisecond)
		shares("left", 0, 60, 60)

		fleet.Instances()[1].Kill()
		if err := all[1].Acquire(t.Context(), 0); !errors.Is(err, consumer.ErrClosed) {
			t.Errorf("killed: %v", err)
		}
		time.Sleep(quota.DefaultSettle - 10*time.Millisecond)
		if got := all[2].Status().Shortest().Share; got != 60 {
			t.Errorf("before the settle time the last one has %d", got)
		}
		time.Sleep(1100 * time.Millisecond)
		if got := all[2].Status().Shortest().Share; got != 120 {
			t.Errorf("the last one has %d", got)
		}

		if err := fleet.Set(policy("30/s")); err != nil {
			t.Fatal(err)
		}
		if got := all[2].Status().Shortest().Share; got != 30 {
			t.Errorf("a smaller limit: %d", got)
		}
		if err := fleet.Set(policy("90/s")); err != nil {
			t.Fatal(err)
		}
		if got := all[2].Status().Shortest().Share; got != 90 {
			t.Errorf("a larger limit: %d", got)
		}
		if _, err := consumer.Open(t.Context(), fleet.Instances()[1], "p", consumer.Options{}); err == nil {
			t.Error("a killed instance was opened")
		}
	})
}

// Callers on one instance of several get nearly the whole limit, whichever it is, and from the
// first window on: the others lend it. A crash takes away only what its instance had.
func TestCallersOnOneInstanceGetNearlyTheWholeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 1000
		fleet, err := limittest.New(policy("1000/s"), 10)
		if err != nil {
			t.Fatal(err)
		}
		meter := limittest.NewMeter(policy("1000/s").Limits)
		var all []*consumer.Limiter
		for _, i := range fleet.Instances() {
			all = append(all, open(t, i))
		}
		// play has one instance call for some windows, 1.3 times the limit.
		play := func(who int, windows int64) (permits int64) {
			for range windows * 1000 {
				n := all[who].TryTake(1).N()
				if time.Now().UnixMilli()%10 < 3 {
					n += all[who].TryTake(1).N()
				}
				meter.Call(n)
				permits += n
				time.Sleep(time.Millisecond)
			}
			return permits
		}
		for _, who := range []int{3, 7, 0} {
			if n := play(who, 4); n < 4*limit*97/100 {
				t.Errorf("instance %d got %d permits of %d", who, n, 4*limit)
			}
		}
		if st := all[0].Status(); st.Hosts == 0 || st.BorrowedLast < limit*8/10 {
			t.Errorf("it borrowed %d permits of %d instances in its last window", st.BorrowedLast, st.Hosts)
		}
		fleet.Instances()[9].Kill()
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
		if n := play(0, 2); n < 2*limit*87/100 || n > 2*limit*9/10 {
			t.Errorf("it got %d permits of %d beside one that crashed", n, 2*limit)
		}
		if err := meter.Check(); err != nil {
			t.Error(err)
		}
	})
}

// A call for more than a share is served by loans, and one for more than the limit is not.
func TestACallForMoreThanAShareIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet, err := limittest.New(policy("100/s"), 5)
		if err != nil {
			t.Fatal(err)
		}
		var all []*consumer.Limiter
		for _, i := range fleet.Instances() {
			all = append(all, open(t, i))
		}
		if p, err := all[2].Take(t.Context(), 90, time.Second); err != nil || p.N() != 90 {
			t.Errorf("of a share of 20: %d permits, %v", p.N(), err)
		}
		if _, err := all[2].Take(t.Context(), 101, time.Second); !errors.Is(err, consumer.ErrTooLarge) {
			t.Errorf("more than the limit: %v", err)
		}
	})
}

// Whatever happens to the fleet, and whenever limiters are opened, no window is
// over the largest limit in force around it.
func TestTheSumHolds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var failure error
		synctest.Test(t, func(t *testing.T) { failure = random(t.Context(), rt) })
		if failure != nil {
			rt.Fatal(failure)
		}
	})
}

func random(ctx context.Context, rt *rapid.T) error {
	totals := []string{"5/s", "7/s", "3/s"}
	fleet, err := limittest.New(policy(totals[1]), rapid.IntRange(0, 4).Draw(rt, "instances"))
	if err != nil {
		return err
	}
	meter := limittest.NewMeter(policy(totals[1]).Limits) // the largest
	limiters := map[*limittest.Instance]*consumer.Limiter{}
	defer func() {
		for _, l := range limiters {
			_ = l.Close()
		}
	}()
	for range rapid.IntRange(1, 80).Draw(rt, "steps") {
		all := fleet.Instances()
		pick := func() *limittest.Instance { return all[rapid.IntRange(0, len(all)-1).Draw(rt, "who")] }
		switch what := rapid.IntRange(0, 19).Draw(rt, "what"); {
		case what == 0 || len(all) == 0:
			fleet.Join()
		case what == 1:
			pick().Leave()
		case what == 2:
			pick().Kill()
		case what == 3:
			if err := fleet.Set(policy(rapid.SampledFrom(totals).Draw(rt, "total"))); err != nil {
				return err
			}
		case what < 8:
			i := pick()
			if limiters[i] == nil {
				l, err := consumer.Open(ctx, i, "p", consumer.Options{Logger: slog.New(slog.DiscardHandler)})
				if err == nil {
					limiters[i] = l
				}
			}
		default:
			time.Sleep(time.Duration(rapid.IntRange(0, 700).Draw(rt, "ms")) * time.Millisecond)
		}
		for _, l := range limiters {
			meter.Call(l.TryTake(100).N())
		}
	}
	return meter.Check()
}

func TestMeterNamesTheWorstWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := limittest.NewMeter(policy("2/s,9/10s").Limits)
		for _, n := range []int64{1, 2, 3, 5, 2} {
			m.Call(n)
			time.Sleep(time.Second)
		}
		err := m.Check()
		if err == nil || !strings.Contains(err.Error(), "5 calls arrived in the window from 2000-01-01T00:00:03Z, the limit is 2/s") {
			t.Errorf("got %v", err)
		}
	})
}

func TestBadFleets(t *testing.T) {
	t.Parallel()
	if _, err := limittest.New(quota.Policy{}, 1); err == nil {
		t.Error("a policy without limits")
	}
	if _, err := limittest.New(policy("1/s"), -1); err == nil {
		t.Error("a negative number")
	}
}

// TestNoKeyIsOver: 1,000 keys are used on all instances of a fleet that grows, shrinks, loses
// instances and gets other limits. In no window has any key more than its limit, and without
// changes every key has nearly all of it.
func TestNoKeyIsOver(t *testing.T) {
	for name, keys := range map[string]quota.Keys{
		"equal": {}, "owner": {Owners: 1}, "two owners": {Owners: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			noKeyIsOver(t, keys)
		})
	}
}

func noKeyIsOver(t *testing.T, keys quota.Keys) {
	names := 100
	if testing.Short() {
		names = 25
	}
	synctest.Test(t, func(t *testing.T) {
		p := policy("1000000/s")
		p.Keys = keys
		p.Keys.Limits = []quota.Limit{{Permits: 7, Window: time.Second}, {Permits: 25, Window: 5 * time.Second}}
		fleet, err := limittest.New(p, 4)
		if err != nil {
			t.Fatal(err)
		}
		var all []*consumer.Limiter
		by := map[string]*consumer.Limiter{}
		join := func(i *limittest.Instance) {
			l := open(t, i)
			by[fmt.Sprint("instance-", len(all))] = l
			all = append(all, l)
		}
		for _, i := range fleet.Instances() {
			join(i)
		}
		r := rand.New(rand.NewPCG(1, 2))
		time.Sleep(time.Until(time.Now().Truncate(5 * time.Second).Add(5 * time.Second)))
		used, most := map[int]int64{}, int64(7) // in a second; and the largest limit that was in force in it
		long := map[int]int64{}
		seconds := 0
		ask := func() {
			for key := range names {
				for i := range 2 {
					l := all[r.IntN(len(all))]
					if owner, self := l.Key(fmt.Sprint(key)).Owner(); !self && i == 0 {
						l = by[owner]
					}
					n := l.Key(fmt.Sprint(key)).TryTake(1 + r.Int64N(4)).N()
					used[key], long[key] = used[key]+n, long[key]+n
				}
				if used[key] > most || long[key] > 25 {
					t.Fatalf("second %d: key %d has %d permits, %d in 5 s", seconds, key, used[key], long[key])
				}
			}
		}
		for seconds = range 60 {
			if clear(used); seconds%5 == 0 {
				clear(long)
			}
			most = p.Keys.Limits[0].Permits
			for quarter := range 4 {
				if quarter == 2 {
					switch seconds {
					case 7, 19, 31:
						join(fleet.Join())
					case 12, 38:
						fleet.Instances()[seconds%4].Leave()
					case 23:
						fleet.Instances()[1].Kill()
					case 27, 43:
						p.Keys.Limits = slices.Clone(p.Keys.Limits)
						p.Keys.Limits[0].Permits = 10 - p.Keys.Limits[0].Permits%7
						if err := fleet.Set(p); err != nil {
							t.Fatal(err)
						}
						most = max(most, p.Keys.Limits[0].Permits)
					}
				}
				ask()
				time.Sleep(250 * time.Millisecond)
			}
			if seconds == 4 {
				sum := int64(0)
				for _, n := range long {
					sum += n
				}
				if most := 25 * int64(names); sum < most*4/5 {
					t.Errorf("%d permits of %d were issued in 5 s", sum, most)
				}
			}
		}
	})
}
