package api

import (
	"context"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/fair"
	"github.com/quotient-limiter/quotient/consumer"
)

// activeFor is the time for which a client counts as active after a call.
const activeFor = 2 * time.Second

// maxActive is how many clients count at a time.
const maxActive = 4096

// provider orders the calls for one provider.
type provider struct {
	turns *fair.Turns
	calls *lru.Cache[fair.Client, time.Time] // the newest of each client
}

func newProvider() *provider {
	calls, _ := lru.New[fair.Client, time.Time](maxActive) // fails for a size below 1 only
	return &provider{fair.NewTurns(), calls}
}

// seen notes a client's call.
func (p *provider) seen(client fair.Client) { p.calls.Add(client, time.Now()) }

// active returns the number of parts of which a client has one: users that had calls lately
// have equal parts, and so have the processes of each, at least 1.
func (p *provider) active(client fair.Client) int64 {
	users, own := map[string]bool{}, 0
	for _, other := range p.calls.Keys() {
		if call, ok := p.calls.Peek(other); !ok || time.Since(call) >= activeFor {
			continue
		}
		users[other.User] = true
		if other.User == client.User {
			own++
		}
	}
	return int64(max(1, len(users)) * max(1, own))
}

// take takes permits, after the calls of clients that got fewer.
func (p *provider) take(ctx context.Context, client fair.Client, l *consumer.Limiter, n int64, maxWait time.Duration) (consumer.Permit, error) {
	if maxWait <= 0 || p.turns.Busy() && l.Delay(n) > maxWait { // it would be in vain
		return l.Take(ctx, n, 0)
	}
	began := time.Now()
	if err := p.turns.Enter(ctx, client, n, maxWait); err != nil {
		if ctx.Err() != nil {
			return consumer.Permit{}, ctx.Err()
		}
		return l.Take(ctx, n, 0) // a refusal that has its reason, or a permit after all
	}
	defer p.turns.Leave()
	return l.Take(ctx, n, max(0, maxWait-time.Since(began)))
}
