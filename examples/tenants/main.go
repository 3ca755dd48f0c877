// Tenants shares a language model among tenants: the provider limits the tokens and the requests of all
// calls a minute, and how many are under way. Each tenant has limits of its own, of tokens a minute and an
// hour. A call reserves what answers usually cost, of the provider and of its tenant, and settles what its
// own has cost. `go run .` prints what each tenant got.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/quota"
)

const (
	most   = 300  // how many tokens an answer may have
	answer = 200  // how many it has here
	limit  = 9000 // tokens a minute, of all tenants
	each   = 4000 // tokens a minute, of one
	hourly = 6000 // tokens an hour, of one

	requests = 600 // a minute, of all tenants
	inFlight = 4   // requests under way, of all tenants
)

// limiters are those of one model.
type limiters struct{ tokens, requests, calls *consumer.Limiter }

// ask returns how many tokens the answer to a tenant's prompt has.
func (l *limiters) ask(ctx context.Context, tenant string, call func(context.Context) (tokens int64)) (int64, error) {
	of := l.tokens.Key(tenant)
	permits, err := consumer.TakeAll(ctx, consumer.Forever, map[consumer.Taker]int64{of: l.tokens.Usual(most), l.requests: 1, l.calls: 1})
	if err != nil {
		return 0, err // the error says which limit, and when to try again
	}
	ctx, done := permits[l.calls].Begin(ctx)
	defer done()
	tokens := call(ctx)
	return tokens, permits[of].Settle(tokens)
}

// open opens the limiters of a model with a policy of its tokens.
func open(ctx context.Context, tokens quota.Policy, minute time.Duration) (l limiters, err error) {
	one := func(provider string, policy quota.Policy) (limiter *consumer.Limiter) {
		if err == nil {
			limiter, err = consumer.Open(ctx, consumer.Fixed(policy), provider, consumer.Options{}) // for a fleet: a *coordinator.Session
		}
		return limiter
	}
	l.tokens = one("llm/tokens", tokens)
	l.requests = one("llm/requests", quota.Policy{Limits: []quota.Limit{{Permits: requests, Window: minute}}})
	l.calls = one("llm/calls", quota.Policy{Limits: []quota.Limit{{Permits: inFlight, Window: 10 * time.Second, InFlight: true}}})
	return l, err
}

func (l *limiters) close() {
	for _, limiter := range []*consumer.Limiter{l.tokens, l.requests, l.calls} {
		_ = limiter.Close()
	}
}

// run has a tenant of many callers, and one of few, and returns what each got. minute is as long
// as the example has patience for.
func run(ctx context.Context, minute time.Duration, out io.Writer) (map[string]int64, error) {
	policy := quota.Policy{
		Limits: []quota.Limit{{Permits: limit, Window: minute}},
		Keys:   quota.Keys{Limits: []quota.Limit{{Permits: each, Window: minute}, {Permits: hourly, Window: time.Hour}}},
	}
	model, err := open(ctx, policy, minute)
	if err != nil {
		return nil, err
	}
	defer model.close()
	var mu sync.Mutex
	underWay, mostUnderWay := 0, 0
	count := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		underWay += n
		mostUnderWay = max(mostUnderWay, underWay)
	}
	call := func(ctx context.Context) int64 { // in place of the model
		count(1)
		defer count(-1)
		select {
		case <-time.After(minute / 100):
		case <-ctx.Done():
		}
		return answer
	}
	got, last := map[string]int64{}, map[string]error{}
	var callers sync.WaitGroup
	for tenant, n := range map[string]int{"eager": 10, "modest": 1} {
		for range n {
			callers.Go(func() {
				for ctx.Err() == nil {
					tokens, err := model.ask(ctx, tenant, call)
					mu.Lock()
					if got[tenant] += tokens; err != nil {
						last[tenant] = err
					}
					mu.Unlock()
					if err != nil {
						return // of this hour nothing is left
					}
					if tenant == "modest" {
						time.Sleep(minute / 10)
					}
				}
			})
		}
	}
	callers.Wait()
	for _, tenant := range []string{"eager", "modest"} {
		fmt.Fprintf(out, "%s: %d tokens; %v\n", tenant, got[tenant], last[tenant])
	}
	fmt.Fprintf(out, "at most %d requests of %d were under way\n", mostUnderWay, inFlight)
	return got, nil
}

func main() {
	const minute = 2 * time.Second // so that nobody has to wait for it
	ctx, stop := context.WithTimeout(context.Background(), 3*minute)
	defer stop()
	if _, err := run(ctx, minute, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
