// Tenants shares a language model among tenants: the provider limits the tokens of all calls a
// minute, and each tenant has limits of its own, a minute and an hour. A call reserves what
// answers usually cost, of the provider and of its tenant, and settles what its own has cost. `go run .`
// prints what each tenant got.
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
)

// ask returns how many tokens the answer to a tenant's prompt has.
func ask(ctx context.Context, limiter *consumer.Limiter, tenant string, call func() (tokens int64)) (int64, error) {
	permit, err := limiter.Key(tenant).Take(ctx, limiter.Usual(most), consumer.Forever)
	if err != nil {
		return 0, err // the error says which limit, and when to try again
	}
	tokens := call()
	return tokens, permit.Settle(tokens)
}

// run has a tenant of many callers, and one of few, and returns what each got. minute is as long
// as the example has patience for.
func run(ctx context.Context, minute time.Duration, out io.Writer) (map[string]int64, error) {
	policy := quota.Policy{
		Limits: []quota.Limit{{Permits: limit, Window: minute}},
		Keys:   quota.Keys{Limits: []quota.Limit{{Permits: each, Window: minute}, {Permits: hourly, Window: time.Hour}}},
	}
	limiter, err := consumer.Open(ctx, consumer.Fixed(policy), "llm/tokens", consumer.Options{}) // for a fleet: a *coordinator.Session
	if err != nil {
		return nil, err
	}
	defer limiter.Close()
	var mu sync.Mutex
	got, last := map[string]int64{}, map[string]error{}
	var callers sync.WaitGroup
	for tenant, n := range map[string]int{"eager": 10, "modest": 1} {
		for range n {
			callers.Go(func() {
				for ctx.Err() == nil {
					tokens, err := ask(ctx, limiter, tenant, func() int64 { return answer })
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
