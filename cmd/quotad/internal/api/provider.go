package api

import (
	"context"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/fair"
	"github.com/quotient-limiter/quotient/consumer"
	"github.com/quotient-limiter/quotient/internal/feed"
)

// activeFor is the time for which a client counts as active after a call.
const activeFor = 2 * time.Second

// maxActive is how many clients count at a time.
const maxActive = 4096

// provider orders the calls for one provider.
type provider struct {
	turns map[consumer.Class]*fair.Turns     // of each class: none waits for a turn of a lower one
	calls *lru.Cache[fair.Client, time.Time] // the newest of each client

	parts parts

	mu   sync.Mutex
	keys map[keyOf]*keyTurns // that a call has or waits for
}

// keyOf names a key in calls of a class.
type keyOf struct {
	key   string
	class consumer.Class
}

// keyTurns are the turns of a key, while calls use them.
type keyTurns struct {
	*fair.Turns
	calls int
}

func newProvider() *provider {
	calls, _ := lru.New[fair.Client, time.Time](maxActive) // fails for a size below 1 only
	turns := map[consumer.Class]*fair.Turns{}
	for _, class := range []consumer.Class{consumer.Critical, consumer.Default, consumer.Sheddable} {
		turns[class] = fair.NewTurns()
	}
	return &provider{
		turns: turns, calls: calls, keys: map[keyOf]*keyTurns{},
		parts: newParts(),
	}
}

// seen notes a client's call.
func (p *provider) seen(client fair.Client) { p.calls.Add(client, time.Now()) }

// active is how many processes of each user had calls lately.
type active map[string]int64

func (p *provider) active() active {
	users := active{}
	for _, client := range p.calls.Keys() {
		if call, ok := p.calls.Peek(client); ok && time.Since(call) < activeFor {
			users[client.User]++
		}
	}
	return users
}

// parts returns the number of parts of which a client has one: users have equal parts, and so
// have the processes of each, at least 1.
func (a active) parts(client fair.Client) int64 {
	return int64(max(1, len(a))) * max(1, a[client.User])
}

// use returns the turns of a call's key. The caller ends their use by done.
func (p *provider) use(of keyOf) (turns *fair.Turns, done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.keys[of]
	if t == nil {
		t = &keyTurns{Turns: fair.NewTurns()}
		p.keys[of] = t
	}
	t.calls++
	return t.Turns, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if t.calls--; t.calls == 0 {
			delete(p.keys, of)
		}
	}
}

// busy reports whether another call of the same class waits for the provider or for the key.
func (p *part) busy() bool {
	o := p.provider
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.turns[p.class].Busy() || o.keys[keyOf{p.key, p.class}] != nil
}

// foreseen returns how long a call waits for n permits, if no other call waits.
func (p *part) foreseen(n int64) time.Duration {
	d := p.limiter.Delay(n)
	if key, ok := p.Taker.(consumer.Key); ok {
		for _, u := range key.Limits() {
			if u.Left < n {
				d = max(d, time.Until(u.End), 1)
			}
		}
	}
	return d
}

// Take takes n permits, after the calls of its class of clients that got fewer. A call for a
// key waits for a turn at the key, for the key's permits, and then for a turn at the provider:
// one that waits for its key holds up no other key.
func (p *part) Take(ctx context.Context, n int64, maxWait time.Duration) (consumer.Permit, error) {
	p.undo() // TakeAll released what it takes again
	p.began = time.Now()
	left := func() time.Duration { return max(0, maxWait-time.Since(p.began)) }
	if maxWait <= 0 || p.busy() && p.foreseen(n) > maxWait { // it would be in vain
		return p.take(ctx, n, 0, time.Time{})
	}
	if p.key == "" {
		claimed, err := p.enter(ctx, n, left)
		if err != nil {
			return p.late(ctx, n)
		}
		defer p.provider.turns[p.class].Leave()
		return p.take(ctx, n, left(), claimed)
	}
	var claimed time.Time
	ctx = feed.WithTurn(ctx, func(ctx context.Context) func() {
		var err error
		if claimed, err = p.enter(ctx, n, left); err != nil {
			return func() {}
		}
		return p.provider.turns[p.class].Leave
	})
	turns, done := p.provider.use(keyOf{p.key, p.class})
	defer done()
	if turns.Enter(ctx, p.client, n, left()) != nil {
		return p.late(ctx, n)
	}
	defer turns.Leave()
	permit, err := p.Taker.Take(ctx, n, left())
	return p.counted(permit, n, claimed, err)
}

// late ends a call whose turn did not come.
func (p *part) late(ctx context.Context, n int64) (consumer.Permit, error) {
	if ctx.Err() != nil {
		return consumer.Permit{}, ctx.Err()
	}
	return p.take(ctx, n, 0, time.Time{}) // a refusal that has its reason, or a permit after all
}

// take takes permits that were claimed in the window that ends at claimed, without a turn.
func (p *part) take(ctx context.Context, n int64, maxWait time.Duration, claimed time.Time) (consumer.Permit, error) {
	permit, err := p.Taker.Take(ctx, n, maxWait)
	return p.counted(permit, n, claimed, err)
}

// enter waits for the provider's turn of a call that is not early. The caller ends the turn.
func (p *part) enter(ctx context.Context, n int64, left func() time.Duration) (claimed time.Time, err error) {
	turns := p.provider.turns[p.class]
	for {
		if err := turns.Enter(ctx, p.client, n, left()); err != nil {
			return claimed, err
		}
		claimed, wait := p.claim(n)
		if wait == 0 {
			return claimed, nil
		}
		if wait = min(wait, left()); wait == 0 {
			return time.Time{}, nil
		}
		turns.Yield(p.client, n)
		select {
		case <-ctx.Done():
			return claimed, ctx.Err()
		case <-time.After(wait):
		}
	}
}
