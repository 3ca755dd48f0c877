package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/quota"
)

// Leave ends the session without loss: it announces from which window on this
// process takes no part any more, goes on serving until then, while the others
// prepare to take over, and closes. That takes the settle time and one or two
// seconds; with the longest window of a minute up to a minute more. Call it on
// SIGTERM.
//
// If ctx ends first, or if the announcement cannot be made, Leave closes at
// once, as Close does, and says so: nothing is exceeded, but the others get the
// shares only after the settle time. It returns nil if all was in order.
func (s *Session) Leave(ctx context.Context) error {
	var errs []error
	last := int64(0)
	for _, p := range s.all() {
		until, err := p.announceEnd(ctx)
		last = max(last, until)
		if err != nil {
			errs = append(errs, err)
		}
	}
	if wait := last - s.o.clock.Wall(); wait > 0 && !sleep(ctx, time.Duration(wait)) {
		errs = append(errs, fmt.Errorf("coordinator: leave: closed %v before the announced end: %w",
			time.Duration(last-s.o.clock.Wall()).Round(time.Millisecond), ctx.Err()))
	}
	return errors.Join(append(errs, s.Close())...)
}

// announceEnd writes the end of this instance's part into its key and returns
// it, in corrected wall time; 0 if there is nothing to announce. The sink is
// bound from the moment of sending on, whether or not the write commits.
func (p *place) announceEnd(ctx context.Context) (int64, error) {
	p.mu.Lock()
	key, created, value, policy := p.key, p.created, p.value, p.policy
	if key == "" || policy == nil || p.until != 0 {
		p.mu.Unlock()
		return 0, nil
	}
	until := firstWindow(p.s.o.clock.Wall(), policy)
	if value.From.After(until) {
		until = value.From // it never takes part
	}
	value.Until = until
	p.until = until.UnixNano()
	if !p.silent {
		p.sink.Announce(until.UnixNano())
	}
	p.mu.Unlock()
	l, err := p.s.awaitLease(ctx)
	if err != nil {
		return 0, err
	}
	if err := p.writeEnd(ctx, key, created, l, value); err != nil {
		return 0, err
	}
	return until.UnixNano(), nil
}

func (p *place) writeEnd(ctx context.Context, key string, created int64, l *lease, value quota.Instance) error {
	b, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("coordinator: leave %s: %w", p.provider, err)
	}
	c, done := p.s.bounded(ctx)
	defer done()
	r, err := p.s.client.Txn(c).If(clientv3.Compare(clientv3.CreateRevision(key), "=", created)).
		Then(clientv3.OpPut(key, string(b), clientv3.WithLease(l.id))).Commit()
	if err != nil {
		return classify(ctx, "announce the end of this instance of "+p.provider, err)
	}
	if !r.Succeeded {
		return fmt.Errorf("coordinator: leave %s: the instance's key is gone already", p.provider)
	}
	return nil
}
