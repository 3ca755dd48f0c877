package api

import (
	"context"
	"sync"
	"time"

	"github.com/quotient-limiter/quotient/cmd/quotad/internal/fair"
	"github.com/quotient-limiter/quotient/consumer"
)

// activeFor is the least time for which a client counts as active after a call.
const activeFor = time.Second

// provider orders the calls for one provider.
type provider struct {
	turns *fair.Turns

	mu        sync.Mutex
	now, last map[string]bool // clients with calls, in this period and the one before
	began     time.Time       // of this period
}

func newProvider() *provider {
	return &provider{turns: fair.NewTurns(), now: map[string]bool{}, began: time.Now()}
}

// seen notes a client's call.
func (p *provider) seen(client string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turnLocked()
	p.now[client] = true
}

func (p *provider) turnLocked() {
	switch age := time.Since(p.began); {
	case age < activeFor:
		return
	case age < 2*activeFor:
		p.last = p.now
	default:
		p.last = nil
	}
	p.now, p.began = map[string]bool{}, time.Now()
}

// active returns how many clients had calls lately, at least 1.
func (p *provider) active() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.now)
	for name := range p.last {
		if !p.now[name] {
			n++
		}
	}
	return max(1, int64(n))
}

// take takes permits, after the calls of clients that got fewer.
func (p *provider) take(ctx context.Context, client string, l *consumer.Limiter, n int64, maxWait time.Duration) (consumer.Permit, error) {
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
