package limittest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/consumer/limittest"
	"github.com/quotient-limiter/quotient/quota"
)

// charge is the code under test: a worker that calls a provider for each job.
func charge(ctx context.Context, limiter *consumer.Limiter, jobs int, call func()) error {
	for range jobs {
		if err := limiter.Acquire(ctx, consumer.Forever); err != nil {
			return err
		}
		call()
	}
	return nil
}

// Four instances have 3,000 jobs and a provider that takes 500 in two seconds
// and 2,000 in ten. All of it happens on a fake clock, in milliseconds.
func TestMyWorkersObeyTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits, err := quota.ParseLimits("500/2s,2000/10s")
		if err != nil {
			t.Fatal(err)
		}
		fleet, err := limittest.New(quota.Policy{Limits: limits}, 4)
		if err != nil {
			t.Fatal(err)
		}
		provider := limittest.NewMeter(limits)
		begin := time.Now()
		for _, instance := range fleet.Instances() {
			limiter, err := consumer.Open(t.Context(), instance, "payments/charge", consumer.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer limiter.Close()
			go func() {
				if err := charge(t.Context(), limiter, 750, func() { provider.Call(1) }); err != nil {
					t.Error(err)
				}
			}()
		}
		time.Sleep(11 * time.Second) // 2,000 by then, and 500 more at 10 s
		if provider.Calls() != 2500 {
			t.Errorf("%d calls after %v", provider.Calls(), time.Since(begin))
		}
		time.Sleep(2 * time.Second)
		if err := provider.Check(); err != nil || provider.Calls() != 3000 {
			t.Errorf("%d calls in all, %v", provider.Calls(), err)
		}
	})
}
