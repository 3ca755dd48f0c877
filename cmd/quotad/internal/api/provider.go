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
	turns map[consumer.Class]*fair.Turns     // of each class: none waits for a turn of a lower one
	calls *lru.Cache[fair.Client, time.Time] // the newest of each client
}

func newProvider() *provider {
	calls, _ := lru.New[fair.Client, time.Time](maxActive) // fails for a size below 1 only
	turns := map[consumer.Class]*fair.Turns{}
	for _, class := range []consumer.Class{consumer.Critical, consumer.Default, consumer.Sheddable} {
		turns[class] = fair.NewTurns()
	}
	return &provider{turns, calls}
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

// take takes the permits of a call, at most n, after the calls of its class of clients that
// got fewer.
func (c *call) take(ctx context.Context, n int64) (consumer.Permit, error) {
	l, turns, maxWait := c.limiter, c.turns(), c.maxWait
	if maxWait <= 0 || turns.Busy() && l.Delay(n) > maxWait { // it would be in vain
		return l.Take(ctx, n, 0)
	}
	began := time.Now()
	if err := turns.Enter(ctx, c.client, n, maxWait); err != nil {
		if ctx.Err() != nil {
			return consumer.Permit{}, ctx.Err()
		}
		return l.Take(ctx, n, 0) // a refusal that has its reason, or a permit after all
	}
	defer turns.Leave()
	return l.Take(ctx, n, max(0, maxWait-time.Since(began)))
}
