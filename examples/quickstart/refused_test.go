package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

// loop does what README.md shows in place of what run's loop does.
func loop(ctx context.Context, limiter *consumer.Limiter) error {
	for job := 1; ; job++ {
		err := limiter.Acquire(ctx, 2*time.Second)
		refusal, refused := errors.AsType[consumer.LimitError](err)
		pause := time.Second
		switch {
		case err == nil:
			fmt.Print("job ", job, "\r") // the call to the provider
			continue
		case refused: // no permit in time, or none in hand while etcd is away: drop the job, or keep it for later
			fmt.Println(err)
			pause = max(pause, time.Until(refusal.RetryAt))
		case errors.Is(err, consumer.ErrTooLarge): // Take asks for more than can come at once: ask for fewer
		case errors.Is(err, consumer.ErrQueueFull): // Options.MaxWaiters callers wait already: drop the job
		case errors.Is(err, consumer.ErrStale): // under --outage stop: etcd is away, or the clock is off
		case errors.Is(err, consumer.ErrNoPolicy): // no limit is set
		default: // ctx has ended, or this program has closed the limiter
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// It uses the limit, does not spin while nothing can be had, and ends with its context.
func TestRefusalsOfREADME(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		policy := quota.Policy{Limits: []quota.Limit{{Permits: 10, Window: time.Second}}}
		source := consumer.Fixed(policy)
		limiter, err := consumer.Open(t.Context(), source, provider, consumer.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer limiter.Close()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- loop(ctx, limiter) }()
		for _, step := range []struct {
			mode                    quota.Mode
			limits                  []quota.Limit
			mostRefused, leastCalls int64
		}{
			{quota.ModeEnforce, policy.Limits, 0, 90},
			{quota.ModePause, policy.Limits, 11, 0},
			{quota.ModeEnforce, policy.Limits, 2, 80},
			{quota.ModeEnforce, []quota.Limit{{Permits: 10, Window: time.Minute}}, 2, 0},
		} {
			policy.Mode, policy.Limits = step.mode, step.limits
			if err := source.Set(policy); err != nil {
				t.Fatal(err)
			}
			before := limiter.Status()
			time.Sleep(10 * time.Second)
			after := limiter.Status()
			if calls, refused := after.Issued-before.Issued, after.Refused-before.Refused; calls < step.leastCalls || refused > step.mostRefused {
				t.Errorf("%s %v: %d calls, %d refused", step.mode, step.limits, calls, refused)
			}
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
