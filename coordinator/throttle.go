package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/keys"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/view"
	"github.com/quotient-limiter/quotient/quota"
)

// A provider's throttle is one key of its view (see protocol.Throttle). An instance that
// the provider asks for a pause adds that at once. Under an adaptive policy the oldest live
// instance collects all reports and writes the totals; the next oldest do too, each less
// often than the one before. Each write replaces the value that it is about, so it loses
// nothing that another wrote. Operators delete the key to end all of it; nobody else does.

const (
	askEvery  = 500 * time.Millisecond // and no more often
	paceEvery = 2 * time.Second        // at most
	paceEach  = 8 * time.Millisecond   // for each instance
	deputies  = 3                      // instances that look after the oldest
)

// pacePause is how far two looks at the reports of n instances are apart. The bytes that
// etcd sends in a second do not grow with n.
func pacePause(n int) time.Duration { return max(paceEvery, time.Duration(n)*paceEach) }

// throttleTo replaces the throttle that a writer knows, while its incarnation lives. Otherwise
// the answer has the key.
func (p *membership) throttleTo(ctx context.Context, w *writer, next protocol.Throttle) (*clientv3.TxnResponse, error) {
	var t *clientv3.TxnResponse
	key := p.s.keys.Throttle(p.provider)
	b, err := json.Marshal(next)
	if err == nil {
		t, err = p.s.kv.Txn(ctx).If(is(key, w.revision), w.lives()).Then(clientv3.OpPut(key, string(b))).Else(clientv3.OpGet(key)).Commit()
	}
	err = classify(ctx, "throttle "+p.provider, err)
	p.s.step(asked{p, toThrottle, err})
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
	p.s.mu.Lock()
	w, known, policy := p.writerLocked(), p.throttle, p.policy
	p.s.mu.Unlock()
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

// pace writes other totals, if it is this instance's turn and there is reason. It returns whether
// etcd answers.
func (p *membership) pace() bool {
	last, now := &p.reported, p.s.o.Clock.Mono()
	p.s.mu.Lock()
	adaptive, lower := p.adaptiveLocked(), len(p.throttle.Limits) > 0
	if !adaptive && !lower {
		p.s.mu.Unlock()
		return true
	}
	w := p.writerLocked()
	policy, known, age := p.policy, p.throttle, time.Duration(now-p.pacedAt)
	again := p.tracker.Broken(view.Throttle) || p.forbidden[toThrottle] != nil
	p.s.mu.Unlock()
	if last.paced == 0 && w.rank > deputies {
		last.paced = now // not all of a fleet that starts read at once
	}
	if !w.may || last.paced != 0 && time.Duration(now-last.paced) < (1+4*w.rank)*pacePause(len(w.ids)) {
		return true
	}
	last.paced = now
	ctx, done := context.WithTimeout(p.s.ctx, reportTimeout)
	defer done()
	next, changes := protocol.Throttle{Past: known.Past, Asks: known.Asks}, lower // which nobody follows any more
	if adaptive {
		reports, revision, err := p.reportsOf(ctx, w.ids)
		if err != nil {
			return ctx.Err() == nil
		}
		if next, changes = nextPace(policy, known, reports, age, time.Unix(0, p.s.o.Clock.Wall()).UTC()); len(next.Limits) > 0 {
			next.Author, next.Revision = w.id, revision
		}
	}
	if !changes {
		if !again {
			return true
		}
		next = known
	}
	t, err := p.throttleTo(ctx, &w, next) // if that fails it is tried again
	switch {
	case err != nil || !t.Succeeded || lower == (len(next.Limits) > 0):
	case lower:
		p.s.o.Logger.Info("the limit is in force again", "provider", p.provider)
	default:
		p.s.o.Logger.Warn("the provider takes less: the total in force is lower than the limit", "provider", p.provider,
			"pace", quota.FormatLimits(next.Limits), "issued", next.Issued, "refused", next.Refused)
	}
	return ctx.Err() == nil
}

// Resume ends the pauses that a provider asked for, and the lower total of an adaptive policy.
// Its instances issue permits up to the policy's limits as soon as they see it, under a shape
// other than fixed a settle time later, until the next 429. A pause that an operator set (quota.ModePause) stays. It returns false if there was
// nothing to end.
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

// writer is an instance that may write the throttle.
type writer struct {
	incarnation
	may      bool // it is in the view, and has announced no end
	rank     time.Duration
	ids      []string // of all
	revision int64    // of the throttle
}

func (p *membership) writerLocked() writer {
	may := p.key != "" && p.until == 0 && p.tracker.Has(p.id)
	return writer{p.incarnation, may, time.Duration(p.tracker.Rank(p.id)), p.tracker.IDs(), p.tracker.Revision(view.Throttle)}
}

// reportsOf returns the newest reports of these instances, and the revision read. Any member
// may answer: a pace need not be recent.
func (p *membership) reportsOf(ctx context.Context, ids []string) (all []protocol.Report, revision int64, err error) {
	slices.Sort(ids)
	folder := p.s.keys.Reports(p.provider)
	revision, err = eachIn(ctx, p.s.kv, folder, func(kv *mvccpb.KeyValue) {
		id, ok := keys.IncarnationIn(folder, string(kv.Key))
		if _, live := slices.BinarySearch(ids, id); ok && live {
			r, _ := readReport(kv.Value) // one that cannot be read is no evidence
			all = append(all, r)
		}
	}, clientv3.WithSerializable())
	return all, revision, err
}
