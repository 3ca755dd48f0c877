package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/etcdcall"
	"github.com/quotient-limiter/quotient/internal/protocol"
	"github.com/quotient-limiter/quotient/internal/session"
	"github.com/quotient-limiter/quotient/quota"
)

// A provider's throttle is one key of its view (see protocol.Throttle). An instance that
// the provider asks for a pause adds that at once. Each write replaces the value that it is
// about, so it loses nothing that another wrote. Operators delete the key to end all pauses;
// nobody else does.

const askEvery = 500 * time.Millisecond // and no more often

// throttleTo replaces the throttle that a writer knows, while its incarnation lives. Otherwise
// the answer has the key.
func (p *membership) throttleTo(ctx context.Context, w *writer, next protocol.Throttle) (*clientv3.TxnResponse, error) {
	var t *clientv3.TxnResponse
	key := p.s.keys.Throttle(p.Provider)
	b, err := json.Marshal(next)
	if err == nil {
		t, err = p.s.kv.Txn(ctx).If(etcdcall.At(key, w.revision), lives(&w.Incarnation)).Then(clientv3.OpPut(key, string(b))).Else(clientv3.OpGet(key)).Commit()
	}
	err = classify(ctx, "throttle "+p.Provider, err)
	p.s.step(session.WriteAnswered{Member: p.Member, Right: session.ToThrottle, Err: err, Denied: errors.Is(err, ErrPermission)})
	return t, err
}

// pushBacks writes what the provider asks of the sink, until the membership ends.
func (p *membership) pushBacks() {
	for {
		select {
		case <-p.ctx.Done():
			return
		case ask := <-p.Sink.Pushed():
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
	w, known := p.writerLocked()
	policy := p.Policy()
	p.s.mu.Unlock()
	return p.putOn(w, known, policy, ask)
}

func (p *membership) putOn(w writer, known protocol.Throttle, policy *quota.Policy, ask protocol.Ask) (writes time.Duration, again bool) {
	ask.By = w.ID
	member := func(id string) bool { return slices.Contains(w.ids, id) }
	ctx, done := context.WithTimeout(p.ctx, 2*reportTimeout)
	defer done()
	for again = true; again && writes < 2; {
		now := time.Unix(0, p.s.o.Clock.Wall())
		if w.Key == "" || policy == nil || policy.Backoff != quota.BackoffFleet ||
			!known.Adds(ask, known.Pause(policy, len(w.ids), member, now), now) {
			return writes, false
		}
		writes++
		t, err := p.throttleTo(ctx, &w, known.With(ask, member))
		if err != nil {
			return 2, !errors.Is(err, ErrPermission)
		}
		if again = !t.Succeeded; again {
			kv := etcdcall.KeyIn(t.Responses[0])
			w.revision, known = kv.ModRevision, protocol.Throttle{}
			if read, err := protocol.ReadThrottle(kv.Value); err == nil {
				known = *read
			}
		}
	}
	return writes, again
}

// writer is an instance that may write the throttle.
type writer struct {
	session.Incarnation
	ids      []string // of all
	revision int64    // of the throttle
}

// writerLocked returns this instance as a writer, and the throttle that it knows.
func (p *membership) writerLocked() (w writer, known protocol.Throttle) {
	known, revision := p.Throttle()
	return writer{p.Own(), p.IDs(), revision}, known
}
