package admit

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/clock"
	"github.com/quotient-limiter/quotient/internal/feed"
	"github.com/quotient-limiter/quotient/quota"
)

// Answers overtake one another: a short pause that is asked for late does not end a
// long one.
func TestPausesOnlyGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy := quota.Policy{Limits: []quota.Limit{{Permits: 1000, Window: 100 * time.Millisecond}}, Throttling: quota.Throttling{BackoffMax: time.Hour}}
		limiter, err := consumer.Open(t.Context(), consumer.Fixed(policy), "p", consumer.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer limiter.Close()
		for _, step := range []struct {
			what      string
			ask, most time.Duration
			want      time.Duration // until a permit
		}{
			{"nothing", 0, 0, 0},
			{"the past", -time.Second, 0, 0},
			{"not granted", time.Second, -1, 0},
			{"a pause", 10 * time.Second, 0, 10 * time.Second},
			{"a shorter one", 2 * time.Second, 0, 10 * time.Second},
			{"a longer one", 11 * time.Second, 0, 11 * time.Second},
			{"more than is granted", time.Hour, time.Minute, time.Minute},
			{"more than the policy allows", 2 * time.Hour, 0, time.Hour},
		} {
			Throttled(limiter, step.ask, step.most, "429")
			got := time.Duration(0)
			if limited, ok := errors.AsType[consumer.LimitError](limiter.Acquire(t.Context(), 0)); ok {
				got = time.Until(limited.RetryAt)
			}
			if got != step.want {
				t.Errorf("%s: paused for %v, want %v", step.what, got, step.want)
			}
		}
		limiter.Resume()
		if err := limiter.Acquire(t.Context(), 0); err != nil {
			t.Errorf("ended: %v", err)
		}
	})
}

// setBack is a source whose clock is ahead of the machine's.
type setBack struct {
	feed.Source
	ahead *clock.Clock
}

func (s setBack) Clock() *clock.Clock { return s.ahead }

// The machine's clock was set back by an hour, which corrected time does not follow at
// once: a call waits for the next window all the same.
func TestAWaitForTheNextWindowAfterTheClockIsSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := consumer.Fixed(quota.Policy{Limits: []quota.Limit{{Permits: 10, Window: time.Second}}})
		ahead := setBack{feed.Inside(source), clock.NewSkewed(func(int64) time.Duration { return time.Hour })}
		limiter, err := consumer.Open(t.Context(), feed.Over[feed.Source](ahead), "p", consumer.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer limiter.Close()
		time.Sleep(900 * time.Millisecond)
		began := time.Now()
		_, err = Options[int]{Limiter: limiter, MaxWait: consumer.Forever, Margin: 300 * time.Millisecond}.Take(t.Context(), 0)
		if waited := time.Since(began); err != nil || waited > time.Second {
			t.Errorf("%v, after %v", err, waited)
		}
	})
}

// The windows of a provider and of its key may have less than the margin in common: a call
// waits for more. A margin that is as long as the shorter window is a mistake.
func TestAMarginOfAKey(t *testing.T) {
	for _, c := range []struct {
		limit, ofKey time.Duration
		wait, margin time.Duration
		kind         error
		after        time.Duration
	}{
		{time.Second, 1500 * time.Millisecond, consumer.Forever, 600 * time.Millisecond, nil, 800 * time.Millisecond},
		{1500 * time.Millisecond, time.Second, consumer.Forever, 600 * time.Millisecond, nil, 800 * time.Millisecond},
		{time.Second, 1500 * time.Millisecond, 0, 600 * time.Millisecond, consumer.ErrLimited, 0},
		{time.Second, 1500 * time.Millisecond, consumer.Forever, time.Second, consumer.ErrInvalid, 0},
		{1500 * time.Millisecond, time.Second, consumer.Forever, time.Second, consumer.ErrInvalid, 0},
		{time.Hour, time.Minute, consumer.Forever, time.Second, consumer.ErrInvalid, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			limiter, err := consumer.Open(t.Context(), consumer.Fixed(quota.Policy{
				Limits: []quota.Limit{{Permits: 1000, Window: c.limit}},
				Keys:   quota.Keys{Limits: []quota.Limit{{Permits: 1000, Window: c.ofKey}}},
			}), "p", consumer.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer limiter.Close()
			time.Sleep(1200 * time.Millisecond) // the windows have 1 s to 1.5 s in common, to 2 s, and to 3 s
			o := Options[int]{Limiter: limiter, Key: func(int) string { return "a" }, MaxWait: c.wait, Margin: c.margin}
			began := time.Now()
			if _, err := o.Take(t.Context(), 0); !errors.Is(err, c.kind) || time.Since(began) != c.after {
				t.Errorf("%v, after %v: want %v, after %v", err, time.Since(began), c.kind, c.after)
			}
		})
	}
}
