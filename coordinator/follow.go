package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quotient-limiter/quotient/internal/view"
)

// errLease ends an incarnation whose lease is gone.
var errLease = errors.New("this instance's lease is gone from etcd; unless it is leaving it registers anew")

// errGone ends the following of a watch: this incarnation is over.
var errGone = errors.New("this instance's key is gone from etcd; unless it is leaving it registers anew")

// errReopen says that this place has ended its watch itself, to open another.
var errReopen = errors.New("the watch is opened anew")

// follow applies what the watch delivers until the incarnation is over or ctx
// ends. It opens the watch anew where it left off when it breaks or was closed
// in a rush, and lists anew after a gap.
func (p *place) follow(ctx context.Context) error {
	if !sleep(ctx, p.holdBack()) {
		return ctx.Err()
	}
	var wait backoff
	for {
		err := p.followOnce(ctx, &wait)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		switch {
		case errors.Is(err, errGone):
			return err
		case errors.Is(err, errRush):
			// Not all at the same instants.
			if !sleep(ctx, jitter(p.holdBack())) {
				return ctx.Err()
			}
			continue
		case errors.Is(err, errReopen):
			continue // not because something failed
		case errors.Is(err, rpctypes.ErrCompacted):
			p.mu.Lock()
			p.relist = true
			p.mu.Unlock()
		}
		p.trouble(err)
		if !wait.sleep(ctx) {
			return ctx.Err()
		}
	}
}

// followOnce follows one watch to its end, after listing anew if need be.
func (p *place) followOnce(ctx context.Context, wait *backoff) error {
	if err := p.listIfNeeded(ctx); err != nil {
		return err
	}
	return p.watch(ctx, wait)
}

// streamContext is the context for the session's watches and for asking their
// progress: it must be the same, or etcd's client opens another stream.
func (s *Session) streamContext(ctx context.Context) context.Context {
	return clientv3.WithRequireLeader(ctx)
}

// watch follows one watch from the tracker's position on.
func (p *place) watch(ctx context.Context, wait *backoff) error {
	c, cancel := context.WithCancel(p.s.streamContext(ctx))
	defer cancel()
	p.mu.Lock()
	p.rewatch, p.behind = cancel, 0
	from := p.tracker.Position() + 1
	p.mu.Unlock()
	defer p.unwatched()
	var latest rush
	responses := p.s.watcher.Watch(c, p.s.keys.provider(p.provider), clientv3.WithPrefix(), clientv3.WithRev(from))
	for r := range responses {
		if err := r.Err(); err != nil && c.Err() == nil {
			return classify(ctx, "watch "+p.provider, err)
		}
		wait.reset()
		if err := p.take(c, &r); err != nil {
			return err
		}
		if latest.changes(len(r.Events), p.s.o.Clock.Mono(), p.holdBack()) {
			return errRush
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.Err() != nil && !p.relist {
		return errReopen
	}
	return nil
}

// unwatched notes that no watch is open: there is none to ask for its progress.
func (p *place) unwatched() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rewatch = nil
}

// take applies one answer of the watch that lasts as long as ctx. A watch that was
// ended says nothing any more: it may be that of a store that has been replaced.
func (p *place) take(ctx context.Context, r *clientv3.WatchResponse) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() != nil {
		return nil
	}
	p.doubtLocked(p.s.o.Clock.Now())
	gap := r.IsProgressNotify() && p.tracker.Progress(r.Header.Revision)
	keys := make([]view.Key, 0, len(r.Events))
	for _, e := range r.Events {
		keys = append(keys, p.parse(e.Kv, e.Type == clientv3.EventTypeDelete))
	}
	changes, unlike := p.tracker.Events(keys)
	if gap || unlike {
		p.gapLocked("after a silence, its watch does not tell the same events")
		return nil
	}
	for _, c := range changes {
		if c.Policy != nil || c.PolicyDeleted {
			p.policy = c.Policy
		}
		p.ownLocked(c.Level)
		if !p.silent {
			p.sink.Apply(p.s.o.Clock.Now(), c)
		}
	}
	p.proveLocked()
	if len(keys) > 0 {
		p.tellLocked(nil)
	}
	if !p.tracker.Has(p.id) {
		return errGone
	}
	return nil
}

// proveLocked passes the newest proof on.
func (p *place) proveLocked() {
	if !p.tracker.Behind() {
		p.behind = 0
	}
	proof, ok := p.tracker.Proof()
	if !ok || proof.Mono <= p.proved {
		return
	}
	p.proved = proof.Mono
	if !p.silent {
		p.sink.Prove(proof)
	}
	p.tellLocked(nil)
}

// listIfNeeded starts the history anew, under the same incarnation, after a gap.
// Its key is written once more, as it is, in the transaction that lists: a later
// doubt asks for what this instance wrote (see view.Tracker.Check). A key that has
// become another, because the end is announced, is left alone.
func (p *place) listIfNeeded(ctx context.Context) error {
	p.mu.Lock()
	relist, key, created, value := p.relist, p.key, p.created, p.value
	p.mu.Unlock()
	if !relist {
		return nil
	}
	b, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("coordinator: list %s: %w", p.provider, err)
	}
	sent := p.s.o.Clock.Now()
	c, done := p.s.bounded(ctx)
	defer done()
	list := clientv3.OpGet(p.s.keys.provider(p.provider), clientv3.WithPrefix())
	r, err := p.s.client.Txn(c).
		If(clientv3.Compare(clientv3.CreateRevision(key), "=", created), clientv3.Compare(clientv3.Value(key), "=", string(b))).
		Then(clientv3.OpPut(key, string(b), clientv3.WithIgnoreLease()), list).Else(list).Commit()
	if err != nil {
		return classify(ctx, "list "+p.provider, err)
	}
	kvs := r.Responses[len(r.Responses)-1].GetResponseRange().Kvs
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listed = 0; r.Succeeded {
		p.listed = r.Header.Revision
	}
	p.s.o.Logger.Warn("history has a gap, starting anew", "provider", p.provider, "revision", r.Header.Revision)
	p.listLocked(sent, r.Header.Revision, r.Header.ClusterId, kvs)
	if !p.tracker.Has(p.id) {
		return errGone
	}
	return nil
}

// gapLocked notes that the history has a gap and ends the watch, so that follow
// lists anew. Until then no proof counts.
func (p *place) gapLocked(why string) {
	if p.relist {
		return
	}
	p.s.o.Logger.Warn("etcd went backwards", "provider", p.provider, "because", why)
	p.relist = true
	p.tracker.Doubt(p.s.o.Clock.Now())
	if p.rewatch != nil {
		p.rewatch()
	}
}

// check finds out whether the store still has what this instance wrote, its key
// and its newest report, and lets the watch tell the events since then again.
// Claims by demand follow from the report: a store that lost it went backwards.
func (p *place) check(ctx context.Context) {
	p.mu.Lock()
	probe, id, key := p.tracker.Sent(p.s.o.Clock.Now()), p.id, p.key
	own := view.Own{Created: p.created, Listed: p.listed, Report: p.published.Newest()}
	p.mu.Unlock()
	c, done := p.s.bounded(ctx)
	defer done()
	t, err := p.s.client.Txn(c).Then(
		clientv3.OpGet(key, clientv3.WithKeysOnly()),
		clientv3.OpGet(p.s.keys.report(p.provider, id), clientv3.WithKeysOnly()),
	).Commit()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.checking = false
	if err != nil || p.relist || p.id != id {
		return
	}
	p.doubtLocked(p.s.o.Clock.Now())
	var stored view.Own
	if kvs := t.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
		stored.Created, stored.Listed = kvs[0].CreateRevision, kvs[0].ModRevision
	}
	if kvs := t.Responses[1].GetResponseRange().Kvs; len(kvs) > 0 {
		stored.Report = kvs[0].ModRevision
	}
	kept, lost := own.Kept(stored)
	reopen, gap := p.tracker.Check(probe, t.Header.Revision, t.Header.ClusterId, kept)
	switch {
	case lost:
		p.gapLocked("this instance's newest report is gone")
	case gap:
		p.gapLocked("after a silence, nothing shows that it is the same store")
	case reopen && p.rewatch != nil:
		p.rewatch()
	}
	p.proveLocked()
}
