package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/view"
	"github.com/quotient-limiter/quotient/quota"
)

// Instances that the provider asks for a pause put that into one key of the provider,
// the back-off; once they are a quorum, all instances that see the key issue nothing.
// It is no part of a view, and only holds back: so it needs no proof and no settle
// time, its end costs nothing, and nobody that writes it can raise a share. Nobody
// removes it but operators, who thereby end it.
const (
	askEvery  = 500 * time.Millisecond // and no more often
	warnEvery = 10 * time.Second       // of keys that are ignored
)

// asking is what a membership knows of the back-off, under its lock. It outlives gaps: the
// key counts once for each of its revisions, so a pause is bounded from when it was first
// seen.
type asking struct {
	protocol.Backoff       // as asksIn has read it
	revision         int64 // of the key; 0 if there is none
	told             int64 // up to here the key was seen
	denied           error // the key may not be written
	warned           int64 // monotonic, when a key was last said to be ignored
}

// pushBacks writes what the provider asks of the sink, until the membership ends.
func (p *membership) pushBacks() {
	for {
		select {
		case <-p.ctx.Done():
			return
		case ask := <-p.sink.Pushed():
			for again := true; again; {
				var writes time.Duration
				if writes, again = p.put(ask); !sleep(p.ctx, writes*askEvery) {
					return
				}
			}
		}
	}
}

// put writes an ask if it adds something, on the condition that the key is the known
// one; if it is another one by now, on that, once. again says that it did not succeed.
func (p *membership) put(ask protocol.Ask) (writes time.Duration, again bool) {
	p.mu.Lock()
	known, policy, instances, own := p.asking, p.policy, p.tracker.Instances(), p.incarnation
	p.mu.Unlock()
	ask.By = own.id
	ctx, done := context.WithTimeout(p.ctx, 2*reportTimeout)
	defer done()
	for again = true; again && writes < 2; {
		if own.key == "" || policy == nil || policy.Backoff != quota.BackoffFleet ||
			!known.Adds(ask, protocol.Quorum(policy, instances), time.Unix(0, p.s.o.Clock.Wall())) {
			return writes, false
		}
		writes++
		t, err := own.replace(ctx, p.s.kv, p.s.keys.Backoff(p.provider), known.revision, known.With(ask))
		p.mu.Lock()
		p.asking.denied = p.denied(classify(p.ctx, "hold back the other instances of "+p.provider, err)) // the next proof tells it
		if err != nil {
			again = p.asking.denied == nil
			p.mu.Unlock()
			return max(writes, 2), again
		}
		if again = !t.Succeeded; again {
			kv := keyIn(t.Responses[0])
			known.Backoff, known.revision = p.asksIn(kv.Value), kv.ModRevision
		}
		p.mu.Unlock()
	}
	return writes, again
}

// denied returns a write's error, with the way out, if the role lacks the right to a key,
// and nil for any other.
func (p *membership) denied(err error) error {
	if !errors.Is(err, ErrPermission) {
		return nil
	}
	return fmt.Errorf("%w; create its role again: quota-admin roles consumer %s", err, p.provider)
}

// askedLocked takes the key from the watch, if that has not told it before.
func (p *membership) askedLocked(k *view.Key) {
	if k.Kind != view.Backoff || k.Revision <= p.asking.told {
		return
	}
	p.asking.told = k.Revision
	if k.Deleted {
		k = &view.Key{}
	}
	p.obeyAsksLocked(k)
}

// askedAtLocked takes the key from a listing as of a revision.
func (p *membership) askedAtLocked(revision int64, all []view.Key) {
	k := &view.Key{}
	if i := slices.IndexFunc(all, func(k view.Key) bool { return k.Kind == view.Backoff }); i >= 0 {
		k = &all[i]
	}
	if p.asking.told = revision; k.Revision != p.asking.revision {
		p.obeyAsksLocked(k)
	}
}

// obeyAsksLocked takes another value of the key; the zero Key if it is gone.
func (p *membership) obeyAsksLocked(k *view.Key) {
	p.asking.revision, p.asking.Backoff = k.Revision, p.asksIn(k.Value)
	p.backoffLocked()
}

// asksIn reads the key's value. One that cannot be read does not count, nor does an ask
// by a stranger. Nor does the part of an ask beyond the policy's bound from now on.
func (p *membership) asksIn(value []byte) (b protocol.Backoff) {
	if len(value) == 0 {
		return b
	}
	b, err := protocol.ReadBackoff(value)
	b.Asks = slices.DeleteFunc(b.Asks, func(a protocol.Ask) bool {
		if p.tracker.Has(a.By) {
			return false
		}
		err = fmt.Errorf("%q is no instance", a.By)
		return true
	})
	latest := time.Unix(0, p.s.o.Clock.Wall()).Add(protocol.MaxBackoff(p.policy))
	for i := range b.Asks {
		if b.Asks[i].Until.After(latest) {
			b.Asks[i].Until = latest
		}
	}
	if now := p.s.o.Clock.Mono(); err != nil && (p.asking.warned == 0 || now-p.asking.warned > int64(warnEvery)) {
		p.asking.warned = now
		p.s.o.Logger.Warn("a back-off, or a part of it, is ignored", "provider", p.provider, "because", err)
	}
	return b
}

// backoffLocked holds the sink back as the changed key says.
func (p *membership) backoffLocked() {
	switch {
	case p.silent:
	case p.asking.revision == 0:
		p.sink.Backoff(0, "")
	case p.policy != nil && p.policy.Backoff == quota.BackoffFleet:
		ask, ok := p.asking.Binding(protocol.Quorum(p.policy, p.tracker.Instances()))
		mono := p.s.o.Clock.Mono()
		if d := ask.Until.UnixNano() - p.s.o.Clock.WallAt(mono); ok && d > 0 {
			p.sink.Backoff(mono+d, ask.By+": "+ask.Why)
		}
	}
}

// EndBackoff ends a provider's back-off: its instances issue permits again as soon as
// they see it. It returns false if there was none.
func (a *Admin) EndBackoff(ctx context.Context, provider string) (ended bool, err error) {
	if err := quota.ValidateProvider(provider); err != nil {
		return false, err
	}
	key := a.keys.Backoff(provider)
	r, err := a.kv.Get(ctx, key, clientv3.WithCountOnly())
	if err == nil && r.Count > 0 { // who may not delete it is told so only then
		ended = true
		_, err = a.kv.Delete(ctx, key)
	}
	return ended && err == nil, classify(ctx, "end the back-off of "+provider, err)
}
