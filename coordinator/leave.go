package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/quota"
)

// Leave ends the session without loss: it announces from which window on this
// process takes no part any more, goes on serving until then, while the others
// prepare to take over, and closes. That takes the settle time and one or two
// seconds; with the longest window of a minute up to a minute more. Call it on
// SIGTERM, with a context that ends when the process must.
//
// If ctx ends first, or if no announcement can be made within 5 s,
// Leave closes at once, as Close does, and says so: nothing is exceeded, but the
// others get the shares only after the settle time. It returns nil if all was in
// order. A second Leave waits for the same end as the first.
func (s *Session) Leave(ctx context.Context) error {
	memberships := s.all()
	ends, failed := make([]int64, len(memberships)), make([]error, len(memberships))
	var wg sync.WaitGroup
	for i, p := range memberships {
		wg.Go(func() { ends[i], failed[i] = p.announceEnd(ctx) })
	}
	wg.Wait()
	last, errs := int64(0), []error{errors.Join(failed...)}
	for _, end := range ends {
		last = max(last, end)
	}
	for s.o.Clock.Wall() < last { // again if the clock was slewed meanwhile
		if !sleep(ctx, time.Duration(last-s.o.Clock.Wall())) {
			errs = append(errs, fmt.Errorf("coordinator: leave: closed %v before the announced end: %w",
				time.Duration(last-s.o.Clock.Wall()).Round(time.Millisecond), ctx.Err()))
			break
		}
	}
	for _, p := range memberships {
		errs = append(errs, p.endedEarly())
	}
	return errors.Join(append(errs, s.Close())...)
}

// announceEnd writes the end of this instance's part into its key and returns
// it, in corrected wall time; 0 if there is nothing to announce. The sink is
// bound from the moment of sending on, whether or not the write commits.
func (p *membership) announceEnd(ctx context.Context) (int64, error) {
	p.mu.Lock()
	key, created, value, policy := p.key, p.created, p.value, p.policy
	if p.until != 0 || key == "" || policy == nil {
		defer p.mu.Unlock()
		return p.until, nil
	}
	// Watches may be closed for a little.
	until := firstWindow(p.s.o.Clock.Wall()+int64(p.holdBackLocked()), policy)
	if value.From.After(until) {
		until = value.From // it never takes part
	}
	value.Until = until
	p.until = until.UnixNano()
	if !p.silent {
		p.sink.Announce(until.UnixNano())
	}
	p.mu.Unlock()
	if err := p.writeEnd(ctx, key, created, value); err != nil {
		return 0, err
	}
	return until.UnixNano(), nil
}

func (p *membership) writeEnd(ctx context.Context, key string, created int64, value quota.Instance) error {
	b, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("coordinator: leave %s: %w", p.provider, err)
	}
	c, done := p.s.bounded(ctx)
	defer done()
	r, err := p.s.kv.Txn(c).If(clientv3.Compare(clientv3.CreateRevision(key), "=", created)).
		Then(clientv3.OpPut(key, string(b), clientv3.WithIgnoreLease())).Commit()
	if err != nil {
		return classify(ctx, "announce the end of this instance of "+p.provider, err)
	}
	if !r.Succeeded {
		return fmt.Errorf("coordinator: leave %s: the instance's key is gone already", p.provider)
	}
	return nil
}

// endEarly makes an instance whose end is announced stop before it, because its
// key is gone from etcd: the others will not wait for the end that it announced.
func (p *membership) endEarly(why error) {
	p.closeSink()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.early = why
}

// endedEarly returns why it stopped before its announced end, or nil.
func (p *membership) endedEarly() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.early == nil {
		return nil
	}
	return fmt.Errorf("coordinator: leave %s: stopped before the announced end: %w", p.provider, p.early)
}
