package consumer

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/quota"
)

// measured tells the source's clock that it is behind true time by off, with the
// given error.
func (s *stub) measured(off, err time.Duration) {
	mono := s.clock.Mono()
	s.clock.Adopt(clock.Estimate{Mono: mono, Offset: s.clock.Offset() + int64(off), Error: err})
}

// settled lets an instance of two become active under a policy.
func settled(t *testing.T, p quota.Policy, o Options) (*stub, *Limiter) {
	t.Helper()
	s := &stub{clock: clock.New()}
	l := open(t, s.source(), o)
	s.tell(1, withDefaults(p), 2)
	time.Sleep(4500 * time.Millisecond)
	s.prove()
	return s, l
}

func TestAClockBeyondThePolicysBound(t *testing.T) {
	for _, c := range []struct {
		outage  quota.Outage
		permits int64
		state   quota.State
	}{{quota.OutageHold, 5, quota.StateActive}, {quota.OutageStop, 0, quota.StateStale}} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			p := policyOf(t, "10/s")
			p.Outage = c.outage
			s, l := settled(t, p, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			s.measured(0, 60*time.Millisecond)
			s.prove()
			st := l.Status()
			if st.State != c.state || !strings.Contains(st.Problem, "the host's clock may be off by 60ms, and the policy allows 50ms (clock_error): correct the host's clock") || st.ClockSource != "ntp" || st.ClockError != 60*time.Millisecond {
				t.Errorf("%s: state %s, problem %q, clock error %v of %s", c.outage, st.State, st.Problem, st.ClockError, st.ClockSource)
			}
			if n := l.TryTake(100).N(); n != c.permits {
				t.Errorf("%s: %d permits, want %d", c.outage, n, c.permits)
			}
			if err := l.Acquire(t.Context(), 0); c.permits == 0 && (!errors.Is(err, ErrStale) || !strings.Contains(err.Error(), "clock")) {
				t.Errorf("%s: %v", c.outage, err)
			}
			for range 3 {
				if r := s.sink.Report(s.clock.Now()); r.ClockError != "60ms" || r.ClockSource != "ntp" {
					t.Errorf("%s: reported %q by %q", c.outage, r.ClockError, r.ClockSource)
				}
			}
			s.measured(0, 40*time.Millisecond)
			s.prove()
			time.Sleep(time.Second)
			s.prove()
			if n := l.TryTake(100).N(); n != 5 {
				t.Errorf("%s: %d permits when the clock is right again, want 5", c.outage, n)
			}
			s.sink.Report(s.clock.Now())
			if text := log.String(); strings.Count(text, "exceeds the policy's bound") != 1 || strings.Count(text, "within the policy's bound again") != 1 {
				t.Errorf("%s: logged\n%s", c.outage, text)
			}
		})
	}
}

// A clock found to be ahead stands still: the running window is not issued
// again, and the next one begins when true time says so.
func TestAClockAheadWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := settled(t, policyOf(t, "10/s"), Options{})
		if n := l.TryTake(3).N(); n != 3 {
			t.Fatalf("%d permits, want 3", n)
		}
		before := l.Status()
		s.measured(-3*time.Second, time.Millisecond)
		time.Sleep(time.Millisecond)
		s.clock.Observe(s.clock.Now())
		s.sink.Prove(s.clock.Now())
		result, began := make(chan time.Duration), time.Now()
		go func() {
			if err := take(t.Context(), l, 5, Forever); err != nil {
				t.Error(err)
			}
			result <- time.Since(began)
		}()
		for range 8 {
			time.Sleep(500 * time.Millisecond)
			s.prove()
			if st := l.Status(); st.Shortest().Start.Before(before.Shortest().Start) {
				t.Fatalf("window %v came after %v", st.Shortest().Start, before.Shortest().Start)
			}
		}
		// It was half a second into the window, and is 3 s ahead of its start then:
		// the next whole share comes 3.5 s later.
		if took := <-result; took != 3499*time.Millisecond {
			t.Errorf("5 permits after %v, want 3.499s", took)
		}
	})
}
