package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/internal/testkit/opencalls"
)

// placeOrKey are calls that take a key's permit and a place in flight at once, in two instances, or one of them only.
type placeOrKey struct {
	calls, keys *LongFleet
	lasts       time.Duration // a call
	maxWait     time.Duration
	both        bool // some calls take places of two kinds, and may hold one while they wait for the other
	to          opencalls.Provider
	running     sync.WaitGroup

	mu   sync.Mutex
	made map[string]int // calls, by the name of whoever made them
}

func newPlaceOrKey(t *testing.T, places, limits string, lasts time.Duration) *placeOrKey {
	t.Helper()
	return &placeOrKey{
		calls: NewLongFleet(t, policyOf(t, places), 2, false, 10*time.Millisecond),
		keys:  NewLongFleet(t, *policyByKey(t, limits), 2, false, 10*time.Millisecond),
		lasts: lasts, maxWait: 2 * time.Second, made: map[string]int{},
	}
}

// callers has n callers of an instance make calls under a name, one after the other. The limiters are what each takes from.
func (f *placeOrKey) callers(ctx context.Context, t *testing.T, name string, n int, takes ...Taker) {
	wants := map[Taker]int64{}
	for _, l := range takes {
		wants[l] = 1
	}
	for range n {
		f.running.Go(func() {
			for ctx.Err() == nil {
				permits, err := TakeAll(ctx, f.maxWait, wants)
				if errors.Is(err, ErrLimited) {
					continue
				} else if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				flies := false
				for _, p := range permits {
					flies = flies || p.InFlight()
					if !p.Valid(0) {
						t.Errorf("%s has a permit until %v at %v", name, p.Until(), time.Now())
					}
				}
				f.mu.Lock()
				f.made[name]++
				f.mu.Unlock()
				if !flies {
					continue
				}
				f.to.Begin()
				time.Sleep(f.lasts)
				f.to.End()
				for _, p := range permits {
					p.Done()
				}
			}
		})
	}
}

// during returns how many calls were made by name in some seconds from now on, and how many were open on average, of which
// it looks every millisecond. Then each place under way is that of an open call.
func (f *placeOrKey) during(t *testing.T, seconds int) (made map[string]int, open float64) {
	t.Helper()
	made, sum := map[string]int{}, 0
	count := func(sign int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for name, n := range f.made {
			made[name] += sign * n
		}
	}
	count(-1)
	for range 1000 * seconds {
		time.Sleep(time.Millisecond)
		synctest.Wait()
		n, _, _ := f.to.Counts()
		sum += n
		if used := f.calls.Limiters[0].Status().Limits[0].Used + f.calls.Limiters[1].Status().Limits[0].Used; used != int64(n) && !f.both {
			t.Errorf("%d places are under way, with %d open calls", used, n)
			break
		}
	}
	count(1)
	return made, float64(sum) / float64(1000*seconds)
}

func (f *placeOrKey) end(stop func()) {
	stop()
	f.running.Wait()
	f.calls.End()
	f.keys.End()
}

// Callers that wait for a busy key hold no place that others could use: each key has what its limit allows, or what its
// callers can make. So it is where more callers than there are places have a key's permit as a window begins.
func TestCallersOfABusyKeyHoldNoPlaces(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		places, limits string
		callers        []int // of each key, in each instance
	}{
		{"100 inflight hold=2m", "14/s,5000/h sliding", []int{8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 1}},
		{"10 inflight hold=20s", "14/s", []int{20, 1}},
		{"10 inflight hold=20s", "14/s", []int{6, 4, 9, 2}},
		{"2 inflight hold=2m", "14/s", []int{20, 1}},
	} {
		synctest.Test(t, func(t *testing.T) {
			const seconds, lasts, each = 10, 30 * time.Millisecond, 7
			f := newPlaceOrKey(t, c.places, c.limits, lasts)
			ctx, stop := context.WithCancel(t.Context())
			for i, l := range f.keys.Limiters {
				for k, n := range c.callers {
					f.callers(ctx, t, fmt.Sprintf("key %d at %d", k, i), n, f.calls.Limiters[i], l.Key(fmt.Sprint(k)))
				}
			}
			f.during(t, 5)
			made, open := f.during(t, seconds)
			for name, n := range made {
				if n < seconds*each*9/10 || n > (seconds+1)*each {
					t.Errorf("%s, %v callers: %s made %d calls in %d s, with %.1f open on average", c.places, c.callers, name, n, seconds, open)
				}
			}
			f.end(stop)
			if limit := int(policyOf(t, c.places).Limits[0].Permits); t.Failed() {
				return
			} else if _, most, _ := f.to.Counts(); most > limit {
				t.Errorf("%d calls were open at once", most)
			}
		})
	}
}

// Where calls wait for places, nothing is idle while they do, each of them has its turn, and they use up no more of their
// keys' hours than calls are made.
func TestPlacesThatCallsOfKeysWaitFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const seconds, lasts, places, keys = 30, 900 * time.Millisecond, 6, 3
		f := newPlaceOrKey(t, "6 inflight hold=2m", "14/s,5000/h sliding", lasts)
		f.maxWait = time.Minute
		ctx, stop := context.WithCancel(t.Context())
		for i, l := range f.keys.Limiters {
			for k := range keys {
				f.callers(ctx, t, fmt.Sprintf("key %d at %d", k, i), 1+4*k, f.calls.Limiters[i], l.Key(fmt.Sprint(k)))
			}
		}
		f.during(t, 5)
		issued := func() (n int64) {
			for _, l := range f.keys.Limiters {
				n += l.Status().Issued
			}
			return n
		}
		before := issued()
		made, open := f.during(t, seconds)
		if open < 0.95*places {
			t.Errorf("%.2f of %d places are used", open, places)
		}
		all := int64(0)
		for name, n := range made {
			if all += int64(n); n == 0 {
				t.Errorf("%s made no call: %v", name, made)
			}
		}
		if n := issued() - before; n > all+places {
			t.Errorf("%d permits of keys for %d calls", n, all)
		}
		f.end(stop)
		if _, most, _ := f.to.Counts(); most > places {
			t.Errorf("%d calls were open at once", most)
		}
	})
}

// Calls that take several limits are served beside callers that wait for each one of them all the time: for a key and for
// places, and for places of two kinds, of which each may be the one that comes first.
func TestTakeAllBesideCallersOfEach(t *testing.T) {
	t.Parallel()
	for _, other := range []string{"", "3 inflight hold=20s", "1 inflight hold=20s"} {
		synctest.Test(t, func(t *testing.T) {
			const lasts = 30 * time.Millisecond
			f := newPlaceOrKey(t, cmp.Or(other, "4 inflight hold=20s"), "14/s", lasts)
			ctx, stop := context.WithCancel(t.Context())
			places, second := f.calls.Limiters[0], Taker(f.keys.Limiters[0].Key("k"))
			f.maxWait = time.Minute
			if f.both = other != ""; f.both {
				second = opened(t, "other", other)
			}
			f.callers(ctx, t, "the first", 20, places)
			f.callers(ctx, t, "the second", 8, second)
			f.callers(ctx, t, "both", 3, places, second)
			f.during(t, 5)
			if made, _ := f.during(t, 10); made["both"] < 10 {
				t.Errorf("%s: %v", cmp.Or(other, "a key"), made)
			}
			f.end(stop)
		})
	}
}

// A call that waits for a place holds nothing that it had at once. A call whose place came when its key was used up gives
// that up, and waits for the key. What it has waited for it holds while it waits for a place, but not to the very end of
// the window.
func TestWhatTakeAllHoldsWhileItWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls, requests := opened(t, "calls", "1 inflight hold=1m"), opened(t, "requests", "2/s")
		place := calls.TryTake(1)
		var permits map[Taker]Permit
		served := make(chan error, 1)
		go func() {
			var err error
			permits, err = TakeAll(t.Context(), 10*time.Second, map[Taker]int64{calls: 1, requests: 2})
			served <- err
		}()
		had := func(places, more int64) {
			t.Helper()
			synctest.Wait()
			if n := requests.TryTake(2).N(); n != more {
				t.Errorf("at %v: %d requests are left, want %d", time.Now(), n, more)
			}
			if place = calls.TryTake(1); place.N() != places {
				t.Errorf("at %v: %d places are left, want %d", time.Now(), place.N(), places)
			}
		}
		first := place
		had(0, 2) // it waits for the place
		first.Done()
		had(1, 0) // it waits for requests
		first = place
		time.Sleep(time.Second)
		had(0, 0) // it has requests, and waits for the place
		time.Sleep(time.Second - 50*time.Millisecond)
		had(0, 2)
		time.Sleep(100 * time.Millisecond)
		first.Done()
		if err := <-served; err != nil || !permits[calls].InFlight() || permits[requests].N() != 2 || !permits[requests].Valid(900*time.Millisecond) {
			t.Errorf("%v, %v", permits, err)
		}
		if n := calls.Status().Refused + requests.Status().Refused; n != 7 {
			t.Errorf("%d permits were refused, beside those that the test has asked for", n-7)
		}
	})
}

// A place that it holds while it waits for another one it keeps when it gives up what would be over with its window.
func TestTakeAllHoldsAPlaceBeyondAWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b, requests := opened(t, "a", "1 inflight hold=1m"), opened(t, "b", "1 inflight hold=1m"), opened(t, "requests", "2/s")
		requests.TryTake(2)
		atA, atB := a.TryTake(1), b.TryTake(1)
		var permits map[Taker]Permit
		served := make(chan error, 1)
		go func() {
			var err error
			permits, err = TakeAll(t.Context(), 10*time.Second, map[Taker]int64{a: 1, b: 1, requests: 2})
			served <- err
		}()
		// change has the call get a place that the test held. If the call gives it up at once, the test has it again.
		change := func(from *Permit, of *Limiter, given int64) (got Permit) {
			t.Helper()
			time.Sleep(100 * time.Millisecond)
			from.Done()
			synctest.Wait()
			if n := requests.TryTake(1).N(); n != 0 {
				t.Errorf("at %v: requests are not held", time.Now())
			}
			if got = of.TryTake(1); got.N() != given {
				t.Errorf("at %v: %d places of %s are left, want %d", time.Now(), got.N(), of.core.provider, given)
			}
			return got
		}
		time.Sleep(time.Second) // it has requests
		atA = change(&atA, a, 1)
		atB = change(&atB, b, 1)
		change(&atA, a, 0) // it has had each once, and holds this one
		time.Sleep(650 * time.Millisecond)
		synctest.Wait()
		if n := requests.TryTake(2).N(); n != 2 {
			t.Errorf("at %v: %d requests are left, want 2", time.Now(), n)
		}
		if n := a.TryTake(1).N(); n != 0 {
			t.Errorf("at %v: the place is not held", time.Now())
		}
		time.Sleep(100 * time.Millisecond)
		atB.Done()
		if err := <-served; err != nil || !permits[a].InFlight() || !permits[b].InFlight() || !permits[requests].Valid(900*time.Millisecond) {
			t.Errorf("%v, %v", permits, err)
		}
	})
}
