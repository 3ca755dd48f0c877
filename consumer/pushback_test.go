package consumer

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/quota"
)

// ofFleet returns a limiter of one of n instances, with shares.
func ofFleet(t *testing.T, policy quota.Policy, n int) (*stub, *Limiter) {
	t.Helper()
	s := &stub{clock: clock.New()}
	l := open(t, s.source(), Options{})
	if policy.Limits == nil {
		policy.Limits = policyOf(t, "100/s").Limits
	}
	policy.Outage = quota.OutageHold
	s.tell(1, withDefaults(policy), n)
	time.Sleep(5 * time.Second)
	s.prove()
	if err := l.Acquire(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	return s, l
}

// asked returns the ask that the limiter has for its source; nil if there is none.
func asked(s *stub) *protocol.Ask {
	select {
	case a := <-s.sink.Pushed():
		return &a
	default:
		return nil
	}
}

func TestThrottledBindsThisInstanceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := ofFleet(t, quota.Policy{}, 4)
		start := time.Now()
		l.Throttled(10*time.Second, "429 from a")
		l.Throttled(2*time.Second, "429 from b") // answers come in any order
		var limited LimitError
		if err := l.Acquire(t.Context(), 9*time.Second); !errors.As(err, &limited) || limited.Reason != ReasonPause || limited.RetryAt.Sub(start) != 10*time.Second {
			t.Errorf("refused until %v: %v", limited.RetryAt.Sub(start), err)
		}
		if st := l.Status(); st.PausedUntil.Sub(start) != 10*time.Second || st.PauseReason != "429 from a" || st.State != quota.StatePausing || st.Problem != "" {
			t.Errorf("%v until %v: %q, %q", st.State, st.PausedUntil.Sub(start), st.PauseReason, st.Problem)
		}
		if a := asked(s); a == nil || a.Until.Sub(start) != 10*time.Second || !a.At.Equal(start) || a.Alone {
			t.Errorf("asked %+v", a)
		}
		if err := l.Wait(t.Context()); err != nil || time.Since(start) != 10*time.Second {
			t.Errorf("served after %v, %v", time.Since(start), err)
		}
		if st := l.Status(); !st.PausedUntil.IsZero() || st.PauseReason != "" {
			t.Errorf("afterwards: until %v: %q", st.PausedUntil, st.PauseReason)
		}
		l.Throttled(48*time.Hour, "429")
		if got := time.Until(l.Status().PausedUntil); got != time.Minute {
			t.Errorf("a pause of days became %v", got)
		}
	})
}

// ask is one that counts alone, for d from now on.
func ask(by string, d time.Duration) protocol.Ask {
	return protocol.Ask{By: by, At: time.Now(), Until: time.Now().Add(d), Why: "429", Alone: true}
}

// throttle puts a throttle of these asks into the view; without any it takes it out, as an
// operator does.
func (s *stub) throttle(revision int64, asks ...protocol.Ask) {
	c := protocol.Change{Revision: revision, ThrottleDeleted: asks == nil}
	if asks != nil {
		c.Throttle = &protocol.Throttle{Asks: asks}
	}
	s.sink.Apply(s.clock.Now(), c)
}

// What another instance was asked for holds this one back, and ends when an operator ends it.
func TestABackoffOfTheFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := ofFleet(t, quota.Policy{}, 4)
		start := time.Now()
		served := make(chan time.Duration, 1)
		s.throttle(2, ask("b", 30*time.Second), ask("stranger", 50*time.Second))
		go func() {
			if err := l.Wait(t.Context()); err != nil {
				t.Error(err)
			}
			served <- time.Since(start)
		}()
		time.Sleep(5 * time.Second)
		s.throttle(3, ask("c", time.Second))
		if st := l.Status(); st.Waiting != 1 || st.PauseReason != "b: 429 (said by 1 of 4 instances)" || st.PausedUntil.Sub(start) != 30*time.Second {
			t.Errorf("%d wait until %v: %q", st.Waiting, st.PausedUntil.Sub(start), st.PauseReason)
		}
		l.Resume() // that of the application, of which there is none
		time.Sleep(5 * time.Second)
		l.Throttled(20*time.Second, "429") // this instance too
		s.throttle(4)
		if got := <-served; got != 10*time.Second {
			t.Errorf("served after %v, want 10s", got)
		}
		l.PauseUntil(time.Now().Add(7 * time.Second))
		s.throttle(5, ask("b", time.Second))
		s.throttle(6)
		if got := time.Until(l.Status().PausedUntil); got != 7*time.Second {
			t.Errorf("the application's own pause is left: %v", got)
		}
	})
}

// A pause is bounded from when it was asked for, however often its throttle is told, listed
// or written anew. One that cannot be read ends none, one that is missing ends them.
func TestABackoffThatIsToldAgainIsNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := ofFleet(t, quota.Policy{}, 4)
		start, days := time.Now(), ask("b", 72*time.Hour)
		view := protocol.View{Policy: withDefaults(quota.Policy{Limits: policyOf(t, "100/s").Limits})}
		for _, id := range []string{"me", "b", "c", "d"} {
			view.Instances = append(view.Instances, protocol.Instance{ID: id})
		}
		list := func(revision int64, asks ...protocol.Ask) {
			v := view
			if v.Revision = revision; asks != nil {
				v.Throttle = &protocol.Throttle{Asks: asks}
			}
			s.sink.Reset(s.clock.Now(), "me", v)
		}
		for _, step := range []struct {
			what string
			do   func()
			want time.Duration // since the beginning; 0: nobody pauses
		}{
			{"written", func() { s.throttle(2, days) }, time.Minute},
			{"written anew", func() { s.throttle(3, days, ask("c", time.Second)) }, time.Minute},
			{"told again", func() { s.throttle(3, ask("c", 50*time.Second)) }, time.Minute},
			{"listed", func() { list(4, days) }, time.Minute},
			{"cannot be read", func() { s.throttle(5, []protocol.Ask{}...) }, time.Minute},
			{"listed again", func() { list(6, days) }, time.Minute},
			{"listed with another one", func() { list(7, ask("c", 72*time.Hour)) }, 66 * time.Second},
			{"missing in a listing", func() { list(8) }, 0},
			{"an old one", func() { s.throttle(7, ask("c", 50*time.Second)) }, 0},
			{"listed after a restore", func() { list(2, days) }, time.Minute},
			{"ended", func() { s.throttle(9) }, 0},
			{"listed when it is over", func() { time.Sleep(time.Minute); list(2, days) }, 0},
			{"by one that left", func() { s.throttle(10, ask("e", time.Minute)) }, 0},
		} {
			step.do()
			got := time.Duration(0)
			if until := l.Status().PausedUntil; !until.IsZero() {
				got = until.Sub(start)
			}
			if got != step.want {
				t.Errorf("%s: until %v, want %v", step.what, got, step.want)
			}
			time.Sleep(time.Second)
		}
	})
}

func TestAPolicyThatHoldsBackOneInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := ofFleet(t, quota.Policy{Throttling: quota.Throttling{Backoff: quota.BackoffInstance, BackoffMax: time.Hour}}, 4)
		l.Throttled(30*time.Minute, "429")
		if got := time.Until(l.Status().PausedUntil); got != 30*time.Minute || asked(s) != nil {
			t.Errorf("paused for %v, and others are asked", got)
		}
	})
}

// A stray 429 without Retry-After pauses nobody; more than a tenth of the calls does.
func TestRefusalsWithoutRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := ofFleet(t, quota.Policy{}, 1)
		for second := range 20 {
			for range max(0, 10-second) / 4 {
				l.Throttled(0, "429")
			}
			if got := l.TryTake(50).N(); got != 50 || asked(s) != nil {
				t.Fatalf("second %d: %d permits of 50, or others are asked", second, got)
			}
			time.Sleep(time.Second)
			s.prove()
			s.sink.Report(s.clock.Now())
		}
		for range 8 { // more than a tenth of those of the last second
			l.Throttled(-1, "429")
		}
		if a := asked(s); a == nil || !a.Alone || time.Until(l.Status().PausedUntil) != time.Second {
			t.Errorf("asked %+v, paused until %v", a, l.Status().PausedUntil)
		}
	})
}

// Under a warm-up the share returns by steps after a pause, also after one that an
// operator ends.
func TestAPauseEndsWithAWarmUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := ofFleet(t, quota.Policy{Release: quota.Release{WarmUp: 4 * time.Second}}, 1)
		share := func() (permits []int64) {
			for range 5 {
				time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
				s.prove()
				permits = append(permits, l.TryTake(1000).N())
			}
			return permits
		}
		time.Sleep(10 * time.Second)
		s.prove()
		want := []int64{33, 50, 66, 83, 100}
		l.Throttled(time.Until(time.Now().Truncate(time.Second).Add(3*time.Second)), "429")
		time.Sleep(2500 * time.Millisecond)
		if got := share(); !slices.Equal(got, want) {
			t.Errorf("after the pause %v, want %v", got, want)
		}
		l.Throttled(time.Minute, "429")
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
		s.throttle(2, ask("b", time.Second))
		s.throttle(3)
		if got, want := share(), []int64{50, 66, 83, 100, 100}; !slices.Equal(got, want) {
			t.Errorf("after its early end %v, want %v", got, want)
		}
		l.PauseUntil(time.Now().Add(time.Millisecond)) // the application's own
		time.Sleep(time.Millisecond)
		if got := share()[0]; got != 100 {
			t.Errorf("%d permits, and nothing was paused", got)
		}
	})
}

// Without a warm-up the share returns in two seconds, but at once in longer windows.
func TestAPauseEndsByStepsWithoutAWarmUp(t *testing.T) {
	for length, want := range map[time.Duration][]int64{time.Second: {33, 66, 100}, 2 * time.Second: {100, 100, 100}} {
		synctest.Test(t, func(t *testing.T) {
			s, l := ofFleet(t, quota.Policy{Limits: []quota.Limit{{Permits: 100, Window: length}}}, 1)
			time.Sleep(time.Until(time.Now().Truncate(length).Add(10 * length)))
			l.Throttled(3*length, "429")
			var got []int64
			for time.Sleep(3 * length); len(got) < len(want); time.Sleep(length) {
				s.prove()
				got = append(got, l.TryTake(1000).N())
			}
			if !slices.Equal(got, want) {
				t.Errorf("windows of %v: after the pause %v, want %v", length, got, want)
			}
		})
	}
}
