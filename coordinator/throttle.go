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

// A provider's throttle is one key of its view (see protocol.Throttle). An instance that
// the provider asks for a pause adds that at once. Under an adaptive policy the oldest live
// instance collects all reports and writes the totals; the next oldest do too, each less
// often than the one before. Each write replaces the value that it is about, so it loses
// nothing that another wrote. Operators delete the key to end all of it; nobody else does.

const askEvery = 500 * time.Millisecond // and no more often

// throttleLocked notes the view's throttle; nil if there is none.
func (p *membership) throttleLocked(t *protocol.Throttle) {
	if p.pacedAt == 0 || t.Decided() != p.throttle.Decided() {
		p.pacedAt = p.s.o.Clock.Mono()
	}
	if p.throttle = (protocol.Throttle{}); t != nil {
		p.throttle = *t
	}
}

// throttleTo replaces the throttle that a writer knows. It notes whether that is denied,
// which the next proof tells.
func (p *membership) throttleTo(ctx context.Context, w *writer, next protocol.Throttle) (*clientv3.TxnResponse, error) {
	t, err := w.replace(ctx, p.s.kv, p.s.keys.Throttle(p.provider), w.revision, next)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err, p.denied = classify(ctx, "throttle "+p.provider, err), nil; errors.Is(err, ErrPermission) {
		p.denied = fmt.Errorf("%w; create its role again: quota-admin roles consumer %s", err, p.provider)
	}
	return t, err
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

// put writes an ask if it adds something to the throttle that is known; if there is another
// one by now, to that, once. again says that it did not succeed.
func (p *membership) put(ask protocol.Ask) (writes time.Duration, again bool) {
	p.mu.Lock()
	w, known, policy := p.writerLocked(view.Throttle), p.throttle, p.policy
	p.mu.Unlock()
	return p.putOn(w, known, policy, ask)
}

func (p *membership) putOn(w writer, known protocol.Throttle, policy *quota.Policy, ask protocol.Ask) (writes time.Duration, again bool) {
	ask.By = w.id
	member := func(id string) bool { return slices.Contains(w.ids, id) }
	ctx, done := context.WithTimeout(p.ctx, 2*reportTimeout)
	defer done()
	for again = true; again && writes < 2; {
		now := time.Unix(0, p.s.o.Clock.Wall())
		if w.key == "" || policy == nil || policy.Backoff != quota.BackoffFleet ||
			!known.Adds(ask, known.Pause(policy, len(w.ids), member, now), now) {
			return writes, false
		}
		writes++
		t, err := p.throttleTo(ctx, &w, known.With(ask, member))
		if err != nil {
			return 2, !errors.Is(err, ErrPermission)
		}
		if again = !t.Succeeded; again {
			kv := keyIn(t.Responses[0])
			w.revision, known = kv.ModRevision, protocol.Throttle{}
			if read, err := protocol.ReadThrottle(kv.Value); err == nil {
				known = *read
			}
		}
	}
	return writes, again
}

// pace writes other totals, if it is this instance's turn and there is reason.
func (p *membership) pace(ctx context.Context, last *reporting, now int64) {
	p.mu.Lock()
	w := p.writerLocked(view.Throttle)
	policy, known, age := p.policy, p.throttle, time.Duration(now-p.pacedAt)
	again := p.tracker.Broken(view.Throttle) || p.denied != nil
	p.mu.Unlock()
	if last.paced == 0 && w.rank > deputies {
		last.paced = now // not all of a fleet that starts read at once
	}
	if !w.may || last.paced != 0 && time.Duration(now-last.paced) < (1+4*w.rank)*dividePause(len(w.ids)) {
		return
	}
	last.paced = now
	lower := len(known.Limits) > 0
	next, changes := protocol.Throttle{Past: known.Past, Asks: known.Asks}, lower // which nobody follows any more
	if policy != nil && policy.Adaptive.Floor > 0 {
		var reports []protocol.Report
		revision, err := p.reportsOf(ctx, w.ids, func(_ string, r *protocol.Report) { reports = append(reports, *r) })
		if err != nil {
			return
		}
		if next, changes = nextPace(policy, known, reports, age, time.Unix(0, p.s.o.Clock.Wall()).UTC()); len(next.Limits) > 0 {
			next.Author, next.Revision = w.id, revision
		}
	}
	if !changes {
		if !again {
			return
		}
		next = known
	}
	t, err := p.throttleTo(ctx, &w, next) // if that fails it is tried again
	if err != nil || !t.Succeeded || lower == (len(next.Limits) > 0) {
		return
	}
	if lower {
		p.s.o.Logger.Info("the limit is in force again", "provider", p.provider)
	} else {
		p.s.o.Logger.Warn("the provider takes less: the total in force is lower than the limit", "provider", p.provider,
			"pace", quota.FormatLimits(next.Limits), "issued", next.Issued, "refused", next.Refused)
	}
}

// Resume ends what a provider has asked for: its instances issue permits again, up to the
// policy's limits, as soon as they see it. It returns false if there was nothing to end.
func (a *Admin) Resume(ctx context.Context, provider string) (ended bool, err error) {
	if err := quota.ValidateProvider(provider); err != nil {
		return false, err
	}
	key := a.keys.Throttle(provider)
	r, err := a.kv.Get(ctx, key, clientv3.WithCountOnly())
	if err == nil && r.Count > 0 { // who may not delete it is told so only then
		ended = true
		_, err = a.kv.Delete(ctx, key)
	}
	return ended && err == nil, classify(ctx, "resume "+provider, err)
}
