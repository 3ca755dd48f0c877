package consumer

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/testkit/opencalls"
	"github.com/quotient-limiter/quotient/quota"
)

// At most so many calls are open as the limit says, those that forget Done included: they end at Until. All
// callers have their turn, and nothing is idle while some wait and nobody has forgotten a call.
func TestCallsInFlight(t *testing.T) {
	t.Parallel()
	for _, forgets := range []int{0, 5} { // of 100 calls
		synctest.Test(t, func(t *testing.T) {
			const limit, callers, hold = 20, 60, 8 * time.Second
			l := open(t, Fixed(policyOf(t, "20 inflight hold=8s")), Options{})
			var to opencalls.Provider
			var forgotten atomic.Int64
			var all sync.WaitGroup
			for i := range callers {
				r := rand.New(rand.NewPCG(7, uint64(i)))
				all.Go(func() {
					for range 50 {
						p, err := l.Take(t.Context(), 1, Forever)
						if err != nil {
							t.Error(err)
							return
						}
						to.Begin()
						if left := time.Until(p.Until()); left < hold || left > hold+hold/8 {
							t.Errorf("a call may take %v", left)
						}
						if r.IntN(100) < forgets {
							forgotten.Add(1)
							time.Sleep(time.Until(p.Until()) - 1)
							to.End()
							continue
						}
						time.Sleep(time.Duration(r.Int64N(int64(hold))))
						to.End()
						p.Done()
						p.Done() // counts once
					}
				})
			}
			if forgets == 0 {
				for range 200 {
					time.Sleep(100*time.Millisecond + 1)
					synctest.Wait()
					if n, _, _ := to.Counts(); n != limit {
						t.Errorf("%d calls are open, and %d wait", n, l.Status().Waiting)
					}
				}
			}
			all.Wait()
			if _, most, made := to.Counts(); most > limit || made != callers*50 {
				t.Errorf("%d calls, %d open at once", made, most)
			}
			time.Sleep(hold + hold/2 + time.Second)
			if n := l.TryTake(100).N(); n != limit {
				t.Errorf("%d can begin after all have ended", n)
			}
			if n, told := l.Status().Forgotten, l.core.Report(l.core.clock.Now()).Forgotten; n != forgotten.Load() || told != n {
				t.Errorf("%d calls are said to be forgotten, %d in the report, and %d were", n, told, forgotten.Load())
			}
		})
	}
}

// Who is refused is told that the calls are taken, and not when one ends. Release and Settle end calls too.
func TestCallsInFlightAreRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := open(t, Fixed(policyOf(t, "3 inflight hold=10m")), Options{})
		take := func() Permit {
			t.Helper()
			p, err := l.Take(t.Context(), 1, 0)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		a, b, c := take(), take(), take()
		_, err := l.Take(t.Context(), 1, 0)
		var limited LimitError
		if !errors.As(err, &limited) || limited.Reason != ReasonInFlight || !limited.RetryAt.IsZero() || !strings.Contains(err.Error(), "all of 3 inflight hold=10m are taken") {
			t.Errorf("%v, %v", err, limited.RetryAt)
		}
		if d := l.Delay(1); d != Forever {
			t.Errorf("a delay of %v", d)
		}
		began := time.Now()
		if err := l.Acquire(t.Context(), time.Minute); !errors.Is(err, ErrLimited) || time.Since(began) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if _, err := l.Take(t.Context(), 4, Forever); !errors.Is(err, ErrTooLarge) {
			t.Error(err)
		}
		time.Sleep(4 * time.Minute) // into another part
		if use := l.Status().Limits; len(use) != 1 || use[0].Used != 3 || use[0].Left != 0 || use[0].Limit.String() != "3 inflight hold=10m" {
			t.Errorf("%+v", use)
		}
		if !a.Release() || a.Release() {
			t.Error("a call that is released has ended, once")
		}
		a = take()
		if err := b.Settle(1000); err != nil {
			t.Error(err)
		}
		if err := b.Settle(1); err != nil {
			t.Error(err)
		}
		b = take()
		for _, p := range []Permit{a, c, a} {
			time.Sleep(2 * time.Minute)
			p.Done()
		}
		if n := l.TryTake(9).N(); n != 2 {
			t.Errorf("%d can begin, and one is under way", n)
		}
		b.Done()
		if n := l.TryTake(9).N(); n != 1 {
			t.Errorf("%d can begin", n)
		}
	})
}

// A permit's context ends by its own limiter's clock at Until, and by what ends the call. Under a limit of
// another kind, and in shadow mode, there is nothing to end.
func TestBegin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := open(t, Fixed(policyOf(t, "1 inflight hold=8s")), Options{})
		for _, patience := range []time.Duration{time.Second, time.Minute} {
			p, err := l.Take(t.Context(), 1, 0)
			if err != nil || !p.InFlight() {
				t.Fatal(err)
			}
			ctx, done := p.Begin(t.Context())
			select {
			case <-ctx.Done():
				if err := context.Cause(ctx); !time.Now().Equal(p.Until()) || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "as long as the limit's hold allows") {
					t.Errorf("at %v, until %v: %v", time.Now(), p.Until(), err)
				}
			case <-time.After(patience):
			}
			if n := l.TryTake(1).N(); n != 0 {
				t.Error("the call has not ended")
			}
			done()
			done()
			if ctx.Err() == nil {
				t.Error("the context has not ended")
			}
		}
		other := open(t, Fixed(policyOf(t, "1/s")), Options{})
		for _, p := range []Permit{{}, other.TryTake(1)} {
			if ctx, done := p.Begin(t.Context()); ctx != t.Context() || p.InFlight() {
				t.Error("a call of a rate limit has a context of its own")
			} else {
				done()
			}
		}
	})
}

// A call that goes to two providers at once takes a permit of each, and Done is for both.
func TestCallsInFlightBesideRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls, requests := opened(t, "calls", "2 inflight hold=1m"), opened(t, "requests", "100/s")
		both := map[Taker]int64{calls: 1, requests: 1}
		for range 3 {
			first, err := TakeAll(t.Context(), 0, both)
			if err != nil {
				t.Fatal(err)
			}
			second, err := TakeAll(t.Context(), 0, both)
			if err != nil {
				t.Fatal(err)
			}
			issued := requests.Status().Issued
			if _, err := TakeAll(t.Context(), time.Second, both); !errors.Is(err, ErrLimited) {
				t.Errorf("a third call: %v", err)
			}
			if n := requests.Status().Issued; n != issued {
				t.Errorf("%d requests are spent for a call that was refused", n-issued)
			}
			for _, permits := range []map[Taker]Permit{first, second} {
				for _, p := range permits {
					p.Done()
				}
			}
		}
		if n := requests.Status().Issued; n != 6 {
			t.Errorf("%d requests", n)
		}
	})
}

// The same of a fleet: never more, whatever is forgotten and whoever is killed; nothing is idle for long, and
// whoever asks has an equal part, beside callers that never pause. After a kill its calls' places come back within
// one and a half holds.
func TestCallsInFlightOfAFleet(t *testing.T) {
	t.Parallel()
	kinds := []int{0, 3, -1}
	if testing.Short() {
		kinds = kinds[1:2]
	}
	for _, forgets := range kinds { // of 100 calls; -1: none, and they are short, so that few end in another part
		synctest.Test(t, func(t *testing.T) {
			const limit, callers = 12, 14
			hold, most := 8*time.Second, 4*time.Second
			if forgets < 0 {
				hold, most = 2*time.Minute, time.Second
			}
			policy := policyOf(t, "12 inflight hold=8s")
			policy.Limits[0].Window = hold
			bank, sinks, all := longFleet(t, withDefaults(policy), "a", "b", "c")
			bank.told = sinks
			dead := make([]atomic.Bool, len(all))
			var to opencalls.Provider
			calls := make([]atomic.Int64, len(all))
			counts := func(from []int64) (all []int64) { // since then
				for i := range calls {
					all = append(all, calls[i].Load()-from[i])
				}
				return all
			}
			none := make([]int64, len(all))
			var running sync.WaitGroup
			ctx, stop := context.WithCancel(t.Context())
			call := func(i int, r *rand.Rand) {
				p, err := all[i].Take(ctx, 1, Forever)
				if err != nil || dead[i].Load() {
					return
				}
				to.Begin()
				calls[i].Add(1)
				forgotten := r.IntN(100) < forgets
				if !forgotten {
					time.Sleep(time.Duration(r.Int64N(int64(most))))
				}
				if forgotten || dead[i].Load() { // its connection may be open still
					time.Sleep(time.Until(p.Until()) - 1)
				}
				if to.End(); !forgotten && !dead[i].Load() {
					p.Done()
				}
			}
			starts := func(i int) {
				for c := range callers {
					r := rand.New(rand.NewPCG(uint64(i), uint64(c)))
					running.Go(func() {
						for ctx.Err() == nil && !dead[i].Load() {
							call(i, r)
						}
					})
				}
			}
			play := func(d time.Duration) (share float64) {
				sum, n := 0, 0
				for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
					var alive []*stub
					for i, s := range sinks {
						if !dead[i].Load() {
							s.prove()
							alive = append(alive, s)
						}
					}
					bank.serve(alive...)
					open, _, _ := to.Counts()
					sum, n = sum+open, n+1
				}
				return float64(sum) / float64(n) / float64(limit)
			}
			starts(0)
			play(time.Second)
			if share := play(20 * time.Second); share < 0.95 && forgets <= 0 {
				t.Errorf("one instance uses %.3f", share)
			}
			starts(1)
			began := time.Now()
			for calls[1].Load() == 0 && time.Since(began) < time.Minute {
				play(100 * time.Millisecond)
			}
			t.Logf("forgets %d: the second instance has its first call after %v", forgets, time.Since(began))
			starts(2)
			play(10 * time.Second)
			before := counts(none)
			share := play(60 * time.Second)
			made := counts(before)
			t.Logf("forgets %d: three use %.3f, %v calls, %d writes", forgets, share, made, bank.writes)
			if least := slices.Min(made); share < 0.9 && forgets <= 0 || least < slices.Max(made)*2/3 {
				t.Errorf("three use %.3f, calls %v", share, made)
			}
			dead[0].Store(true)
			play(hold + hold/2)
			before = counts(none)
			if share := play(20 * time.Second); share < 0.9 && forgets <= 0 {
				t.Errorf("after a kill the others use %.3f, calls %v", share, counts(before))
			}
			var said int64
			for i, l := range all {
				if !dead[i].Load() {
					said += l.Status().Forgotten
				}
			}
			if forgets <= 0 && said > 0 || forgets > 0 && said == 0 {
				t.Errorf("%d calls are said to be forgotten", said)
			}
			stop()
			for i := range dead {
				dead[i].Store(true)
			}
			running.Wait()
			if _, most, _ := to.Counts(); most > limit {
				t.Errorf("%d calls were open at once", most)
			}
		})
	}
}

// Calls in flight are not told of as a rate is: an instance has no share of them, whatever their hold.
func TestALogOfCallsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for limits, want := range map[string]string{
			"5 inflight hold=10s": ` limit="5 inflight hold=10s" in_hand=0 instances=2 revision=1` + "\n",
			"20/2m sliding":       ` limit="20/2m sliding" in_hand=0 instances=2 revision=1` + "\n",
			"0/s":                 ` total=0 share=0 instances=2 revision=1 do="nothing, if fewer permits than instances are meant; else raise the limit"` + "\n",
		} {
			var text bytes.Buffer
			s := &stub{clock: clock.New()}
			l := open(t, s.source(), Options{Logger: slog.New(slog.NewTextHandler(&text, nil))})
			s.tell(1, withDefaults(policyOf(t, limits)), 2)
			time.Sleep(5 * time.Second)
			s.prove()
			l.core.Report(s.clock.Now())
			if _, line, _ := strings.Cut(text.String(), "was=joining"); line != want {
				t.Errorf("%s: %s", limits, text.String())
			}
		}
		behind := LimitError{Provider: "p", Reason: ReasonQueue, Ahead: 1, First: 3, Total: 5, Share: 2, Window: quota.Window{Length: 10 * time.Second}, InFlight: true}
		if got := behind.Error(); got != "consumer: p: no permit: 1 caller is ahead, and the first wants 3" {
			t.Error(got)
		}
	})
}

// A place in hand of an instance that does not need it, or that comes back there, is had by a caller that waits
// elsewhere as soon as etcd has told both. So is one that a caller wants who does not wait, when it asks again.
func TestAPlaceMoves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bank, sinks, all := longFleet(t, withDefaults(policyOf(t, "8 inflight hold=10m")), "a", "b")
		bank.told = sinks
		serve := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
				for _, s := range sinks {
					s.prove()
				}
				bank.serve(sinks...)
			}
		}
		var taken []Permit
		for range 7 { // and one is kept in reserve
			p, err := all[0].Take(t.Context(), 1, 0)
			for ; err != nil; p, err = all[0].Take(t.Context(), 1, 0) {
				serve(time.Second)
			}
			taken = append(taken, p)
		}
		serve(2 * time.Second)
		if use := all[0].Status().Limits[0]; use.Used != 7 || use.Left != 1 {
			t.Errorf("%+v", use)
		}
		for i := range 4 {
			had := make(chan time.Time, 1)
			go func() {
				if _, err := all[1].Take(t.Context(), 1, time.Minute); err != nil {
					t.Error(err)
				}
				had <- time.Now()
			}()
			serve(20 * time.Millisecond * time.Duration(100*min(i, 1)+1)) // it asks, and then once more
			at := time.Now()
			if i > 0 {
				taken[i].Done()
			}
			serve(40 * time.Millisecond)
			select {
			case got := <-had:
				t.Logf("place %d moves in %v", i, got.Sub(at))
			default:
				t.Errorf("place %d does not move in time", i)
				serve(10 * time.Second)
				<-had
			}
		}
		if all[1].TryAcquire() {
			t.Error("nobody has ended a call")
		}
		serve(20 * time.Millisecond)
		taken[0].Done()
		serve(40 * time.Millisecond)
		if !all[1].TryAcquire() {
			t.Error("it asked, and a place is free")
		}
	})
}

// Who waits for a place while etcd is away, and who comes then, is told that and not that all are taken: others may have
// ended their calls. It is the same whether etcd refuses or is silent. An instance whose own calls have all
// places knows that they are taken.
func TestNoPlaceWithoutEtcd(t *testing.T) {
	t.Parallel()
	for _, silent := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			bank, sinks, all := longFleet(t, withDefaults(policyOf(t, "4 inflight hold=40s")), "a", "b")
			bank.told = sinks
			serve := func(d time.Duration) {
				for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
					for _, s := range sinks {
						if !bank.away {
							s.prove()
						}
						s.sink.Report(s.clock.Now())
					}
					if !bank.away || !silent {
						bank.serve(sinks...)
					}
				}
			}
			const taken, away = "all of 4 inflight hold=40s are taken", "none in hand of 4 inflight hold=40s, and no more can be fetched: etcd has not answered"
			is := func(err error, want string) {
				t.Helper()
				limited, _ := errors.AsType[LimitError](err)
				stale := want == away
				if !strings.Contains(err.Error(), want) || errors.Is(err, ErrStale) != stale || (limited.Reason == ReasonStale) != stale || limited.RetryAt.IsZero() != (want == taken) {
					t.Errorf("silent %v: %v\nwant %s", silent, err, want)
				}
			}
			var had []Permit
			for range 4 {
				p, err := all[0].Take(t.Context(), 1, 0)
				for ; err != nil; p, err = all[0].Take(t.Context(), 1, 0) {
					serve(time.Second)
				}
				had = append(had, p)
			}
			refused := make(chan error, 6)
			waits := func(l *Limiter) {
				for range cap(refused) {
					go func() {
						_, err := l.Take(t.Context(), 1, 25*time.Second)
						refused <- err
					}()
				}
				serve(time.Second)
				bank.away = true
			}
			each := func(want string) {
				serve(30 * time.Second)
				for range cap(refused) {
					is(<-refused, want)
				}
			}
			polls := func(l *Limiter, want string) {
				t.Helper()
				_, err := l.Take(t.Context(), 1, 0)
				is(err, want)
			}
			polls(all[1], taken)
			bank.away = true
			polls(all[1], taken) // as far as is known yet
			serve(4 * time.Second)
			polls(all[1], away)
			bank.away = false
			serve(2 * time.Second)
			polls(all[1], taken)
			waits(all[1])
			each(away)
			polls(all[1], away)
			polls(all[0], taken)
			for _, p := range had {
				p.Done()
			}
			polls(all[0], away) // these were of another part
			bank.away = false
			serve(time.Second)
			if all[1].TryTake(4).N() == 0 { // what is in hand for those who have waited
				t.Error("no place after etcd is back")
			}
			polls(all[1], "are left and more are being fetched")
		})
	}
}

// Calls that nobody ends are counted once they count no more, and a log says so at most once a minute.
func TestForgottenCallsAreLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		l := open(t, Fixed(policyOf(t, "3 inflight hold=8s")), Options{Logger: slog.New(slog.NewTextHandler(&text, nil))})
		forget := func(n int64, lines int) {
			t.Helper()
			before := l.Status().Forgotten
			for range n {
				if l.TryTake(1).N() != 1 {
					t.Error("a place is missing")
				}
			}
			p := l.TryTake(1)
			time.Sleep(7 * time.Second)
			p.Done()
			if got := l.Status().Forgotten - before; got != 0 {
				t.Errorf("%d calls are forgotten that may last", got)
			}
			time.Sleep(6 * time.Second)
			l.core.Report(l.core.clock.Now())
			if got := l.Status().Forgotten - before; got != n {
				t.Errorf("%d calls are forgotten, want %d", got, n)
			}
			if got := strings.Count(text.String(), "nobody has said that calls ended"); got != lines {
				t.Errorf("%d lines, want %d: %s", got, lines, &text)
			}
		}
		forget(2, 1)
		forget(1, 1)
		time.Sleep(time.Minute)
		l.core.Report(l.core.clock.Now())
		forget(2, 2)
		if !strings.Contains(text.String(), "calls=2") || !strings.Contains(text.String(), "calls=1") {
			t.Error(text.String())
		}
	})
}
